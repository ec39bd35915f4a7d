package simulate

import (
	"maps"
	"slices"
	"strings"

	"example.org/mta/internal/trace"
)

// dayShapes say which share of a day's mail has come by a minute of it.
var dayShapes = map[string]func(minute float64) float64{
	"even":     func(m float64) float64 { return m / dayMinutes },
	"office":   func(m float64) float64 { return (m - 8*60) / (10 * 60) }, // from 8 to 18 o'clock
	"campaign": func(m float64) float64 { return (m - 10*60) / 10 },       // within ten minutes
}

const dayMinutes = 24 * 60

// Shapes names the shapes of a day that Demand knows, sorted.
func Shapes() []string { return slices.Sorted(maps.Keys(dayShapes)) }

// Demand makes a trace of so many days with mail for all providers, perDay recipients each.
func Demand(perDay int64, shape string, days int) ([]Event, error) {
	by, ok := dayShapes[shape]
	switch {
	case !ok:
		return nil, trace.Wrong("options", "shape %q is not known: use %s", shape, strings.Join(Shapes(), ", "))
	case perDay < 1 || perDay > 1e9:
		return nil, trace.Wrong("options", "a demand of %d a day is outside 1 to 1000000000", perDay)
	}
	var events []Event
	for day := range days {
		var sent int64
		for minute := range dayMinutes {
			due := int64(min(1, max(0, by(float64(minute+1)))) * float64(perDay))
			if due > sent {
				events = append(events, Event{T: int64(day*dayMinutes+minute) * 60, Kind: Offer, Value: float64(due - sent)})
			}
			sent = max(sent, due)
		}
	}
	return append(events, Event{T: int64(days) * 86_400, Kind: End}), nil
}
