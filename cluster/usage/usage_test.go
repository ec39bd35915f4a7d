package usage

import (
	"math/rand/v2"
	"testing"
	"time"

	"example.org/mta/cluster/share"
	"example.org/mta/cluster/term"
	"example.org/mta/internal/bubble"
)

var (
	events = share.Limit{Name: "events", Rate: 10, Burst: 10}
	units  = share.Limit{Name: "units", Connections: 100, Lasting: true}
	terms  = term.Term{Length: 3 * time.Minute, Drift: 200e-6}
)

// world is three relays and the owner of their limits, by a clock that is given.
type world struct {
	t     *testing.T
	now   time.Duration
	book  *share.Book // nil: the owner is gone
	nodes []*relay
	rand  *rand.Rand
	room  float64 // events that may happen now
}

// relay is one that uses limits. It implements Node.
type relay struct {
	*world
	id      uint16
	process uint64
	holder  *share.Holder
	uses    *Uses
	up      bool
	asked   term.Order
	used    int64   // units, as they are in its queue
	goes    float64 // of them a second
	comes   float64 // of what it could use a second
}

func (r *relay) clock() time.Duration { return r.now }

func (r *relay) Want(l share.Limit, units int64) {
	if err := r.holder.Want(l, units, r.clock); err != nil {
		r.t.Error(err)
	}
}
func (r *relay) Allowed(name string) int64                 { return r.holder.Allowed(r.now, name) }
func (r *relay) Left(name string) (int64, float64)         { return r.holder.Left(r.now, name) }
func (r *relay) Next(name string) (time.Duration, float64) { return r.holder.Next(r.now, name) }
func (r *relay) Spend(name string, n int64) int64          { return r.holder.Spend(r.now, name, n) }
func (r *relay) Return(name string, n int64)               { r.holder.Return(r.now, name, n) }
func (r *relay) Occupy(name string, n int64, forced bool) bool {
	return r.holder.Occupy(r.now, name, n, forced)
}

// start begins a process, which finds its queue.
func (r *relay) start() {
	r.up = false // it counts its queue before it takes part
	r.process++
	r.holder = share.NewHolder(terms, term.Order{Incarnation: 1, Process: r.process})
	r.uses = New(func() Node {
		if r.up {
			return r
		}
		return nil
	}, func() time.Time { return time.Unix(0, int64(r.now)) })
	if r.used > 0 {
		r.uses.Occupy(units, r.used, true)
	}
	r.up = true
	r.uses.Changed()
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, now: time.Hour, rand: rand.New(rand.NewPCG(seed, 1))}
	w.book = share.NewBook(w.now, terms, time.Minute)
	for i := range 3 {
		r := &relay{world: w, id: uint16(i + 1)}
		w.nodes = append(w.nodes, r)
		r.start()
	}
	return w
}

// step lets a fifth of a second pass; each fifth is a round of the owner.
func (w *world) step() {
	w.now += time.Second / 5
	round := w.now%time.Second == 0
	for _, r := range w.nodes {
		if !r.up {
			continue
		}
		if round {
			r.uses.Tick()
		}
		if r.holder.Due(w.now) {
			if o, items := r.holder.Ask(w.now); w.book != nil && w.rand.IntN(20) > 0 {
				if err := w.book.Hear(w.now, r.id, o, items); err != nil {
					w.t.Error(err)
				}
				r.asked = o
			}
		}
	}
	if !round || w.book == nil {
		return
	}
	w.book.Census([]uint16{1, 2, 3}, nil)
	for id, grants := range w.book.Round(w.now) {
		if r := w.nodes[id-1]; r.up && w.rand.IntN(20) > 0 {
			r.holder.Answer(w.now, r.asked, grants)
			r.uses.Changed()
		}
	}
	w.book.Written()
	for _, id := range w.book.Nudges(w.now) {
		w.nodes[id-1].holder.Nudge()
	}
}

// inUse is how many units all relays have in their queues.
func (w *world) inUse() (n int64) {
	for _, r := range w.nodes {
		n += r.used
	}
	return n
}

