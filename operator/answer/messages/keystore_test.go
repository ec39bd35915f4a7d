package messages

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/smallfile"
	"example.org/mta/queue"
	"example.org/mta/submission/intake"
)

// keyedQueue opens a queue and the book of its requests, as a relay does at its start.
func keyedQueue(t *testing.T, dir string) (*queue.Queue, *intake.Repeats) {
	t.Helper()
	q, err := queue.Open(queue.Config{Dir: filepath.Join(dir, "queue"), MinFree: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() }) // when the test has failed
	secret, err := smallfile.Secret{Path: filepath.Join(dir, "idempotency.key")}.Secret()
	if err != nil {
		t.Fatal(err)
	}
	return q, intake.NewRepeats(secret, KeyStore{Queue: q})
}

// takeOnce does what a server does with a request of one message: it returns its id.
func takeOnce(q *queue.Queue, book *intake.Repeats, key, body string) (envelope.ID, intake.Outcome, error) {
	h := book.Sum()
	h.Write([]byte(body))
	claim, outcome, err := book.Begin(context.Background(), "acme", key, h)
	defer claim.Drop()
	switch {
	case err != nil || outcome == intake.Other || outcome == intake.UnderWay:
		return 0, outcome, err
	case outcome == intake.Replay:
		return claim.Accepted(0), outcome, nil
	}
	d := q.Begin()
	if _, err := d.Write([]byte(body)); err != nil {
		return 0, outcome, err
	}
	m := &envelope.Message{Sender: "a@example.com", Tenant: "acme", Recipients: []envelope.Recipient{{Address: "b@example.net"}}}
	_, err = q.CommitBatch(&queue.Batch{
		Drafts: []*queue.Draft{d}, Messages: []*envelope.Message{m},
		Key: claim.Key, Request: claim.Request, Last: true, Until: intake.KeptUntil(time.Now(), time.Time{}),
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
				if outcome == intake.UnderWay {
					early.Add(1)
					continue
				}
				if outcome == intake.Fresh {
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
	if id, outcome, err := takeOnce(q, book, "key", "body"); outcome != intake.Replay || uint64(id) != first.Load() || err != nil {
		t.Errorf("after a restart: %v %v %v", id, outcome, err)
	}
	if _, outcome, err := takeOnce(q, book, "key", "other"); outcome != intake.Other || err != nil {
		t.Errorf("another body: %v %v", outcome, err)
	}
}
