package warmup

import (
	"encoding/json"
	"math"
	"testing"
)

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// The numbers are worked out by hand from the published formula: cap 350, sampled every 50 ms.
func TestW2_PublishedNumbers(t *testing.T) {
	u, s := PIDState{}.Step(350-0, 50)
	// .42*350 + 1e-6*350*50 + 1.2*350/50 + .1 = 147 + .0175 + 8.4 + .1
	if !near(u, 155.5175) || Probability(u) != 1 {
		t.Errorf("sent 0: u = %v (want 155.5175), p = %v (want 1)", u, Probability(u))
	}
	u, s = s.Step(350-225, 50)
	want := .42*125 + 1e-6*(350+125)*50 + 1.2*(-225.)/50 + .1
	if !near(u, want) || math.Abs(Probability(u)-.472) > .0005 {
		t.Errorf("sent 225: u = %v (want %v), p = %v (want .472)", u, want, Probability(u))
	}
	u, s = s.Step(350-400, 50)
	if u >= 0 || Probability(u) != 0 {
		t.Errorf("sent 400: u = %v, p = %v, want a negative u and 0", u, Probability(u))
	}
	if !near(s.Integral, (350+125-50)*50) || s.Error != -50 {
		t.Errorf("state = %+v", s)
	}
}

func TestPIDStateSavedAndRestored(t *testing.T) {
	var whole, parts PIDState
	for sent := 0; sent < 500; sent += 37 {
		var a, b float64
		a, whole = whole.Step(float64(350-sent), 50)
		b, parts = parts.Step(float64(350-sent), 50)
		saved, err := json.Marshal(parts)
		if err != nil {
			t.Fatal(err)
		}
		parts = PIDState{}
		if err := json.Unmarshal(saved, &parts); err != nil {
			t.Fatal(err)
		}
		if a != b {
			t.Fatalf("sent %d: %v with the state kept, %v with the state saved", sent, a, b)
		}
	}
}

func TestPIDStepDoesNotAllocate(t *testing.T) {
	var s PIDState
	if n := testing.AllocsPerRun(100, func() { _, s = s.Step(1, 50) }); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
}
