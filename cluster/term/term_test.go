package term

import (
	"testing"
	"time"
)

// The holder's right has ended, by the right time, when the others have waited for it: whichever of the clocks is fast.
func TestTheHolderEndsFirst(t *testing.T) {
	terms := Term{Length: 3 * time.Minute, Drift: 200e-6}
	slowest := float64(terms.Holds()) / (1 - terms.Drift)
	if fastest := float64(terms.Waits()) / (1 + terms.Drift); slowest > fastest+1 {
		t.Errorf("a slow clock holds for %v, a fast one waits for %v", time.Duration(slowest), time.Duration(fastest))
	}
	for _, d := range []time.Duration{time.Second, time.Hour} {
		if most := float64(terms.Less(d)) / (1 - terms.Drift) * (1 + terms.Drift); most > float64(d) {
			t.Errorf("%v by a slow clock is %v by a fast one", d, time.Duration(most))
		}
	}
	if terms.Holds() < terms.Length*99/100 || terms.Waits() > terms.Length*101/100 || terms.Less(time.Hour) < time.Hour*99/100 {
		t.Error("much more than the drift is taken off")
	}
}

func TestOrder(t *testing.T) {
	in := []Order{{}, {0, 0, 1}, {0, 0, 2}, {0, 1, 0}, {0, 2, 1}, {1, 0, 0}, {1, 1, 1}, {2, 0, 5}}
	for i, o := range in {
		for k, p := range in {
			if o.After(p) != (i > k) {
				t.Errorf("%v after %v: %v", o, p, o.After(p))
			}
		}
	}
}
