package operate

import (
	"cmp"
	"context"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/mta/control"
	"example.org/mta/mta/pauses"
)

// pauseAnswers answers the control API.
type pauseAnswers struct{ r *Relay }

// Pauses lists what is paused.
func (o pauseAnswers) Pauses(context.Context) (control.PauseList, error) {
	return control.PauseList{Pauses: o.r.Pauses.List()}, nil
}

// BeginPause sends nothing of something from now on.
func (o pauseAnswers) BeginPause(_ context.Context, b control.BeginPause) (control.Pause, error) {
	name, err := o.named(b.What, b.Name, true)
	if err != nil {
		return control.Pause{}, err
	}
	x := control.Pause{What: b.What, Name: name, Reason: b.Reason, By: cmp.Or(b.By, "an operator"), Since: o.r.Now()}
	if b.For > 0 {
		x.Until = x.Since.Add(time.Duration(b.For))
	}
	if b.DryRun {
		return x, nil
	}
	return x, o.r.Pauses.Begin(x)
}

// EndPause sends it again.
func (o pauseAnswers) EndPause(_ context.Context, e control.EndPause) (control.Pause, error) {
	name, err := o.named(e.What, e.Name, false)
	if err != nil {
		return control.Pause{}, err
	}
	key := pauses.Key(e.What, name)
	x, found := o.r.Pauses.Get(key)
	if !e.DryRun {
		x, found, err = o.r.Pauses.End(key)
	}
	if err == nil && !found {
		err = control.NotFound("what is paused: mta pause", "%s is not paused", strings.TrimSpace(string(e.What)+" "+name))
	}
	return x, err
}

// named gives the name as the configuration has it. Only what exists can be paused; a pause can be ended
// of what is there no longer.
func (o pauseAnswers) named(what control.PauseWhat, name string, mustBe bool) (string, error) {
	cfg := o.r.Policy().Config
	switch what {
	case control.PauseTenant, control.PauseSource, control.PausePool:
		if mustBe {
			return name, checkNamed(cfg, string(what), name)
		}
	case control.PauseDomain:
		domain, err := envelope.ToASCII(strings.ToLower(name))
		if err != nil {
			return "", control.Invalid("", "domain %s: %v", name, err)
		}
		name = domain
	}
	return name, nil
}
