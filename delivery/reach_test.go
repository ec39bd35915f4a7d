package delivery

import (
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/lab/sink"
)

// TestMailThatWaitsForASilentHost goes to another one that was reached by another relay, at once.
func TestMailThatWaitsForASilentHost(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		silent, other := w.host("silent.example", sink.Config{}), w.host("other.example", sink.Config{})
		silent.hole = true
		w.s.Hear([]News{{Host: other.Host, Down: "timed out", Wait: time.Hour}})
		w.send(routeTo("a", tier(silent, other)), 1)
		time.Sleep(2 * time.Second)
		if d := w.dialed(); len(d) != 1 {
			t.Errorf("dialed %v; want the silent host alone", d)
		}
		if again := w.s.Hear([]News{{Host: other.Host, Up: true}}); len(again) != 1 || again[0] != other.Addr {
			t.Errorf("up again are %v", again)
		}
		if n := delivered(w.settled()); n != 1 {
			t.Errorf("%d messages are delivered; %s", n, w.picture())
		}
		w.end()
	})
}

// TestOrdersOfOtherRelays hold mail back, and let it go, at once.
func TestOrdersOfOtherRelays(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		h, now := w.host("mx.example", sink.Config{}), time.Now()
		order := func(o Order) {
			o.Reason, o.Begin, o.Until = "theirs", now, now.Add(time.Hour)
			w.s.Order([]Order{o})
		}
		w.send(routeTo("a", tier(h)), 1)
		if n := delivered(w.settled()); n != 1 {
			t.Errorf("%d messages are delivered", n)
		}
		order(Order{Host: h.Host})
		if w.count(); w.live() != 0 {
			t.Error("a connection to a suspended host stays open")
		}
		order(Order{Host: h.Host, End: true})
		order(Order{Site: "a"})
		w.send(routeTo("a", tier(h)), 1)
		if n := w.count(); n != 1 {
			t.Errorf("%d results while the site is suspended", n)
		}
		order(Order{Site: "a", End: true})
		if n := delivered(w.settled()); n != 2 {
			t.Errorf("%d messages are delivered; %s", n, w.picture())
		}
		w.end()
	})
}
