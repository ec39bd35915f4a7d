package web

import (
	"math"
	"strings"
	"time"

	"example.org/mta/operator/api"
)

// suspensions are the times for which a form offers to suspend.
var suspensions = []string{"15m", "1h", "4h", "1d", "7d"}

// effect is the answer to a change.
type effect interface{ Done() api.Effect }

// changes makes an action of a request to the relay. Its count is of noun; do gets the time of the form, 0 for none.
func changes[A effect](
	noun string, do func(*request, api.Intent, api.Age) (A, error), lines func(A) []string,
) func(*request, api.Intent) (Outcome, error) {
	return func(r *request, in api.Intent) (Outcome, error) {
		span, err := r.age("for")
		if err != nil {
			return Outcome{}, err
		}
		done, err := do(r, in, span)
		o := Outcome{Count: done.Done().Count, Noun: noun}
		if lines != nil {
			o.Lines = lines(done)
		}
		return o, err
	}
}

var suspendParams = []string{"site", "source", "for"}

var (
	suspendSite = changes("site", func(r *request, in api.Intent, span api.Age) (api.Suspended, error) {
		return r.relay.Suspend(r.ctx, api.Suspend{Intent: in, Site: r.get("site"), Source: r.get("source"), For: span})
	}, func(done api.Suspended) (lines []string) {
		if !done.Until.IsZero() {
			lines = append(lines, "Site "+done.Site+", until "+done.Until.UTC().Format("2006-01-02 15:04 MST"))
		}
		if done.Domains > 0 {
			lines = append(lines, "It serves "+plural(done.Domains, "domain")+": "+strings.Join(done.Some, ", "))
		}
		return lines
	})
	resumeSite = changes("suspension", func(r *request, in api.Intent, _ api.Age) (api.Resumed, error) {
		return r.relay.Resume(r.ctx, api.Resume{Intent: in, Site: r.get("site")})
	}, nil)
)

// hostParams are those of all actions on hosts: their buttons stand in one form.
var hostParams = []string{"host", "source", "for"}

var (
	suspendHost = changes("host", func(r *request, in api.Intent, span api.Age) (api.SuspendedHosts, error) {
		s := api.SuspendHosts{Intent: in, Hosts: r.list("host"), Source: r.get("source"), For: span}
		return r.relay.SuspendHosts(r.ctx, s)
	}, nil)
	resumeHost = changes("suspension", func(r *request, in api.Intent, _ api.Age) (api.ResumedHosts, error) {
		return r.relay.ResumeHosts(r.ctx, api.ResumeHosts{Intent: in, Hosts: r.list("host")})
	}, nil)
	forgetHost = changes("host", func(r *request, in api.Intent, _ api.Age) (api.Forgotten, error) {
		return r.relay.Forget(r.ctx, api.Forget{Intent: in, Hosts: r.list("host")})
	}, nil)
)

var closeConnections = changes("connection", func(r *request, in api.Intent, _ api.Age) (c api.ClosedConnections, _ error) {
	ids := r.list("id")
	if len(ids) == 0 {
		return c, api.Invalid("tick those that are meant", "no connection is ticked")
	}
	return r.relay.CloseConnections(r.ctx, api.CloseConnections{Intent: in, IDs: ids})
}, func(done api.ClosedConnections) []string {
	if done.Busy == 0 {
		return nil
	}
	return []string{count(done.Busy) + " of them end when what they have begun is finished."}
})

var (
	pauseParams  = []string{"what", "name", "for"}
	resumeParams = []string{"what", "name"}
)

var (
	pause = changes("pause", func(r *request, in api.Intent, span api.Age) (api.PauseChanged, error) {
		return r.relay.BeginPause(r.ctx, api.BeginPause{
			Intent: in, What: api.PauseWhat(r.get("what")), Name: r.get("name"), For: span, Reason: r.get(reasonParam)})
	}, func(done api.PauseChanged) []string {
		if done.Until.IsZero() {
			return nil
		}
		return []string{"Until " + done.Until.UTC().Format(time.DateTime)}
	})
	unpause = changes("pause", func(r *request, in api.Intent, _ api.Age) (api.PauseChanged, error) {
		return r.relay.EndPause(r.ctx, api.EndPause{Intent: in, What: api.PauseWhat(r.get("what")), Name: r.get("name")})
	}, nil)
)

var warmupParams = []string{"source", "stage"}

// changeWarmup makes an action on a warm-up.
func changeWarmup(a api.WarmupAction) func(*request, api.Intent) (Outcome, error) {
	return changes("warm-up", func(r *request, in api.Intent, _ api.Age) (w api.WarmupChanged, _ error) {
		stage, err := r.number("stage", 0, 0, math.MaxInt32)
		if err != nil {
			return w, err
		}
		return r.relay.ChangeWarmup(r.ctx, r.get("source"), a, api.StageChoice{Intent: in, Stage: stage})
	}, nil)
}

func reload(r *request, in api.Intent) (Outcome, error) {
	done, err := r.relay.Reload(r.ctx, in)
	out := Outcome{Count: done.Count, Lines: done.Changes}
	for _, c := range done.Restart {
		out.Lines = append(out.Lines, c+" (after a restart)")
	}
	if out.Count == 0 && err == nil {
		out.Lines = append(out.Lines, "The file has the settings that are in force.")
	}
	return out, err
}
