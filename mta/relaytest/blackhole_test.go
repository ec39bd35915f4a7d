package relaytest

import (
	"encoding/json"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/mta/accounting"
	"example.org/mta/operator/api"
)

// records gives those of a type, the oldest first.
func (r *Relay) records(kind accounting.Type) (all []accounting.Record) {
	r.t.Helper()
	q := api.LogQuery{Types: []string{string(kind)}}
	r.must(r.Client().Log(r.t.Context(), q, func(line []byte) error {
		rec, err := accounting.Parse(line)
		all = append(all, *rec)
		return err
	}))
	return all
}

// TestBlackhole: mail for tests goes the whole way, under tls = "required" too, from a source under a plan, and no
// record of it looks as if a host had it. A refusal is retried, then bounced, as the route says.
func TestBlackhole(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := New(t, "", `
			defaults { tls = "required" }
			source "cold" { address = "192.0.2.10" }
			pool "default" {
				overflow = "hold"
				dedicated "cold" { plan = "p" }
			}
			plan "p" {
				stage {
					hourly = 1000
					daily  = 10000
				}
			}
			domain "*.example" { route = ["discard"] }
			domain "later.example" { route = ["fail 451 4.3.0 try again"] }
			domain "never.example" { route = ["fail 550 5.1.1 nobody here"] }
			sender_domain "probe.example" { route = ["discard"] }
		`)
		r.Start()
		text := "From: ann@client.example\r\nSubject: test\r\n\r\n.\r\nZürich\r\n"
		for _, to := range []string{"a@one.example", "b@two.example", "c@later.example", "d@never.example"} {
			r.Submit("ann@client.example", text, to)
		}
		r.Submit("ann@probe.example", text, "e@anywhere.example")
		time.Sleep(time.Minute)

		delivered := r.records(accounting.Delivery)
		if len(delivered) != 4 { // one is the report to Ann
			t.Fatalf("%d deliveries, want 4: %+v", len(delivered), delivered)
		}
		for _, d := range delivered {
			if d.DeliveryProtocol != "discard" || d.Peer != (accounting.Peer{Name: "discard"}) || d.Site != "discard" ||
				d.Response.Text != "discarded by this relay: no host has it" || d.EgressSource != "cold" {
				t.Errorf("recorded as %+v", d)
			}
		}
		failed := r.records(accounting.TransientFailure)
		if len(failed) != 1 || failed[0].Response.Text != "try again" || failed[0].Response.Command != "RCPT" ||
			failed[0].DeliveryProtocol != "discard" {
			t.Errorf("failures: %+v", failed)
		}
		if b := r.records(accounting.Bounce); len(b) != 1 || b[0].Class != "InvalidRecipient" {
			t.Errorf("bounces: %+v", b)
		}
		w, err := api.OpWarmups.Call(t.Context(), r.Client(), api.Paging{Limit: 9})
		text2, _ := json.Marshal(w)
		if err != nil || len(w.Warmups) != 1 || w.Warmups[0].SentDay != 6 {
			t.Errorf("warm-up: %s, %v", text2, err)
		}
	})
}
