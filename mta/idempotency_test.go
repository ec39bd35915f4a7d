package mta

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/secretfile"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/config"
	"example.org/mta/operator/answer/messages"
	"example.org/mta/queue"
	"example.org/mta/submission/idempotency"
)

// keyedQueue opens a queue and the book of its requests, as a relay does at its start.
func keyedQueue(t *testing.T, dir string) (*queue.Queue, *idempotency.Book) {
	t.Helper()
	q, err := queue.Open(queue.Config{Dir: filepath.Join(dir, "queue"), MinFree: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() }) // when the test has failed
	secret, err := secretfile.Own{Path: filepath.Join(dir, "idempotency.key")}.Secret()
	if err != nil {
		t.Fatal(err)
	}
	return q, idempotency.New(secret, messages.KeyStore{Queue: q})
}

// takeOnce does what a server does with a request of one message: it returns its id.
func takeOnce(q *queue.Queue, book *idempotency.Book, key, body string) (envelope.ID, idempotency.Outcome, error) {
	h := book.Sum()
	h.Write([]byte(body))
	claim, outcome, err := book.Begin("acme", key, h)
	defer claim.Drop()
	switch {
	case err != nil || outcome == idempotency.Other || outcome == idempotency.UnderWay:
		return 0, outcome, err
	case outcome == idempotency.Replay:
		return claim.Accepted(0), outcome, nil
	}
	d := q.Begin()
	if _, err := d.Write([]byte(body)); err != nil {
		return 0, outcome, err
	}
	m := &envelope.Message{Sender: "a@example.com", Tenant: "acme", Recipients: []envelope.Recipient{{Address: "b@example.net"}}}
	_, err = q.CommitBatch(&queue.Batch{
		Drafts: []*queue.Draft{d}, Messages: []*envelope.Message{m},
		Key: claim.Key, Request: claim.Request, Last: true, Until: idempotency.Until(time.Now(), time.Time{}),
	})
	return m.ID, outcome, err
}

// TestTwoHundredRequestsAtOnce: two hundred requests with one key at once make one message, and all get its id, those
// that came too early once they ask again; a restart later too.
func TestTwoHundredRequestsAtOnce(t *testing.T) {
	dir := t.TempDir()
	q, book := keyedQueue(t, dir)
	var first atomic.Uint64
	var fresh, early atomic.Int64
	var all sync.WaitGroup
	start := make(chan struct{})
	for range 200 {
		all.Go(func() {
			<-start
			for {
				id, outcome, err := takeOnce(q, book, "key", "body")
				if err != nil {
					t.Error(err)
					return
				}
				if outcome == idempotency.UnderWay {
					early.Add(1)
					continue
				}
				if outcome == idempotency.Fresh {
					fresh.Add(1)
				}
				if !first.CompareAndSwap(0, uint64(id)) && first.Load() != uint64(id) {
					t.Errorf("a second message, %v", id)
				}
				return
			}
		})
	}
	close(start)
	all.Wait()
	if s := q.Stats(); s.Accepted != 1 || fresh.Load() != 1 {
		t.Errorf("%d messages, %d requests taken", s.Accepted, fresh.Load())
	}
	t.Logf("%d of the tries were too early", early.Load())
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := takeOnce(q, book, "new", "body"); !errors.Is(err, queue.ErrClosed) {
		t.Errorf("with a closed queue: %v", err)
	}
	q, book = keyedQueue(t, dir)
	if id, outcome, err := takeOnce(q, book, "key", "body"); outcome != idempotency.Replay || uint64(id) != first.Load() || err != nil {
		t.Errorf("after a restart: %v %v %v", id, outcome, err)
	}
	if _, outcome, err := takeOnce(q, book, "key", "other"); outcome != idempotency.Other || err != nil {
		t.Errorf("another body: %v %v", outcome, err)
	}
}

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
