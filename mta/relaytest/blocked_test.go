package relaytest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/accounting"
	"example.org/mta/operator/api"
)

// TestBlockedSource: a source that half of its sites block is paused for a while, with an alarm and a line in the audit
// log. What all sources are refused for takes none out, and a pool keeps its last source.
func TestBlockedSource(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var zone strings.Builder
		for i := range 12 {
			fmt.Fprintf(&zone, "s%d.example. 60 IN MX 10 mx%d.example.\nmx%d.example. 60 IN A 192.0.2.%d\n", i, i, i, 100+i)
		}
		r := New(t, zone.String(), `
			source "a" {
				address = "192.0.2.10"
				ehlo    = "a.relay.example"
			}
			source "b" {
				address = "192.0.2.11"
				ehlo    = "b.relay.example"
			}
			source "c" {
				address = "192.0.2.12"
				ehlo    = "c.relay.example"
			}
			pool "default" { shared = ["a", "b"] }
			pool "single"  { shared = ["c"] }
			tenant "solo" { pool = "single" }
			checks { refused = "pause" }
			domain "client.example" { route = ["discard"] }
		`)
		const spam = "554 5.7.1 Service unavailable; client host is blocked using zen.spamhaus.org"
		for i := range 12 {
			var fromB sync.Map // connections
			r.Host(fmt.Sprintf("mx%d.example", i), sink.Config{Hook: func(c sink.Command) (a sink.Answer) {
				switch bad := strings.HasPrefix(c.Sender, "bad@"); {
				case c.Phase == sink.Hello && strings.Contains(c.Line, "b.relay"):
					fromB.Store(c.Connection, true)
				case c.Phase == sink.Rcpt && bad:
					a.Reply = spam
				case c.Phase == sink.Mail && (i < 5 || i < 7 && !strings.Contains(c.Line, "few@")):
					if _, b := fromB.Load(c.Connection); !b {
						a.Reply = spam
					}
				}
				return a
			}}, fmt.Sprintf("192.0.2.%d:25", 100+i))
		}
		r.Start()
		send := func(from, fields string) {
			for i := range 120 {
				r.Submit(from, fields+"Subject: x\r\n\r\nx\r\n", fmt.Sprintf("bob@s%d.example", i%12))
			}
		}
		state := func(paused, alarm string) {
			t.Helper()
			l, err := api.OpRules.Call(t.Context(), r.Client(), api.None{})
			got := ""
			for _, p := range l.Rules {
				got += p.Source + ": " + p.Reason + "; "
			}
			if err != nil || got != paused {
				t.Errorf("paused: %q, %v; want %q", got, err, paused)
			}
			st, err := api.OpStatus.Call(t.Context(), r.Client(), api.None{})
			got = ""
			for _, a := range st.Alarms {
				if a.Name == "sources" {
					got = a.Reason
				}
			}
			if err != nil || !strings.Contains(got, alarm) || alarm == "" && got != "" {
				t.Errorf("alarm: %q, %v; want %q", got, err, alarm)
			}
		}
		send("bad@client.example", "") // the mail is bad, not the source
		time.Sleep(5 * time.Minute)
		state("", "")
		time.Sleep(3 * time.Hour)
		state("", "")

		send("few@client.example", "") // five sites of twelve
		time.Sleep(2 * time.Minute)
		state("", "")
		time.Sleep(3 * time.Hour)

		send("ann@client.example", "")
		time.Sleep(2 * time.Minute)
		const why = "7 of 13 sites have blocked it within the hour"
		state("a: "+why+"; ", why)
		again := time.Now()
		send("ann@client.example", "")
		time.Sleep(time.Hour)
		from := make(map[string]int)
		for _, d := range r.records(accounting.Delivery) {
			if !d.Time.Before(again) {
				from[d.EgressSource]++
			}
		}
		if from["a"] > 0 || from["b"] < 120 {
			t.Errorf("while a was paused, mail left from %v", from)
		}
		acts, err := api.OpActions.Call(t.Context(), r.Client(), api.ActionQuery{})
		if err != nil || len(acts.Actions) != 1 || acts.Actions[0].Actor.Name() != "the relay" || acts.Actions[0].Reason != why {
			t.Errorf("audit log: %+v, %v", acts, err)
		}
		time.Sleep(4 * time.Hour)
		state("", "")

		send("ann@client.example", "")
		send("ann@client.example", "X-MTA-Tenant: solo\r\n") // it has no other source
		time.Sleep(2 * time.Minute)
		state("a: "+why+"; ", "source c: "+why+", and it can't be paused: it is the last one of a pool; source a is paused")
	})
}
