package suppression

// Puts addresses on the suppression list that mail has shown to be bad: those whose hosts
// refuse them, whose owners complain, and who unsubscribe.
//
// The class of a refusal decides (rules.go): one that says that there is no mailbox is enough; of others it takes
// refusals on several days with no delivery in between (counters.go). When a provider calls far more recipients
// unknown than it usually does, it is the provider that is wrong: entries are then set aside (guard.go, providers.go,
// pending.go) until an operator decides, a delivery shows that the mailbox lives, or a refusal after the flood that it
// does not. Complaints count once, for the list and for the warm-up of the source (complaints.go).
//
// The order of use: NewFeeder, Report for each event, Delivered for each delivery, Close. Neither Report nor Delivered
// waits for a disk.
//
// Long-lived goroutine: keeper writes what was counted, and moves entries. NewFeeder starts it,
// Close stops it and waits.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/faultlog"
)

// Values keep values by name over restarts.
type Values interface {
	// Put writes values, or removes those that are nil. It is durable on return.
	Put(map[string][]byte) error
	// Each calls each with all of them. each must not call Put.
	Each(each func(name string, value []byte) error) error
}

// FeederConfig is what a Feeder works with. All but Complained, Now and Log is needed.
type FeederConfig struct {
	List      *List
	Pending   *List                // the entries that are set aside; the Feeder closes it
	Counters  Values               // of refusals
	Providers Values               // what is usual at each
	Settings  func() *FeedSettings // in force; it is not changed
	// Complained hands n complaints about mail of a day (00:00 UTC) to the warm-up of the source that it left from. It
	// is called again after an error. nil: nobody wants them.
	Complained func(ctx context.Context, source, provider string, day time.Time, n int64) error
	Now        func() time.Time // nil: time.Now
	Log        *slog.Logger     // nil: none
}

// kinds are the sources of the entries that a Feeder makes.
var kinds = []Source{Bounce, Report, Complaint, Unsubscribe}

// Feeder feeds the list. Its methods are safe for concurrent use.
type Feeder struct {
	FeederConfig
	counters   *counters
	providers  *providers
	pending    *pending
	complaints *complaints
	made       [4]atomic.Int64 // entries, by their index in kinds
	aside      atomic.Int64    // of those, set aside at once

	kick  chan struct{} // there is something for the keeper to do
	stop  context.CancelFunc
	ended chan struct{}

	mu      sync.Mutex          // guards the rest
	floods  []*provider         // that have begun: what came before must be set aside
	certain map[string]struct{} // addresses that were set aside, and of which more is known
}

// maxCertain bounds Feeder.certain. What is beyond waits for the next delivery.
const maxCertain = 10_000

// NewFeeder reads what the feeder has to remember, and starts its keeper.
func NewFeeder(ctx context.Context, c FeederConfig) (*Feeder, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Complained == nil {
		c.Complained = func(context.Context, string, string, time.Time, int64) error { return nil }
	}
	f := &Feeder{FeederConfig: c, complaints: newComplaints(), kick: make(chan struct{}, 1), ended: make(chan struct{}),
		certain: make(map[string]struct{})}
	var err error
	if f.counters, err = openCounters(c.Counters); err != nil {
		return nil, err
	}
	if f.providers, err = openProviders(c.Providers, c.Now(), &c.Settings().Flood); err != nil {
		return nil, err
	}
	if f.pending, err = openPending(ctx, c.Pending); err != nil {
		return nil, err
	}
	for _, p := range f.providers.all() {
		if p.guard.flood && !p.guard.moved {
			f.floods = append(f.floods, p)
		}
	}
	ctx, f.stop = context.WithCancel(context.Background())
	go f.keep(ctx)
	f.wake()
	return f, nil
}

// Report takes in an event.
func (f *Feeder) Report(e Event) {
	if Exempt(e.Address) {
		return
	}
	if e.At.IsZero() {
		e.At = f.Now()
	}
	switch e.Kind {
	case Bounce, Report:
		f.refused(&e)
	case Complaint:
		if f.complaints.first(&e) {
			f.complaints.count(&e)
			f.list(&e, 0, false)
			f.wake()
		}
	case Unsubscribe:
		f.list(&e, 0, false)
	}
}

