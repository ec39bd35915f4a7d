package share

import (
	"math"
	"testing"
	"time"

	"example.org/mta/cluster/term"
)

func TestAReserveOfALimit(t *testing.T) {
	for _, x := range []struct {
		l       Limit
		divisor int64
		want    int64
	}{
		{ten, 3, 3}, {ten, 10, 1}, {ten, 11, 0}, {lasting, 4, 2}, {rate, 2, whole / 80 * 40}, {slow, 2, 0},
		{rate, 3, whole / 80 * 26}, {rate, 11, 0},
	} {
		if n := x.l.reserve(x.divisor); n != x.want {
			t.Errorf("one in %d of %s: %d, want %d", x.divisor, x.l.Name, n, x.want)
		}
	}
	for _, x := range []struct {
		part float64
		want int64
	}{{1, 10}, {0, 0}, {1e-17, 0}, {2. / 3, 7}, {1. / 3, 4}, {.5, 5}} {
		if n := ten.rest(x.part); n != x.want {
			t.Errorf("%g of ten connections: %d, want %d", x.part, n, x.want)
		}
	}
	// Whatever each node has as the limit, and whoever is set aside, they are never over the largest.
	for a := int64(1); a < 30; a++ {
		for b := int64(1); b < 30; b++ {
			for d := int64(1); d < 8; d++ {
				for others := int64(0); others <= d; others++ {
					mine, theirs := Limit{Connections: a}, Limit{Connections: b}
					n := others*mine.reserve(d) + theirs.rest(1-float64(others)/float64(d))
					if n > max(a, b) || others < d && n == 0 {
						t.Fatalf("%d with one in %d of %d, and the rest of %d: %d", others, d, a, b, n)
					}
				}
			}
		}
	}
}

func TestABookGivesTheRest(t *testing.T) {
	b := book()
	b.Keep(0, 2./3)
	if got := b.ask(t, 0, 1, map[uint16]Item{1: want(ten, 0, 10)}); got[1] != 7 {
		t.Errorf("granted %v", got)
	}
	b = book()
	b.ask(t, 0, 1, map[uint16]Item{1: want(ten, 0, 5), 2: want(ten, 0, 2)})
	b.Keep(time.Second, .5)
	got := b.ask(t, time.Second, 2, map[uint16]Item{1: want(ten, 5, 5), 2: want(ten, 2, 5)})
	if _, answered := got[2]; got[1] != 2 || answered {
		t.Errorf("granted %v of five, when node 1 has five yet", got)
	}
	if got = b.ask(t, time.Second, 3, map[uint16]Item{1: want(ten, 2, 5)}); got[1] != 2 || got[2] != 3 {
		t.Errorf("granted %v", got)
	}
	b.Keep(2*time.Second, 0)
	if got = b.ask(t, 2*time.Second, 4, map[uint16]Item{1: want(ten, 2, 5), 3: want(ten, 0, 5)}); got[1]+got[3] != 0 {
		t.Errorf("granted %v of nothing", got)
	}
}

// content is what a node gets in the bucket when it asks for all of a limit.
func (b *Book) content(t *testing.T, now time.Duration, seq uint64, l Limit) float64 {
	t.Helper()
	if err := b.Hear(now, 1, order(seq), []Item{want(l, 0, whole)}); err != nil {
		t.Fatal(err)
	}
	for _, g := range b.Round(now)[1] {
		return g.Content
	}
	t.Fatal("nothing granted")
	return 0
}

func TestWhatIsNoLongerSetAsideHasAnEmptyBucket(t *testing.T) {
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > .01 {
			t.Errorf("%s: %g events, want %g", what, got, want)
		}
	}
	const at = time.Hour
	b := book()
	b.Keep(0, .5)
	near("set aside", b.content(t, at, 1, rate), 5)
	b = book()
	b.Keep(0, .5)
	b.Keep(at, 1)
	near("at once", b.content(t, at, 1, rate), 0)
	b = book()
	b.Keep(0, .5)
	b.Keep(at, 1)
	near("half a second later", b.content(t, at+time.Second/2, 1, rate), 5)

	b = book() // with an account, of which node 2 wants what there is not
	b.Keep(0, .5)
	b.ask(t, 0, 1, map[uint16]Item{2: want(rate, 0, rate.Least())})
	b.Keep(time.Minute, 1)
	near("with an account", b.content(t, time.Minute, 1, rate), 4)
}

