package simulate

import (
	"fmt"
	"testing"
	"time"

	"example.org/mta/warmup"
)

// TestNothingIsLostByManyProvidersAndNodesThatLeave: what was offered was sent, was diverted or is held, and
// mail of each of 80 providers leaves though nodes come, crash and go.
func TestNothingIsLostByManyProvidersAndNodesThatLeave(t *testing.T) {
	const providers, each = 80, 20
	for _, pacing := range []string{"hold", "shared"} {
		t.Run(pacing, func(t *testing.T) {
			p := parse(t, fmt.Sprintf(`{"version":1,"overflow":%q,"stages":[{"hourly":1000,"daily":2000}],"health":{"min_sample":0}}`, pacing))
			trace := []Event{{Kind: Nodes, Value: 5}}
			for at := range int64(each) {
				for i := range providers {
					trace = append(trace, Event{T: at * 180, Kind: Offer, Provider: fmt.Sprint("p", i), Value: 1})
				}
			}
			trace = merge(trace, []Event{{T: 1000, Kind: Nodes, Value: 2}, {T: 2000, Kind: Crash, Value: 1}, {T: 2500, Kind: Nodes, Value: 4},
				{T: 3000, Kind: Nodes, Value: 1}, {T: 3 * 3600, Kind: End}})
			rows, _ := simulate(t, p, trace, Options{Interval: 3600})
			got := make(map[string]int64)
			held := make(map[string]int64)
			for _, r := range rows {
				got[r.Provider] += r.Sent + r.Diverted
				held[r.Provider] = r.Waiting
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

// TestACampaignWithPatience: mail that comes within ten minutes waits and fills the day, and what has no room
// that day or has waited out its time is diverted; nothing is lost.
func TestACampaignWithPatience(t *testing.T) {
	p, err := warmup.Preset("standard")
	if err != nil {
		t.Fatal(err)
	}
	trace, err := Demand{PerDay: 2000, Shape: "campaign"}.Trace(time.Time{}, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, patience := range []time.Duration{9 * time.Hour, 0} {
		rows, _ := simulate(t, p, trace, Options{Interval: 3600, Patience: patience})
		var sent [4]int64
		var all int64
		for _, r := range rows {
			sent[r.T/86_400] += r.Sent
			all += r.Sent + r.Diverted
			if at := r.T % 86_400; patience > 0 && r.Waiting > 0 && at >= 19*3600+600 {
				t.Errorf("%d wait at %d of their day", r.Waiting, at)
			}
		}
		t.Logf("patience %v: %d a day were sent", patience, sent)
		if patience > 0 && (sent[0] < 245 || sent[1] < 392 || sent[2] < 627) || patience == 0 && sent[0] > 60 {
			t.Errorf("patience %v: %d a day were sent", patience, sent)
		}
		if all != 3*2000 {
			t.Errorf("patience %v: %d of 6000 were sent or diverted", patience, all)
		}
	}
}
