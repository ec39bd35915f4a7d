package warmup

import (
	"errors"
	"testing"
	"time"
)

// TestReportsOfComplaints: the same day's figures replace, those of the future are refused, and what is bad
// slows mail down and sets the stage back; a rate stands for its part of the mail.
func TestReportsOfComplaints(t *testing.T) {
	p, err := Preset("standard")
	if err != nil {
		t.Fatal(err)
	}
	begin := Instant(time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC).UnixMilli())
	day := func(n int) time.Time { return begin.Time().AddDate(0, 0, n).Add(5 * time.Hour) }
	fresh := func() (*State, *Provider) {
		s := NewState(p, begin)
		days(p, s, 3, map[string]int64{"google": 0})
		s.Advance(p, begin+3*p.day()+p.hour())
		i := s.Provider(p, "google")
		s.Count(&s.Providers[i], s.Caps.Daily*9/10)
		s.Report(p, i, Outcomes{Delivered: 1000})
		return s, &s.Providers[i]
	}
	s, v := fresh()
	for _, bad := range []Report{{Day: day(4)}, {Day: day(-11)}, {Day: day(3), Complaints: -1}, {Day: day(3), Rate: 1.5}} {
		if err := s.report(p, "google", &bad); !errors.Is(err, ErrReport) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if s := v.status(); s.Reported {
		t.Error("nothing was reported, and there are figures")
	}
	for _, x := range []struct{ day, n, want int64 }{{2, 5, 5}, {2, 3, 3}, {3, 2, 5}, {2, 0, 2}} {
		if err := s.report(p, "google", &Report{Day: day(int(x.day)), Complaints: x.n}); err != nil {
			t.Fatal(err)
		}
		if got := v.status(); got.Complaints != x.want || !got.Reported {
			t.Errorf("%d for day %d: %d complaints, want %d", x.n, x.day, got.Complaints, x.want)
		}
	}
	b := s.Append(nil)
	if err := s.Decode(b); err != nil || len(s.Providers[0].reports) != 2 {
		t.Fatalf("stored: %v, %+v", err, s.Providers[0].reports)
	}
	for name, r := range map[string]Report{"a count": {Day: day(2), Complaints: 20}, "a rate": {Day: day(2), Rate: .02}} {
		s, v := fresh()
		if err := s.report(p, "google", &r); err != nil {
			t.Fatal(err)
		}
		if why, who := s.outlook(p, new(State)); why != Regressed || who != "google" {
			t.Errorf("with %s of 2 %% the outlook is %v by %q", name, why, who)
		}
		if slow := v.pace < 1; slow != (r.Complaints > 0) {
			t.Errorf("with %s the pace is %v", name, v.pace)
		}
		s.Advance(p, s.dayEnd(p))
		if v := &s.Providers[s.index("google")]; v.status().Complaints != 0 || !v.status().Reported {
			t.Errorf("the next day has %d complaints of %s", v.status().Complaints, name)
		}
	}
}

// TestReportsByAClockThatWasAheadAreForgotten: days to come would fill up what is stored, until it could not be
// read any more.
func TestReportsByAClockThatWasAheadAreForgotten(t *testing.T) {
	p := DefaultPlan()
	p.Stages = []Stage{{Caps: Caps{Hourly: 100, Daily: 800}}}
	day := Instant(86_400_000)
	s := NewState(&p, 0)
	for _, d := range []Instant{100, 50} { // and back
		s.Now = d * day
		for i := range Instant(maxReports) {
			if err := s.report(&p, "google", &Report{Day: (s.Now - i*day).Time(), Complaints: 1}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := new(State).Decode(s.Append(nil)); err != nil {
		t.Errorf("%d reports are stored: %v", len(s.Providers[0].reports), err)
	}
}

// TestComplaintsOfAFeedbackLoop: they add up, count today whichever day they are of, and an operator's report takes
// their place.
func TestComplaintsOfAFeedbackLoop(t *testing.T) {
	p := DefaultPlan()
	p.Stages = []Stage{{Caps: Caps{Hourly: 100, Daily: 800}}}
	s := NewState(&p, 10*86_400_000)
	day := func(n int64) time.Time { return Instant(n * 86_400_000).Time() }
	for _, c := range []struct {
		a    Action
		want int64
	}{
		{Complained("google", day(9), 2), 2}, {Complained("google", day(9), 3), 5}, {Complained("google", day(10), 1), 6},
		{Reported("google", Report{Day: day(9), Complaints: 4}), 5}, {Complained("google", day(9), 1), 6},
	} {
		if err := c.a.apply(s, &p); err != nil {
			t.Fatal(err)
		}
		if got := s.Providers[s.index("google")].Today.Complaints; got != c.want {
			t.Errorf("%d complaints, want %d", got, c.want)
		}
	}
	if err := Complained("", day(10), 1).apply(s, &p); err != nil || s.index(Other) < 0 || s.Providers[s.index(Other)].Today.Complaints != 1 {
		t.Errorf("of no provider: %v, %+v", err, s.Providers)
	}
	if err := Complained("google", day(11), 1).apply(s, &p); !errors.Is(err, ErrReport) {
		t.Errorf("of tomorrow: %v", err)
	}
}
