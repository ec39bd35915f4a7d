package destdb

import (
	"encoding/json"
	"testing"
	"time"
)

// A slow-down doubles after its time and then in fifths of it, up to its end, and is the same after a restart.
func TestSlow(t *testing.T) {
	last := time.Unix(1e9, 0)
	written, err := json.Marshal(Action{What: "slowed", Slow: &Slow{Rate: 2, Connections: 3, Hold: 10 * time.Minute, Last: last}})
	if err != nil {
		t.Fatal(err)
	}
	var a Action
	if err := json.Unmarshal(written, &a); err != nil {
		t.Fatal(err)
	}
	for after, want := range map[time.Duration]int{0: 1, 599 * time.Second: 1, 10 * time.Minute: 2, 12 * time.Minute: 4, 25 * time.Minute: 256, time.Hour: 256} {
		if rate, n := a.Slow.Allows(last.Add(after)); rate != float64(2*want) || n != 3*want {
			t.Errorf("after %v: %v messages a second and %d connections, want %d times the first", after, rate, n, want)
		}
	}
	if end := a.Slow.End().Sub(last); end != 26*time.Minute {
		t.Errorf("it ends after %v", end)
	}
	a.Slow.Doubled = 6
	if end := a.Slow.End().Sub(last); end != 14*time.Minute || a.Slow.Doublings(last.Add(11*time.Minute)) != 7 {
		t.Errorf("from six doublings on it ends after %v", end)
	}
}
