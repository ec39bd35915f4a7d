package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/fair"
	"example.org/mta/mta/accounting"
)

// pull asks until a page has no event, and returns the ids of all events, which must be of the tenant.
func (g *ground) pull(p *Puller, tenant, after string, limit int) (ids []string, next string) {
	g.t.Helper()
	for {
		page, err := p.Pull(g.t.Context(), Pull{Tenant: tenant, After: after, Limit: limit})
		if err != nil {
			g.t.Fatal(err)
		}
		if len(page.Events) > limit {
			g.t.Errorf("%d events in a page of %d", len(page.Events), limit)
		}
		for _, line := range page.Events {
			var e struct{ Tenant, EventID, Type string }
			if err := json.Unmarshal([]byte(strings.Replace(string(line), "event_id", "EventID", 1)), &e); err != nil || e.Tenant != tenant {
				g.t.Errorf("%s got %s", tenant, line)
			}
			ids = append(ids, e.EventID)
		}
		if after = page.Next; len(page.Events) == 0 {
			return ids, after
		}
	}
}

func (g *ground) puller() *Puller {
	return NewPuller(g.w, "node1", fair.New(2, time.Now))
}

// TestPull: a tenant gets each of its events once and in order, whatever the pages, and none of another's.
func TestPull(t *testing.T) {
	g := newGround(t)
	p := g.puller()
	if ids, _ := g.pull(p, "acme", "", 10); len(ids) != 0 {
		t.Errorf("an empty log has %d events", len(ids))
	}
	for range 5 {
		g.add(7, "acme")
		g.add(11, "other")
		g.add(3, "")
	}
	all, next := g.pull(p, "acme", "", 1000)
	if len(all) != 35 {
		t.Fatalf("%d events, want 35", len(all))
	}
	for _, limit := range []int{1, 2, 35} {
		if ids, _ := g.pull(p, "acme", "", limit); strings.Join(ids, " ") != strings.Join(all, " ") {
			t.Errorf("pages of %d have %d events, or others", limit, len(ids))
		}
	}
	for i, id := range all {
		if ids, _ := g.pull(p, "acme", id, 1000); len(ids) != len(all)-i-1 || len(ids) > 0 && ids[0] != all[i+1] {
			t.Fatalf("after event %d there are %d", i, len(ids))
		}
	}
	if ids, _ := g.pull(p, "nobody", "", 10); len(ids) != 0 {
		t.Errorf("nobody has %d events", len(ids))
	}
	now, err := p.Pull(t.Context(), Pull{Tenant: "acme", After: "now", Limit: 10})
	if err != nil || len(now.Events) != 0 {
		t.Errorf("after now there are %d events: %v", len(now.Events), err)
	}
	g.add(2, "acme")
	for _, after := range []string{next, now.Next} {
		if ids, _ := g.pull(p, "acme", after, 10); len(ids) != 2 {
			t.Errorf("after %s there are %d events, want 2", after, len(ids))
		}
	}
}

func TestPullAfterNothing(t *testing.T) {
	g := newGround(t)
	g.add(1, "acme")
	for _, after := range []string{"x", "node2-20260301T120000-000000000000", "node1-20260301T120000-00000000000", "node1-29990301T120000-000000000000", "-next"} {
		if _, err := g.puller().Pull(t.Context(), Pull{Tenant: "acme", After: after, Limit: 1}); !errors.Is(err, ErrAfter) {
			t.Errorf("after %q: %v", after, err)
		}
	}
}

// TestPullWithNamesOfTenantsInMeta: the sender's data can't make a record another tenant's.
func TestPullWithNamesOfTenantsInMeta(t *testing.T) {
	g := newGround(t)
	for _, tenant := range []string{"", "other"} {
		g.w.Add(&accounting.Record{
			Type: accounting.Delivery, Message: accounting.Message{ID: 1, Tenant: tenant,
				Meta: `{"a":"b","tenant":"acme"}`, Tags: []string{"tenant", "acme"},
			}, Recipient: `x","tenant":"acme`, Time: time.Now(),
		})
	}
	g.flush()
	if ids, _ := g.pull(g.puller(), "acme", "", 10); len(ids) != 0 {
		t.Errorf("acme got %v", ids)
	}
}

