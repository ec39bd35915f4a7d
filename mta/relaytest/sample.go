package relaytest

import (
	"context"
	"fmt"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
	"example.org/mta/submission/auth"
)

// Now is the time at which the sample's population is complete.
var Now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

const sampleZone = `
	big.example.          MX 10 mx1.big.example.
	big.example.          MX 20 mx2.big.example.
	mx1.big.example.      A  192.0.2.10
	mx2.big.example.      A  192.0.2.11
	grey.example.         MX 10 mx.grey.example.
	mx.grey.example.      A  192.0.2.1
	slow.example.         MX 10 mx1.slow.example.
	mx1.slow.example.     A  192.0.2.7
	xn--80a1acny.example. MX 10 mx.post.example.
	mx.post.example.      A  192.0.2.2
	xn--r8jz45g.example.  MX 10 mx.silent.example.
	mx.silent.example.    A  192.0.2.9
	acme.example.         MX 10 mx.acme.example.
	mx.acme.example.      A  192.0.2.30
	null.example.         MX 0 .
`

const sampleConfig = `
	api "web" { address = "127.0.0.1:8025" }
	keys { file = "keys" }
	source "out1" { address = "192.0.2.100" }
	source "acme-1" { address = "192.0.2.20" }
	source "news-1" { address = "2001:db8::20" }
	plan "small" {
		begin = "2026-11-21"
		day_starts = "11:59 UTC"
		stage {
			hourly = 44
			daily = 350
		}
		stage {
			hourly = 70
			daily = 560
			provider "google" {
				hourly = 35
				daily = 280
			}
		}
		stage {
			hourly = 140
			daily = 1120
		}
	}
	pool "default" { shared = ["out1"] }
	pool "acme" {
		shared = ["out1"]
		dedicated "acme-1" { plan = "standard" }
	}
	pool "news" {
		shared = ["out1"]
		dedicated "news-1" { plan = "small" }
	}
	tenant "acme" {
		pool = "acme"
		max_queued_messages = 1000
	}
	tenant "news" { pool = "news" }
	tenant "shop" { tier = 2 }
	provider "big" {
		mx = ["*.big.example"]
		max_message_rate = "1/h"
	}
`

// Sample is a relay that has sent mail for three days: to hosts that accept, defer, refuse, are silent and are down,
// from warming sources, for a tenant and for nobody. IDs has the messages that are queued, the oldest first.
type Sample struct {
	*Relay
	Key string // of tenant acme
	IDs []string
}

// NewSample makes the population with more settings, at Now, in a few milliseconds. change, if not nil, makes it
// another before its relay starts the last time, ten seconds before Now.
func NewSample(t testing.TB, more string, change func(*Sample)) *Sample {
	t.Helper()
	s := &Sample{Relay: New(t, sampleZone, strings.Replace(sampleConfig, `"keys"`, fmt.Sprintf("%q", "KEYS"), 1)+more)}
	file := filepath.Join(s.Dir, "keys")
	s.Config = strings.Replace(s.Config, "KEYS", file, 1)
	Until(Now.Add(-3*24*time.Hour - 10*time.Minute - time.Second))
	s.must(os.WriteFile(file, nil, 0o600))
	var err error
	s.Key, _, err = auth.AddKey(file, auth.Key{Tenant: "acme", Name: "shop", Scopes: auth.MayAll}, time.Now())
	s.must(err)
	s.servers()
	// No two hosts answer at the same moment, so that records, sessions and the like have one order.
	for i, host := range []string{"mx.grey.example.", "mx.post.example.", "mx.silent.example.", "mx1.slow.example.",
		"mx1.big.example.", "mx.acme.example."} {
		s.Zone.Fault(host, sink.DNSFault{Delay: time.Duration(i+1) * 100 * time.Millisecond})
	}
	s.begin()
	s.suppress()
	s.Submit("", "Subject: report\r\n\r\n"+strings.Repeat("x", 2000)+"\r\n", "billing@slow.example")
	s.during(time.Second)

	Until(Now.Add(-2*time.Hour - time.Second))
	s.begin()
	s.Post("/v1/messages", s.Key,
		`{"from": "news@acme.example", "to": ["anna@grey.example", "боб@почта.example", "日本語@例え.example"],
		"pool": "default", "subject": "autumn", "text": "shoes", "campaign": "autumn", "tags": ["news", "shoes"], `+
			`"meta": {"order": "17"}}`)
	s.during(time.Second)

	Until(Now.Add(-7*time.Minute - 4*time.Second))
	s.begin()
	s.mail("acme", "news@acme.example", 100, "first@big.example")
	s.mail("shop", "shop@acme.example", 100, "second@big.example")
	s.mail("shop", "shop@acme.example", 100, "nobody@grey.example")
	s.mail("shop", "shop@acme.example", 50_000, "carol@big.example")
	s.during(time.Second)

	Until(Now.Add(-10 * time.Second))
	if change != nil {
		change(s)
	}
	s.Start()
	Until(Now.Add(-5 * time.Second))
	s.operate()
	Until(Now.Add(-4 * time.Second))
	s.Submit("root@host.example", "From: root@host.example\r\nSubject: disk\r\n\r\nthe disk is full\r\n",
		"dave@big.example")
	time.Sleep(300 * time.Millisecond) // off the full second, when the relay notes its figures
	s.connect()
	Until(Now)
	s.list()
	return s
}

