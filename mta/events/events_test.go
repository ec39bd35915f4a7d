package events

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/mta/accounting"
)

// ground is a log with streams on it.
type ground struct {
	t       *testing.T
	dir     string
	w       *accounting.Writer
	streams *Streams
	now     func() time.Time
	added   int
}

func newGround(t *testing.T, settings ...Settings) *ground {
	g := &ground{t: t, dir: t.TempDir(), now: time.Now}
	g.open(accounting.Limits{})
	g.start(settings...)
	t.Cleanup(func() {
		if g.streams != nil {
			g.stop()
		}
		g.w.Close()
	})
	return g
}

func (g *ground) open(limits accounting.Limits) {
	w, err := accounting.Open(accounting.Config{Dir: filepath.Join(g.dir, "log"), NodeID: "node1", Limits: limits, Now: g.now})
	if err != nil {
		g.t.Fatal(err)
	}
	g.w = w
}

func (g *ground) start(settings ...Settings) {
	g.t.Helper()
	s, err := Open(Config{
		Log: g.w, Path: filepath.Join(g.dir, "streams.db"), NodeID: "node1",
		Now: g.now, Chance: func() float64 { return 0 }, Out: slog.New(slog.NewTextHandler(g.t.Output(), nil)),
	})
	if err != nil {
		g.t.Fatal(err)
	}
	if err := s.Set(settings); err != nil {
		g.t.Fatal(err)
	}
	s.Start()
	g.streams = s
}

func (g *ground) stop() {
	if err := g.streams.Close(context.Background()); err != nil {
		g.t.Error(err)
	}
	g.streams = nil
}

// add writes records of message after message, n of them, two each.
func (g *ground) add(n int, tenant string) {
	g.t.Helper()
	for range n {
		kind := accounting.Reception
		if g.added%2 == 1 {
			kind = accounting.Delivery
		}
		g.w.Add(&accounting.Record{
			Type: kind, Message: accounting.Message{ID: envelope.ID(1 + g.added/2), Sender: "a@example.com",
				Tenant: tenant,
			}, Recipient: envelope.Address(fmt.Sprintf("r%d@example.net", g.added)), Time: g.now(), Response: reply.Reply{Code: 250, Text: `says "ok"`}, Count: int64(g.added),
		})
		if g.added++; g.added%1000 == 0 {
			g.flush()
		}
	}
	g.flush()
}

func (g *ground) flush() {
	g.t.Helper()
	if err := g.w.Flush(context.Background()); err != nil {
		g.t.Fatal(err)
	}
}

// receiver is a sink that remembers.
type receiver struct {
	mu      sync.Mutex
	got     []Event
	batches []*Batch
	fail    func(*Batch) error // nil: it takes all
}

func (r *receiver) Send(_ context.Context, b *Batch) error {
	r.mu.Lock()
	fail := r.fail
	r.mu.Unlock()
	if fail != nil {
		if err := fail(b); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, b.Events...)
	r.batches = append(r.batches, b)
	return nil
}

func (r *receiver) Close() error { return nil }

func (r *receiver) set(fail func(*Batch) error) {
	r.mu.Lock()
	r.fail = fail
	r.mu.Unlock()
}

func (r *receiver) events() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

// stream gives the settings of a stream to r.
func (r *receiver) stream(name string) Settings {
	return Settings{
		Name: name, Batch: 100, Lanes: 1, Linger: time.Millisecond, Hold: time.Hour, Format: "records",
		Open: func() (Sink, error) { return r, nil },
	}
}

// until waits for a number of events, each counted once.
func (r *receiver) until(t *testing.T, n int) []Event {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(2 * time.Millisecond) {
		got := r.events()
		ids := make(map[string]bool)
		for _, e := range got {
			ids[e.ID] = true
		}
		if len(ids) >= n {
			return got
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d events have come, want %d", len(ids), n)
		}
	}
}

// inOrder fails unless the first arrivals of events are in the order of the log for each message.
func inOrder(t *testing.T, got []Event) {
	t.Helper()
	last := make(map[string]string)
	seen := make(map[string]bool)
	for _, e := range got {
		if seen[e.ID] {
			continue
		}
		seen[e.ID] = true
		if e.ID <= last[e.Message] {
			t.Fatalf("%s of message %s came after %s", e.ID, e.Message, last[e.Message])
		}
		last[e.Message] = e.ID
	}
}

func TestStreamsAtTheHead(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var all, acme, bounces, lanes receiver
		one, two, three, four := all.stream("all"), acme.stream("acme"), bounces.stream("bounces"), lanes.stream("lanes")
		two.Filter.Tenants = []string{"acme"}
		three.Filter.Types = []string{"Bounce"}
		four.Lanes = 4
		g := newGround(t, one, two, three, four)
		g.add(1000, "acme")
		g.add(500, "other")
		got := all.until(t, 1500)
		inOrder(t, got)
		for i, e := range got {
			var record struct {
				ID    string `json:"event_id"`
				Count int    `json:"count"`
			}
			if err := json.Unmarshal(e.Line, &record); err != nil || record.ID != e.ID || i > 1 && record.Count != i {
				t.Fatalf("event %d is %q, %s (%v)", i, e.ID, e.Line, err)
			}
		}
		acme.until(t, 1000)
		inOrder(t, lanes.until(t, 1500))
		time.Sleep(20 * time.Millisecond)
		if n := len(acme.events()); n != 1000 {
			t.Errorf("the tenant has %d events, want 1000", n)
		}
		if n := len(bounces.events()); n != 0 {
			t.Errorf("%d events are no bounces", n)
		}
	})
}

// TestEqualBatchesAreEncodedOnce: streams of one selection share what is costly.
func TestEqualBatchesAreEncodedOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var a, b receiver
		g := newGround(t, a.stream("a"), b.stream("b"))
		synctest.Wait() // until both are at the head
		g.add(300, "")
		a.until(t, 300)
		b.until(t, 300)
		if a.batches[0].body != b.batches[0].body {
			t.Error("two streams at the head have different bodies")
		}
		if a.batches[0].ID == b.batches[0].ID {
			t.Error("two streams have the same batch id: one receiver of both would take the second for a repetition")
		}
	})
}

// TestAStreamGoesOnWhereItWas: after a stop, no event is missing and none comes twice.
func TestAStreamGoesOnWhereItWas(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r receiver
		g := newGround(t, r.stream("app"))
		g.add(250, "")
		r.until(t, 250)
		for range 3 {
			g.stop()
			g.add(130, "")
			g.start(r.stream("app"))
			g.add(120, "")
			r.until(t, g.added)
		}
		if got := r.events(); len(got) != g.added {
			t.Errorf("%d events have come, want %d", len(got), g.added)
		}
		inOrder(t, r.events())
	})
}

// TestAReceiverThatFails: the order stays, and a batch keeps its id.
func TestAReceiverThatFails(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r receiver
		ids := make(map[string]string) // by first event
		n := 0
		r.set(func(b *Batch) error {
			if old := ids[b.Events[0].ID]; old != "" && old != b.ID {
				t.Errorf("a batch changed its id from %s to %s", old, b.ID)
			}
			ids[b.Events[0].ID] = b.ID
			if n++; n%2 == 1 {
				return fmt.Errorf("out of order")
			}
			return nil
		})
		g := newGround(t, r.stream("app"))
		g.add(150, "")
		inOrder(t, r.until(t, 150))
	})
}
