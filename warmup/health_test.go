package warmup

import (
	"math"
	"testing"
)

// threeStages is a plan to move about in.
func threeStages() *Plan {
	p := DefaultPlan()
	p.Stages = []Stage{{Caps: Caps{1000, 1000}}, {Caps: Caps{2000, 2000}}, {Caps: Caps{4000, 4000}}}
	p.StartStage = 2
	return &p
}

// dayOf counts sends and outcomes as if a day had had them.
func dayOf(s *State, p *Plan, provider string, sent int64, o Outcomes) {
	i := s.Provider(p, provider)
	s.Count(&s.Providers[i], sent)
	o.Delivered = sent - o.HardBounces - o.Deferred - o.Refused
	s.Providers[i].Today.merge(o)
}

func TestW16_OutcomesMoveTheStage(t *testing.T) {
	type outcomes = map[string]Outcomes
	for _, c := range []struct {
		name   string
		sent   int64 // by each provider
		day    outcomes
		stage  int // from 1 afterwards
		why    Why
		factor float64 // of google
	}{
		{"all good", 1000, outcomes{"google": {HardBounces: 5}}, 3, Advanced, 1},
		{"too little sent", 900, outcomes{"google": {}}, 2, StayedFill, 1},
		{"bounces between the limits", 1000, outcomes{"google": {HardBounces: 30}}, 2, StayedHealth, 1},
		{"bounces over the limit", 1000, outcomes{"google": {HardBounces: 51}}, 1, Regressed, 1},
		{"bounces at the limit", 1000, outcomes{"google": {HardBounces: 50}}, 2, StayedHealth, 1},
		{"deferrals between the limits", 1000, outcomes{"google": {Deferred: 100, Refused: 50}}, 2, StayedHealth, 1},
		{"deferrals over the limit", 1000, outcomes{"google": {Deferred: 200, Refused: 60}}, 1, Regressed, 1},
		{"complaints between the limits", 1000, outcomes{"google": {Complaints: 2}}, 2, StayedHealth, 1},
		{"complaints over the limit", 1000, outcomes{"google": {Complaints: 4}}, 1, Regressed, 1},
		{"one of two bad", 600, outcomes{"google": {HardBounces: 60}, "yahoo": {}}, 2, StayedProvider, .5},
		{"two of two bad", 600, outcomes{"google": {HardBounces: 60}, "yahoo": {Deferred: 300}}, 1, Regressed, 1},
		{"two of three bad", 400, outcomes{"google": {HardBounces: 60}, "yahoo": {Deferred: 300}, "gmx": {}}, 1, Regressed, 1},
	} {
		p := threeStages()
		s := NewState(p, 0)
		for _, name := range []string{"google", "yahoo", "gmx"} {
			if o, ok := c.day[name]; ok {
				dayOf(s, p, name, c.sent, o)
			}
		}
		s.Advance(p, p.day())
		if s.Stage+1 != c.stage || s.History[0].Why != c.why || s.Providers[0].Factor != c.factor {
			t.Errorf("%s: stage %d (%v), factor %v; want stage %d (%v), factor %v", c.name, s.Stage+1, s.History[0].Why,
				s.Providers[0].Factor, c.stage, c.why, c.factor)
		}
	}
}

func TestW16_SmallSamplesCondemnOnlyWhatTheyProve(t *testing.T) {
	h := DefaultPlan().Health
	for _, c := range []struct {
		n, bounces int64
		want       judgement
	}{{10, 10, unjudged}, {19, 19, unjudged}, {20, 2, unjudged}, {50, 4, unjudged}, {50, 8, bad}, {20, 4, bad}, {99, 6, unjudged}, {100, 6, bad}, {0, 0, unjudged}} {
		o := Outcomes{Delivered: c.n - c.bounces, HardBounces: c.bounces}
		if got := h.judge(&o); got != c.want {
			t.Errorf("%d bounces of %d: verdict %d, want %d", c.bounces, c.n, got, c.want)
		}
	}
	// 1 of 10, from the published table of Wilson's interval.
	if w := wilson(1, 10); math.Abs(w-.0179) > .001 {
		t.Errorf("lower bound of 1 in 10 is %.4f", w)
	}
	// And a small day that is well received does advance.
	p := DefaultPlan()
	p.Stages = []Stage{{Caps: Caps{50, 50}}, {Caps: Caps{80, 80}}}
	s := NewState(&p, 0)
	dayOf(s, &p, "google", 50, Outcomes{HardBounces: 1})
	s.Advance(&p, p.day())
	if s.Stage != 1 {
		t.Errorf("a day of 50 with one bounce: %v", s.History[0].Why)
	}
}