// refused takes in a Bounce or a Report.
func (f *Feeder) refused(e *Event) {
	s := f.Settings()
	r, ok := s.Classes[e.Class]
	switch {
	case !ok || !s.Bounces:
	case r.atOnce():
		f.list(e, r.Keep, f.unknown(e, &s.Flood))
	default:
		if f.counters.add(KeyOf(e.Tenant, e.Address), e.Class, e.At, &r) {
			f.list(e, r.Keep, f.flooded(e))
		}
		f.wake()
	}
}

// unknown has the guard of the provider see a recipient that doesn't exist, and reports whether the entry must be
// set aside.
func (f *Feeder) unknown(e *Event, flood *Flood) (aside bool) {
	name := e.provider()
	if name == "" {
		return false
	}
	now, waits := f.Now(), f.pending.has(e.Address)
	p := f.providers.of(name)
	p.mu.Lock()
	p.look(now, flood)
	if waits && p.guard.flood { // counted before
		p.mu.Unlock()
		return true
	}
	begins := p.guard.sawUnknown(now, flood)
	aside, rise, usual := p.guard.flood, p.guard.rise, p.guard.usual(now)
	p.dirty = true
	p.mu.Unlock()
	if begins {
		f.Log.Error("a provider calls far more recipients unknown than usual; their entries are set aside until an "+
			"operator decides: 'mta suppress pending'",
			"provider", name, "unknown", rise.Unknown, "of", rise.Known+rise.Unknown, "since",
			rise.Began, "usual", usual)
		f.mu.Lock()
		f.floods = append(f.floods, p)
		f.mu.Unlock()
		f.wake()
	}
	if waits && !aside { // refused in a flood, and now again: it was true
		f.settle(e.Address)
	}
	return aside
}

// flooded reports whether the provider is in a flood.
func (f *Feeder) flooded(e *Event) bool {
	name := e.provider()
	if name == "" {
		return false
	}
	p := f.providers.of(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.guard.flood
}

// settle has an address no longer set aside: it is known what it is.
func (f *Feeder) settle(a envelope.Address) {
	f.mu.Lock()
	if len(f.certain) < maxCertain {
		f.certain[KeyOf("", a).Address] = struct{}{}
	}
	f.mu.Unlock()
	f.wake()
}

// list puts an address on the list, or sets it aside.
func (f *Feeder) list(e *Event, keep time.Duration, aside bool) {
	entry := Entry{Key: KeyOf(e.Tenant, e.Address), Reason: e.Reason, Source: e.Kind,
		Provider: e.provider(), Added: e.At}
	if entry.Source.ByHost() {
		entry.Class = e.Class.String()
	}
	if keep > 0 {
		entry.Expires = e.At.Add(keep)
	}
	if aside {
		f.aside.Add(1)
		f.pending.add(entry)
		return
	}
	f.made[slices.Index(kinds, e.Kind)].Add(1)
	f.List.Feed(entry)
	f.Log.Info("address is suppressed", "address", entry.Address, "tenant", entry.Tenant, "source", entry.Source,
		"class", entry.Class,
		"provider", entry.Provider, "message", e.Message, "reason", entry.Reason)
}

// Delivered takes in that a host took a message for a recipient; site is that of the address. It costs a counter,
// unless there is something against addresses.
func (f *Feeder) Delivered(tenant string, a envelope.Address, provider, site string) {
	s := f.Settings()
	if name := cmp.Or(provider, site); s.Bounces && name != "" {
		f.providers.of(name).known.Add(1)
	}
	if f.counters.used.Load() > 0 && f.counters.reset(KeyOf(tenant, a), s.Classes) {
		f.wake()
	}
	if f.pending.has(a) {
		f.settle(a)
	}
}

func (f *Feeder) wake() {
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

// Flood returns which providers are doubted and how many addresses are set aside for that, "" when there are none.
func (f *Feeder) Flood() string {
	pending := f.Stats().Pending
	var all []string
	for _, d := range f.Doubted() {
		when := "since " + d.Since.UTC().Format("2006-01-02 15:04 UTC")
		if !d.Until.IsZero() {
			when = fmt.Sprintf("from %s to %s", d.Since.UTC().Format("2006-01-02 15:04"),
				d.Until.UTC().Format("2006-01-02 15:04 UTC"))
		}
		all = append(all, fmt.Sprintf("%s called %d of %d recipients unknown %s, usually %.1f %%", d.Provider,
			d.Unknown, d.Known+d.Unknown, when, 100*d.Usual))
	}
	if pending > 0 {
		all = append(all,
			fmt.Sprintf("addresses set aside until you accept or drop them: %d ('mta suppress pending')", pending))
	}
	return faultlog.Few(all)
}

const (
	// delay is how long the keeper waits for more to do at once.
	delay = 100 * time.Millisecond
	// retry is how long it rests after an error.
	retry = time.Second
	// lookEvery is how often guards look whether a flood is over.
	lookEvery = time.Minute
	// learnEvery is how often what is usual is written.
	learnEvery = 10 * time.Minute
	// writeBatch is how many values are written at once.
	writeBatch = 10_000
)

// keep does what Report and Delivered leave to it, until ctx ends.
func (f *Feeder) keep(ctx context.Context) {
	defer close(f.ended)
	work, look := time.NewTimer(time.Hour), time.NewTicker(lookEvery)
	learn, sweep := time.NewTicker(learnEvery), time.NewTicker(sweepEvery)
	work.Stop()
	for _, t := range []interface{ Stop() }{look, learn, sweep} {
		defer t.Stop()
	}
	defer work.Stop()
	waiting := false
	soon := func(after time.Duration) {
		if !waiting {
			waiting = true
			work.Reset(after)
		}
	}
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-f.kick:
			soon(delay)
		case <-work.C:
			waiting = false
			err = f.work(ctx)
		case <-look.C:
			f.providers.look(f.Now(), &f.Settings().Flood)
			soon(delay)
		case <-learn.C:
			err = f.providers.flush()
		case <-sweep.C:
			err = f.counters.sweep(f.Now())
			soon(delay)
		}
		if err != nil && ctx.Err() == nil {
			f.Log.Error("what feeds the suppression list could not be written; it is tried again", "error", err)
			soon(retry)
		}
	}
}

