package mta

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"example.org/mta/operator/api"
	"example.org/mta/submission"
)

// draining is why the relay takes no new mail. A drain by an operator is in memory only: whoever drains a relay to
// restart it wants it back.
type draining struct {
	stopping bool // for good
	why      string
}

// drains reports whether servers refuse new mail that would take it otherwise: those of a relay that stops are stopped.
func (l *life) drains() bool {
	d := l.draining.Load()
	return d != nil && !d.stopping
}

func (l *life) stopping() bool {
	d := l.draining.Load()
	return d != nil && d.stopping
}

// Drain implements api.Relay.
func (r *operators) Drain(ctx context.Context, in api.Intent) (api.Drained, error) {
	why := fmt.Sprintf("no new mail is taken since %s, by %s", r.now().UTC().Format(time.RFC3339),
		cmp.Or(api.ActorOf(ctx).Name(), "an operator"))
	if reason := api.ReasonOf(ctx); reason != "" {
		why += ": " + reason
	}
	return r.drain(nil, &draining{why: why + "; to end that: mta undrain"}, in.DryRun)
}

// Undrain implements api.Relay.
func (r *operators) Undrain(_ context.Context, in api.Intent) (api.Drained, error) {
	return r.drain(r.life.draining.Load(), nil, in.DryRun)
}

// drain goes from one state to another, unless that is the one already.
func (r *operators) drain(from, to *draining, dry bool) (done api.Drained, err error) {
	now := r.life.draining.Load()
	if now != nil && now.stopping {
		return done, api.Unavailable("", "the relay is shutting down")
	}
	if (now == nil) != (to == nil) {
		done.Count = 1
		if !dry && !r.life.draining.CompareAndSwap(from, to) {
			return done, api.Unavailable("look at 'mta status'", "somebody else drains, undrains or stops the relay")
		}
	}
	if to != nil && !dry {
		for _, e := range r.listeners.WithSessions() {
			if s, ok := e.Server.(*submission.Server); ok {
				s.Drain()
			}
		}
	}
	done.Status = r.Status()
	return done, nil
}