func TestW16_FactorHalvesAndComesBack(t *testing.T) {
	p := threeStages()
	s := NewState(p, 0)
	want := []float64{.5, .25, .25, .5, 1}
	for day, f := range want {
		bad := Outcomes{}
		if day < 3 {
			bad.HardBounces = 60
		}
		dayOf(s, p, "google", 300, bad)
		dayOf(s, p, "yahoo", 300, Outcomes{})
		s.Advance(p, Instant(day+1)*p.day())
		g := &s.Providers[s.index("google")]
		if g.Factor != f || g.Caps.Hourly != int64(f*float64(s.Caps.Hourly)) {
			t.Errorf("day %d: factor %v, hourly cap %d of %d; want factor %v", day, g.Factor, g.Caps.Hourly, s.Caps.Hourly, f)
		}
		if s.Stage != 1 {
			t.Fatalf("day %d: stage %d, %v", day, s.Stage+1, s.History[day].Why)
		}
	}
}

// TestAReloadTakesPausesAway: a provider that is paused or probed then gets mail as any other, and is not probed for ever:
// no outcome counts for a plan without pauses.
func TestAReloadTakesPausesAway(t *testing.T) {
	for what, after := range map[string]Instant{"paused": 0, "probed": 930_000} {
		p := planOf(3600, 86_400)
		s := NewState(p, 0)
		g := s.Provider(p, "google")
		s.Advance(p, 600_000)
		var x Outcomes
		for range 20 {
			x.Add(PolicyRefusal)
		}
		s.Report(p, g, x)
		s.Advance(p, 600_000+after)
		if n := s.Grant(p, g, 100, 0); n > 5 || s.Providers[g].block.state == open {
			t.Fatalf("%s: %d are granted", what, n)
		}
		without := *p
		without.Health.Pause.Sample = 0
		at, sent := s.Now, int64(0)
		for range 10 {
			at += 60_000
			s.Advance(&without, at)
			sent += s.Grant(&without, g, 20, 0)
		}
		if s.Report(&without, g, x); sent < 50 || s.Providers[g].block.state != open {
			t.Errorf("%s: %d left in ten minutes, and it is %v", what, sent, s.Providers[g].block.state)
		}
	}
}

func TestW16_BlockPausesProbesAndDoubles(t *testing.T) {
	p := planOf(3600, 86_400)
	s := NewState(p, 0)
	g, y := s.Provider(p, "google"), s.Provider(p, "yahoo")
	now := Instant(0)
	at := func(t Instant) { now = t; s.Advance(p, now) }
	report := func(refused, delivered int) {
		var x Outcomes
		for range delivered {
			x.Add(Delivered)
		}
		for range refused {
			x.Add(PolicyRefusal)
		}
		s.Report(p, g, x)
	}
	at(600_000)
	report(9, 10) // 9 of 19: not enough to tell
	if s.Grant(p, g, 1, 1) != 1 {
		t.Fatal("paused too early")
	}
	report(1, 0) // 10 of 20
	if s.Grant(p, g, 1, 1) != 0 || !s.Providers[g].Blocked() {
		t.Fatal("not paused at 10 refusals of 20")
	}
	if s.Grant(p, y, 1, 1) != 1 {
		t.Error("another provider was paused as well")
	}
	pause := Instant(900_000)
	for range 6 {
		end := now + pause
		at(end - 1)
		if s.Grant(p, g, 1, 1) != 0 {
			t.Fatalf("sent during a pause of %d s", pause/1000)
		}
		at(end + 30_000)
		if s.Now%p.hour() > p.hour()-60_000 { // not at an hour's end, where nothing is granted
			at(s.Now + 120_000)
		}
		if n := s.Grant(p, g, 100, 0); n != 5 {
			t.Fatalf("probe after %d s: %d sent, want 5", pause/1000, n)
		}
		if n := s.Grant(p, g, 100, 0); n != 0 {
			t.Fatalf("%d sent beyond the probe", n)
		}
		report(3, 2)
		if !s.Providers[g].Blocked() {
			t.Fatal("3 refusals of 5 did not pause again")
		}
		pause = min(2*pause, 4*3_600_000)
		if until := s.Providers[g].block.until; until != now+pause && until != s.Now+pause {
			t.Fatalf("next pause is %d s, want %d", (until-s.Now)/1000, pause/1000)
		}
		now = s.Now
	}
	if pause != 4*3_600_000 {
		t.Fatalf("pauses end at %d s", pause/1000)
	}
	at(s.Providers[g].block.until + 60_000)
	if n := s.Grant(p, g, 5, 0); n != 5 {
		t.Fatalf("probe: %d", n)
	}
	report(2, 3)
	if s.Providers[g].Blocked() || s.Providers[g].block.state != open {
		t.Error("a good probe did not resume")
	}
}