// mail comes and goes at the relays for a while, and returns how much of the rate and of the units was used.
func (w *world) mail(d time.Duration, each func()) (rate, number float64) {
	spent, used := 0., 0.
	steps := 0
	for end := w.now + d; w.now < end; steps++ {
		each()
		w.step()
		w.room = min(w.room+events.Rate/5, float64(events.Burst))
		for _, r := range w.nodes {
			if !r.up {
				continue
			}
			for r.used > 0 && w.rand.Float64() < r.goes/5 {
				r.used--
			}
			r.uses.Occupy(units, r.used, true)
			for range 8 {
				if w.rand.Float64() < r.comes/40 {
					if r.uses.Spend(events, 1).OK {
						w.room--
						spent++
					}
					if r.uses.Occupy(units, r.used+1, false).OK {
						r.used++
					}
				}
			}
		}
		if w.room < -1e-3 {
			w.t.Fatalf("%v: %g events over the rate", w.now, -w.room)
		}
		if n := w.inUse(); n > units.Connections {
			w.t.Fatalf("%v: %d units of %d", w.now, n, units.Connections)
		}
		used += float64(w.inUse())
	}
	return spent / d.Seconds() / events.Rate, used / float64(steps) / float64(units.Connections)
}

// TestNothingIsOver while mail comes and goes at three relays, which crash and find their queues, and the owner of the
// limits changes: by a hand-over, or after a term without one.
func TestNothingIsOver(t *testing.T) {
	for seed := range uint64(6) {
		w := newWorld(t, seed)
		each := func() {
			r := w.nodes[w.rand.IntN(3)]
			switch w.rand.IntN(1500) {
			case 0:
				r.goes, r.comes = 5*w.rand.Float64(), 40*w.rand.Float64()
			case 1:
				r.goes, r.comes = 0, 0
			case 2:
				if r.up = false; w.rand.IntN(2) == 0 {
					r.start()
				}
			case 3:
				if w.book == nil {
					break
				}
				old := w.book
				w.book = share.NewBook(w.now, terms, time.Minute)
				old.Changes(func(limit string, node uint16, units int64, o term.Order) {
					w.book.Load(w.now, limit, node, units, o, false)
				})
			}
			for _, r := range w.nodes {
				if !r.up && w.rand.IntN(100) == 0 {
					r.start()
				}
			}
		}
		w.mail(30*time.Minute, each)
		w.book = nil
		w.mail(terms.Waits(), func() {})
		for _, r := range w.nodes {
			if !r.up {
				r.start()
			}
		}
		w.book = share.NewBook(w.now, terms, time.Minute)
		w.mail(time.Minute, func() {})
		w.mail(30*time.Minute, each)
	}
}

// TestAllIsUsed by those that need it.
func TestAllIsUsed(t *testing.T) {
	w := newWorld(t, 1)
	w.nodes[0].comes, w.nodes[0].goes = 30, 4
	w.mail(time.Minute, func() {})
	if rate, number := w.mail(time.Minute, func() {}); rate < .97 || number < .95 {
		t.Errorf("one relay has %.0f %% of the rate and %.0f %% of the units", 100*rate, 100*number)
	}
	for _, r := range w.nodes {
		r.comes, r.goes = 30, 4
	}
	w.mail(time.Minute, func() {})
	if rate, number := w.mail(time.Minute, func() {}); rate < .95 || number < .8 {
		t.Errorf("three relays have %.0f %% of the rate and %.0f %% of the units", 100*rate, 100*number)
	}
	if min := min(w.nodes[0].used, w.nodes[1].used, w.nodes[2].used); min < 25 {
		t.Errorf("one of three relays has %d units", min)
	}
	w.nodes[1].comes, w.nodes[2].comes = 0, 0
	w.mail(2*time.Minute, func() {})
	if n := w.nodes[0].used; n < 80 {
		t.Errorf("the last relay with mail has %d units", n)
	}
}

// TestWhatIsThereCounts: a queue that is over its relay's part is reported, and nothing more is taken until it has shrunk.
func TestWhatIsThereCounts(t *testing.T) {
	w := newWorld(t, 1)
	idle := func(d time.Duration) {
		for end := w.now + d; w.now < end; {
			w.step()
			w.nodes[1].uses.Occupy(units, w.nodes[1].used, true)
		}
	}
	a, b := w.nodes[0], w.nodes[1]
	b.used = 130 // moved to it
	b.uses.Occupy(units, b.used, true)
	idle(20 * time.Second)
	for _, r := range w.nodes {
		for range 20 {
			if r.uses.Occupy(units, r.used+1, false).OK {
				t.Fatalf("relay %d takes more while 130 units of 100 are in use", r.id)
			}
			idle(time.Second)
		}
	}
	b.used = 90
	b.uses.Occupy(units, b.used, true)
	for range 100 {
		if a.uses.Occupy(units, a.used+1, false).OK {
			a.used++
		}
		idle(time.Second / 5)
	}
	if a.used != 10 {
		t.Errorf("%d units beside 90", a.used)
	}
}

