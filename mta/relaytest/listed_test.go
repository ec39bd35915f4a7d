package relaytest

import (
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/accounting"
	"example.org/mta/operator/api"
)

// TestListedSource: a source on a block list is paused by itself, as long as the list has it, over a restart too; the
// last source of a pool that gets new mail is not.
func TestListedSource(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := New(t, `
			2.0.0.127.bl.example.  60 IN A 127.0.0.2
			10.2.0.192.bl.example. 60 IN A 127.0.0.2
		`, `
			source "a" { address = "192.0.2.10" }
			source "b" { address = "192.0.2.11" }
			source "c" { address = "192.0.2.12" }
			pool "default" {
				shared  = ["a", "b", "c"]
				weights = ["c=0"]
			}
			checks {
				daily     = true
				dns_lists = ["bl.example"]
				listed    = "pause"
			}
			domain "*.example" { route = ["discard"] }
		`)
		began := time.Now()
		r.Start()
		paused := func(want string) {
			t.Helper()
			l, err := api.OpRules.Call(t.Context(), r.Client(), api.None{})
			got := ""
			for _, p := range l.Rules {
				got += p.Source + " by " + p.By + ": " + p.Reason + "; "
			}
			if err != nil || got != want {
				t.Errorf("after %v: paused: %q, %v; want %q", time.Since(began), got, err, want)
			}
		}
		const a = "a by the relay: 192.0.2.10 is on bl.example (127.0.0.2); "
		paused("")
		time.Sleep(11 * time.Minute)
		paused(a)
		for range 50 {
			r.Submit("ann@client.example", "Subject: x\r\n\r\nx\r\n", "bob@one.example")
		}
		time.Sleep(time.Minute)
		for _, d := range r.records(accounting.Delivery) {
			if d.EgressSource != "b" {
				t.Fatalf("left from %s: %+v", d.EgressSource, d)
			}
		}
		r.must(r.Zone.Add("11.2.0.192.bl.example. 60 IN A 127.0.0.2"))
		time.Sleep(3 * time.Hour)
		paused(a) // b is the last one
		r.Stop()
		r.Start()
		paused(a)
		// NXDOMAIN
		r.Zone.Fault("10.2.0.192.bl.example.", sink.DNSFault{Rcode: 3})
		time.Sleep(5 * time.Hour)
		paused("b by the relay: 192.0.2.11 is on bl.example (127.0.0.2); ")
	})
}