// TestPullWaits, in virtual time: an event of the tenant ends the wait, one of another doesn't; the wait ends in time,
// and when the relay stops.
func TestPullWaits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGround(t)
		p := g.puller()
		g.add(1, "acme")
		_, next := g.pull(p, "acme", "", 10)
		hurry := make(chan struct{})
		wait := func() (Page, time.Duration) {
			began := time.Now()
			page, err := p.Pull(t.Context(), Pull{Tenant: "acme", After: next, Limit: 10, Wait: time.Minute, Hurry: hurry})
			if err != nil {
				t.Error(err)
			}
			next = page.Next
			return page, time.Since(began)
		}
		go func() {
			time.Sleep(10 * time.Second)
			g.add(5, "other")
			time.Sleep(10 * time.Second)
			g.add(1, "acme")
		}()
		if page, took := wait(); len(page.Events) != 1 || took < 20*time.Second || took > 21*time.Second {
			t.Errorf("%d events after %v, want one after 20 s", len(page.Events), took)
		}
		go func() {
			time.Sleep(10 * time.Second)
			g.add(1000, "other")
		}()
		before := next
		if page, took := wait(); len(page.Events) != 0 || took != time.Minute {
			t.Errorf("%d events after %v, want none after 1 min", len(page.Events), took)
		}
		if next == before {
			t.Error("a wait for nothing doesn't go past the events of others")
		}
		go func() {
			time.Sleep(10 * time.Second)
			close(hurry)
		}()
		if _, took := wait(); took != 10*time.Second {
			t.Errorf("the relay stops, and a wait ends after %v", took)
		}
		time.Sleep(2 * watchEvery)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.watching {
			t.Error("nobody waits, and the log is watched")
		}
	})
}

// TestPullWaitsAreBounded: a tenant has so many waits, and leaves room for others.
func TestPullWaitsAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGround(t)
		p := g.puller()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 100)
		for range mostOfOne {
			go func() {
				_, err := p.Pull(ctx, Pull{Tenant: "acme", After: "now", Limit: 1, Wait: time.Minute})
				ended <- err
			}()
		}
		synctest.Wait()
		if _, err := p.Pull(ctx, Pull{Tenant: "acme", After: "now", Limit: 1, Wait: time.Minute}); !errors.Is(err, ErrWaiting) {
			t.Errorf("one more: %v", err)
		}
		if _, err := p.Pull(ctx, Pull{Tenant: "acme", After: "now", Limit: 1}); err != nil {
			t.Errorf("without a wait: %v", err)
		}
		if _, err := p.Pull(ctx, Pull{Tenant: "other", After: "now", Limit: 1, Wait: time.Second}); err != nil {
			t.Errorf("another tenant: %v", err)
		}
		cancel()
		for range mostOfOne {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		time.Sleep(2 * watchEvery)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.number != 0 || len(p.waiting) != 0 {
			t.Errorf("%d still wait", p.number)
		}
	})
}

