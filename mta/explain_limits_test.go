package mta

import (
	"slices"
	"strings"
	"testing"

	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
)

// TestExplainOwnLimits: of a destination's, a source's and a pool's limits, explain shows all, and names the file and
// the line of the one that binds.
func TestExplainOwnLimits(t *testing.T) {
	w := newWorld(t, sink.Config{}, `
defaults {
  smtp_port                   = PORT
  connection_limit_per_source = 7
  max_message_rate_per_source = "1/s"
}
source "out" {
  address = "127.0.0.1"
  domain "box.example" {
    connection_limit = 3
    max_message_rate = "1/h"
  }
}
pool "default" {
  shared = ["out"]
  domain "*.example" { max_message_rate = "9/min" }
  domain "box.example" { max_connection_rate_per_source = "5/min" }
}
`)
	enqueue(t, w.Relay, "bob@box.example", 1)
	w.arrived(1)
	id := enqueue(t, w.Relay, "bob@box.example", 3)
	d := explained(t, w.Relay, id, func(r *api.ExplainedRecipient) bool {
		return strings.Contains(r.Why, "max_message_rate 1/h of site mx.box.example from source out")
	}).Destinations[0]
	const set = `, set by source "out", domain "box.example" (`
	if !strings.Contains(d.Now, set) || !strings.Contains(d.Ceiling.Binds, set) {
		t.Errorf("now: %s\nceiling: %s", d.Now, d.Ceiling.Binds)
	}
	for _, want := range []api.Limit{
		{Setting: "connection_limit_per_source", Value: "7", Scope: "site mx.box.example, each source"},
		{Setting: "connection_limit", Value: "3", Scope: "site mx.box.example from source out", Now: "the smallest for this source"},
		{Setting: "max_message_rate", Value: "1/h", Scope: "site mx.box.example from source out", Now: "the smallest for this source"},
		{Setting: "max_message_rate", Value: "9/min", Scope: "site mx.box.example from pool default"},
		{Setting: "max_connection_rate_per_source", Value: "5/min", Scope: "site mx.box.example from source out", Now: "the smallest for this source"},
	} {
		i := slices.IndexFunc(d.Limits, func(l api.Limit) bool { return l.Setting == want.Setting && l.Scope == want.Scope })
		if i < 0 || d.Limits[i].Value != want.Value || d.Limits[i].Now != want.Now || !strings.Contains(d.Limits[i].Origin, "conf:") {
			t.Errorf("no %+v in %+v", want, d.Limits)
		}
	}
}

// TestExplainMarksSharedLimits in the table and in the ceiling, though no mail waits; a node's own are not marked.
func TestExplainMarksSharedLimits(t *testing.T) {
	w := newWorld(t, sink.Config{}, `
defaults {
  smtp_port        = PORT
  max_message_rate = "90/s"
}
provider "big" {
  mx               = ["*.box.example"]
  max_message_rate = "20/s"
}
source "out" {
  address          = "127.0.0.1"
  max_message_rate = "30/s"
  limits_per_node  = true
}
pool "default" { shared = ["out"] }
`)
	w.policy.Load().Relays = func() int { return 3 }
	d := w.explainDomain("box.example")
	if !strings.Contains(d.Ceiling.Binds, ", of all relays together, set by provider") {
		t.Errorf("ceiling: %+v", d.Ceiling)
	}
	for _, l := range d.Limits {
		if shared := strings.HasSuffix(l.Scope, ", of all relays together"); l.Setting == "max_message_rate" && shared != (l.Scope != "source out") {
			t.Errorf("%+v", l)
		}
	}
}

// TestExplainCountsHeldMail that has never had a route, as that of its domain.
func TestExplainCountsHeldMail(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	if _, err := w.api.Rules.AddRule(t.Context(), api.AddRule{Action: api.RuleHold, Selection: api.Selection{Domain: "box.example"}}); err != nil {
		t.Fatal(err)
	}
	enqueue(t, w.Relay, "bob@box.example", 3)
	w.until("the mail is held", func() bool { return w.queue.Stats().Held == 3 })
	if q := w.explainDomain("box.example").Queued; q.Held != 3 || q.Unsorted != 0 {
		t.Errorf("%+v", q)
	}
}
