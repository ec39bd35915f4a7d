package demo

import (
	"time"

	"example.org/mta/lab/sink"
)

// provider is a mailbox provider as the demo has it: a domain with its exchangers, and what
// they do to mail.
type provider struct {
	domain string
	does   string   // in a few words, for the table
	share  int      // of the recipients, in parts of a hundred
	hosts  []string // loopback addresses of its exchangers that answer; none: nobody does
	mx     []string // its MX records: preference and host; see world.zone
	sink   sink.Config
	// of so many messages that it took, one bounces later, or has a recipient who complains; 0: none
	late, complains int
	giveUp          bool // mail for it would wait for days: in the end the demo's operator bounces it
}

// providers are the far side of the demo. Refusals are worded as the big ones word them.
func providers() []provider {
	return []provider{
		{
			domain: "bigmail.example", does: "quick, 1 % unknown", share: 44, complains: 400,
			hosts: []string{"127.10.1.1", "127.10.1.2"},
			mx:    []string{"10 mx1", "10 mx2"},
			sink: sink.Config{Latency: 15 * time.Millisecond, MaxConnectionsPerClient: 40, Refusals: []sink.Refusal{{
				Phase: sink.Rcpt, Share: 0.01, Sticky: true,
				Reply: "550 5.1.1 The email account that you tried to reach does not exist. Please " +
					"try\ndouble-checking the recipient's email address for typos or unnecessary spaces. - gsmtp",
			}}},
		},
		{
			domain: "outlandish.example", does: "far away, often busy", share: 20,
			hosts: []string{"127.10.2.1"},
			mx:    []string{"10 mx1"},
			sink: sink.Config{Latency: 60 * time.Millisecond, Jitter: 30 * time.Millisecond, Refusals: []sink.Refusal{
				{Phase: sink.Rcpt, Share: 0.02, Sticky: true,
					Reply: "550 5.5.0 Requested action not taken: mailbox unavailable (S2017062302)."},
				{Phase: sink.Mail, Share: 0.03,
					Reply: "451 4.7.500 Server busy. Please try again later from [127.0.0.1]. (S77719)"},
			}},
		},
		{
			domain: "greymail.example", does: "greylists for 3 s", share: 9,
			hosts: []string{"127.10.3.1"},
			mx:    []string{"10 mx1"},
			sink:  sink.Config{Latency: 10 * time.Millisecond, Greylist: 3 * time.Second},
		},
		{
			domain: "oldfashioned.example", does: "slow, bounces late", share: 5, late: 40,
			hosts: []string{"127.10.4.1"},
			mx:    []string{"10 mail"},
			sink: sink.Config{Latency: 20 * time.Millisecond,
				Work:    map[sink.Phase]time.Duration{sink.Greeting: time.Second},
				Without: sink.Pipelining | sink.Chunking | sink.SMTPUTF8 | sink.DSN | sink.EnhancedCodes},
		},
		{
			domain: "tiny.example", does: "two connections only", share: 3,
			hosts: []string{"127.10.5.1"},
			mx:    []string{"10 mx"},
			sink:  sink.Config{Latency: 5 * time.Millisecond, MaxConnections: 2, MaxMessages: 20},
		},
		{
			domain: "flaky.example", does: "drops connections", share: 6,
			hosts: []string{"127.10.6.1", "127.10.6.2"},
			mx:    []string{"10 mx1", "20 mx2"},
			// Not at sink.Kept: there SMTP itself leaves no way but to send twice. And not the first
			// message on a connection: a host that never gets so far is left alone for a while.
			sink: sink.Config{Latency: 5 * time.Millisecond, DropAfter: 1, Drop: map[sink.Phase]float64{
				sink.Mail: 0.02, sink.Rcpt: 0.02, sink.Data: 0.02, sink.Content: 0.02, sink.End: 0.02}},
		},
		{
			domain: "halfgone.example", does: "best MX is dead", share: 5,
			hosts: []string{"127.10.7.2"},
			mx:    []string{"10 dead", "20 mx2"},
			sink:  sink.Config{Latency: 10 * time.Millisecond},
		},
		{
			domain: "moody.example", does: "451 to 5 % of mail", share: 5,
			hosts: []string{"127.10.8.1"},
			mx:    []string{"10 mx"},
			sink:  sink.Config{Latency: 10 * time.Millisecond, Refusals: []sink.Refusal{sink.TemporaryFailures(0.05)}},
		},
		{domain: "gone.example", does: "its MX is dead", share: 1, mx: []string{"10 dead"}, giveUp: true},
		{domain: "nowhere.example", does: "no such domain", share: 1},
		{domain: "nullmx.example", does: "null MX: wants no mail", share: 1, mx: []string{"0 ."}},
	}
}

// home is where the senders are: reports about their mail come back there.
func home() provider {
	return provider{
		domain: "acme.example", does: "the senders themselves",
		hosts: []string{"127.10.9.1"},
		mx:    []string{"10 mx"},
	}
}

// deadHost has nobody listening on the demo's port.
const deadHost = "127.10.66.66"
