// Package life keeps how far the relay has come, and whether it takes new mail.
package life

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"example.org/mta/operator/api"
)

// Life is a relay's.
type Life struct {
	Started time.Time
	Serving atomic.Bool // the listeners take mail, or have
	Failed  atomic.Bool // the dispatcher has ended by a fault

	draining atomic.Pointer[draining]
}

// draining is why the relay takes no new mail. A drain by an operator is in memory only: whoever drains a relay to
// restart it wants it back.
type draining struct {
	stopping bool // for good
	why      string
}

// Draining returns why the relay takes no new mail, false if it does.
func (l *Life) Draining() (why string, yes bool) {
	if d := l.draining.Load(); d != nil {
		return d.why, true
	}
	return "", false
}

// Refuses reports whether running servers refuse new mail. When the relay stops, so do they.
func (l *Life) Refuses() bool {
	d := l.draining.Load()
	return d != nil && !d.stopping
}

// Stopping reports whether the relay drains for good.
func (l *Life) Stopping() bool {
	d := l.draining.Load()
	return d != nil && d.stopping
}

// Stop has the relay drain for good.
func (l *Life) Stop() { l.draining.Store(&draining{stopping: true, why: "shutting down"}) }

// Drain has the relay take no new mail, by order of the operator in ctx. A dry run changes nothing.
func (l *Life) Drain(ctx context.Context, now time.Time, dry bool) (api.Effect, error) {
	why := fmt.Sprintf("no new mail is taken since %s, by %s", now.UTC().Format(time.RFC3339),
		cmp.Or(api.ActorOf(ctx).Name(), "an operator"))
	if reason := api.ReasonOf(ctx); reason != "" {
		why += ": " + reason
	}
	return l.change(nil, &draining{why: why + "; to end that: mta undrain"}, dry)
}

// Undrain ends that.
func (l *Life) Undrain(dry bool) (api.Effect, error) { return l.change(l.draining.Load(), nil, dry) }

// change goes from one state to another, unless that is the one already.
func (l *Life) change(from, to *draining, dry bool) (done api.Effect, err error) {
	now := l.draining.Load()
	if now != nil && now.stopping {
		return done, api.Unavailable("", "the relay is shutting down")
	}
	if (now == nil) != (to == nil) {
		done.Count = 1
		if !dry && !l.draining.CompareAndSwap(from, to) {
			return done, api.Unavailable("look at 'mta status'", "somebody else drains, undrains or stops the relay")
		}
	}
	return done, nil
}
