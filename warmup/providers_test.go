package warmup

import (
	"fmt"
	"testing"
)

// TestCapsOfTheirOwnHoldAmongManyProviders: a provider with a share of its own is counted by itself, however
// many others were there before.
func TestCapsOfTheirOwnHoldAmongManyProviders(t *testing.T) {
	p := DefaultPlan()
	p.Stages = []Stage{{Caps: Caps{Hourly: 1000, Daily: 8000}}}
	p.Shares = map[string]float64{"last": .1}
	s := NewState(&p, 0)
	for i := range 100 {
		s.Provider(&p, fmt.Sprint("p", i))
	}
	v := &s.Providers[s.Provider(&p, "last")]
	if v.Name != "last" || v.Caps.Hourly != 100 {
		t.Errorf("the last provider counts under %s, with %d an hour", v.Name, v.Caps.Hourly)
	}
	if n := len(s.Providers); n > maxProviders {
		t.Errorf("%d providers are counted", n)
	}
	if v := &s.Providers[s.Find(&p, "p99")]; v.Name != Other {
		t.Errorf("p99 counts under %s", v.Name)
	}
}
