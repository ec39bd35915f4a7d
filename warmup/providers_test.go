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

// TestCapsOfAChangedPlanHoldAmongManyProviders: where a reload brings caps for a provider that there is no room
// for, those with the least mail make room from the next hour on, and their mail goes on to count.
func TestCapsOfAChangedPlanHoldAmongManyProviders(t *testing.T) {
	p := DefaultPlan()
	p.Stages = []Stage{{Caps: Caps{Hourly: 1000, Daily: 8000}}}
	s := NewState(&p, 0)
	for i := range 100 {
		s.Count(&s.Providers[s.Provider(&p, fmt.Sprint("p", i))], int64(1+i))
	}
	q := p
	q.Shares = map[string]float64{"late": .1, "later": .2}
	s.Advance(&q, p.hour())
	for name, want := range map[string]int64{"late": 100, "later": 200} {
		if v := &s.Providers[s.Provider(&q, name)]; v.Name != name || v.Caps.Hourly != want {
			t.Errorf("%s counts under %s, with %d an hour", name, v.Name, v.Caps.Hourly)
		}
	}
	var day, sliding int64
	for i := range s.Providers {
		day, sliding = day+s.Providers[i].Count.Day, sliding+s.Providers[i].Count.Sliding
	}
	if n := len(s.Providers); n > maxProviders || day != 5050 || sliding != s.Total.Sliding || s.index("p0") >= 0 {
		t.Errorf("%d providers have %d of the day's 5050, %d of %d of the last hour", n, day, sliding, s.Total.Sliding)
	}
	if err := new(State).Decode(s.Append(nil)); err != nil {
		t.Error(err)
	}
}