// mail submits a message of a tenant, and lets it be tried.
func (s *Sample) mail(tenant, from string, size int, to string) {
	s.Submit(from, "X-MTA-Tenant: "+tenant+"\r\nSubject: order\r\n\r\n"+strings.Repeat("x", size)+"\r\n", to)
	time.Sleep(time.Second)
}

// begin starts the relay, and lets it do what it does at its start.
func (s *Sample) begin() {
	s.Start()
	time.Sleep(time.Second)
}

// during lets the relay run for a while, and stops it. What it keeps of figures over time is forgotten: to read it
// takes longer than all else.
func (s *Sample) during(d time.Duration) {
	time.Sleep(d)
	s.Stop()
	s.must(os.RemoveAll(filepath.Join(s.Dir, "history")))
}

// servers are the hosts of the sample.
func (s *Sample) servers() {
	s.Host("mx1.big.example", sink.Config{Latency: 10 * time.Millisecond}, "192.0.2.10:25")
	s.Host("mx2.big.example", sink.Config{Latency: 10 * time.Millisecond}, "192.0.2.11:25")
	s.Host("mx.acme.example", sink.Config{Latency: 10 * time.Millisecond}, "192.0.2.30:25")
	grey := sink.Config{Latency: 10 * time.Millisecond, Refusals: []sink.Refusal{
		sink.UnknownUsers("nobody"), {Phase: sink.Rcpt, Reply: "450 4.7.1 greylisted, come back in five minutes"},
	}}
	s.Host("mx.grey.example", grey, "192.0.2.1:25")
	s.Host("mx.post.example", grey, "192.0.2.2:25")
}

// silent is a host that leaves the end of a message without an answer.
func (s *Sample) silent() {
	s.Host("mx.silent.example", sink.Config{Hook: func(c sink.Command) (a sink.Answer) {
		if c.Phase == sink.End {
			a.Delay = time.Hour
		}
		return a
	}}, "192.0.2.9:25")
}

// suppress puts addresses on the list.
func (s *Sample) suppress() {
	_, err := api.OpSuppress.Call(context.Background(), s.Client(), api.Suppress{Suppressions: []api.Suppression{
		{Address: "former@acme.example", Reason: "asked us to, ticket 4711", Added: Now.AddDate(0, 0, -40)},
		{Address: "lea@grey.example", Tenant: "acme", Reason: "unsubscribed", Source: api.SuppressedByImport,
			Added: Now.Add(-3 * time.Hour)},
		{Address: "gone@big.example", Tenant: "acme", Reason: "550 5.1.1 no such user", Source: api.SuppressedByBounce,
			Class: "InvalidRecipient", Provider: "big", Added: Now.Add(-26 * time.Hour),
			Expires: Now.AddDate(0, 0, 89)},
	}})
	s.must(err)
}

// operate does what an operator has done.
func (s *Sample) operate() {
	ctx := api.WithReason(api.WithActor(context.Background(), api.Actor{Kind: api.BySocket, User: "alice"}),
		"for the test")
	s.silent()
	c := s.Client()
	_, err := api.OpChange.Call(ctx, c,
		api.Change{Action: api.Retry, Filter: api.Filter{Recipient: "日本語@例え.example"}, Now: true})
	s.must(err)
	_, err = api.OpChange.Call(ctx, c, api.Change{Action: api.Hold, Filter: api.Filter{Recipient: "боб@почта.example"}})
	s.must(err)
	_, err = api.OpSuspend.Call(ctx, c,
		api.Suspend{Site: "mx.grey.example", For: api.Age(10 * time.Minute), Reason: "postmaster asked us to"})
	s.must(err)
	_, err = api.OpChangeWarmup[api.WarmupPause].Call(ctx, c, api.StageChoice{}, "news-1")
	s.must(err)
}

// connect makes two connections of clients: one that waits in the middle of a message, and an idle one.
func (s *Sample) connect() {
	for _, lines := range [][]string{{"EHLO app1.acme.example", "MAIL FROM:<news@acme.example>",
		"RCPT TO:<x@big.example>", "DATA"}, {"EHLO app2.acme.example"}} {
		pipe, err := s.doors[SMTP].Dial(context.Background())
		s.must(err)
		s.t.Cleanup(func() { pipe.Close() })
		c := textproto.NewConn(pipe)
		_, _, err = c.ReadResponse(220)
		s.must(err)
		for _, l := range lines {
			s.must(c.PrintfLine("%s", l))
			_, _, err = c.ReadResponse(0)
			s.must(err)
		}
		time.Sleep(time.Second)
	}
}

func (s *Sample) list() {
	l, err := api.OpList.Call(context.Background(), s.Client(), api.ListQuery{Page: api.Page{Limit: 100}})
	s.must(err)
	for _, m := range l.Messages {
		s.IDs = append(s.IDs, m.ID)
	}
}
