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

// networks is the zone of so many sites, s0.example and on, each with a host in a network for itself.
func networks(n int) string {
	var zone strings.Builder
	for i := range n {
		fmt.Fprintf(&zone, "s%[1]d.example. 60 IN MX 10 mx%[1]d.example.\nmx%[1]d.example. 60 IN A 203.0.%[1]d.1\n", i)
	}
	return zone.String()
}

const spam = "554 5.7.1 Service unavailable; client host is blocked using zen.spamhaus.org"

// TestBlockedSource: a source that half of the networks block is paused for a while, with an alarm and a line in the
// audit log. What all sources are refused for takes none out, and a pool keeps its last source. What an operator ends is
// not begun again at once, and what the configuration no longer wants ends.
func TestBlockedSource(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := New(t, networks(24), `
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
		state("a: "+why+"; ", "source c: "+why+", and it isn't paused: it is the last one of a pool; the replies: mta log --source c --class SpamBlock; source a is paused.*")

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

// TestFirstBlock: when all networks that a source's mail goes to block it with their first answer, the alarm is on
// within two minutes, and the source is not paused for so little.
func TestFirstBlock(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := New(t, networks(5), `
			source "a" { address = "192.0.2.10" }
			pool "default" { shared = ["a"] }
			checks { refused = "pause" }
			domain "client.example" { route = ["discard"] }
		`)
		for i := range 5 {
			r.Host(fmt.Sprintf("mx%d.example", i), sink.Config{Hook: func(cmd sink.Command) (a sink.Answer) {
				if cmd.Phase == sink.Mail {
					a.Reply = "421 4.7.0 blocked using zen.spamhaus.org"
				}
				return a
			}}, fmt.Sprintf("203.0.%d.1:25", i))
		}
		r.Start()
		for i := range 5 {
			r.Submit("ann@client.example", "Subject: x\r\n\r\nx\r\n", fmt.Sprintf("bob@s%d.example", i))
		}
		time.Sleep(2 * time.Minute)
		st, err := api.OpStatus.Call(t.Context(), r.Client(), api.None{})
		r.must(err)
		const want = "source a: 5 of 5 networks have blocked it within the hour, and it isn't paused: these have answered too seldom; " +
			"the replies: mta log --source a --class SpamBlock"
		for _, a := range st.Alarms {
			if a.Name == "sources" && a.Reason == want {
				return
			}
		}
		t.Errorf("alarms: %+v, want %q", st.Alarms, want)
	})
}

// TestWhoPausesSources: neither the hosts of one tenant, however many names and networks they have and whoever else
// writes to them, nor strangers with many networks and little mail take a source from the others, and the alarm has the
// reason. A source of one tenant is judged by its mail alone.
func TestWhoPausesSources(t *testing.T) {
	for name, c := range map[string]struct {
		blocked    string         // the source
		mail       map[string]int // recipients of a tenant at each network that blocks it, each time
		beside     int            // recipients of acme at each of as many networks that have no other's mail
		rules, why string
	}{
		"one tenant": {"a", map[string]int{"evil": 40}, 0, "", "these had mail of one tenant each, and others may use it"},
		"one tenant, and another writes to it": {"a", map[string]int{"acme": 1, "evil": 40}, 0, "",
			`without the mail of tenant "evil" these had [0-9]+ of [0-9]+ recipients`},
		"strangers":            {"a", map[string]int{"acme": 1, "evil": 1}, 0, "", "these had [0-9]+ of [0-9]+ recipients"},
		"many receivers":       {"a", map[string]int{"acme": 40, "evil": 40}, 0, "source a", ""},
		"and many small":       {"a", map[string]int{"acme": 40, "evil": 40}, 1, "source a", ""},
		"a source of a tenant": {"c", map[string]int{"solo": 40}, 0, "source c", ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				all := 24 + 40*c.beside
				r := New(t, networks(all), `
					source "a" {
						address = "192.0.2.10"
						ehlo    = "a.relay.example"
					}
					source "b" { address = "192.0.2.11" }
					source "c" {
						address = "192.0.2.12"
						ehlo    = "c.relay.example"
					}
					source "d" { address = "192.0.2.13" }
					pool "default" { shared = ["a", "b"] }
					pool "single"  { shared = ["c", "d"] }
					tenant "acme" { }
					tenant "evil" { }
					tenant "solo" { pool = "single" }
					checks { refused = "pause" }
				`)
				for i := range all {
					var bad sync.Map // connections
					r.Host(fmt.Sprintf("mx%d.example", i), sink.Config{Hook: func(cmd sink.Command) (a sink.Answer) {
						if cmd.Phase == sink.Hello && strings.Contains(cmd.Line, c.blocked+".relay") {
							bad.Store(cmd.Connection, true)
						}
						if _, is := bad.Load(cmd.Connection); is && cmd.Phase == sink.Mail && i >= 4 && i < 24 {
							a.Reply = spam
						}
						return a
					}}, fmt.Sprintf("203.0.%d.1:25", i))
				}
				r.Start()
				send := func(tenant string, i, n int) {
					to := make([]string, n)
					for k := range to {
						to[k] = fmt.Sprintf("bob%d@s%d.example", k, i)
					}
					r.Submit("", "X-MTA-Tenant: "+tenant+"\r\nSubject: x\r\n\r\nx\r\n", to...)
				}
				for range 3 { // after a block a source is left alone for a quarter of an hour
					for range 4 {
						for i := range 4 {
							send("acme", i, 40)
							send("evil", i, 40)
						}
						for i := 4; i < 24; i++ {
							for tenant, n := range c.mail {
								send(tenant, i, n)
							}
						}
						for i := 24; i < all; i++ {
							send("acme", i, c.beside)
						}
					}
					time.Sleep(17 * time.Minute)
				}
				l, err := api.OpRules.Call(t.Context(), r.Client(), api.None{})
				r.must(err)
				st, err := api.OpStatus.Call(t.Context(), r.Client(), api.None{})
				r.must(err)
				rules, alarm := "", ""
				for _, x := range l.Rules {
					rules += x.Selection.String()
				}
				for _, a := range st.Alarms {
					if a.Name == "sources" {
						alarm = a.Reason
					}
				}
				want := "source " + c.blocked + " is paused by the relay: .*; to end that: mta rule end 1"
				if c.rules == "" {
					want = "source a: [0-9]+ of [0-9]+ networks have blocked it within the hour, and it isn't paused: " + c.why +
						"; the replies: mta log --source a --class SpamBlock; to pause it: mta pause source a"
				}
				if rules != c.rules || !regexp.MustCompile("^"+want+"$").MatchString(alarm) {
					t.Errorf("rules: %q, want %q; alarm: %q, want %q", rules, c.rules, alarm, want)
				}
			})
		})
	}
}
