package warmup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"example.org/mta/internal/format"
)

// Action is what an operator can do to a warm-up. Counters stay as they are under all of them.
type Action struct {
	event EventKind // "": the change itself makes one, if any
	anew  bool      // it also replaces a state that can't be read
	apply func(*State, *Plan) error
}

// Pause stops the mail of the IP; its stage and its counters stay.
func Pause() Action {
	return Action{event: EventPaused, apply: func(s *State, _ *Plan) error { s.Paused = true; return nil }}
}

// Resume ends a Pause.
func Resume() Action {
	return Action{event: EventResumed, apply: func(s *State, _ *Plan) error { s.Paused = false; return nil }}
}

// SetStage moves to a stage, counted from 1, and its caps at once.
func SetStage(n int) Action {
	return Action{event: EventStageSet, apply: func(s *State, p *Plan) error { return s.putOn(p, n) }}
}

// Start begins the warm-up again on a stage, counted from 1; 0 is the plan's start stage. What
// was sent in this hour and day still counts. It also replaces a state that can't be read.
func Start(n int) Action {
	return Action{event: EventRestarted, anew: true, apply: func(s *State, p *Plan) error {
		if err := s.putOn(p, cmp.Or(n, p.StartStage)); err != nil {
			return err
		}
		s.Paused, s.History, s.LastSent = false, s.History[:0], s.Now
		return nil
	}}
}

// blockedBeside has a provider left alone that blocks another IP of the network.
func blockedBeside(provider string, until Instant, network string) Action {
	return Action{apply: func(s *State, p *Plan) error {
		if b := &s.Providers[s.Provider(p, provider)].block; b.state != blocked {
			*b = block{state: blocked, until: max(until, s.Now), pause: b.pause, network: network}
		}
		return nil
	}}
}

// ErrNoStage is what an action gives for a stage that the plan doesn't have.
var ErrNoStage = errors.New("no such stage")

// action is an Action on its way to the next step.
type action struct {
	Action
	err  error
	done chan error
	left bool // nobody waits any more: it is not tried again
}

// Do carries out an action and returns when it is durable. When ctx ends before, nothing is done, unless the error is
// ErrUnknownOutcome.
func (c *Controller) Do(ctx context.Context, ip string, x Action) error {
	a := c.address(ip)
	if a == nil {
		return fmt.Errorf("warm-up of %s: %w", ip, ErrNotWarming)
	}
	w := a.do(c, x)
	var err error
	select {
	case err = <-w.done:
	case <-ctx.Done():
		err = fmt.Errorf("waiting for the store: %w", ctx.Err())
		if !a.withdraw(w) {
			select {
			case err = <-w.done:
			default:
				err = fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
			}
		}
	}
	if err != nil {
		err = fmt.Errorf("warm-up of %s: %w", ip, err)
	}
	return err
}

// Check returns the error with which Do would refuse an action now: it tries the action on a copy of what is known
// here.
func (c *Controller) Check(ip string, x Action) error {
	a := c.address(ip)
	if a == nil {
		return fmt.Errorf("warm-up of %s: %w", ip, ErrNotWarming)
	}
	now := cmp.Or(c.storeTime(c.cfg.Now()), Instant(c.cfg.Now().UnixMilli()))
	a.mu.Lock()
	defer a.mu.Unlock()
	try := address{state: NewState(a.plan, now), problem: a.problem}
	if a.view.known {
		try.state.CopyFrom(a.state)
	}
	if err := (&action{Action: x}).do(&try, a.plan, now); err != nil {
		return fmt.Errorf("warm-up of %s: %w", ip, err)
	}
	return nil
}

// do hands an action to the next step.
func (a *address) do(c *Controller, x Action) *action {
	w := &action{Action: x, done: make(chan error, 1)}
	a.mu.Lock()
	a.acts = append(a.acts, w)
	wake := !a.queued
	a.queued = true
	a.mu.Unlock()
	if wake {
		c.wake(a)
	}
	return w
}

// withdraw takes an action back, and reports whether nothing of it was or will be done.
func (a *address) withdraw(w *action) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.left = true
	i := slices.Index(a.acts, w)
	if i >= 0 {
		a.acts = slices.Delete(a.acts, i, i+1)
	}
	return i >= 0
}

// do changes a.state, or leaves it where that is refused.
func (w *action) do(a *address, p *Plan, t Instant) error {
	s := a.state
	if a.problem != nil {
		if !w.anew || errors.Is(a.problem, format.ErrRefused) {
			return a.problem
		}
		s = NewState(p, t)
		s.spent = a.problem != errNotBegun // nobody knows what was sent before
	}
	s.Advance(p, t)
	if err := w.apply(s, p); err != nil {
		return err
	}
	a.state, a.problem = s, nil
	return nil
}

// putOn moves to a stage that an operator names, counted from 1.
func (s *State) putOn(p *Plan, n int) error {
	if n < 1 || n > len(p.Stages) {
		return fmt.Errorf("stage %d: %w, the plan has %d", n, ErrNoStage, len(p.Stages))
	}
	s.setStage(p, n-1)
	return nil
}

// setStage moves to a stage by hand: at once, with the counters as they are.
func (s *State) setStage(p *Plan, stage int) {
	s.Stage, s.StageSince, s.StageSent, s.Warm = stage, s.Now, 0, false
	s.Caps.Daily = p.stage(stage).Daily
	s.Caps.Hourly = s.hourlyCap(p)
	s.setDepths(p)
	for i := range s.Providers {
		v := &s.Providers[i]
		v.behind = 0
		s.setCaps(p, v, true)
		v.tokens.depth = s.bucketDepth(p, v.Caps.Hourly)
	}
}

// finish answers those who wait for what was done. Callers hold a.mu.
func (a *address) finish(err error) {
	for _, w := range a.doing {
		w.done <- cmp.Or(w.err, err)
	}
	a.doing = nil
}
