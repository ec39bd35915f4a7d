package simulate

import (
	"maps"
	"slices"
	"strings"
	"time"

	"example.org/mta/internal/plot"
	"example.org/mta/warmup"
)

// dayShapes say which share of a day's mail has come by a minute of it.
var dayShapes = map[string]func(minute float64) float64{
	"even":     func(m float64) float64 { return m / dayMinutes },
	"office":   func(m float64) float64 { return (m - 8*60) / (10 * 60) }, // from 8 to 18 o'clock
	"campaign": func(m float64) float64 { return (m - 10*60) / 10 },       // within ten minutes
}

const dayMinutes = 24 * 60

// Shapes names the shapes of a day that a Demand can have, sorted.
func Shapes() []string { return slices.Sorted(maps.Keys(dayShapes)) }

// Demand is mail for all providers on some days of the week.
type Demand struct {
	PerDay int64 // recipients on each of these days
	Shape  string
	On     warmup.Weekdays
}

// Begin returns the day on which a simulation of a plan begins: a day with mail, from the begin of the plan on. If the
// plan has none and there is mail on some days only, that is the first of them in a week, whatever day it is now.
func (d Demand) Begin(p *warmup.Plan, now time.Time) time.Time {
	day := p.First(now).In(now.Location())
	if p.DayStarts != "" {
		day = day.In(p.DayStarts.Zone())
	}
	for p.Begin.IsZero() && !d.On.All() && day.Weekday() != time.Monday {
		day = day.AddDate(0, 0, 1)
	}
	return d.On.After(day, 0)
}

// Days returns how many days from one on it takes until there was mail on as many as the plan has caps, and one more.
func (d Demand) Days(p *warmup.Plan, begin time.Time) int {
	n := max(len(p.Stages)+1, len(p.Forecast(time.Time{}, 1)))
	day := 1
	for has := 0; ; day++ {
		if d.On.Has(begin.AddDate(0, 0, day-1)) {
			has++
		}
		if has == n {
			return day
		}
	}
}

// Trace makes a trace of so many days from one on.
func (d Demand) Trace(begin time.Time, days int) ([]Event, error) {
	by, ok := dayShapes[d.Shape]
	switch {
	case !ok:
		return nil, plot.Wrong("options", "shape %q is not known: use %s", d.Shape, strings.Join(Shapes(), ", "))
	case d.PerDay < 1 || d.PerDay > 1e9:
		return nil, plot.Wrong("options", "a demand of %d a day is outside 1 to 1000000000", d.PerDay)
	}
	var events []Event
	for day := range days {
		if !d.On.Has(begin.AddDate(0, 0, day)) {
			continue
		}
		var sent int64
		for minute := range dayMinutes {
			due := int64(min(1, max(0, by(float64(minute+1)))) * float64(d.PerDay))
			if due > sent {
				events = append(events,
					Event{T: int64(day*dayMinutes+minute) * 60, Kind: Offer, Value: float64(due - sent)})
			}
			sent = max(sent, due)
		}
	}
	return append(events, Event{T: int64(days) * 86_400, Kind: End}), nil
}