func TestALimitIsForgottenWhileSomeOfItIsSetAside(t *testing.T) {
	b := book()
	b.Keep(0, .5)
	b.ask(t, 0, 1, map[uint16]Item{1: want(rate, 0, whole)})
	b.ask(t, time.Second, 2, map[uint16]Item{1: {Limit: rate}})
	b.Written()
	b.Changes(func(string, uint16, int64, term.Order) {})
	b.Written()
	for now := range time.Duration(10) {
		b.Round(now * time.Second)
	}
	if len(b.limits) != 0 {
		t.Errorf("%d accounts", len(b.limits))
	}
}

// reserving is a holder that may use one in two from a moment on.
func reserving(t *testing.T, l Limit, from time.Duration) *Holder {
	h := NewHolder(terms, order(0))
	h.want(t, l, l.Units())
	h.Reserve(0, 2, from)
	return h
}

func TestAReserveBeginsEmptyAndInTime(t *testing.T) {
	const from = time.Minute
	h := reserving(t, rate, from)
	if n := h.Spend(from-1, rate.Name, 1); n != 0 {
		t.Errorf("%d events before the time", n)
	}
	if n := h.Spend(from, rate.Name, 1); n != 0 {
		t.Errorf("%d events at once", n)
	}
	if wait, depth := h.Next(from, rate.Name); wait < 200*time.Millisecond || wait > 201*time.Millisecond ||
		math.Abs(depth-5) > grain {
		t.Errorf("the first is in %v, and there can be %g", wait, depth)
	}
	if n := h.Spend(from+time.Hour, rate.Name, 100); n != 5 {
		t.Errorf("%d events an hour later", n)
	}
	if !h.Moved() {
		t.Error("nothing has moved")
	}
	h = reserving(t, ten, from)
	if n := h.Open(from-1, ten.Name, 10); n != 0 {
		t.Errorf("%d connections before the time", n)
	}
	if n := h.Open(from, ten.Name, 10); n != 5 || h.Allowed(from, ten.Name) != 5 {
		t.Errorf("%d connections", n)
	}
	h.Reserve(from+time.Second, 2, from+time.Minute) // the engine has answered
	if over, ended := h.Over(from+time.Second, ten.Name); over != 5 || !ended {
		t.Errorf("%d connections must end; ended: %v", over, ended)
	}
	if h.Due(from + time.Second); !h.Moved() {
		t.Error("nothing has moved")
	}
	h = reserving(t, lasting, from)
	if h.Occupy(from, lasting.Name, 6, false) || !h.Occupy(from, lasting.Name, 5, false) {
		t.Error("more than five units are in use, or fewer")
	}
	if _, items := h.Ask(from); items[0].Held != 0 || items[0].Used != 5 {
		t.Errorf("it reports %+v", items)
	}
}

func TestAReserveIsNotUsedBesideAGrant(t *testing.T) {
	h := reserving(t, ten, 0)
	h.Open(0, ten.Name, 5)
	o, items := h.Ask(0)
	if items[0].Held != 0 || items[0].Want != 10 {
		t.Errorf("it asks for %+v", items)
	}
	h.Answer(0, o, []Grant{{ten, 0, 0}})
	if n := h.Allowed(0, ten.Name); n != 5 {
		t.Errorf("%d connections when nothing is granted", n)
	}
	o, _ = h.Ask(time.Second)
	h.Answer(time.Second, o, []Grant{{ten, 3, 0}})
	if n := h.Allowed(time.Second, ten.Name); n != 3 {
		t.Errorf("%d connections of a grant of three", n)
	}
	if _, items = h.Ask(2 * time.Second); items[0].Held != 3 {
		t.Errorf("it reports %+v", items)
	}
	if n := h.Allowed(time.Second+terms.Length, ten.Name); n != 5 {
		t.Errorf("%d connections after the grant", n)
	}
	h = reserving(t, rate, 0)
	h.Spend(0, rate.Name, 1)
	o, _ = h.Ask(time.Minute)
	h.Answer(time.Minute, o, []Grant{{rate, whole / 4, 0}})
	if n := h.Spend(time.Minute, rate.Name, 10); n != 0 {
		t.Errorf("%d events that the reserve had saved up", n)
	}
}

func TestAReserveFollowsItsLimit(t *testing.T) {
	h := reserving(t, ten, 0)
	h.Open(0, ten.Name, 5)
	h.want(t, Limit{Name: ten.Name, Connections: 6}, 6)
	if n := h.Allowed(0, ten.Name); n != 3 {
		t.Errorf("%d of six", n)
	}
	h.want(t, Limit{Name: ten.Name, Connections: 20}, 6)
	if n := h.Allowed(0, ten.Name); n != 10 {
		t.Errorf("%d of twenty", n)
	}
	h.Reserve(time.Second, 4, 0)
	if n := h.Allowed(time.Second, ten.Name); n != 5 {
		t.Errorf("%d of twenty, one in four", n)
	}
}
