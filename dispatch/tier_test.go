package dispatch

import (
	"fmt"
	"io"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/lab/sink"
)

// submit puts a message of a tenant into the queue.
func (p *pipeline) submit(tenant string, tier uint8) envelope.ID {
	m := &envelope.Message{Received: time.Now(), Sender: "app@client.example", Tenant: tenant, Tier: tier,
		Recipients: []envelope.Recipient{{Address: "someone@box.example"}}}
	d := p.queue.Begin()
	if _, err := io.WriteString(d, "Subject: a test\r\n\r\nHello.\r\n"); err != nil {
		p.t.Fatal(err)
	}
	if err := d.Commit(m); err != nil {
		p.t.Fatal(err)
	}
	return m.ID
}

// arrival waits for a message, and returns when it arrived.
func (p *pipeline) arrival(id envelope.ID, most time.Duration) (at time.Time) {
	p.t.Helper()
	for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		p.mu.Lock()
		at = p.arrived[id]
		p.mu.Unlock()
		if !at.IsZero() {
			return at
		}
	}
	p.t.Fatalf("message %v has not arrived after %v", id, most)
	return at
}

// busyHost takes some 800 messages a second over the ten connections that it has.
var busyHost = sink.Config{Work: map[sink.Phase]time.Duration{sink.End: 12 * time.Millisecond}}

// A password reset overtakes a newsletter of its own tenant, wherever that waits: in delivery, in the
// queue for room, and after a restart. The newsletter goes on meanwhile, with its share.
func TestAResetOvertakesTheNewsletter(t *testing.T) {
	const bulk = 100_000
	bubble.Test(t, func(t *testing.T) {
		p := newPipeline(t)
		p.become(busyHost)
		p.start()
		defer func() { p.end() }()
		for range bulk {
			p.submit("shop", 4)
		}
		for _, when := range []string{"amid the newsletter", "after a restart"} {
			time.Sleep(3 * time.Second)
			before, _, _ := p.counts()
			var took time.Duration
			for range 10 {
				began := time.Now()
				took = max(took, p.arrival(p.submit("shop", 1), 5*time.Minute).Sub(began))
			}
			after, _, _ := p.counts()
			t.Logf("%s, %d of it queued: ten resets, one after the other, took %v at most; %d of the newsletter left meanwhile",
				when, p.queue.Stats().Queued, took, after-before-10)
			if took > time.Second {
				t.Errorf("%s a reset took %v, want a second at most", when, took)
			}
			if when == "amid the newsletter" {
				p.stop()
				p.start()
			}
		}
	})
}

// However much of the first tier there is, the others have a share; and tenants have turns by weight, in
// what waits in the queue as in delivery.
func TestTiersAndTenantsHaveTheirShares(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newPipeline(t)
		p.pol = parsePolicy(t, `
			tenant "bank" { weight = 3 }
			tenant "shop" {}`)
		p.become(busyHost)
		p.start()
		defer func() { p.end() }()
		of := make(map[envelope.ID]string)
		for range 6000 {
			of[p.submit("shop", 1)] = "shop 1"
			of[p.submit("shop", 4)] = "shop 4"
			of[p.submit("bank", 3)] = "bank 3"
		}
		time.Sleep(5 * time.Second) // for some 4,000
		count := make(map[string]int)
		p.mu.Lock()
		for id := range p.arrived {
			count[of[id]]++
		}
		p.mu.Unlock()
		shop := count["shop 1"] + count["shop 4"]
		t.Log(fmt.Sprint(count))
		if shop < 500 || count["bank 3"] < shop*5/2 {
			t.Errorf("arrived: %v, want three of four for the tenant of weight 3", count)
		}
		if share := count["shop 1"] / 40; count["shop 4"] < share || count["shop 4"] > 4*share {
			t.Errorf("arrived: %v, want about one in twenty of the later tier's", count)
		}
	})
}
