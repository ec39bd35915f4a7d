package warmup

import (
	"fmt"
	"testing"
	"time"
)

func instant(t *testing.T, text string) Instant {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return Instant(at.UnixMilli())
}

// TestDaysStartWhereThePlanSays: a warm-up that begins in the middle of a day has the rest of that, in the
// zone of the plan, summer time or not.
func TestDaysStartWhereThePlanSays(t *testing.T) {
	for _, x := range []struct{ starts, now, ends string }{
		{"08:00 Europe/Berlin", "2026-12-01T12:30:00Z", "2026-12-02T07:00:00Z"},
		{"08:00 Europe/Berlin", "2026-12-01T06:59:59Z", "2026-12-01T07:00:00Z"},
		{"08:00 Europe/Berlin", "2026-12-01T07:00:00Z", "2026-12-02T07:00:00Z"},
		{"08:00 Europe/Berlin", "2026-07-01T12:30:00Z", "2026-07-02T06:00:00Z"},
		{"00:00 America/New_York", "2026-12-01T03:00:00Z", "2026-12-01T05:00:00Z"},
		{"", "2026-12-01T12:30:00Z", "2026-12-02T12:30:00Z"},
	} {
		p := threeStages()
		p.DayStarts = DayStart(x.starts)
		now, ends := instant(t, x.now), instant(t, x.ends)
		s := NewState(p, now)
		if got := s.dayEnd(p); got != ends {
			t.Errorf("%q, begun %s: its first day ends %s, want %s", x.starts, x.now, got.Time(), x.ends)
		}
		s.Provider(p, "google")
		dayOf(s, p, "google", 4000, Outcomes{})
		if s.Advance(p, ends-1); s.Hour/24 != 0 || s.Total.Day == 0 {
			t.Errorf("%q, begun %s: the day is over before %s", x.starts, x.now, x.ends)
		}
		if s.Advance(p, ends); s.Hour/24 != 1 || s.Total.Day != 0 {
			t.Errorf("%q, begun %s: no day begins at %s", x.starts, x.now, x.ends)
		}
		var again State
		if err := again.Decode(s.Append(nil)); err != nil {
			t.Errorf("%q: %v", x.starts, err)
		}
	}
	for text, want := range map[string]string{
		"8 Europe/Berlin": `"8" is not a time of day`, "25:00 UTC": `"25:00" is not a time of day`,
		"08:00": "it has no time zone", "08:00 Europe/Bonn": `there is no time zone "Europe/Bonn"`,
	} {
		if err := DayStart(text).Check(); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestTheEndIsNoCliff: behind the last stage its caps double for some days, with health as before but without
// wanting more mail than there is; then there are none.
func TestTheEndIsNoCliff(t *testing.T) {
	p := threeStages()
	p.Finish, p.EaseOut, p.StartStage = true, 2, 3
	p.Stages[2].Providers = map[string]Caps{"yahoo": {Daily: 100}}
	s := NewState(p, 0)
	last := p.Stages[2].Caps
	s.Provider(p, "yahoo")
	var got string
	for day := range 5 {
		s.Advance(p, Instant(day)*p.day())
		got += fmt.Sprintf("%d/%d %v; ", s.Caps.Daily/last.Daily, s.Providers[0].Caps.Daily, s.Warm)
		dayOf(s, p, "google", last.Daily, Outcomes{})
	}
	if want := "1/100 false; 2/200 false; 4/400 false; 4/400 true; 4/400 true; "; got != want {
		t.Errorf("times the last stage, yahoo's cap, warm: %s\nwant %s", got, want)
	}

	s = NewState(p, 0)
	dayOf(s, p, "google", last.Daily, Outcomes{})
	s.Advance(p, p.day())
	dayOf(s, p, "google", last.Daily, Outcomes{HardBounces: 800})
	s.Advance(p, 2*p.day())
	if s.Warm || s.Caps.Daily != last.Daily {
		t.Errorf("after a bad day there are %d a day, want the last stage's %d (%v)", s.Caps.Daily, last.Daily, s.History[1].Why)
	}
}

// TestForecast: what the days to come allow if each is good, by date.
func TestForecast(t *testing.T) {
	p, err := Preset("standard")
	if err != nil {
		t.Fatal(err)
	}
	p.DayStarts = "08:00 Europe/Berlin"
	days := p.Forecast(instant(t, "2026-11-25T07:00:00Z").Time(), 1)
	show := func(f Forecast) string {
		return fmt.Sprintf("%s: %d, stage %d", f.Day.Format("Mon 2 Jan 15:04"), f.Limit, f.Stage)
	}
	for i, want := range map[int]string{0: "Wed 25 Nov 08:00: 250, stage 1", 8: "Thu 3 Dec 08:00: 10737, stage 9",
		13: "Tue 8 Dec 08:00: 112590, stage 14", 14: "Wed 9 Dec 08:00: 225180, stage 14", 17: "Sat 12 Dec 08:00: 0, stage 14"} {
		if got := show(days[i]); got != want {
			t.Errorf("day %d: %s, want %s", i+1, got, want)
		}
	}
	if len(days) != 18 {
		t.Errorf("%d days, want 14 stages, 3 of easing out, and one without caps", len(days))
	}
	p.Finish = false
	if days := p.Forecast(time.Time{}, 12); len(days) != 3 {
		t.Errorf("%d days to the last stage, want 3", len(days))
	}
}