// work does all that waits.
func (f *Feeder) work(ctx context.Context) error {
	return errors.Join(f.setAside(ctx), f.clear(ctx), f.counters.flush(),
		f.complaints.flush(ctx, f.Now(), f.Complained))
}

// setAside sets the entries aside that were made at the beginning of a flood, before it was one.
func (f *Feeder) setAside(ctx context.Context) error {
	f.mu.Lock()
	floods := f.floods
	f.floods = nil
	f.mu.Unlock()
	var errs []error
	for _, p := range floods {
		p.mu.Lock()
		since := p.guard.rise.Began.Add(-young)
		p.mu.Unlock()
		n, err := f.pending.move(ctx, f.List, Query{Provider: p.name, ByHost: true, Since: since})
		if n > 0 {
			f.Log.Warn("entries from the beginning of the flood are set aside", "provider", p.name, "since",
				since, "entries", n)
		}
		p.mu.Lock()
		p.guard.moved, p.dirty = err == nil, true
		p.mu.Unlock()
		if err != nil {
			errs = append(errs, err)
			f.mu.Lock()
			f.floods = append(f.floods, p)
			f.mu.Unlock()
		}
	}
	if len(floods) > 0 {
		errs = append(errs, f.providers.flush())
	}
	return errors.Join(errs...)
}

// clear takes the addresses of which more is known from those set aside.
func (f *Feeder) clear(ctx context.Context) error {
	f.mu.Lock()
	known := f.certain
	f.certain = make(map[string]struct{})
	f.mu.Unlock()
	for some := range slices.Chunk(slices.Sorted(maps.Keys(known)), 1000) {
		n, err := f.pending.clear(ctx, some)
		if err != nil {
			f.mu.Lock()
			maps.Copy(f.certain, known)
			f.mu.Unlock()
			return err
		}
		f.Log.Info("entries are no longer set aside: mail has shown whether their addresses exist", "entries", n)
	}
	return nil
}

// Close writes what is left, and closes FeederConfig.Pending.
func (f *Feeder) Close() error {
	f.stop()
	<-f.ended
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := f.work(ctx)
	f.providers.look(f.Now(), &f.Settings().Flood)
	return errors.Join(err, f.providers.flush(), f.Pending.Close())
}