// TestTheRestOfAMessage needs no second wait: what has come so far waited for a part.
func TestTheRestOfAMessage(t *testing.T) {
	w := newWorld(t, 1)
	a := w.nodes[0]
	all := share.Limit{Name: "octets", Connections: 100_000, Lasting: true}
	for !a.uses.Occupy(all, 1, false).OK {
		w.step()
	}
	for range 15 { // 3 s
		w.step()
	}
	if r := a.uses.Occupy(all, 1000, false); !r.OK {
		t.Errorf("%+v", r)
	}
}

// TestWhoTriesAgainWantsAllYet: a first message that waits does not ask for less as it tries again.
func TestWhoTriesAgainWantsAllYet(t *testing.T) {
	w := newWorld(t, 1)
	a := w.nodes[0]
	a.uses.Occupy(units, 1, false)
	a.uses.Tick()
	a.uses.Occupy(units, 1, false)
	if _, items := a.holder.Ask(w.now); len(items) != 1 || items[0].Want != units.Connections {
		t.Errorf("%+v is asked for", items)
	}
}

// TestAQuotaThatIsGone: a minute after it was noted last, what was in use counts no more.
func TestAQuotaThatIsGone(t *testing.T) {
	w := newWorld(t, 1)
	w.nodes[0].uses.Occupy(units, 70, true)
	b := w.nodes[1]
	for end := w.now + 2*time.Minute; w.now < end && b.used < 100; w.step() {
		if b.uses.Occupy(units, b.used+1, false).OK {
			b.used++
		}
	}
	if b.used != 100 {
		t.Errorf("another relay has %d of 100 units", b.used)
	}
}

// TestWhoWaitsTriesAgain when something has changed, when a rate has what is lacking, and twice a second, as long as it
// pays.
func TestWhoWaitsTriesAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		u := New(func() Node { return nil }, time.Now)
		began := time.Now()
		r := u.Spend(events, 1)
		var until time.Time
		waits := func(again bool, after time.Duration) {
			t.Helper()
			if u.Await(r, &until) != again || time.Since(began) != after {
				t.Errorf("%v later, want %v", time.Since(began), after)
			}
		}
		time.AfterFunc(100*time.Millisecond, u.Changed)
		waits(true, 100*time.Millisecond)
		waits(true, 600*time.Millisecond)
		r.Wait = 50 * time.Millisecond
		waits(true, 650*time.Millisecond)
		r.Wait = time.Minute
		waits(true, 1150*time.Millisecond)
		waits(true, 1650*time.Millisecond)
		waits(true, 2150*time.Millisecond)
		waits(true, 2650*time.Millisecond)
		waits(true, 3*time.Second)
		waits(false, 3*time.Second)
		if r, until = u.Spend(events, 1), (time.Time{}); r.Patience != 0 {
			t.Errorf("the next one: %+v", r)
		}
		waits(false, 3*time.Second)
	})
}

// TestItPaysToWaitOnce: who meets a limit first may wait for a larger part; when there is none, nobody waits any more.
func TestItPaysToWaitOnce(t *testing.T) {
	w := newWorld(t, 1)
	a := w.nodes[0]
	if r := a.uses.Meet(events); !r.None || r.Patience != patience {
		t.Errorf("at first %+v", r)
	}
	for range 15 {
		w.step()
		a.uses.Meet(events)
	}
	if r := a.uses.Meet(events); r.None || r.Patience != 0 {
		t.Errorf("3 s later %+v", r)
	}
	for range 10 {
		a.uses.Spend(events, 1)
		w.step()
	}
	if r := a.uses.Meet(events); r.Patience != patience {
		t.Errorf("after less was enough %+v", r)
	}
	a.up = false
	if !a.uses.Meet(events).None || a.uses.Spend(events, 1).OK {
		t.Error("a relay that takes no part has one of a rate")
	}
}

