package simulate

import (
	"fmt"
	"testing"
)

// TestNothingIsLostByManyProvidersAndNodesThatLeave: what was offered was sent, was diverted or is held, and
// mail of each of 80 providers leaves though nodes come, crash and go.
func TestNothingIsLostByManyProvidersAndNodesThatLeave(t *testing.T) {
	const providers, each = 80, 40
	for _, mode := range []string{"hold", "divert"} {
		t.Run(mode, func(t *testing.T) {
			p := parse(t, fmt.Sprintf(`{"version":1,"mode":%q,"stages":[{"hourly":1000,"daily":2000}],"health":{"min_sample":0}}`, mode))
			trace := []Event{{Kind: Nodes, Value: 5}}
			for at := range int64(each) {
				for i := range providers {
					trace = append(trace, Event{T: at * 120, Kind: Offer, Provider: fmt.Sprint("p", i), Value: 1})
				}
			}
			trace = merge(trace, []Event{{T: 1000, Kind: Nodes, Value: 2}, {T: 2000, Kind: Crash, Value: 1}, {T: 2500, Kind: Nodes, Value: 4},
				{T: 3000, Kind: Nodes, Value: 1}, {T: 3 * 86_400, Kind: End}})
			rows, _ := simulate(t, p, trace, Options{Interval: 3600})
			got := make(map[string]int64)
			held := make(map[string]int64)
			for _, r := range rows {
				got[r.Provider] += r.Sent + r.Diverted
				held[r.Provider] = r.Held
			}
			for i := range providers {
				name := fmt.Sprint("p", i)
				if got[name] != each || held[name] != 0 {
					t.Errorf("%s: %d of %d were sent or diverted, %d are held", name, got[name], each, held[name])
				}
			}
			if s := summarize(rows); s.OverHour > 0 || s.OverDay > 0 {
				t.Error(s)
			}
		})
	}
}
