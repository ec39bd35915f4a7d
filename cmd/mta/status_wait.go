package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/operator/api"
)

// Exit codes of a wait that has ended without what it was for.
const (
	exitTimeout = 3 // it has waited for as long as it may
	exitStuck   = 4 // what is left in the queue does not leave by itself
)

// What 'mta status' can wait for.
const (
	untilReady   = "ready"   // the relay accepts mail
	untilDrained = "drained" // nothing is queued
)

// waitEvery is how often the relay is asked.
const waitEvery = 500 * time.Millisecond

// statusWait waits for a state of the relay.
type statusWait struct {
	until   string
	timeout time.Duration
}

func (w *statusWait) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&w.until, "wait", "", "wait until the relay is `ready` (accepts mail) or drained (nothing is queued)")
	cmd.Flags().DurationVar(&w.timeout, "timeout", 0, "with --wait: wait no longer than this `time`; 0: without limit")
	oneOf(cmd, "wait", []string{untilReady, untilDrained})
}

// check refuses flags that make no sense.
func (w *statusWait) check(cmd *cobra.Command) error {
	switch {
	case cmd.Flags().Changed("wait") && w.until != untilReady && w.until != untilDrained:
		return usagef("--wait: want %s or %s, not %q", untilReady, untilDrained, w.until)
	case w.timeout < 0:
		return usagef("--timeout: want a time")
	case w.until == "" && cmd.Flags().Changed("timeout"):
		return usagef("--timeout goes with --wait")
	case w.until != "" && cmd.Flags().Changed("watch"):
		return usagef("--wait and --watch exclude each other")
	}
	return nil
}

// wait returns when the relay is as it should be, with its status. On a terminal a line shows what it waits for.
func (c *cli) wait(ctx context.Context, client *api.Client, w statusWait) (api.Status, error) {
	if w.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.timeout)
		defer cancel()
	}
	again := time.NewTicker(waitEvery)
	defer again.Stop()
	seen, why := false, ""
	for {
		s, err := client.Status(ctx)
		switch {
		case err == nil && w.reached(&s):
			c.waiting("")
			return s, nil
		case err == nil && w.stuck(ctx, &s) != "":
			c.waiting("")
			return s, inVain{hinted{fmt.Errorf("not %s: %s", w.until, w.missing(&s)), w.stuck(ctx, &s)}, exitStuck}
		case err == nil:
			seen, why = true, w.missing(&s)
		case ctx.Err() != nil: // below
		case !api.Down(err) || w.until == untilDrained && seen:
			c.waiting("")
			return s, err
		default:
			why = "the relay is not running"
		}
		c.waiting(why)
		select {
		case <-again.C:
		case <-ctx.Done():
			c.waiting("")
			return s, w.ended(ctx, why)
		}
	}
}

func (w statusWait) reached(s *api.Status) bool {
	if w.until == untilReady {
		return s.State == api.Running
	}
	return s.Queue.Queued == 0
}

// missing returns what the relay lacks to be as it should be.
func (w statusWait) missing(s *api.Status) string {
	switch {
	case w.until == untilDrained:
		return fmt.Sprintf("%s queued%s%s", plural(int(s.Queue.Queued), "recipient"), byState(s.States), paused(s.Paused))
	case s.Reason != "":
		return fmt.Sprintf("the relay is %s: %s", s.State, s.Reason)
	}
	return fmt.Sprintf("the relay is %s", s.State)
}

// paused names what nothing is sent of.
func paused(all []api.Pause) string {
	var names []string
	for i := range all {
		names = append(names, pauseOf(&all[i]))
	}
	if len(names) == 0 {
		return ""
	}
	return "; paused: " + strings.Join(names, ", ")
}

// stuck gives the remedy where nothing that is queued leaves before the end of the wait, unless an operator acts; "" as
// long as something may.
func (w statusWait) stuck(ctx context.Context, s *api.Status) string {
	if w.until != untilDrained {
		return ""
	}
	count := func(state api.State) int64 { return s.States[string(state)] }
	if count(api.StateHeld)+count(api.StateUnreadable) == s.Queue.Queued {
		return "this mail does not leave by itself: 'mta queue release', or move it by 'mta queue export'"
	}
	if count(api.StateActive)+count(api.StateEnding) > 0 {
		return ""
	}
	end, limited := ctx.Deadline()
	for _, p := range s.Paused {
		if p.What == api.PauseEverything && (p.Until.IsZero() || limited && p.Until.After(end)) {
			return "everything is paused: 'mta resume everything'"
		}
	}
	return ""
}

// inVain ends a command that has waited in vain, with the exit code that says why.
type inVain struct {
	error
	code int
}

func (v inVain) Unwrap() error { return v.error }

func (w statusWait) ended(ctx context.Context, why string) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return inVain{fmt.Errorf("not %s within %v: %s", w.until, w.timeout, why), exitTimeout}
	}
	return ctx.Err()
}

// waiting shows on a terminal what is waited for; "" removes the line.
func (c *cli) waiting(why string) {
	if !c.screen.TTY {
		return
	}
	if why != "" {
		why = "waiting: " + why
		if width := c.screen.Width; width > 0 && len(why) >= width {
			why = why[:width-1]
		}
	}
	fmt.Fprint(c.out, "\r"+why+"\x1b[K")
}
