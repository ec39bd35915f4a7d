package suppression

import (
	"math/rand/v2"
	"testing"
	"time"
)

// watched is a guard at work.
type watched struct {
	guard
	now   time.Time
	rand  *rand.Rand
	flood Flood
}

func newWatched() *watched {
	return &watched{now: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), rand: rand.New(rand.NewPCG(3, 4)), flood: Flood{Factor: 5, Share: .25, Min: 50}}
}

// send mails n recipients within a time, of which a share is unknown. It gives how many it took until a flood
// began, -1: none did.
func (w *watched) send(n int, within time.Duration, share float64) int {
	for i := range n {
		w.now = w.now.Add(within / time.Duration(n))
		if w.rand.Float64() >= share {
			w.saw(w.now, 1, &w.flood)
		} else if w.sawUnknown(w.now, &w.flood) {
			return i + 1
		}
	}
	return -1
}

// Neither a small host that knows nobody, nor any share that stays as it is, or rises slowly, is a flood.
func TestNoFlood(t *testing.T) {
	w := newWatched()
	if n := w.send(49, time.Hour, 1); n >= 0 {
		t.Errorf("a flood of %d", n)
	}
	for _, dead := range []float64{0, .001, .005, .02, .05} {
		w := newWatched()
		if n := w.send(500_000, 50*24*time.Hour, dead); n >= 0 {
			t.Errorf("a share of %v from the start: a flood after %d", dead, n)
		}
	}
	w = newWatched()
	for share := .02; share < .5; share *= 1.1 {
		if n := w.send(50_000, 7*24*time.Hour, share); n >= 0 {
			t.Fatalf("the share rises to %.3f: a flood after %d", share, n)
		}
		if u := w.usual(w.now); u < share*.7 || u > share*1.1 {
			t.Errorf("of %.3f, %.3f is usual", share, u)
		}
	}
}

// A flood is seen early, and ends early, whatever is usual.
func TestFloodIsSeenEarly(t *testing.T) {
	for _, c := range []struct{ usual, flood, most float64 }{
		{.001, 1, 50}, {.001, .3, 300}, {.02, 1, 50}, {.02, .3, 300}, {.02, .15, 2000}, {.1, 1, 50}, {.1, .6, 200}, {.3, 1, 100}, {.6, 1, 200},
	} {
		w := newWatched()
		for share := min(c.usual, .02); share < c.usual; share *= 1.1 {
			w.send(20_000, 7*24*time.Hour, share)
		}
		w.send(50_000, 7*24*time.Hour, c.usual)
		began := w.now
		if n := w.send(100_000, 24*time.Hour, c.flood); n < 0 || n > int(c.most) {
			t.Errorf("%v becomes %v: seen after %d recipients, want %v", c.usual, c.flood, n, c.most)
		}
		if since := w.rise.Began; since.Sub(began).Abs() > 30*time.Minute {
			t.Errorf("%v becomes %v: it seems to have begun %v after it did", c.usual, c.flood, since.Sub(began))
		}
		w.send(5000, 6*time.Hour, c.flood)
		if !w.guard.flood {
			t.Errorf("%v becomes %v: the flood is over while it lasts", c.usual, c.flood)
		}
		usual := w.usual(w.now)
		if w.send(500, time.Hour, c.usual); w.guard.flood {
			t.Errorf("%v was %v: not over after 500 recipients", c.usual, c.flood)
		}
		if after := w.usual(w.now); after > usual*1.1+.01 {
			t.Errorf("%v was %v: %.3f is usual afterwards, %.3f before", c.usual, c.flood, after, usual)
		}
	}
}

// A flood is kept over a restart, and switched off it is none.
func TestGuardIsKept(t *testing.T) {
	w := newWatched()
	w.send(50_000, 7*24*time.Hour, .02)
	w.send(1000, time.Hour, 1)
	var again guard
	if err := again.decode(w.encode()); err != nil {
		t.Fatal(err)
	}
	if again.weigh(w.now, &w.flood); again.usual(w.now) != w.usual(w.now) || !again.flood || again.rise.Unknown != w.rise.Unknown || !again.rise.Began.Equal(w.rise.Began) {
		t.Errorf("%+v became %+v", w.guard, again)
	}
	w.flood.Factor = 0
	if w.saw(w.now, 0, &w.flood); w.guard.flood || w.send(1000, time.Hour, 1) >= 0 {
		t.Error("a guard that is switched off is at work")
	}
	for _, bad := range []string{"", "{", `{"version":2}`} {
		if again.decode([]byte(bad)) == nil {
			t.Errorf("%q is read", bad)
		}
	}
}
