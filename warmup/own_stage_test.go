package warmup

import "testing"

// days lets days pass in which each provider has sent its caps' worth, with so many hard bounces of 100.
func days(p *Plan, s *State, n int, bounces map[string]int64) {
	for range n {
		for name, bad := range bounces {
			i := s.Provider(p, name)
			sent := s.Providers[i].Caps.Daily / 2
			s.Count(&s.Providers[i], sent)
			s.Report(p, i, Outcomes{Delivered: 200 - 2*bad, HardBounces: 2 * bad})
		}
		s.Advance(p, s.dayEnd(p))
	}
}

// TestAProviderStepsBackAlone: one with its own stage goes back on its bad days, and on by its good ones, while
// the others advance; without it the stage would be held.
func TestAProviderStepsBackAlone(t *testing.T) {
	plan := func(own bool) *Plan {
		p, err := Preset("standard")
		if err != nil {
			t.Fatal(err)
		}
		p.Shares = map[string]float64{"google": .5}
		p.OwnStages = map[string]bool{"google": own}
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		return p
	}
	held := NewState(plan(false), 0)
	days(plan(false), held, 3, map[string]int64{"google": 20, "yahoo": 0})
	if held.Stage != 0 {
		t.Errorf("without a stage of its own google let the address go on to stage %d", held.Stage+1)
	}
	p := plan(true)
	s := NewState(p, 0)
	days(p, s, 4, map[string]int64{"google": 0, "yahoo": 0})
	days(p, s, 2, map[string]int64{"google": 20, "yahoo": 0})
	v := &s.Providers[s.index("google")]
	if want := p.own(2, "google"); s.Stage != 6 || v.behind != 4 || v.Caps != want {
		t.Fatalf("after two bad days the address is on stage %d, google %d behind with %+v, want %+v", s.Stage+1, v.behind, v.Caps, want)
	}
	b := s.Append(nil)
	if err := s.Decode(b); err != nil || s.Providers[s.index("google")].behind != 4 {
		t.Fatalf("stored: %v", err)
	}
	days(p, s, 1, map[string]int64{"google": 3, "yahoo": 0}) // neither good nor bad
	days(p, s, 1, map[string]int64{"google": 0, "yahoo": 20})
	if v := &s.Providers[s.index("google")]; s.Stage != 6 || v.behind != 3 {
		t.Fatalf("after a bad day of another the address is on stage %d, google %d behind", s.Stage+1, v.behind)
	}
}

// TestABehindProviderKeepsItsCapsToTheEnd: caps are lifted for all, so they wait for the last.
func TestABehindProviderKeepsItsCapsToTheEnd(t *testing.T) {
	p, err := Preset("standard")
	if err != nil {
		t.Fatal(err)
	}
	p.OwnStages = map[string]bool{"google": true}
	s := NewState(p, 0)
	days(p, s, 3, map[string]int64{"google": 20, "yahoo": 0})
	for range 60 {
		if days(p, s, 1, map[string]int64{"google": 0, "yahoo": 0}); s.Warm {
			if v := &s.Providers[s.index("google")]; v.behind != 0 {
				t.Errorf("caps were lifted with google %d behind", v.behind)
			}
			return
		}
	}
	t.Errorf("after 60 good days the address is on stage %d, google %d behind", s.Stage+1, s.Providers[s.index("google")].behind)
}

func TestCapsByGrowth(t *testing.T) {
	p := DefaultPlan()
	p.Stages = []Stage{{Caps: Caps{100, 800}}, {Caps: Caps{200, 1600}}, {Caps: Caps{400, 3200}}}
	p.Shares, p.Growths = map[string]float64{"google": .5}, map[string]float64{"google": 1.5}
	for i, want := range []Caps{{50, 400}, {75, 600}, {113, 900}} {
		if got := p.own(i, "google"); got != want {
			t.Errorf("stage %d: %v, want %v", i+1, got, want)
		}
	}
	p.Growths["google"] = .5
	if err := p.Check(); err == nil {
		t.Error("a growth below 1 is taken")
	}
}