// TestMoreThanAPartIsOwed: what is more than can be saved up is taken when all is, and what comes next waits for it.
func TestMoreThanAPartIsOwed(t *testing.T) {
	w := newWorld(t, 1)
	a, b := w.nodes[0], w.nodes[1]
	charge := func(r *relay, n int64, within time.Duration) (after time.Duration) {
		t.Helper()
		for began := w.now; ; w.step() {
			if r.uses.Charge(events, n).OK {
				return w.now - began
			}
			if w.now-began > within {
				t.Fatalf("%d events are not taken in %v", n, within)
			}
		}
	}
	charge(a, 1, 10*time.Second)
	charge(a, 50, 10*time.Second)
	if d := charge(a, 1, 10*time.Second); d < 4*time.Second {
		t.Errorf("an event %v after 50 at 10 a second", d)
	}
	a.uses.Owe(events, 30)
	a.uses.Return(events, 30)
	if d := charge(a, 1, 10*time.Second); d > 2*time.Second {
		t.Errorf("an event %v after 30 that were given back", d)
	}
	for end := w.now + 20*time.Second; w.now < end; w.step() { // each has a part that is less than eight
		a.uses.Charge(events, 1)
		b.uses.Charge(events, 1)
	}
	charge(a, 8, 10*time.Second)
}

// TestADebtAtAnEarlierRate: a relay where nobody uses a limit any more does not keep all others at what it was before a
// reload.
func TestADebtAtAnEarlierRate(t *testing.T) {
	w := newWorld(t, 1)
	slow, fast := share.Limit{Name: "typed", Rate: 1. / 3600, Burst: 1}, share.Limit{Name: "typed", Rate: 100, Burst: 100}
	for !w.nodes[0].uses.Charge(slow, 500).OK {
		w.step()
	}
	spend := func(d time.Duration) (n int64) {
		for end := w.now + d; w.now < end; w.step() {
			for _, r := range w.nodes[1:] {
				for r.uses.Spend(fast, 1).OK {
					n++
				}
			}
		}
		return n
	}
	if n := spend(time.Minute); n > 1 {
		t.Errorf("%d events, where a node has a limit of one an hour", n)
	}
	w.nodes[0].uses.Redefined()
	spend(40 * time.Second)
	if n := spend(time.Minute); n < 5800 {
		t.Errorf("%d events in a minute at 100 a second", n)
	}
	w.nodes[0].uses.Redefined()
	w.nodes[0].uses.Owe(fast, 10_000)
	for range 200 { // somebody waits for it
		w.nodes[0].uses.Meet(fast)
		w.step()
	}
	if w.nodes[0].uses.Charge(fast, 1).OK {
		t.Error("what is owed is forgotten while somebody waits")
	}
}

// TestAReloadForgivesNothing: what a large request owes is owed after a reload, too, and after a quiet time as much as
// the rate has not brought meanwhile.
func TestAReloadForgivesNothing(t *testing.T) {
	w := newWorld(t, 1)
	a := w.nodes[0]
	took, waits := int64(0), false
	for began := w.now; w.now < began+10*time.Minute; w.step() {
		if w.now%(30*time.Second) == 0 {
			a.uses.Redefined()
		}
		if at := w.now % (25 * time.Second); at == 0 || at == patience+time.Second {
			waits = at == 0 // for as long as a request does
		}
		if waits && a.uses.Charge(events, 800).OK {
			took, waits = took+800, false
		}
	}
	if most := int64(600*events.Rate) + 800 + events.Burst; took > most || took < 4000 {
		t.Errorf("%d events in ten minutes at %v a second", took, events.Rate)
	}
}

// TestHowLongALargeRequestWaits: until there is so much, not until there is one event.
func TestHowLongALargeRequestWaits(t *testing.T) {
	w := newWorld(t, 1)
	a := w.nodes[0]
	began := w.now
	for !a.uses.Charge(events, 50).OK {
		w.step()
	}
	if d := w.now - began; d >= patience {
		t.Errorf("50 events by a relay that has all of the rate are taken after %v", d)
	}
	for left, _ := a.uses.Left(events); left < events.Burst; left, _ = a.uses.Left(events) {
		a.uses.Meet(events)
		w.step()
	}
	wait := func(n int64, least, most time.Duration) {
		t.Helper()
		if r := a.uses.Charge(events, n); r.OK || r.Wait < least || r.Wait > most {
			t.Errorf("%d events: %+v, want a wait of %v to %v", n, r, least, most)
		}
	}
	if !a.uses.Spend(events, 8).OK {
		t.Fatal("8 of 10 events are not there")
	}
	wait(3, time.Second/20, time.Second/5) // at 10 a second
	wait(6, time.Second/3, time.Second/2)
	wait(1000, 3*time.Second/4, time.Second) // it waits for what can be saved up
	a.uses.Owe(events, 20)
	wait(1, 3*time.Second/2, 2*time.Second)
}