// TestPullGap: who asks for what was deleted learns so first, and then gets what is left.
func TestPullGap(t *testing.T) {
	g := newGround(t)
	g.add(3, "acme")
	p := g.puller()
	ids, _ := g.pull(p, "acme", "", 10)
	files, err := filepath.Glob(filepath.Join(g.dir, "log", "mta-*.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	g.stop()
	g.w.Close()
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	g.now = func() time.Time { return time.Now().Add(time.Hour) } // the next file has another name
	g.open(accounting.Limits{})
	g.start()
	g.add(2, "acme")
	p = g.puller()
	page, err := p.Pull(t.Context(), Pull{Tenant: "acme", After: ids[0], Limit: 10})
	if err != nil || len(page.Events) != 3 {
		t.Fatalf("%d events, %v; want a gap and two", len(page.Events), err)
	}
	var gap struct{ Type, From, Tenant string }
	if err := json.Unmarshal(page.Events[0], &gap); err != nil || gap.Type != "Gap" || !strings.HasSuffix(ids[0], gap.From) {
		t.Errorf("the first is %s", page.Events[0])
	}
	if again, err := p.Pull(t.Context(), Pull{Tenant: "acme", After: page.Next, Limit: 10}); err != nil || len(again.Events) != 0 {
		t.Errorf("then there are %d events, %v", len(again.Events), err)
	}
	if ids, _ := g.pull(p, "acme", "", 10); len(ids) != 2 {
		t.Errorf("from the oldest there are %d events", len(ids))
	}
}

// BenchmarkPull looks through a log of others' events.
func BenchmarkPull(b *testing.B) {
	dir := b.TempDir()
	w, err := accounting.Open(accounting.Config{Dir: dir, NodeID: "node1"})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	for i := range 20000 {
		w.Add(&accounting.Record{Type: accounting.Delivery, Message: accounting.Message{ID: 1, Tenant: fmt.Sprint("t", i%50)}, Recipient: "joe@example.net", Time: time.Now()})
		if i%1000 == 0 {
			w.Flush(context.Background())
		}
	}
	w.Flush(context.Background())
	p := NewPuller(w, "node1", fair.New(2, time.Now))
	b.SetBytes(int64(p.log.Synced().Offset))
	for b.Loop() {
		if _, err := p.Pull(context.Background(), Pull{Tenant: "nobody", Limit: 100}); err != nil {
			b.Fatal(err)
		}
	}
}

// endless is a log in which each record takes a moment to read.
type endless struct{ PullLog }

func (endless) Synced() Position { return Position{File: 1, Offset: 1 << 40} }

func (endless) ReadFrom(ctx context.Context, from, _ Position, each func(at, next Position, line []byte) error) (Position, error) {
	for line := make([]byte, pauseAfter); ; from.Offset++ {
		time.Sleep(100 * time.Microsecond)
		if err := each(from, Position{File: from.File, Offset: from.Offset + 1}, line); err != nil {
			return from, err
		}
	}
}

// TestScansAreShared: a tenant with as many requests that read the log as it may have costs another a moment.
func TestScansAreShared(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := NewPuller(endless{}, "node1", fair.New(1, time.Now))
		errs := make(chan error, mostReading+5)
		for range mostReading + 5 {
			go func() {
				_, err := p.Pull(t.Context(), Pull{Tenant: "acme", Limit: 5})
				errs <- err
			}()
		}
		for range 5 { // the others read, one at a time
			if err := <-errs; !errors.Is(err, ErrWaiting) {
				t.Error(err)
			}
		}
		began := time.Now()
		if _, err := p.Pull(t.Context(), Pull{Tenant: "other", After: "now", Limit: 5}); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 5*time.Millisecond {
			t.Errorf("a scan takes %v beside those of another tenant", took)
		}
		for range mostReading {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestPullSince: events since a time, however little of the log a request looks through.
func TestPullSince(t *testing.T) {
	g := newGround(t)
	p := g.puller()
	before := time.Now().UTC().Truncate(time.Second)
	g.add(20, "acme")
	all, _ := g.pull(p, "acme", "", 100)
	for after, want := range map[string]int{
		"@" + before.Format(time.RFC3339):                         20,
		"@" + before.Add(time.Hour).Format(time.RFC3339):          0,
		all[4] + "@" + before.Format(time.RFC3339):                15,
		all[4] + "-next@" + before.Format(time.RFC3339Nano):       16,
		all[4] + "@" + before.Add(time.Hour).Format(time.RFC3339): 0,
	} {
		if ids, _ := g.pull(p, "acme", after, 7); len(ids) != want {
			t.Errorf("after %s there are %d events, want %d", after, len(ids), want)
		}
	}
	page, err := p.Pull(t.Context(), Pull{Tenant: "acme", After: "@" + before.Add(time.Hour).Format(time.RFC3339), Limit: 7})
	if err != nil || !strings.HasSuffix(page.Next, "-next@"+before.Add(time.Hour).Format(time.RFC3339)) {
		t.Errorf("%+v, %v: the time is to stay", page, err)
	}
	for _, after := range []string{"@", "@x", "x@" + before.Format(time.RFC3339), "now@" + before.Format(time.RFC3339)} {
		if page, err := p.Pull(t.Context(), Pull{Tenant: "acme", After: after, Limit: 1}); !errors.Is(err, ErrAfter) && after[0] != 'n' {
			t.Errorf("after %q: %+v, %v", after, page, err)
		}
	}
}
