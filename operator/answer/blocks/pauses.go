package blocks

import (
	"cmp"
	"context"
	"strings"
	"time"

	"example.org/mta/dispatch/pauses"
	"example.org/mta/internal/envelope"
	"example.org/mta/mta/config"
	"example.org/mta/operator/api"
)

// Pauses answers about pauses, and begins and ends them; it implements api.Pauses.
type Pauses struct {
	Config func() *config.Config // in force
	Now    func() time.Time
	Paused *pauses.Pauses
}

// Pauses lists what is paused.
func (p Pauses) Pauses(context.Context) (api.PauseList, error) {
	return api.PauseList{Pauses: p.Paused.List()}, nil
}

// BeginPause sends nothing of something from now on.
func (p Pauses) BeginPause(ctx context.Context, b api.BeginPause) (api.PauseChanged, error) {
	name, err := p.named(b.What, b.Name, true)
	if err != nil {
		return api.PauseChanged{}, err
	}
	x := api.Pause{
		What: b.What, Name: name, Reason: cmp.Or(b.Reason, api.ReasonOf(ctx)),
		By: cmp.Or(api.ActorOf(ctx).Name(), b.By, "an operator"), Since: p.Now(),
	}
	if b.For > 0 {
		x.Until = x.Since.Add(time.Duration(b.For))
	}
	if !b.DryRun {
		err = p.Paused.Begin(x)
	}
	return changed(x, err)
}

// changed is the answer to a change of a pause.
func changed(p api.Pause, err error) (api.PauseChanged, error) {
	if err != nil {
		return api.PauseChanged{}, err
	}
	return api.PauseChanged{Effect: api.Effect{Count: 1}, Pause: p}, nil
}

// EndPause sends it again.
func (p Pauses) EndPause(_ context.Context, e api.EndPause) (api.PauseChanged, error) {
	name, err := p.named(e.What, e.Name, false)
	if err != nil {
		return api.PauseChanged{}, err
	}
	key := pauses.Key(e.What, name)
	x, found := p.Paused.Get(key)
	if !e.DryRun {
		x, found, err = p.Paused.End(key)
	}
	if err == nil && !found {
		err = api.NotFound("what is paused: mta pause", "%s is not paused", strings.TrimSpace(string(e.What)+" "+name))
	}
	return changed(x, err)
}

// named gives the name as the configuration has it. Only what exists can be paused; a pause can be ended
// of what is there no longer.
func (p Pauses) named(what api.PauseWhat, name string, mustBe bool) (string, error) {
	cfg := p.Config()
	switch what {
	case api.PauseTenant, api.PauseSource, api.PausePool:
		if mustBe {
			return name, Check(cfg, string(what), name)
		}
	case api.PauseDomain:
		domain, err := envelope.ToASCII(strings.ToLower(name))
		if err != nil {
			return "", api.Invalid("", "domain %s: %v", name, err)
		}
		name = domain
	}
	return name, nil
}
