package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.org/mta/operator/api"
)

// TestStuck: a wait for an empty queue goes on as long as something may leave before its end.
func TestStuck(t *testing.T) {
	end := time.Now().Add(time.Hour)
	everything := func(until time.Time) []api.Rule {
		return []api.Rule{{Action: api.RuleSuspend, Selection: api.Selection{All: true}, Until: until}}
	}
	states := func(queued, held, active int64) api.Status {
		return api.Status{
			Queue:  api.QueueStats{Queued: queued},
			States: map[string]int64{string(api.StateHeld): held, string(api.StateActive): active, string(api.StateDeferred): queued - held - active},
		}
	}
	for _, test := range []struct {
		name     string
		states   api.Status
		paused   []api.Rule
		unending bool // the wait has no end
		stuck    bool
	}{
		{"all is held", states(3, 3, 0), nil, false, true},
		{"some is deferred", states(3, 2, 0), nil, false, false},
		{"a domain is paused", states(3, 0, 0), []api.Rule{{Action: api.RuleSuspend, Selection: api.Selection{Domain: "a.example"}}}, false, false},
		{"everything is paused", states(3, 0, 0), everything(time.Time{}), false, true},
		{"everything is paused, and an attempt is under way", states(3, 0, 1), everything(time.Time{}), false, false},
		{"the pause ends before the wait", states(3, 0, 0), everything(end.Add(-time.Minute)), false, false},
		{"the pause ends after the wait", states(3, 0, 0), everything(end.Add(time.Minute)), false, true},
		{"the pause ends, the wait does not", states(3, 0, 0), everything(end), true, false},
	} {
		ctx := t.Context()
		if !test.unending {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, end)
			defer cancel()
		}
		test.states.Rules = test.paused
		if why := (statusWait{until: untilDrained}).stuck(ctx, &test.states); (why != "") != test.stuck {
			t.Errorf("%s: %q", test.name, why)
		}
		if why := (statusWait{until: untilReady}).stuck(ctx, &test.states); why != "" {
			t.Errorf("%s, and the relay is to be ready: %q", test.name, why)
		}
	}
}

// TestWaitForADrain: the wait is over when what is left waits for its time or an operator, and fails when the relay
// takes new mail again.
func TestWaitForADrain(t *testing.T) {
	for answer, want := range map[string]string{
		`{"state":"draining","queue":{"queued":7},"states":{"deferred":4,"held":2,"unreadable":1}}`:                                                                                 "",
		`{"state":"draining","queue":{"queued":7},"states":{"deferred":4,"ending":3}}`:                                                                                              "not idle within 200ms: 3 recipients in transit, 4 waiting for their time, 0 held back",
		`{"state":"draining","queue":{"queued":9},"states":{"deferred":4,"waiting":5},"waiting":{"reasons":[{"reason":"pause","recipients":3},{"reason":"limit","recipients":2}]}}`: "not idle within 200ms: 2 recipients in transit, 4 waiting for their time, 3 held back",
		`{"state":"running","queue":{"queued":7},"states":{"due":7}}`:                                                                                                               "the relay takes new mail again: somebody has undrained or restarted it",
	} {
		client := api.NewLocalClient(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, answer) }))
		c := &cli{out: io.Discard, err: io.Discard}
		within := statusWait{until: untilIdle}
		if strings.HasPrefix(want, "not") {
			within.timeout = 200 * time.Millisecond
		}
		got := ""
		if _, err := c.wait(t.Context(), client, within); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", answer, got, want)
		}
	}
}
