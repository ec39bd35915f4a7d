package web

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"example.org/mta/operator/api"
	"example.org/mta/warmup"
)

// simulated has three days, each with a cap that doubles.
var simulated = api.SimulatedWarmup{
	Plan: "standard", Offered: 1800, Sent: 1350, Diverted: 450,
	Rows: []api.SimulatedRow{
		{Provider: "*", Stage: 1, State: api.WarmupNormal, CapHour: 31, CapDay: 250, Offered: 600, Sent: 250, Diverted: 350},
		{Provider: "*", Second: daySeconds, Stage: 2, State: api.WarmupNormal, CapHour: 62, CapDay: 500, Offered: 600, Sent: 500, Diverted: 100},
		{Provider: "*", Second: 2 * daySeconds, Stage: 3, State: api.WarmupNormal, CapHour: 124, CapDay: 1000, Offered: 600, Sent: 600},
	},
	Days: []warmup.DayStatus{{Stage: 1, Limit: 250, Sent: 250, Why: "advanced"}, {Stage: 2, Limit: 500, Sent: 500, Why: "advanced"}, {Stage: 3, Limit: 1000, Sent: 600, Why: "advanced"}},
}

// TestSimulationPage: the form leads to a picture and the same in a table; without a volume nothing is simulated.
func TestSimulationPage(t *testing.T) {
	c := newSample(t)
	var asked api.SimulateWarmup
	c.answers["POST /v1/warmup/simulate"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			t.Error(err)
		}
		_ = json.NewEncoder(w).Encode(simulated)
	})
	b := c.as("vera")
	b.get("/warm-ups").wants(t, 200, `href="/warm-ups/simulate"`)
	b.get("/warm-up?source=acme-1").wants(t, 200, `action="/warm-ups/simulate"`, `name="plan" value="standard"`)
	b.get("/warm-ups/simulate").wants(t, 200, "<option>standard", "would stand here")
	a := b.get("/warm-ups/simulate?plan=standard&volume=600&shape=even")
	a.wants(t, 200, "<option selected>standard", `<option value="even" selected>`, "Of 1,800 recipients in 3 days, it sends 1,350; 450 take shared sources.", "<td>advanced</td>")
	svg := between(a.text, "<svg", "</svg>")
	if strings.Count(svg, "<polyline") != 3 || !strings.Contains(svg, "day 3") || strings.Contains(svg, "style=") {
		t.Errorf("the picture: %s", svg)
	}
	b.get("/warm-ups/simulate?plan=standard&volume=600&on=tue&tier=1").wants(t, 200, `value="tue"`, "<option selected>1</option>")
	if asked.On != "tue" || asked.Tier == nil || *asked.Tier != 1 {
		t.Errorf("the relay is asked %+v", asked)
	}
	b.get("/warm-ups/simulate?plan=standard&volume=600&tier=6").wants(t, 400, "Tier: want a number from 0 to 5")
	for _, volume := range []string{"0", "much", "10000001"} {
		b.get("/warm-ups/simulate?plan=standard&volume="+volume).wants(t, 400, "Volume: want a number from 1 to 10000000")
	}
}

// TestSimulatedDays: providers are added up, and the effect of a day stands beside it.
func TestSimulatedDays(t *testing.T) {
	days := simulatedDays(&api.SimulatedWarmup{
		Rows: []api.SimulatedRow{
			{Provider: "google", Stage: 1, CapDay: 20, Offered: 50, Sent: 20, Diverted: 30},
			{Provider: "*", Stage: 1, CapDay: 80, Offered: 50, Sent: 40, Waiting: 10},
			{Provider: "*", Second: 2 * daySeconds, Stage: 2, Offered: 10, Sent: 10},
		},
		Days: []warmup.DayStatus{{Limit: 100, Why: "stayed"}, {Limit: 200}, {Limit: 200, Why: "advanced", Provider: "google"}},
	})
	want := []simulatedDay{
		{Number: 1, Stage: 1, Cap: 100, Offered: 100, Sent: 60, Diverted: 30, Waiting: 10, Why: "stayed"},
		{Number: 3, Stage: 2, Cap: 200, Offered: 10, Sent: 10, Why: "advanced", Provider: "google"},
	}
	if len(days) != 2 || days[0] != want[0] || days[1] != want[1] {
		t.Errorf("%+v", days)
	}
}
