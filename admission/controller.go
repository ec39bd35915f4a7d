package admission

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Config is what a Controller is made from.
type Config struct {
	Law       Law // Utilisation when nil
	Pressures []Pressure
	Tuner     *Tuner  // nil: the limit stays as it is
	Limit     float64 // slots without a tuner, at least 1
	Line      int     // how many may wait for a slot at most; 0: three times as many as there are slots
	// Patience is how long somebody in line should wait at most: with it, the line is as long as what
	// gets slots in that time, up to Line.
	Patience time.Duration
	Now      func() time.Time
	// Within returns the threshold that admits a part of what is offered in a tier: the first level that is not
	// admitted whole, and the part of it that is. Nil: that of the last priorities.
	Within func(tier int, part float64) (level int, of float64)
	// Starved reports whether CPU is what lacks. It must be quick. Nil: it never does.
	Starved func() bool
}

// Pressure refuses a share of what is offered as something else than slots runs out: nothing up to
// From, everything but a fiftieth at To and beyond.
type Pressure struct {
	Name     string         // as it is shown: "disk"
	Read     func() float64 // the part of it that is used. It must be quick
	From, To float64
}

func (p *Pressure) read() Reading {
	v := p.Read()
	return Reading{p.Name, v, p.From, p.To, min(max((v-p.From)/(p.To-p.From), 0), most)}
}

// Overload is the reason of what the controller refuses, CPU while that is what lacks, and Line of what found no slot
// in time.
const (
	Overload = "overload"
	CPU      = "cpu"
	Line     = "line"
)

// Refusal is why a submission was not admitted.
type Refusal struct {
	Reason string // Overload, CPU, Line, or a pressure's name
}

// Error implements error.
func (r *Refusal) Error() string { return "refused: " + r.Reason }

// Controller admits submissions. Admit, Wait and Done may be called by many goroutines at once;
// Calibrate by one.
type Controller struct {
	cfg    Config
	gate   atomic.Uint64 // a threshold
	ties   atomic.Uint32
	asked  atomic.Uint64
	void   atomic.Uint64 // admitted ones that came to nothing before they asked for a slot
	sample sample
	reason atomic.Pointer[Refusal] // why the gate is where it is
	tiers  [Tiers]struct{ asked, refused atomic.Uint64 }

	mu struct {
		sync.Mutex
		slots
		tuner *Tuner
	}
	inLine *Refusal

	last struct { // of the last calibration
		at    time.Time
		asked uint64
		void  uint64
	}
	pace   float64 // submissions a second that got slots, smoothed
	yield  float64 // the part of what is admitted that asks for a slot, smoothed; 0 while unknown
	status atomic.Pointer[Status]
}

// New returns a controller that admits everything until it is calibrated.
func New(cfg Config) *Controller {
	if cfg.Law == nil {
		cfg.Law = new(Utilisation)
	}
	c := &Controller{cfg: cfg, inLine: &Refusal{Reason: Line}}
	c.gate.Store(uint64(open))
	c.reason.Store(&Refusal{Reason: Overload})
	c.mu.tuner, c.mu.limit, c.mu.longest = cfg.Tuner, max(cfg.Limit, 1), cfg.Line
	if cfg.Tuner != nil {
		c.mu.limit = cfg.Tuner.Limit()
	}
	c.last.at = cfg.Now()
	c.mu.changed = c.last.at
	c.status.Store(&Status{Limit: c.mu.limit, Level: Levels, Admitted: c.sample.passes(open)})
	return c
}

// Ticket is an admission. Who holds one may take a slot.
type Ticket struct {
	c        *Controller
	priority Priority
	tenant   string
	ahead    bool
}

// Admit reports whether a submission of this priority is admitted. A refusal is final for this
// attempt; the client may come back.
func (c *Controller) Admit(p Priority) (Ticket, *Refusal) {
	p = min(p, Levels-1)
	n := c.asked.Add(1)
	c.sample.add(n, p)
	tier := &c.tiers[p.Tier()]
	tier.asked.Add(1)
	if !threshold(c.gate.Load()).admits(p, &c.ties) {
		tier.refused.Add(1)
		return Ticket{}, c.reason.Load()
	}
	return Ticket{c: c, priority: p}, nil
}

// Priority returns what the submission was admitted with.
func (t Ticket) Priority() Priority { return t.priority }

// Lowered returns the ticket with a priority that has turned out to be less important.
func (t Ticket) Lowered(p Priority) Ticket {
	t.priority = min(max(t.priority, p), Levels-1)
	return t
}

// Of returns the ticket of a tenant's submission. In the line for slots the tenants of a level take turns.
func (t Ticket) Of(tenant string) Ticket {
	t.tenant = tenant
	return t
}

// Ahead returns the ticket of a submission that no others should delay. It waits for a slot only when a quarter more
// than there are have been taken.
func (t Ticket) Ahead() Ticket {
	t.ahead = true
	return t
}

// Drop gives up the admission of a submission that came to nothing before it asked for a slot: the
// controller must not take it for load that the slots will see.
func (t Ticket) Drop() { t.c.void.Add(1) }

// Place is a place in the line for a slot.
type Place struct {
	c *Controller
	w waiter
}

// Ask takes a slot, or else a place in line; without either the line is full. ready is called once,
// when the place becomes a slot or is lost to somebody more important. It must not call back.
func (t Ticket) Ask(ready func(got bool)) (got bool, place *Place) {
	c := t.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.free() {
		c.mu.enter(nil, c.cfg.Now())
		return true, nil
	}
	place = &Place{c: c, w: waiter{priority: t.priority, tenant: t.tenant, ready: ready}}
	if !c.mu.enter(&place.w, c.cfg.Now()) {
		t.refuse()
		return false, nil
	}
	return false, place
}

