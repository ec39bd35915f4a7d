package web

import (
	"strings"
	"testing"
	"time"

	"example.org/mta/operator/api"
)

// TestAlarmsLeadToPages: whoever sees an alarm is one click away from what it is about.
func TestAlarmsLeadToPages(t *testing.T) {
	c := newConsole(t, nil)
	for name, path := range alarmPages {
		if r := c.routeOf("GET", path); r == nil || r.page == nil {
			t.Errorf("the alarm %s leads to %s, which is no page", name, path)
		}
	}
	for _, name := range []string{"audit", "damage", "certificates"} {
		if alarmPages[name] == "" {
			t.Errorf("the alarm %s leads nowhere", name)
		}
	}
	c.answers["GET /v1/status"] = api.Status{Alarms: []api.Alarm{{Name: "warmup_health", Reason: "google defers", Since: start}}}
	c.as("vera").get("/").wants(t, 200, `<a href="/warm-ups">warmup health</a>`)
}

// TestCommonestReplyNamesItsSample: not all sites are asked for their errors.
func TestCommonestReplyNamesItsSample(t *testing.T) {
	c := newSample(t)
	now := api.Change{Action: api.Retry, Filter: api.Filter{Recipient: "anna@grey.example"}, Now: true}
	if _, err := api.OpChange.Call(t.Context(), api.NewLocalClient(c.relay), now); err != nil {
		t.Fatal(err)
	}
	c.relay.Pass(time.Second)
	a := c.as("vera").get("/")
	a.wants(t, 200, "450 4.7.1 greylisted")
	if part := between(a.text, "<h2>Deferrals by provider</h2>", "<h2>"); !strings.Contains(part, "at up to 3 sites of each provider, among the 40 sites with the most mail") {
		t.Error(part)
	}
}
