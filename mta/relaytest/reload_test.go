package relaytest

import (
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
)

// TestOtherWays: what waits for a place where it can't leave, within delivery and in the queue, leaves at once by the way
// that a reload gives it: by other hosts, from another source, or with less TLS.
func TestOtherWays(t *testing.T) {
	to := func(host, more string) string {
		return `domain "box.example" {
			route = ["smtp://` + host + `"]
			` + more + `
		}`
	}
	const old, other = "192.0.2.1:25", "192.0.2.2:2525"
	const refused = `source "refused" {
			address = "192.0.2.11"
			ehlo    = "refused.example"
		}
		domain "box.example" { host_retry_interval = "1h" }
		`
	for what, x := range map[string]struct {
		before, after string
		left          int // by the old way
		suspend       string
		takes         func(*ruled) *sink.Recorder // by default the other host
	}{
		"a rate":       {to(old, `max_message_rate = "1/h"`), to(other, `max_message_rate = "none"`), 1, "", nil},
		"a suspension": {to(old, ""), to(other, ""), 1, old, nil},
		"a host that is down": {to("192.0.2.77:25", `host_retry_interval = "1h"`), to(other, `host_retry_interval = "1h"`),
			0, "", nil},
		"a route in place of the DNS": {`domain "box.example" { max_message_rate = "1/h" }`,
			to(other, ""), 1, "", nil},
		"the DNS in place of a route": {to("192.0.2.77:25", `host_retry_interval = "1h"`), `domain "box.example" { }`, 0, "",
			func(r *ruled) *sink.Recorder { return r.taken }},
		"a route of the sender's": {`sender_domain "client.example" { route = ["smtp://` + old + `"] }
			defaults { max_message_rate = "1/h" }`, `sender_domain "client.example" { route = ["smtp://` + other + `"] }
			defaults { max_message_rate = "none" }`, 1, "", nil},
		"TLS": {`domain "box.example" {
				tls = "required"
				host_retry_interval = "1h"
			}`, `domain "box.example" {
				tls = "opportunistic"
				host_retry_interval = "1h"
			}`, 0, "", func(r *ruled) *sink.Recorder { return r.taken }},
		"a source": {refused + `pool "default" { shared = ["refused"] }`, refused + `pool "default" { shared = ["one"] }`, 0, "", func(r *ruled) *sink.Recorder { return r.taken }},
	} {
		t.Run(what, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				r := newRuled(t, x.before)
				r.Host("mx.box.example", sink.Config{Recorder: r.taken, Hook: func(c sink.Command) (a sink.Answer) {
					if c.Line == "EHLO refused.example" {
						a.Reply = "421 4.7.0 not you"
					}
					return a
				}}, old)
				r.send(1, "a@box.example")
				r.want("by the first way", x.left, 0)
				if x.suspend != "" {
					_, err := api.OpSuspend.Call(t.Context(), r.Client(), api.Suspend{Site: x.suspend, For: api.Age(24 * time.Hour)})
					r.must(err)
				}
				n := 100
				if x.left > 0 {
					n = 2500 // more than delivery takes
				}
				r.send(n, "a@box.example")
				r.want("which they wait for", x.left, 0)
				r.reload(x.before, x.after)
				time.Sleep(time.Minute)
				takes := r.other
				if x.takes != nil {
					takes = x.takes(r)
				}
				// The first may be deferred until its next attempt.
				if got := len(takes.Deliveries()); got < n || got > n+1 || takes == r.other && len(r.taken.Deliveries()) != x.left {
					t.Errorf("%d of %d were taken a minute after the reload, %d by the host of before", got, n, len(r.taken.Deliveries()))
				}
				time.Sleep(2 * time.Hour)
				if got := len(r.taken.Deliveries()) + len(r.other.Deliveries()); got != n+1 {
					t.Errorf("%d of %d were taken in the end", got, n+1)
				}
			})
		})
	}
}

// TestOtherContent: what waits within delivery leaves as the configuration in force makes it.
func TestOtherContent(t *testing.T) {
	const wait = "domain \"box.example\" {\n max_message_rate = \"1/h\"\n}\n"
	dkim := func(selector string) string {
		return `dkim "d" {
			domain = "client.example"
			key "` + selector + `" { private_key = "nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=" }
		}`
	}
	for what, x := range map[string]struct{ before, after, want string }{
		"a signature":      {"", dkim("s1"), "s=s1;"},
		"another selector": {dkim("s1"), dkim("s2"), "s=s2;"},
	} {
		t.Run(what, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				r := newRuled(t, wait+x.before)
				taken := sink.NewRecorder(sink.Contents, 0)
				r.Host("mx.box.example", sink.Config{Recorder: taken}, "192.0.2.1:25")
				r.send(20, "a@box.example")
				if n := len(taken.Messages()); n != 1 {
					t.Fatalf("%d left at once", n)
				}
				r.reload(wait+x.before, x.after)
				time.Sleep(time.Minute)
				all := taken.Messages()
				if len(all) != 20 {
					t.Errorf("%d were taken", len(all))
				}
				for _, m := range all[1:] {
					if !strings.Contains(string(m.Content), x.want) {
						t.Fatalf("left as\n%s", m.Content)
					}
				}
			})
		})
	}
}
