package warmup

import (
	"context"
	"errors"
	"fmt"
)

// Action is what an operator can do to a warm-up. Counters stay as they are under all of them.
type Action struct {
	kind  actionKind
	stage int

	provider string // of actBlock and actReport
	until    Instant
	network  string
	report   Report
}

type actionKind uint8

const (
	actPause actionKind = iota
	actResume
	actSetStage
	actStart
	actBlock
	actReport
)

// Pause stops the mail of the IP; its stage and its counters stay.
func Pause() Action { return Action{kind: actPause} }

// Resume ends a Pause.
func Resume() Action { return Action{kind: actResume} }

// SetStage moves to a stage, counted from 1, and its caps at once.
func SetStage(n int) Action { return Action{kind: actSetStage, stage: n} }

// Start begins the warm-up again on a stage, counted from 1; 0 is the plan's start stage. What
// was sent in this hour and day still counts. It also replaces a state that can't be read.
func Start(n int) Action { return Action{kind: actStart, stage: n} }

// ErrNoStage is what an action gives for a stage that the plan doesn't have.
var ErrNoStage = errors.New("no such stage")

// action is an Action on its way to the next step.
type action struct {
	Action
	err  error
	done chan error
}

// Do carries out an action and returns when it is durable.
func (c *Controller) Do(ctx context.Context, ip string, x Action) error {
	a := c.address(ip)
	if a == nil {
		return fmt.Errorf("warm-up of %s: %w", ip, ErrNotWarming)
	}
	w := a.do(c, x)
	select {
	case err := <-w.done:
		if err != nil {
			return fmt.Errorf("warm-up of %s: %w", ip, err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("warm-up of %s: waiting for the store: %w", ip, ctx.Err())
	}
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

// do changes a.state.
func (w *action) do(a *address, p *Plan, t Instant) error {
	if w.stage < 0 || w.stage > len(p.Stages) || w.kind == actSetStage && w.stage == 0 {
		return fmt.Errorf("stage %d: %w, the plan has %d", w.stage, ErrNoStage, len(p.Stages))
	}
	if a.problem != nil {
		if w.kind != actStart {
			return a.problem
		}
		a.state = NewState(p, t)
		a.state.spent = a.problem != errNotBegun // nobody knows what was sent before
		a.problem = nil
	}
	s := a.state
	s.Advance(p, t)
	switch w.kind {
	case actPause:
		s.Paused = true
	case actResume:
		s.Paused = false
	case actSetStage:
		s.setStage(p, w.stage-1)
	case actBlock:
		if b := &s.Providers[s.Provider(p, w.provider)].block; b.state != blocked {
			*b = block{state: blocked, until: max(w.until, s.Now), pause: b.pause, network: w.network}
		}
	case actReport:
		return s.report(p, w.provider, &w.report)
	case actStart:
		if w.stage == 0 {
			w.stage = p.StartStage
		}
		s.Paused, s.History = false, s.History[:0]
		s.setStage(p, w.stage-1)
		s.LastSent = s.Now
	}
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
		if w.err != nil {
			w.done <- w.err
		} else {
			w.done <- err
		}
	}
	a.doing = nil
}
