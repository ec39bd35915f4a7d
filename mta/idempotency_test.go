package mta

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"example.org/mta/lab/sink"
	"example.org/mta/mta/config"
)

// A message that comes by SMTP again, with its key, is answered 250 and taken once, after a restart and its delivery
// too. The key is not in what is delivered.
func TestMessageSentAgainBySMTP(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	const again = "X-MTA-Idempotency-Key: order-7\r\n" + letter
	w.send("ann@client.example", again, "bob@box.example")
	if got := w.arrived(1); strings.Contains(string(got[0].Content), "Idempotency") {
		t.Errorf("arrived as %s", got[0].Content)
	}
	w.send("ann@client.example", again, "bob@box.example")
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.send("ann@client.example", again, "bob@box.example")
	if n := w.queue.Stats().Accepted; n != 0 {
		t.Errorf("%d messages were taken after the restart", n)
	}
	w.send("ann@client.example", letter, "eve@box.example") // without a key
	if got := w.arrived(2); len(got) != 2 || got[1].Recipients[0] != "eve@box.example" {
		t.Errorf("%d messages arrived", len(got))
	}
}

// TestFloodOfKeysOfAnotherTenant: a tenant that has more keys than the relay remembers has no mail of another sent twice.
func TestFloodOfKeysOfAnotherTenant(t *testing.T) {
	const remembered = 1000
	s := newShops(t, sink.Config{}, func(c *config.Config) { c.Queue.IdempotencyKeys = remembered })
	const body = `{"from":"ann@client.example","to":"bob@box.example","subject":"s","text":"t"}`
	order := func(key string) (text string) {
		t.Helper()
		status, text := s.ask("other", "POST", "/v1/messages", body, nil, "Idempotency-Key", key)
		if status != 202 {
			t.Fatalf("%d %s", status, text)
		}
		return text
	}
	first := order("order-17")
	var all sync.WaitGroup
	for client := range 8 {
		all.Go(func() {
			for i := range remembered / 4 {
				s.ask("acme", "POST", "/v1/messages", body, nil, "Idempotency-Key", fmt.Sprint(client, " ", i))
			}
		})
	}
	all.Wait()
	before := s.queue.Stats()
	if before.IdempotencyKeysEvicted < remembered {
		t.Fatalf("no flood: %+v", before)
	}
	if again := order("order-17"); again != first {
		t.Errorf("answered %s, and again %s", first, again)
	}
	if n := s.queue.Stats().Accepted - before.Accepted; n != 0 {
		t.Errorf("%d messages were taken twice", n)
	}
}
