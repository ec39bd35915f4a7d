package admission

import (
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
	Now       func() time.Time
}

// Pressure refuses a share of what is offered as something else than slots runs out: nothing up to
// From, everything but a fiftieth at To and beyond.
type Pressure struct {
	Name     string         // as it is shown: "disk"
	Read     func() float64 // the part of it that is used. It must be quick
	From, To float64
}

func (p *Pressure) share() float64 {
	return min(max((p.Read()-p.From)/(p.To-p.From), 0), most)
}

// Overload is the reason of what the law refuses, and Line of what found no slot in time.
const (
	Overload = "overload"
	Line     = "line"
)

// Refusal is why a submission was not admitted.
type Refusal struct {
	Reason string // Overload, Line, or a pressure's name
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
	}
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
	c.mu.tuner, c.mu.limit = cfg.Tuner, max(cfg.Limit, 1)
	if cfg.Tuner != nil {
		c.mu.limit = cfg.Tuner.Limit()
	}
	c.last.at = cfg.Now()
	c.mu.changed = c.last.at
	c.status.Store(&Status{Limit: c.mu.limit})
	return c
}

// Ticket is an admission. Who holds one may take a slot.
type Ticket struct {
	c        *Controller
	priority Priority
}

// Admit says whether a submission of this priority is admitted. A refusal is final for this
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
	place = &Place{c: c, w: waiter{priority: t.priority, ready: ready}}
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

// Wait takes a slot, waiting for one until ctx ends at most. Who gets one must call Done.
func (t Ticket) Wait(ctx context.Context) *Refusal {
	ready := make(chan bool, 1)
	got, place := t.Ask(func(got bool) { ready <- got })
	if place != nil {
		select {
		case got = <-ready:
		case <-ctx.Done():
			if !place.Leave() { // it was called in the same moment
				got = <-ready
			}
		}
		if !got {
			t.refuse()
		}
	}
	if !got {
		return t.c.inLine
	}
	return nil
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
	load := c.look(now, dt)
	s := &Status{Load: load, Limit: load.Limit}
	s.Share, s.Reason = c.cfg.Law.Share(load), Overload
	for i := range c.cfg.Pressures {
		p := &c.cfg.Pressures[i]
		share := p.share()
		s.Pressures = append(s.Pressures, Reading{p.Name, share})
		if share > s.Share {
			s.Share, s.Reason = share, p.Name
		}
	}
	if c.reason.Load().Reason != s.Reason {
		c.reason.Store(&Refusal{Reason: s.Reason})
	}
	t := c.sample.cut(s.Share)
	s.Level, s.Part = t.level(), t.part()
	c.gate.Store(uint64(t))
	c.status.Store(s)
}

// look returns what the last period saw, and tunes the limit.
func (c *Controller) look(now time.Time, dt time.Duration) Load {
	asked := c.asked.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	load := c.mu.look(now, dt)
	load.Offered = int(asked - c.last.asked)
	c.last.at, c.last.asked = now, asked
	if t := c.mu.tuner; t != nil {
		t.Tune(now, load.Busy)
		c.mu.resize(t.Limit(), now)
	}
	return load
}
