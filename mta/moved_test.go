package mta

import (
	"slices"
	"testing"
	"time"

	"example.org/mta/internal/sink"
	"example.org/mta/mta/control"
	"example.org/mta/queue"
)

// move moves what the relay has queued to another one, as the commands do.
func (w *world) move(to *world) {
	w.t.Helper()
	if _, err := w.queue.Change(queue.Selector{All: true}, queue.Hold, false); err != nil {
		w.t.Fatal(err)
	}
	done := to.imported(w.exported(control.Filter{State: control.StateHeld}), control.ImportOptions{Release: true})
	if len(done.Refused) > 0 || len(done.Receipt) == 0 {
		w.t.Fatalf("%+v", done)
	}
	if _, err := w.api.Moves.RemoveMoved(w.t.Context(), control.RemoveMoved{Receipt: done.Receipt}); err != nil {
		w.t.Fatal(err)
	}
	if left := w.queue.Stats().Queued; left != 0 {
		w.t.Fatalf("%d recipients have not moved", left)
	}
}

// TestMovedMailIsNotRemoved: neither the log, and so hooks, nor tenants hear that mail was removed which another relay has.
func TestMovedMailIsNotRemoved(t *testing.T) {
	old, now := newShops(t, sink.Config{}), newShops(t, sink.Config{})
	id := old.post(`,"to":["a@box.example","b@box.example"],"send_at":"` + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + `"`)
	old.move(now.world)
	old.want(id, "moved, a@box.example moved, b@box.example moved")
	if got := old.eventsOf("a@box.example"); !slices.Equal(got, []string{"Reception", "Transfer"}) {
		t.Errorf("the log of the old relay has %q", got)
	}
	if got := now.eventsOf("a@box.example"); !slices.Equal(got, []string{"Reception"}) {
		t.Errorf("the log of the new relay has %q", got)
	}
	if status, text := old.ask("acme", "POST", "/v1/messages/"+id+"/cancel", "", nil); status != 409 {
		t.Errorf("cancelled at the old relay: %d %s", status, text)
	}
}
