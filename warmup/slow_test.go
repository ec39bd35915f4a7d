package warmup

import (
	"encoding/hex"
	"testing"
)

// hourOf lets a provider have as much mail as it takes for an hour, each second, with a share of
// bounces, and gives how many were sent.
func hourOf(s *State, p *Plan, provider int, perSecond int64, bounces float64) (sent int64) {
	owed := 0.
	for end := s.hourEnd(p); s.Now < end; {
		s.Advance(p, s.Now+second)
		s.Offer(p, provider, perSecond)
		n := s.Grant(p, provider, perSecond, 0)
		sent += n
		var x Outcomes
		for range n {
			if owed += bounces; owed >= 1 {
				owed--
				x.Add(HardBounce)
			} else {
				x.Add(Delivered)
			}
		}
		s.Report(p, provider, x)
	}
	return sent
}

// TestW16_ABadDaySlowsDownAtOnce: 10 % unknown users halve the pace within the hour, for as long as
// they last, and it comes back by the hour.
func TestW16_ABadDaySlowsDownAtOnce(t *testing.T) {
	p := planOf(3600, 86_400)
	s := NewState(p, 0)
	g := s.Provider(p, "google")
	if n := hourOf(s, p, g, 10, 0.01); n < 3550 {
		t.Fatalf("%d in a good hour", n)
	}
	if n := hourOf(s, p, g, 10, 0.1); n > 2700 || s.Providers[g].pace != leastPace {
		t.Errorf("%d of 3,600 in an hour with 10 %% bounces, pace %v", n, s.Providers[g].pace)
	}
	for hour, want := range []struct {
		pace float64 // from then on
		most int64
	}{{.25, 900}, {.5, 1800}, {1, 3600}} {
		n := hourOf(s, p, g, 10, 0)
		s.Advance(p, s.Now+second)
		if v := &s.Providers[g]; n > want.most || n < want.most*9/10 {
			t.Errorf("good hour %d: %d sent, want about %d; pace then %v", hour+1, n, want.most, v.pace)
		}
	}
}

// TestW16_ABadDayStaysSlow: hours with too few outcomes to prove anything speed nothing up. A provider at a quarter of a
// small cap has so few.
func TestW16_ABadDayStaysSlow(t *testing.T) {
	p := planOf(75, 1800)
	s := NewState(p, 0)
	g := s.Provider(p, "google")
	var sent int64
	for range 23 {
		sent += hourOf(s, p, g, 1, 0.1)
	}
	if most := p.Stages[0].Daily * 6 / 10; sent > most || s.Providers[g].pace == 1 {
		t.Errorf("%d of %d in a day with 10 %% bounces, want %d at most; pace %v", sent, p.Stages[0].Daily, most, s.Providers[g].pace)
	}
}

// TestW16_HalfOfWhatThereIs: the pace is that of the mail that there is, not of a cap far above it.
func TestW16_HalfOfWhatThereIs(t *testing.T) {
	p := planOf(36_000, 864_000)
	s := NewState(p, 0)
	g := s.Provider(p, "google")
	hourOf(s, p, g, 1, 0)
	n := hourOf(s, p, g, 1, 0.3)
	if n > 1800 {
		t.Errorf("%d of 3,600 in an hour with 30 %% bounces", n)
	}
}

// TestW16_FewEachAreProofTogether: providers with too few outcomes each are slowed down for what they
// prove together; one that proves itself good is not.
func TestW16_FewEachAreProofTogether(t *testing.T) {
	p := planOf(3600, 86_400)
	s := NewState(p, 0)
	big := s.Provider(p, "big")
	report := func(i int, delivered, bounced int) {
		var x Outcomes
		for range delivered {
			x.Add(Delivered)
		}
		for range bounced {
			x.Add(HardBounce)
		}
		s.Report(p, i, x)
	}
	report(big, 200, 0)
	for i := range 5 {
		v := s.Provider(p, string(rune('a'+i)))
		report(v, 12, 8)
	}
	for i := range s.Providers {
		v := &s.Providers[i]
		if want := v.Name == "big"; (v.pace == 1) != want {
			t.Errorf("%s: pace %v", v.Name, v.pace)
		}
	}
}

// TestMinSampleZeroSlowsNothing: a plan by time alone asks for no outcomes.
func TestMinSampleZeroSlowsNothing(t *testing.T) {
	p := planOf(3600, 86_400)
	p.Health.MinSample = 0
	s := NewState(p, 0)
	g := s.Provider(p, "google")
	if n := hourOf(s, p, g, 10, .5); n < 3500 {
		t.Errorf("%d of 3,600", n)
	}
}

// version1 is a state of one stage, 50 an hour and 350 a day, as it was stored before there was a pace.
const version1 = "01f2c001f2eaeb553200f2c0010664bc05f2eaeb55a2dbeb5500020202b817001602006000000000000000000000000000000440000000000000f03f" +
	"0000000000000040000000000000000000000000000000000000000000000000020c676f6f676c6564bc05020202b817001602006000000000000000" +
	"000000000000000440000000000000f03f1cc7711cc7719c3f00000000000000000000000000000000000000000602000000000000000200bc050408" +
	"0c676f6f676c65"

func TestVersion1IsRead(t *testing.T) {
	b, err := hex.DecodeString(version1)
	if err != nil {
		t.Fatal(err)
	}
	var s State
	if err := s.Decode(b); err != nil {
		t.Fatal(err)
	}
	v := &s.Providers[0]
	if s.Hour != 25 || s.Total.Day != 1 || v.Name != "google" || v.Count.Day != 1 || v.pace != 1 {
		t.Errorf("hour %d, %d today; %s: %d today, pace %v", s.Hour, s.Total.Day, v.Name, v.Count.Day, v.pace)
	}
	if len(s.History) != 1 || s.History[0].Sent != 4-2 {
		t.Errorf("history %+v", s.History)
	}
}
