package submitted

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/fair"
	"example.org/mta/internal/reply"
	"example.org/mta/mta/accounting"
	"example.org/mta/operator/answer/messages"
	"example.org/mta/queue"
	"example.org/mta/submission/http"
)

// TestATenantLeavesSearchesToOthers: it searches once at a time, gives way to others, and waits for so long.
func TestATenantLeavesSearchesToOthers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := New(Submitted{})
		first, err := s.begin(t.Context(), "acme")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := s.begin(t.Context(), "acme"); !errors.Is(err, http.ErrBusy) || time.Since(began) != searchTime {
			t.Errorf("a second search of a tenant after %v: %v", time.Since(began), err)
		}
		for what, search := range map[string]func() error{
			"list":   func() error { _, err := s.List(t.Context(), "acme", http.MessageQuery{}); return err },
			"get":    func() error { _, err := s.inLog(t.Context(), logSearch{tenant: "acme", id: 1}); return err },
			"cancel": func() error { _, err := s.Cancel(t.Context(), "acme", http.Cancel{Tag: "x"}); return err },
		} {
			if err := search(); !errors.Is(err, http.ErrBusy) {
				t.Errorf("%s beside another search of the tenant: %v", what, err)
			}
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.begin(gone, "acme"); !errors.Is(err, context.Canceled) {
			t.Errorf("a client that has gone gets %v", err)
		}
		time.Sleep(time.Millisecond)
		began = time.Now()
		var turn []string
		for _, tenant := range []string{"second", "third"} {
			go func() {
				search, err := s.begin(t.Context(), tenant)
				if err != nil {
					t.Error(err)
					return
				}
				defer search.End()
				turn = append(turn, tenant)
				time.Sleep(time.Second)
			}()
			synctest.Wait()
		}
		if len(turn) != 1 {
			t.Errorf("beside the first %v search", turn)
		}
		if err := first.pause(); !errors.Is(err, http.ErrTooMuch) {
			t.Errorf("a search that has worked for more than %v goes on: %v", searchTime, err)
		}
		first.End()
		synctest.Wait()
		if len(turn) != 2 || time.Since(began) > 0 {
			t.Errorf("after the first %v search", turn)
		}
		time.Sleep(2 * time.Second)
	})
}

// TestASearchOfTheLogIsBounded: it pauses within the log, also where none of that is the tenant's.
func TestASearchOfTheLogIsBounded(t *testing.T) {
	dir := t.TempDir()
	w, err := accounting.Open(accounting.Config{Dir: dir, NodeID: "n"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3000 { // 11 times 64 KiB
		w.Add(&accounting.Record{Type: accounting.Delivery, Message: accounting.Message{ID: 1, Tenant: "other"}, Recipient: "r@x.example", Time: time.Unix(int64(i), 0), Queue: strings.Repeat("q", 100)})
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	at := time.Unix(0, 0)
	s := New(Submitted{Messages: &messages.Messages{Now: time.Now}, LogDir: func() string { return dir }})
	s.Searches = fair.New(1, func() time.Time { at = at.Add(time.Second); return at })
	if _, err := s.inLog(t.Context(), logSearch{tenant: "acme"}); !errors.Is(err, http.ErrTooMuch) {
		t.Errorf("a search for which each look takes a second: %v", err)
	}
}

// TestEndedAndNotReported: the sender reads the outcome before the report to it is queued.
func TestEndedAndNotReported(t *testing.T) {
	s := &Submitted{Messages: &messages.Messages{}}
	for code, want := range map[int]http.MessageStatus{250: http.Delivered, 550: http.Bounced} {
		rc := queue.ItemRecipient{State: queue.StateDeferred, Attempts: 1, Last: reply.Reply{Code: code}}
		it := queue.Item{Recipients: []queue.ItemRecipient{rc}}
		if got := s.recipient(&it, s.Messages.LookOut(), &rc); got.Status != want {
			t.Errorf("after %d: %q", code, got.Status)
		}
	}
}
