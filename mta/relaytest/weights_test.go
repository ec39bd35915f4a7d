package relaytest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/mta/accounting"
	"example.org/mta/operator/api"
)

// TestWeights: new mail is shared out by the weights of the file, then by those that an operator sets, which last over a
// restart. At 0 a source keeps what it has tried, and gets nothing new.
func TestWeights(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := New(t, "", `
			source "a" { address = "192.0.2.1" }
			source "b" { address = "192.0.2.2" }
			source "c" { address = "192.0.2.3" }
			source "d" { address = "192.0.2.4" }
			pool "default" {
				shared  = ["a", "b"]
				weights = ["a=3"]
			}
			pool "own" {
				dedicated "c" {}
				dedicated "d" {}
			}
			tenant "acme" { pool = "own" }
			domain "*.example" { route = ["discard"] }
			domain "busy.example" { route = ["fail 451 4.3.0 try again"] }
		`)
		r.Start()
		send := func(n int, fields, to string) {
			for range n {
				r.Submit("ann@client.example", fields+"Subject: x\r\n\r\nx\r\n", to)
			}
		}
		took := func(kind accounting.Type, since time.Time) map[string]int {
			n := make(map[string]int)
			for _, rec := range r.records(kind) {
				if !rec.Time.Before(since) {
					n[rec.EgressSource]++
				}
			}
			return n
		}
		set := func(pool, source string, weight, was int) {
			t.Helper()
			done, err := api.OpSetWeight.Call(t.Context(), r.Client(), api.SetWeight{Source: source, Weight: weight}, pool)
			if err != nil || done.Was != was || done.Weight.Weight != weight {
				t.Fatalf("setting it: %+v, %v", done, err)
			}
		}
		send(200, "", "bob@one.example")
		send(20, "", "eve@busy.example")
		send(100, "X-MTA-Tenant: acme\r\n", "bob@one.example")
		time.Sleep(time.Minute)
		n := took(accounting.Delivery, time.Time{})
		if n["a"] < 130 || n["a"] > 170 || n["a"]+n["b"] != 200 || n["c"] < 35 || n["c"]+n["d"] != 100 {
			t.Errorf("by the file: %v", n)
		}

		set("default", "a", 0, 3)
		set("own", "d", 0, 1)
		first := took(accounting.TransientFailure, time.Time{})
		r.Stop()
		r.Start()
		again := time.Now()
		send(100, "", "bob@one.example")
		send(100, "X-MTA-Tenant: acme\r\n", "bob@one.example")
		time.Sleep(15 * time.Minute)
		if n := took(accounting.Delivery, again); n["b"] != 100 || n["c"] != 100 || len(n) != 2 {
			t.Errorf("after the weights were set: %v", n)
		}
		if n := took(accounting.TransientFailure, again); first["a"] == 0 || n["a"] != first["a"] {
			t.Errorf("what a had tried: %v, then %v", first, n)
		}

		pools, err := api.OpPools.Call(t.Context(), r.Client(), api.UnpooledFilter{})
		if err != nil || len(pools.Pools) != 2 || fmt.Sprint(pools.Pools[0].Weights, pools.Pools[1].Weights) != "map[a:0] map[d:0]" {
			t.Errorf("pools: %+v, %v", pools, err)
		}
		for want, w := range map[string]api.SetWeight{
			"would be left for new mail":    {Source: "b", Weight: 0},
			`has no source "c"`:             {Source: "c", Weight: 1},
			"want a number from 0 to 1000":  {Source: "b", Weight: 1001},
			"want a number from 0 to 1000,": {Source: "b", Weight: -1},
		} {
			if _, err := api.OpSetWeight.Call(t.Context(), r.Client(), w, "default"); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, want %q", w, err, want)
			}
		}

		explained := func() string {
			t.Helper()
			e, err := api.OpExplain.Call(t.Context(), r.Client(), api.ExplainQuery{Domain: "one.example"})
			if err != nil {
				t.Fatal(err)
			}
			return e.Destinations[0].Now
		}
		pause := func(source string) {
			t.Helper()
			if _, err := api.OpAddRule.Call(t.Context(), r.Client(), api.AddRule{Action: api.RuleSuspend, Selection: api.Selection{Source: source}, By: "ann"}); err != nil {
				t.Fatal(err)
			}
		}
		if got := explained(); got != "mail is sent from 1 of 2 sources, not from the others: source a gets no new mail: its weight in pool default is 0" {
			t.Error(got)
		}
		pause("b") // by an operator, who may
		if got := explained(); got != "no mail is sent: source b is paused by ann; source a gets no new mail: its weight in pool default is 0" {
			t.Error(got)
		}
		set("default", "a", 1, 0)
		if _, err := api.OpSetWeight.Call(t.Context(), r.Client(), api.SetWeight{Source: "a", Weight: 0}, "default"); err == nil || !strings.Contains(err.Error(), "would be left for new mail") {
			t.Errorf("beside a source that is paused: %v", err)
		}
		done, err := api.OpSetWeight.Call(t.Context(), r.Client(), api.SetWeight{Source: "a", Own: true}, "default")
		if err != nil || done.Was != 1 || done.Weight.Weight != 3 {
			t.Errorf("back to the file's: %+v, %v", done, err)
		}
		r.Stop()
		r.Start()
		pools, err = api.OpPools.Call(t.Context(), r.Client(), api.UnpooledFilter{})
		if err != nil || pools.Pools[0].Weights["a"] != 3 {
			t.Errorf("after a restart: %+v, %v", pools, err)
		}
	})
}
