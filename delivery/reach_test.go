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
