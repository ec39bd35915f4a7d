package web

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/mta/operator/api"
)

// suspensions are the times for which a form offers to suspend.
var suspensions = []string{"15m", "1h", "4h", "1d", "7d"}

// effect is the answer to a change.
type effect interface{ Done() api.Effect }

// intended is a request for one.
type intended[Q any] interface {
	*Q
	Intended() *api.Intent
}

// changes makes an action of a request to the relay, whose parameters are those of the form. Its count is of noun;
// lines are beside the count.
func changes[Q any, A effect, PQ intended[Q]](
	noun string, do func(*request, Q) (A, error), lines func(A) []string,
) func(*request, api.Intent) (Outcome, error) {
	return func(r *request, in api.Intent) (Outcome, error) {
		var q Q
		if err := r.read(&q); err != nil {
			return Outcome{}, err
		}
		*PQ(&q).Intended() = in
		done, err := do(r, q)
		o := Outcome{Count: done.Done().Count, Noun: noun}
		if lines != nil {
			o.Lines = lines(done)
		}
		if behind := done.Done().Behind; behind != "" {
			o.Lines = append(o.Lines, behind)
		}
		return o, err
	}
}

func suspended(done api.Suspended) (lines []string) {
	if !done.Until.IsZero() {
		lines = append(lines, "Site "+done.Site+", until "+done.Until.UTC().Format("2006-01-02 15:04 MST"))
	}
	if done.Domains > 0 {
		lines = append(lines, "It serves "+plural(done.Domains, "domain")+": "+strings.Join(done.Some, ", "))
	}
	return lines
}

// hostParams are those of all actions on hosts: their buttons stand in one form.
var hostParams = paramsOf(new(api.SuspendHosts))

func closeConnections(r *request, q api.CloseConnections) (done api.ClosedConnections, _ error) {
	if len(q.IDs) == 0 {
		return done, api.Invalid("tick those that are meant", "no connection is ticked")
	}
	return api.OpCloseConnections.Call(r.ctx, r.relay, q)
}

func closed(done api.ClosedConnections) []string {
	if done.Busy == 0 {
		return nil
	}
	return []string{count(done.Busy) + " of them end when what they have begun is finished."}
}

func ruled(done api.RuleChanged) (lines []string) {
	if done.Fits != nil {
		lines = append(lines, "It fits "+plural(*done.Fits, "recipient")+" in the queue.")
	}
	if !done.Until.IsZero() {
		lines = append(lines, "Until "+done.Until.UTC().Format(time.DateTime))
	}
	return lines
}

func drained(done api.Drained) []string {
	if done.Count == 0 {
		return []string{"Nothing changes: the relay is " + done.Status.State + "."}
	}
	return []string{"It has " + plural(int(done.Status.Queue.Queued), "recipient") + " in the queue."}
}

// warmupChange is a change of a source's warm-up.
type warmupChange struct {
	Source string `q:"source"`
	api.StageChoice
}

// changeWarmup makes an action on a warm-up.
func changeWarmup(a api.WarmupAction) func(*request, api.Intent) (Outcome, error) {
	return changes("warm-up", func(r *request, q warmupChange) (api.WarmupChanged, error) {
		return api.OpChangeWarmup[a].Call(r.ctx, r.relay, q.StageChoice, q.Source)
	}, nil)
}

func reloaded(done api.Reload) []string {
	lines := done.Changes
	for _, c := range done.Restart {
		lines = append(lines, c+" (after a restart)")
	}
	if done.Count == 0 {
		lines = append(lines, "The file has the settings that are in force.")
	}
	return lines
}

// weightChange is a change of a source's weight in a pool.
type weightChange struct {
	Pool string `q:"pool"`
	api.SetWeight
}

func setWeight(r *request, q weightChange) (api.WeightChanged, error) {
	return api.OpSetWeight.Call(r.ctx, r.relay, q.SetWeight, q.Pool)
}

// addRule adds a rule. One that reroutes hands what messages say to a host of the user's choice.
func addRule(r *request, q api.AddRule) (done api.RuleChanged, _ error) {
	if q.Action == api.RuleReroute && r.role() < Admin {
		return done, &api.Error{Status: http.StatusForbidden, Message: "a rule that reroutes mail is for admins",
			Hint: "reroute queued mail to a route or pool of the configuration"}
	}
	return api.OpAddRule.Call(r.ctx, r.relay, q)
}

// pause adds a rule that suspends mail.
func pause(r *request, q api.AddRule) (done api.RuleChanged, _ error) {
	if q.Action == "" {
		return done, api.Invalid("a pause has action=suspend", "no action is given")
	}
	if q.Action != api.RuleSuspend {
		return done, api.Invalid("add it on the page of rules", "a pause suspends mail, and does not %s it", q.Action)
	}
	return addRule(r, q)
}

func weighted(done api.WeightChanged) []string {
	return []string{"It was " + strconv.Itoa(done.Was) + "."}
}

// weightForm asks for a source and its weight, with those of the pool to choose from; nil when the request has them.
func weightForm(r *request) (any, error) {
	if r.get("weight") != "" {
		return nil, nil
	}
	name := r.get("pool")
	l, err := api.OpPools.Call(r.ctx, r.relay, api.UnpooledFilter{BlockFilter: api.BlockFilter{Names: []string{name}}})
	if err == nil && len(l.Pools) == 0 {
		err = api.NotFound("", "there is no pool %q", name)
	}
	if err != nil {
		return nil, err
	}
	var sources []option
	for _, s := range slices.Concat(l.Pools[0].Shared, l.Pools[0].Dedicated) {
		weight, set := l.Pools[0].Weights[s]
		if !set {
			weight = 1
		}
		sources = append(sources, option{Value: s, Text: fmt.Sprintf("%s, now %d", s, weight)})
	}
	return sources, nil
}
