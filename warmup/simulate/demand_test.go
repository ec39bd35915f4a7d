package simulate

import (
	"testing"
	"time"

	"example.org/mta/warmup"
)

// TestDemandOfADay: each shape has the whole day's mail, in its hours.
func TestDemandOfADay(t *testing.T) {
	for shape, hours := range map[string][2]int64{"even": {0, 24}, "office": {8, 18}, "campaign": {10, 11}} {
		trace, err := Demand{PerDay: 20_000, Shape: shape}.Trace(time.Time{}, 2)
		if err != nil {
			t.Fatal(err)
		}
		var days [2]float64
		for _, e := range trace[:len(trace)-1] {
			days[e.T/86_400] += e.Value
			if h := e.T % 86_400 / 3600; h < hours[0] || h >= hours[1] {
				t.Errorf("%s: mail at %d o'clock", shape, h)
			}
		}
		if days != [2]float64{20_000, 20_000} || trace[len(trace)-1] != (Event{T: 2 * 86_400, Kind: End}) {
			t.Errorf("%s: %v, then %+v", shape, days, trace[len(trace)-1])
		}
	}
	for _, bad := range []struct {
		n     int64
		shape string
	}{{0, "even"}, {1, "wavy"}} {
		if _, err := (Demand{PerDay: bad.n, Shape: bad.shape}).Trace(time.Time{}, 1); !IsInputError(err) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// TestDemandOfWeekdays: mail comes on its days of the week only, which begin with one; the mail of a weekly newsletter
// is that of as many weeks as a daily one's of days.
func TestDemandOfWeekdays(t *testing.T) {
	p, err := warmup.Preset("standard")
	if err != nil {
		t.Fatal(err)
	}
	began := *p
	began.Begin = time.Date(2026, 12, 3, 0, 0, 0, 0, time.UTC) // a Thursday
	for _, x := range []struct {
		plan  *warmup.Plan
		on    string
		days  [][2]time.Weekday
		lasts int
	}{
		{p, "tue", [][2]time.Weekday{{time.Tuesday, time.Tuesday}}, 17*7 + 1},
		{p, "mon-fri", [][2]time.Weekday{{time.Monday, time.Wednesday}}, 24},
		{&began, "mon-fri", [][2]time.Weekday{{time.Thursday, time.Monday}}, 26},
		{p, "", nil, 18},
	} {
		on, err := warmup.ParseWeekdays(x.on)
		if err != nil {
			t.Fatal(err)
		}
		d := Demand{PerDay: 100, Shape: "campaign", On: on}
		for today := range 7 { // whatever day it is
			begin := d.Begin(x.plan, time.Date(2026, 11, 20+today, 0, 0, 0, 0, time.UTC))
			lasts := d.Days(x.plan, begin)
			trace, err := d.Trace(begin, lasts)
			if err != nil || lasts != x.lasts {
				t.Errorf("%q: %d days, want %d; %v", x.on, lasts, x.lasts, err)
			}
			mailed := make(map[int64]float64)
			for _, e := range trace[:len(trace)-1] {
				if day := begin.AddDate(0, 0, int(e.T/daySeconds)); !on.Has(day) {
					t.Errorf("%q: mail on a %v", x.on, day.Weekday())
				}
				mailed[e.T/daySeconds] += e.Value
			}
			last := begin.AddDate(0, 0, lasts-1)
			for _, want := range x.days {
				if begin.Weekday() != want[0] || last.Weekday() != want[1] {
					t.Errorf("%q: from %v to %v", x.on, begin.Weekday(), last.Weekday())
				}
			}
			if len(mailed) != 18 || mailed[0] != 100 || mailed[int64(lasts-1)] != 100 {
				t.Errorf("%q: %v", x.on, mailed)
			}
		}
	}
	for _, bad := range []string{"tuesday", "mon-", "8", "mon,,tue"} {
		if _, err := warmup.ParseWeekdays(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// TestNoPointIsAboveItsRows: a point of the picture covers whole intervals, so that it shows no rate
// that no row has.
func TestNoPointIsAboveItsRows(t *testing.T) {
	var rows []Row
	for at := int64(0); at < 100*3600; at += 3600 { // 300 points would have 20 minutes each
		rows = append(rows, Row{T: at, Provider: all, CapHour: 100, Counts: Counts{Sent: 100, Diverted: 7}})
	}
	rows = append(rows, Row{T: 701 * 3600, Provider: all, CapHour: 100, Counts: Counts{Sent: 100}})
	p := Picture{Rows: rows, Interval: 3600}
	upper, lower, width, _ := p.lines()
	sent, diverted := upper[1].Points, lower[0].Points
	if width%3600 != 0 {
		t.Errorf("a point is %d s", width)
	}
	for i, v := range sent {
		if v.Value > 100 || diverted[i].Value > 7 {
			t.Errorf("point %d: %v sent an hour, %v diverted", i, v.Value, diverted[i].Value)
		}
	}
}
