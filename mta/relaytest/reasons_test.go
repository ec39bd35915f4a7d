package relaytest

import (
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/parking"
	"example.org/mta/operator/api"
)

// TestReasonsAreBySource: mail for a site waits for what keeps that of its source. The counts, the filters by reason and
// by source, and the summary agree.
func TestReasonsAreBySource(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRuled(t, `
			source "two" { address = "192.0.2.11" }
			pool "default" { shared = ["one"] }
			pool "slow" {
				shared = ["two"]
				domain "*" { max_message_rate = "1/h" }
			}
			domain "far.example" { pool = "slow" }
		`)
		r.must(r.Zone.Add("far.example. 300 MX 10 mx.box.example."))
		_, err := api.OpSuspend.Call(t.Context(), r.Client(), api.Suspend{Site: "mx.box.example", Source: "one", For: api.Age(time.Hour)})
		r.must(err)
		r.send(3, "a@box.example")
		r.send(6, "b@far.example") // of which one leaves
		time.Sleep(10 * time.Second)

		s, err := api.OpStatus.Call(t.Context(), r.Client(), api.None{})
		r.must(err)
		count := map[parking.Reason]int{}
		for _, w := range s.Waiting.Reasons {
			count[w.Reason] = w.Recipients
		}
		if len(count) != 2 || count[parking.Suspended] != 3 || count[parking.Limit] != 5 {
			t.Errorf("%v, want 3 suspended, 5 for the limit", count)
		}
		for want, filters := range map[int][]api.Filter{
			3: {{WaitsFor: "suspended"}, {Source: "one"}},
			5: {{WaitsFor: "limit"}, {Source: "two"}},
		} {
			for _, f := range filters {
				l, err := api.OpList.Call(t.Context(), r.Client(), api.ListQuery{Filter: f})
				if r.must(err); len(l.Messages) != want {
					t.Errorf("%+v: %d messages, want %d", f, len(l.Messages), want)
				}
			}
		}
		sum, err := api.OpSummary.Call(t.Context(), r.Client(), api.SummaryQuery{By: api.BySource})
		r.must(err)
		for _, row := range sum.Rows {
			if want := map[string]int{"one": 3, "two": 5}[row.Key]; int(row.Total) != want {
				t.Errorf("the summary has %d of %q, want %d", row.Total, row.Key, want)
			}
		}
	})
}

// TestSlowedMailWaitsForALimit: mail beyond the rate of an operator's rule waits for a limit, which is named.
func TestSlowedMailWaitsForALimit(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRuled(t, "")
		r.rule(api.AddRule{Action: api.RuleSlow, Rate: "1/h", Selection: api.Selection{Provider: "big"}})
		r.send(3, "a@box.example")
		s, err := api.OpStatus.Call(t.Context(), r.Client(), api.None{})
		r.must(err)
		if w := s.Waiting.Reasons; len(w) != 1 || w[0].Reason != parking.Limit || w[0].Recipients != 2 || !strings.HasPrefix(w[0].Place, "rule 1 ") {
			t.Errorf("%+v, want 2 for the limit of rule 1", w)
		}
	})
}
