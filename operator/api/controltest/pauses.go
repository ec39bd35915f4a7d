package controltest

import (
	"context"
	"slices"
	"time"

	"example.org/mta/operator/api"
)

// Pauses lists what was paused.
func (r *Relay) Pauses(context.Context) (api.PauseList, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return api.PauseList{Pauses: append([]api.Pause{}, r.State.Paused...)}, nil
}

// BeginPause adds a pause.
func (r *Relay) BeginPause(_ context.Context, b api.BeginPause) (api.Pause, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := api.Pause{What: b.What, Name: b.Name, Reason: b.Reason, By: b.By, Since: r.Now}
	if b.For > 0 {
		x.Until = r.Now.Add(time.Duration(b.For))
	}
	if !b.DryRun {
		r.State.Paused = append(r.State.Paused, x)
	}
	return x, nil
}

// EndPause takes a pause away.
func (r *Relay) EndPause(_ context.Context, e api.EndPause) (api.Pause, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := slices.IndexFunc(r.State.Paused, func(x api.Pause) bool { return x.What == e.What && x.Name == e.Name })
	if at < 0 {
		return api.Pause{}, api.NotFound("what is paused: mta pause", "%s %s is not paused", e.What, e.Name)
	}
	x := r.State.Paused[at]
	if !e.DryRun {
		r.State.Paused = slices.Delete(r.State.Paused, at, at+1)
	}
	return x, nil
}
