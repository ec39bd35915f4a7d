package mta

import (
	"context"

	"example.org/mta/operator/api"
	"example.org/mta/submission"
)

// Drain implements api.Relay.
func (r *operators) Drain(ctx context.Context, in api.Intent) (done api.Drained, err error) {
	if done.Effect, err = r.life.Drain(ctx, r.now(), in.DryRun); err != nil {
		return done, err
	}
	for _, e := range r.listeners.WithSessions() {
		if s, ok := e.Server.(*submission.Server); ok && !in.DryRun {
			s.Drain()
		}
	}
	done.Status = r.Status()
	return done, nil
}

// Undrain implements api.Relay.
func (r *operators) Undrain(_ context.Context, in api.Intent) (done api.Drained, err error) {
	done.Effect, err = r.life.Undrain(in.DryRun)
	done.Status = r.Status()
	return done, err
}
