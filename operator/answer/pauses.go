package answer

import (
	"cmp"
	"context"
	"strings"
	"time"

	"example.org/mta/dispatch/pauses"
	"example.org/mta/internal/envelope"
	"example.org/mta/operator/api"
)

// pauseAnswers answers the control API.
type pauseAnswers struct{ r *Relay }

// Pauses lists what is paused.
func (o pauseAnswers) Pauses(context.Context) (api.PauseList, error) {
	return api.PauseList{Pauses: o.r.Pauses.List()}, nil
}

// BeginPause sends nothing of something from now on.
func (o pauseAnswers) BeginPause(_ context.Context, b api.BeginPause) (api.Pause, error) {
	name, err := o.named(b.What, b.Name, true)
	if err != nil {
		return api.Pause{}, err
	}
	x := api.Pause{What: b.What, Name: name, Reason: b.Reason, By: cmp.Or(b.By, "an operator"), Since: o.r.Now()}
	if b.For > 0 {
		x.Until = x.Since.Add(time.Duration(b.For))
	}
	if b.DryRun {
		return x, nil
	}
	return x, o.r.Pauses.Begin(x)
}

// EndPause sends it again.
func (o pauseAnswers) EndPause(_ context.Context, e api.EndPause) (api.Pause, error) {
	name, err := o.named(e.What, e.Name, false)
	if err != nil {
		return api.Pause{}, err
	}
	key := pauses.Key(e.What, name)
	x, found := o.r.Pauses.Get(key)
	if !e.DryRun {
		x, found, err = o.r.Pauses.End(key)
	}
	if err == nil && !found {
		err = api.NotFound("what is paused: mta pause", "%s is not paused", strings.TrimSpace(string(e.What)+" "+name))
	}
	return x, err
}

// named gives the name as the configuration has it. Only what exists can be paused; a pause can be ended
// of what is there no longer.
func (o pauseAnswers) named(what api.PauseWhat, name string, mustBe bool) (string, error) {
	cfg := o.r.Policy().Config
	switch what {
	case api.PauseTenant, api.PauseSource, api.PausePool:
		if mustBe {
			return name, checkNamed(cfg, string(what), name)
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
