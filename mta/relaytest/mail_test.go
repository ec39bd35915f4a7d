package relaytest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/mta/accounting"
	"example.org/mta/operator/api"
)

// TestMailBlocks: mail of a campaign is tried often and given up soon, also while it waits for the end of a pause; the
// rest of the tenant's goes on. The first block that has a setting and matches counts.
func TestMailBlocks(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := New(t, "", `
			tenant "acme" {}
			mail "codes" {
				match { campaign = ["otp"] }
				max_age        = "10m"
				retry_interval = ["20s", "1m"]
			}
			mail "acme" {
				match { tenant = ["acme"] }
				max_age       = "25m"
				delay_warning = "15m"
			}
			defaults { delay_warning = "0" }
			domain "busy.example" { route = ["fail 451 4.3.0 try again"] }
			domain "client.example" { route = ["discard"] }
		`)
		r.Start()
		began := time.Now()
		send := func(fields, to string) {
			r.Submit("ann@client.example", fields+"From: ann@client.example\r\nSubject: x\r\n\r\nx\r\n", to)
		}
		send("X-MTA-Tenant: acme\r\nX-MTA-Campaign: otp\r\n", "code@busy.example")
		send("X-MTA-Tenant: acme\r\n", "letter@busy.example")
		send("", "other@busy.example")
		time.Sleep(5 * time.Minute)
		const codes, acme = `mail "codes"`, `mail "acme"`
		for to, want := range map[string][3]string{ // where each setting comes from
			"code@busy.example":   {codes, codes, acme},
			"letter@busy.example": {acme, "default", acme},
			"other@busy.example":  {"default", "default", ""},
		} {
			l, err := api.OpList.Call(t.Context(), r.Client(), api.ListQuery{Filter: api.Filter{Recipient: to}})
			if err != nil || len(l.Messages) != 1 {
				t.Fatal(l, err)
			}
			e, err := api.OpExplain.Call(t.Context(), r.Client(), api.ExplainQuery{ID: l.Messages[0].ID})
			r.must(err)
			if got := origins(e.Destinations[0].Limits); got != want {
				t.Errorf("explain %s: %q, want %q", to, got, want)
			}
		}
		e, err := api.OpExplain.Call(t.Context(), r.Client(), api.ExplainQuery{Domain: "busy.example", Tenant: "acme"})
		if want := [3]string{acme, "default", acme}; err != nil || origins(e.Destinations[0].Limits) != want {
			t.Errorf("explain --tenant: %q, %v", origins(e.Destinations[0].Limits), err)
		}
		time.Sleep(30 * time.Minute)
		tries := make(map[string]int)
		for _, f := range r.records(accounting.TransientFailure) {
			tries[string(f.Recipient)]++
		}
		if tries["code@busy.example"] < 9 || tries["letter@busy.example"] > 4 || tries["other@busy.example"] > 5 {
			t.Errorf("attempts: %v", tries)
		}
		after := make(map[string]time.Duration)
		for _, e := range r.records(accounting.Expiration) {
			after[string(e.Recipient)] = e.Time.Sub(began).Round(time.Minute)
		}
		if len(after) != 2 || after["code@busy.example"] != 10*time.Minute || after["letter@busy.example"] != 25*time.Minute {
			t.Errorf("expired after %v", after)
		}
		var reports []string // to the sender: codes and letter expired, the letter was late before
		for _, d := range r.records(accounting.Delivery) {
			reports = append(reports, d.Time.Sub(began).Round(time.Minute).String())
		}
		if got := strings.Join(reports, " "); got != "10m0s 15m0s 25m0s" {
			t.Errorf("reports after %s", got)
		}
	})
}

// origins returns the blocks that max_age, retry_interval and delay_warning come from.
func origins(limits []api.Limit) (from [3]string) {
	for _, l := range limits {
		if i := slices.Index([]string{"max_age", "retry_interval", "delay_warning"}, l.Setting); i >= 0 {
			block, line, _ := strings.Cut(l.Origin, " (")
			if from[i] += block; block != "default" && !strings.Contains(line, ".conf:") {
				from[i] += " without its line"
			}
		}
	}
	return from
}
