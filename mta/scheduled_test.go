package mta

import (
	"context"
	"strings"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
)

// Scheduled mail is shown as such, is not sent, and leaves when an operator says so, without the
// fields that scheduled it. Its time to expire counts from its release.
func TestT1_ScheduledMailIsHeldAndReleased(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	w.send("ann@client.example", "X-Hold-For: 86400\r\n"+letter, "bob@box.example")
	list, err := w.api.Queue.List(context.Background(), api.ListQuery{Page: api.Page{Limit: 10}})
	if err != nil || len(list.Messages) != 1 {
		t.Fatalf("in the queue: %+v, %v", list, err)
	}
	m := list.Messages[0]
	r := m.Recipients[0]
	age := w.cfg.Defaults.Traffic.MaxAge
	if wait := r.Next.Sub(m.Received); !r.Scheduled || r.Attempts != 0 || r.State != api.StateDeferred || wait < 24*time.Hour || wait > 24*time.Hour+time.Second || r.Expires.Sub(r.Next) != age {
		t.Errorf("recipient %+v, to be tried %v after it was received, want it scheduled for a day later, and to expire %v after that", r, wait, age)
	}
	e, err := w.api.Destinations.Explain(context.Background(), api.ExplainQuery{ID: m.ID})
	if err != nil || !strings.Contains(e.Message.Recipients[0].Why, "it is scheduled") || !e.Message.Recipients[0].Until.Equal(r.Next) {
		t.Errorf("explained as %+v, %v", e.Message, err)
	}
	if rec := w.await("bob@box.example", "Reception"); !rec.Release.Equal(r.Next) {
		t.Errorf("the log says that it is scheduled for %v, want %v", rec.Release, r.Next)
	}
	w.send("ann@client.example", letter, "eve@box.example")
	if rec := w.await("eve@box.example", "Reception"); !rec.Release.IsZero() {
		t.Errorf("the log says that mail for now is scheduled for %v", rec.Release)
	}
	if got := w.arrived(1); got[0].Recipients[0] != "eve@box.example" {
		t.Fatalf("%s has got mail that is scheduled", got[0].Recipients[0])
	}
	if n, err := w.api.Queue.Change(context.Background(), api.Change{Action: api.Retry, Scheduled: true, Filter: api.Filter{IDs: []string{m.ID}}}); err != nil || n.Recipients != 1 {
		t.Fatalf("releasing: %+v, %v", n, err)
	}
	for _, got := range w.arrived(2) {
		if strings.Contains(string(got.Content), "X-Hold") {
			t.Errorf("arrived as %s", got.Content)
		}
	}
}

// A time that has come releases the mail by itself, after a restart too.
func TestT2_ScheduledMailLeavesByItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	began := time.Now()
	w.send("ann@client.example", "X-Hold-For: 2\r\n"+letter, "bob@box.example")
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.arrived(1)
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("delivered after %v, want 2 s at least", took)
	}
}
