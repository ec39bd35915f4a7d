package relaytest

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/accounting"
	"example.org/mta/operator/api"
)

// TestBlockedSource: a source that half of the networks block is paused for a while, with an alarm and a line in the
// audit log. What all sources are refused for takes none out, and a pool keeps its last source. What an operator ends is
// not begun again at once, and what the configuration no longer wants ends.
func TestBlockedSource(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var zone strings.Builder
		for i := range 24 {
			fmt.Fprintf(&zone, "s%d.example. 60 IN MX 10 mx%d.example.\nmx%d.example. 60 IN A 203.0.%d.1\n", i, i, i, i)
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
		for i := range 24 {
			var fromB sync.Map // connections
			r.Host(fmt.Sprintf("mx%d.example", i), sink.Config{Hook: func(c sink.Command) (a sink.Answer) {
				switch bad := strings.HasPrefix(c.Sender, "bad@"); {
				case c.Phase == sink.Hello && strings.Contains(c.Line, "b.relay"):
					fromB.Store(c.Connection, true)
				case c.Phase == sink.Rcpt && bad:
					a.Reply = spam
				case c.Phase == sink.Mail && (i < 7 || i < 20 && !strings.Contains(c.Line, "few@")):
					if _, b := fromB.Load(c.Connection); !b {
						a.Reply = spam
					}
				}
				return a
			}}, fmt.Sprintf("203.0.%d.1:25", i))
		}
		r.Start()
		send := func(from, fields string) {
			for i := range 240 {
				r.Submit(from, fields+"Subject: x\r\n\r\nx\r\n", fmt.Sprintf("bob@s%d.example", i%24))
			}
		}
		state := func(paused, alarm string) {
			t.Helper()
			var rules, why string
			matches := func() bool {
				l, err := api.OpRules.Call(t.Context(), r.Client(), api.None{})
				r.must(err)
				st, err := api.OpStatus.Call(t.Context(), r.Client(), api.None{})
				r.must(err)
				rules, why = "", ""
				for _, p := range l.Rules {
					rules += p.Source + ": " + p.Reason + "; "
				}
				for _, a := range st.Alarms {
					if a.Name == "sources" {
						why = a.Reason
					}
				}
				return regexp.MustCompile("^"+paused+"$").MatchString(rules) && regexp.MustCompile("^"+alarm+"$").MatchString(why)
			}
			for range 55 { // a network that blocks a source gives few answers, since the source is left alone after each
				if time.Sleep(time.Minute); paused+alarm != "" && matches() {
					return
				}
			}
			if !matches() {
				t.Errorf("paused: %q, want %q; alarm: %q, want %q", rules, paused, why, alarm)
			}
		}
		send("bad@client.example", "") // the mail is bad, not the source
		state("", "")
		time.Sleep(3 * time.Hour)
		state("", "")

		send("few@client.example", "") // seven sites of 24
		state("", "")
		time.Sleep(3 * time.Hour)

		send("ann@client.example", "")
		const why = "[0-9]+ of [0-9]+ networks have blocked it within the hour"
		state("a: "+why+"; ", ".*"+why+".*")
		again := time.Now()
		send("ann@client.example", "")
		time.Sleep(time.Hour)
		from := make(map[string]int)
		for _, d := range r.records(accounting.Delivery) {
			if !d.Time.Before(again) {
				from[d.EgressSource]++
			}
		}
		if from["a"] > 0 || from["b"] < 240 {
			t.Errorf("while a was paused, mail left from %v", from)
		}
		acts, err := api.OpActions.Call(t.Context(), r.Client(), api.ActionQuery{})
		if err != nil || len(acts.Actions) != 1 || acts.Actions[0].Actor.Name() != "the relay" || !regexp.MustCompile(why).MatchString(acts.Actions[0].Reason) {
			t.Errorf("audit log: %+v, %v", acts, err)
		}
		time.Sleep(4 * time.Hour)
		state("", "")

		send("ann@client.example", "")
		send("ann@client.example", "X-MTA-Tenant: solo\r\n") // it has no other source
		state("a: "+why+"; ", "source c: "+why+", and it isn't paused: it is the last one of a pool; source a is paused.*")

		l, err := api.OpRules.Call(t.Context(), r.Client(), api.None{})
		r.must(err)
		_, err = api.OpEndRule.Call(t.Context(), r.Client(), api.EndRule{ID: l.Rules[0].ID})
		r.must(err)
		send("ann@client.example", "")
		state("", "source a: "+why+", and it isn't paused: an operator has ended its pause.*")
		time.Sleep(4 * time.Hour)
		send("ann@client.example", "")
		state("a: "+why+"; ", "source a is paused by the relay.*")
		r.reload(`refused = "pause"`, `refused = "alarm"`)
		state("", "source a: "+why+".*")
	})
}

// TestStrangersPauseNoSource: the hosts of one tenant, however many names and networks they have, take no source from the
// others.
func TestStrangersPauseNoSource(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var zone strings.Builder
		for i := range 45 {
			fmt.Fprintf(&zone, "s%d.example. 60 IN MX 10 mx%d.example.\nmx%d.example. 60 IN A 203.0.%d.1\n", i, i, i, i)
		}
		r := New(t, zone.String(), `
			source "a" {
				address = "192.0.2.10"
				ehlo    = "a.relay.example"
			}
			source "b" { address = "192.0.2.11" }
			tenant "acme" { }
			tenant "evil" { }
			checks { refused = "pause" }
		`)
		for i := range 45 {
			var fromA sync.Map // connections
			r.Host(fmt.Sprintf("mx%d.example", i), sink.Config{Hook: func(c sink.Command) (a sink.Answer) {
				if c.Phase == sink.Hello && strings.Contains(c.Line, "a.relay") {
					fromA.Store(c.Connection, true)
				}
				if _, bad := fromA.Load(c.Connection); bad && c.Phase == sink.Rcpt && i >= 20 {
					a.Reply = "550 5.7.1 Service unavailable; client host is blocked using zen.spamhaus.org"
				}
				return a
			}}, fmt.Sprintf("203.0.%d.1:25", i))
		}
		r.Start()
		for i := range 450 {
			tenant := "acme"
			if i%45 >= 20 {
				tenant = "evil"
			}
			r.Submit("", "X-MTA-Tenant: "+tenant+"\r\nSubject: x\r\n\r\nx\r\n", fmt.Sprintf("bob@s%d.example", i%45))
		}
		l, err := api.OpRules.Call(t.Context(), r.Client(), api.None{})
		if err != nil || len(l.Rules) > 0 {
			t.Errorf("rules: %+v, %v", l, err)
		}
	})
}
