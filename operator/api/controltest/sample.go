package controltest

import (
	"encoding/json"
	"fmt"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/operator/api"
)

// Sample makes a relay with some mail: each state, several recipients, names in many scripts,
// the null sender. Nothing in it depends on chance; ages are counted back from now.
func Sample(now time.Time) *Relay {
	now = now.Truncate(time.Second).UTC()
	id := func(age time.Duration, n int) string {
		return (envelope.FirstID(now.Add(-age)) + envelope.ID(n)).String()
	}
	greylisted := &api.Reply{Code: 450, Enhanced: "4.7.1", Text: "greylisted, come back in five minutes", Command: "RCPT"}
	refused := &api.Reply{Code: 451, Enhanced: "4.4.1", Text: "connection refused by mx1.slow.example[192.0.2.7]:25", Command: "connect", Local: true}
	r := &Relay{
		Now: now,
		Messages: []api.Item{
			{
				ID: id(3*24*time.Hour, 1), Sender: "", Size: 2_345, Received: now.Add(-3 * 24 * time.Hour), Tier: 0,
				Recipients: []api.RecipientStatus{
					{Address: "billing@slow.example", State: api.StateDeferred, Site: "slow.example", Attempts: 17, Next: now.Add(40 * time.Minute), Expires: now.Add(48 * time.Hour), Reply: refused, Warned: true},
				},
			},
			{
				ID: id(2*time.Hour, 2), Sender: "news@acme.example", Size: 48_213, Received: now.Add(-2 * time.Hour), Tenant: "acme", Campaign: "autumn", Tags: []string{"news", "shoes"}, Tier: 4,
				Peer: "127.0.0.1:40112", HeloName: "app1.acme.example", Protocol: "HTTPS", Session: "s1", Key: "shop", Meta: json.RawMessage(`{"order":"17"}`), Pool: "dedicated", Expires: now.Add(118 * time.Hour),
				Recipients: []api.RecipientStatus{
					{Address: "anna@grey.example", State: api.StateDeferred, Site: "mx.grey.example", Attempts: 2, Next: now.Add(5 * time.Minute), Expires: now.Add(118 * time.Hour), Reply: greylisted},
					{Address: "боб@почта.example", State: api.StateHeld, Site: "почта.example"},
					{Address: "日本語@例え.example", State: api.StateActive, Site: "例え.example", Attempts: 1},
				},
			},
			{
				ID: id(7*time.Minute, 3), Sender: "shop@acme.example", Size: 1_203_944, Received: now.Add(-7 * time.Minute), Tenant: "acme", Tier: 2,
				Recipients: []api.RecipientStatus{
					{Address: "carol@big.example", State: api.StateWaiting, Site: "big.example"},
				},
			},
			{
				ID: id(4*time.Second, 4), Sender: "root@host.example", Size: 611, Received: now.Add(-4 * time.Second), Tier: 3,
				Recipients: []api.RecipientStatus{
					{Address: "dave@big.example", State: api.StateDue, Site: "big.example"},
				},
			},
		},
		More: make(chan string),
		State: api.Status{
			Version: "v0", Hostname: "relay.example", NodeID: "relay.example", PID: 1, State: "running", Started: now.Add(-time.Hour),
			SMTP: []string{"127.0.0.1:2525"}, Metrics: "127.0.0.1:8025",
			Queue: api.QueueStats{Recovered: 1, Accepted: 9, Delivered: 3, Bounced: 1, Queued: 6},

			States:      map[string]int64{"due": 1, "waiting": 1, "active": 1, "deferred": 2, "held": 1},
			Rates:       api.Rates{Accepted: 0.15, Delivered: 0.05, Deferred: 1.25},
			Connections: api.Connections{In: 2, Out: 10, Waiting: 2031, Running: 31},
			Memory:      api.Memory{Process: 61 << 20, Schedule: 240},
			Disk:        api.Disk{Queue: 64 << 20, Live: 1_254_000, Free: 80 << 30},
		},
		Settings: "hostname = \"relay.example\"\n",
	}
	r.Contents = map[string]string{r.Messages[3].ID: "From: root@host.example\r\nSubject: disk\r\n\r\nthe disk is full\r\n"}
	for i := range r.Messages {
		m := &r.Messages[i]
		m.Total = len(m.Recipients)
		r.Records = append(r.Records, fmt.Sprintf(`{"type":"Reception","id":%q,"sender":%q,"recipient":%q,"queue":%q,"site":"","size":%d,"response":{"code":250,"enhanced_code":{"class":2,"subject":0,"detail":0},"content":"queued","command":"content","local":true},"peer_address":{"name":"app1","addr":"127.0.0.1"},"event_time":%q,"tenant":%q}`,
			m.ID, m.Sender, m.Recipients[0].Address, domain(m.Recipients[0].Address), m.Size, m.Received.Format(time.RFC3339), m.Tenant))
	}
	r.addPolicies()
	r.addDestinations()
	r.addBlocks()
	r.addConnections()
	r.addWarmups()
	r.addSuppressions()
	grey := &r.Messages[1]
	r.Records = append(r.Records, fmt.Sprintf(`{"type":"TransientFailure","id":%q,"sender":%q,"recipient":"anna@grey.example","queue":"grey.example","site":"mx.grey.example","size":%d,"response":{"code":450,"enhanced_code":{"class":4,"subject":7,"detail":1},"content":"greylisted, come back in five minutes","command":"RCPT"},"peer_address":{"name":"mx.grey.example","addr":"192.0.2.1"},"event_time":%q,"num_attempts":2,"bounce_classification":"Greylisted","tenant":"acme"}`,
		grey.ID, grey.Sender, grey.Size, now.Add(-5*time.Minute).Format(time.RFC3339)))
	return r
}
