package warmup

import "testing"

// provided is a provider's part of a day.
type provided struct {
	name string
	sent int64
	Outcomes
}

// TestW16_SmallProvidersDontDecide: what a provider with little mail does to its address and itself.
func TestW16_SmallProvidersDontDecide(t *testing.T) {
	many := func(n int, sent int64, o Outcomes) (day []provided) {
		for i := range n {
			day = append(day, provided{string(rune('a' + i)), sent, o})
		}
		return day
	}
	for _, c := range []struct {
		name string
		day  []provided
		why  Why
		who  string
	}{
		{"one bounce of one message a day", []provided{{"google", 999, Outcomes{}}, {"tiny", 1, Outcomes{HardBounces: 1}}}, Advanced, ""},
		{"one bounce of ten", []provided{{"google", 990, Outcomes{}}, {"tiny", 10, Outcomes{HardBounces: 1}}}, Advanced, ""},
		{"nineteen bounces of nineteen", []provided{{"google", 981, Outcomes{}}, {"tiny", 19, Outcomes{HardBounces: 19}}}, Advanced, ""},
		{"less than a tenth, all bounces", []provided{{"google", 901, Outcomes{}}, {"small", 99, Outcomes{HardBounces: 99}}}, Advanced, ""},
		{"less than a tenth, middling", []provided{{"google", 5000, Outcomes{}}, {"small", 200, Outcomes{HardBounces: 6}}}, Advanced, ""},
		{"a tenth, all bounces", []provided{{"google", 900, Outcomes{}}, {"small", 100, Outcomes{HardBounces: 100}}}, StayedProvider, "small"},
		{"a tenth, middling", []provided{{"google", 1800, Outcomes{}}, {"small", 200, Outcomes{HardBounces: 6}}}, StayedHealth, "small"},
		{"a small good one beside one that is bad", []provided{{"google", 1000, Outcomes{HardBounces: 100}}, {"small", 100, Outcomes{}}}, Regressed, "google"},
		{"twenty small ones, all bad", many(20, 50, Outcomes{HardBounces: 20}), Regressed, "a"},
		{"tiny ones, bad together", many(20, 15, Outcomes{HardBounces: 3}), Regressed, "other"},
		{"tiny ones, good together, which prove nothing alone", many(20, 50, Outcomes{}), StayedFill, ""},
	} {
		p := threeStages()
		p.Stages[1].Caps = Caps{1100, 1100}
		if c.why == StayedFill {
			p.Stages[1].Caps = Caps{4000, 4000}
		}
		s := NewState(p, 0)
		for _, v := range c.day {
			dayOf(s, p, v.name, v.sent, v.Outcomes)
		}
		s.Advance(p, p.day())
		got := s.History[0]
		if got.Why != c.why {
			t.Errorf("%s: %v, want %v", c.name, got.Why, c.why)
		}
		if c.who != "" && got.Provider != c.who && c.who != "a" {
			t.Errorf("%s: on account of %q, want %q", c.name, got.Provider, c.who)
		}
	}
}

// TestW16_ASmallBadProviderLosesItsShare and no other does.
func TestW16_ASmallBadProviderLosesItsShare(t *testing.T) {
	p := threeStages()
	s := NewState(p, 0)
	dayOf(s, p, "google", 2000, Outcomes{})
	dayOf(s, p, "small", 99, Outcomes{HardBounces: 99})
	s.Advance(p, p.day())
	if g, v := s.Providers[0].Factor, s.Providers[1].Factor; g != 1 || v != .5 {
		t.Errorf("factors: google %v, small %v; want 1 and .5", g, v)
	}
}

// TestFewOutcomesAreJudgedOverSeveralDays: an address that sends little is judged all the same.
func TestFewOutcomesAreJudgedOverSeveralDays(t *testing.T) {
	p := DefaultPlan()
	p.Stages = []Stage{{Caps: Caps{10, 10}}, {Caps: Caps{12, 12}}, {Caps: Caps{14, 14}}, {Caps: Caps{16, 16}}}
	s := NewState(&p, 0)
	for day, want := range []struct {
		stage int
		why   Why
	}{{2, Advanced}, {1, Regressed}, {2, Advanced}} {
		dayOf(s, &p, "google", 10, Outcomes{HardBounces: 4})
		s.Advance(&p, Instant(day+1)*p.day())
		if s.Stage+1 != want.stage || s.History[day].Why != want.why {
			t.Errorf("day %d: stage %d (%v), want %d (%v)", day+1, s.Stage+1, s.History[day].Why, want.stage, want.why)
		}
	}
}
