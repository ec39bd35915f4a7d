package mta

import (
	"context"
	"testing"

	"example.org/mta/internal/sink"
	"example.org/mta/mta/control"
)

// A host that refuses the session says nothing about the message: it may be about us, and pass.
func TestRefusedSessionIsNoBounce(t *testing.T) {
	w := newWorld(t, sink.Config{Refusals: []sink.Refusal{{Phase: sink.Connect, Reply: "554 5.7.1 go away"}}}, `defaults { smtp_port = PORT }`)
	w.send("ann@client.example", letter, "bob@box.example")
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for {
		l, err := w.api.Queue.List(ctx, control.Filter{State: control.StateDeferred}, control.Page{Limit: 1})
		if err != nil || ctx.Err() != nil {
			t.Fatalf("not deferred: %v, queue %+v", err, w.queue.Stats())
		}
		if len(l.Messages) == 1 {
			if r := l.Messages[0].Recipients[0].Reply; r == nil || r.Text == "" {
				t.Errorf("the reason is %+v", r)
			}
			return
		}
		if s := w.queue.Stats(); s.Bounced > 0 {
			t.Fatalf("bounced: %+v", s)
		}
	}
}