// Outcomes of a probe may be lost with a node. The provider must not stay closed for ever.
func TestProbeIsRepeated(t *testing.T) {
	p := planOf(3600, 86_400)
	s := NewState(p, 0)
	g := s.Provider(p, "google")
	var x Outcomes
	for range 20 {
		x.Add(PolicyRefusal)
	}
	s.Report(p, g, x)
	s.Advance(p, 1_000_000)
	if n := s.Grant(p, g, 9, 0); n != 5 {
		t.Fatalf("probe: %d", n)
	}
	s.Advance(p, 1_500_000)
	if n := s.Grant(p, g, 9, 0); n != 0 {
		t.Errorf("%d before the probe was given up", n)
	}
	s.Advance(p, 2_000_000)
	if n := s.Grant(p, g, 9, 0); n != 5 {
		t.Errorf("second probe: %d", n)
	}
}

func TestW16_IdleGoesBack(t *testing.T) {
	p := DefaultPlan()
	for i := range int64(6) {
		p.Stages = append(p.Stages, Stage{Caps: Caps{100 * (i + 1), 800 * (i + 1)}})
	}
	p.StartStage = 6
	s := NewState(&p, 0)
	for _, c := range []struct {
		days  int64
		stage int
	}{{6, 6}, {7, 5}, {13, 5}, {14, 4}, {21, 3}, {28, 2}, {29, 2}, {30, 1}, {60, 1}} {
		s.Advance(&p, Instant(c.days)*p.day())
		if s.Stage+1 != c.stage {
			t.Errorf("after %d idle days: stage %d, want %d", c.days, s.Stage+1, c.stage)
		}
	}
}

func TestPlanEndsOrStays(t *testing.T) {
	for _, finish := range []bool{false, true} {
		p := threeStages()
		p.Finish, p.EaseOut, p.StartStage = finish, 0, 3
		s := NewState(p, 0)
		dayOf(s, p, "google", 4000, Outcomes{})
		s.Advance(p, p.day())
		if s.Warm != finish || s.Stage != 2 {
			t.Errorf("finish %v: warm %v, stage %d (%v)", finish, s.Warm, s.Stage+1, s.History[0].Why)
		}
	}
}

// TestMinSampleZeroAdvancesDaily: by time alone, whatever the outcomes, but not on days without mail.
func TestMinSampleZeroAdvancesDaily(t *testing.T) {
	p := threeStages()
	p.StartStage, p.Health.MinSample = 1, 0
	s := NewState(p, 0)
	dayOf(s, p, "google", 1000, Outcomes{HardBounces: 900})
	want := func(day int, stage int, why Why) {
		t.Helper()
		s.Advance(p, Instant(day)*p.day())
		if got := s.History[day-1].Why; s.Stage+1 != stage || got != why {
			t.Errorf("after day %d: stage %d (%v), want %d (%v)", day, s.Stage+1, got, stage, why)
		}
	}
	want(1, 2, Advanced)
	want(2, 2, StayedIdle) // the relay was off, or had nothing to send
	dayOf(s, p, "google", 1, Outcomes{})
	want(3, 3, Advanced)
	for day := 4; day < 9; day++ {
		want(day, 3, StayedIdle)
	}
	want(9, 2, RegressedIdle)
}

// TestNoMailIsNoDay: min_fill = 0 asks for no volume, but a day without any shows nothing.
func TestNoMailIsNoDay(t *testing.T) {
	p := threeStages()
	p.StartStage, p.Health.MinFill = 1, 0
	s := NewState(p, 0)
	s.Advance(p, p.day())
	if got := s.History[0].Why; s.Stage != 0 || got != StayedIdle {
		t.Errorf("after a day without mail: stage %d (%v), want 1 (%v)", s.Stage+1, got, StayedIdle)
	}
	dayOf(s, p, "google", 1, Outcomes{})
	s.Advance(p, 2*p.day())
	if got := s.History[1].Why; s.Stage != 1 || got != Advanced {
		t.Errorf("after a day with a message: stage %d (%v), want 2 (%v)", s.Stage+1, got, Advanced)
	}
}

// TestAPauseIsIdleTime: providers forget an address that an operator has paused like any other.
func TestAPauseIsIdleTime(t *testing.T) {
	p := threeStages()
	p.StartStage = 3
	s := NewState(p, 0)
	s.Paused = true
	s.Advance(p, 6*p.day())
	if s.Stage != 2 || s.History[5].Why != StayedPaused {
		t.Errorf("after 6 days: stage %d (%v)", s.Stage+1, s.History[5].Why)
	}
	s.Advance(p, 7*p.day())
	if s.Stage != 1 || s.History[6].Why != RegressedIdle {
		t.Errorf("after 7 days: stage %d (%v)", s.Stage+1, s.History[6].Why)
	}
}