// Leave gives up a place, and reports whether there still was one. Otherwise ready has been called.
func (p *Place) Leave() bool {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.c.mu.abandon(&p.w)
}

// refuse counts one that was admitted and found no slot.
func (t Ticket) refuse() { t.c.tiers[t.priority.Tier()].refused.Add(1) }

// Full returns the refusal of a submission that the line has no place for; nil when it has one. Who
// asks before the content is sent does not have to refuse it later.
func (t Ticket) Full() *Refusal {
	c := t.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.free() || !c.mu.full(t.priority, t.tenant) {
		return nil
	}
	t.refuse()
	return c.inLine
}

// Wait takes a slot, waiting for one until ctx ends at most, in however long a line: the submission is
// complete, and to refuse it now would waste it. Who gets a slot must call Done.
func (t Ticket) Wait(ctx context.Context) *Refusal {
	c := t.c
	ready := make(chan bool, 1)
	place := &Place{c: c, w: waiter{priority: t.priority, tenant: t.tenant, ready: func(got bool) { ready <- got }}}
	c.mu.Lock()
	if t.enter() {
		c.mu.Unlock()
		return nil
	}
	c.mu.join(&place.w, c.cfg.Now())
	c.mu.Unlock()
	select {
	case <-ready:
	case <-ctx.Done():
		if place.Leave() {
			t.refuse()
			return c.inLine
		}
		<-ready // the slot came in the same moment
	}
	return nil
}

// Enter takes a slot if one is free, without an allocation. Who gets one must call Done.
func (t Ticket) Enter() bool {
	c := t.c
	c.mu.Lock()
	defer c.mu.Unlock()
	return t.enter()
}

// enter takes a slot if there is one for the ticket. mu is held.
func (t Ticket) enter() bool {
	m := &t.c.mu
	if !m.free() && !(t.ahead && m.spare()) {
		return false
	}
	m.in++
	m.take(t.c.cfg.Now())
	return true
}

// Done gives back the slot. latency is how long the work took that the limit is tuned by; 0 means
// that it came to nothing and is not counted.
func (t Ticket) Done(latency time.Duration) {
	c := t.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.tuner != nil && latency > 0 {
		c.mu.tuner.Observe(latency)
	}
	c.mu.leave(c.cfg.Now())
}

// Calibrate computes the threshold anew. The caller calls it every Period.
func (c *Controller) Calibrate() {
	now := c.cfg.Now()
	dt := now.Sub(c.last.at)
	if dt <= 0 { // the clock was set back: begin anew
		c.last.at = now
		return
	}
	load, why := c.look(now, dt)
	load.Starved = c.cfg.Starved != nil && c.cfg.Starved()
	s := &Status{Load: load, Limit: load.Limit, Why: why}
	s.Share, s.Reason = c.cfg.Law.Share(load), Overload
	if load.Starved {
		s.Reason = CPU
	}
	for i := range c.cfg.Pressures {
		p := &c.cfg.Pressures[i]
		r := p.read()
		s.Pressures = append(s.Pressures, r)
		if share := r.Share; share > s.Share {
			s.Share, s.Reason = share, p.Name
		}
	}
	if c.reason.Load().Reason != s.Reason {
		c.reason.Store(&Refusal{Reason: s.Reason})
	}
	t := c.sample.cut(s.Share)
	s.Admitted = c.sample.passes(t)
	if tier := t.level() / Cohorts; tier < Tiers && c.cfg.Within != nil {
		t = newThreshold(c.cfg.Within(tier, s.Admitted[tier]))
	}
	s.Level, s.Part = t.level(), t.part()
	c.gate.Store(uint64(t))
	c.status.Store(s)
}

// look returns what the last period saw, and tunes the limit.
func (c *Controller) look(now time.Time, dt time.Duration) (load Load, why string) {
	asked := c.asked.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	load = c.mu.look(now, dt)
	void := c.void.Load()
	load.Offered = int(float64(asked-c.last.asked)*c.yields(load.In, int(void-c.last.void)) + .5)
	c.last.at, c.last.asked, c.last.void = now, asked, void
	c.bound(load.Out, dt)
	if t := c.mu.tuner; t != nil {
		t.Tune(now, load.Busy)
		c.mu.resize(t.Limit(), now)
		why = t.Why()
	}
	return load, why
}

// bound adapts the length of the line to how many got slots in the last period.
func (c *Controller) bound(out int, dt time.Duration) {
	if c.cfg.Patience == 0 {
		return
	}
	c.pace += smoothing * (float64(out)/dt.Seconds() - c.pace)
	length := max(int(c.pace*c.cfg.Patience.Seconds()), 3*c.mu.whole())
	c.mu.longest = min(length, c.cfg.Line)
}

// yields returns the part of what is admitted that comes to ask for a slot: clients go away, and
// their recipients are refused.
func (c *Controller) yields(in, void int) float64 {
	const following = 1. / enough // of one submission
	if n := in + void; n > 0 {
		seen := float64(in) / float64(n)
		c.yield = cmp.Or(c.yield, 1)
		c.yield += min(following*float64(n), 1) * (seen - c.yield)
	}
	if c.yield == 0 {
		return 1
	}
	return c.yield
}
