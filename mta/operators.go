package mta

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/mta/dispatch/rules"
	"example.org/mta/internal/dnscheck"
	"example.org/mta/mta/alarm"
	"example.org/mta/mta/check"
	"example.org/mta/mta/config"
	"example.org/mta/operator/answer/blocks"
	"example.org/mta/operator/api"
	"example.org/mta/operator/audit"
	"example.org/mta/operator/history"
)

// operators is the last stage: operators ask, change and reload.
type operators struct {
	*mailIn

	checks  *check.Daily
	rates   blocks.Rates
	history *history.History
	audit   *audit.Log
	api     api.Config
	control *api.Server
	socket  net.Listener
	console *console   // nil without a console block
	reload  sync.Mutex // one reload at a time
}

func openOperators(cfg *config.Config, in *mailIn, undo *undoer) (*operators, error) {
	r := &operators{mailIn: in, checks: check.NewDaily(in.inForce, in.resolver, in.now, in.log)}
	r.checks.Found = r.pauseListed
	err := openAll(cfg, undo, []step{
		{"", r.openControl}, // its errors name the socket
		{"console", r.openConsole},
		{"metrics", r.openMetrics},
	})
	if err == nil {
		r.alarms.Set(r.now(), alarm.Damage, r.data.Damaged())
	}
	return r, err
}

// listedFor is how long a source is paused that a block list has. The next check, an hour later, prolongs it.
const listedFor = 2 * time.Hour

// pauseListed pauses the sources that a check has found on a block list, where the configuration wants that.
func (r *operators) pauseListed(found []dnscheck.Finding) {
	if r.inForce().Checks.Listed != "pause" {
		return
	}
	why := make(map[string]string)
	for _, f := range found {
		if f.Check == dnscheck.CheckList && f.Result == dnscheck.Failed {
			why[f.Source] = f.Text
		}
	}
	for _, name := range slices.Sorted(maps.Keys(why)) {
		if err := r.pauseSource(name, why[name], listedFor); err != nil {
			r.log.Error("source is on a block list, and not paused", "source", name, "reason", why[name], "error", err)
		}
	}
}

// What makes a source blocked: so many sites, and half of all, within so long.
const (
	blockedWithin = time.Hour
	fewestBlocks  = 5
	blockedFor    = 4 * time.Hour // is it paused
)

// blockedSources returns which sources receivers block, "" for none. It pauses them first where the configuration wants
// that.
func (r *operators) blockedSources() string {
	var reasons []string
	now := r.now()
	standings := r.tally.Standings(now.Add(-blockedWithin))
	for _, name := range slices.Sorted(maps.Keys(standings)) {
		n := standings[name]
		if n.Block < fewestBlocks || 2*n.Block < n.Sites || r.rules.Source(name) {
			continue
		}
		why := fmt.Sprintf("%d of %d sites have blocked it within the hour", n.Block, n.Sites)
		if r.inForce().Checks.Refused == "pause" {
			err := r.pauseSource(name, why, blockedFor)
			if err == nil {
				continue
			}
			why += fmt.Sprintf(", and it can't be paused: %v", err)
		}
		reasons = append(reasons, fmt.Sprintf("source %s: %s", name, why))
	}
	for _, x := range r.rules.List() {
		if x.By == byRelay {
			reasons = append(reasons, x.InWords())
		}
	}
	return strings.Join(reasons, "; ")
}

const byRelay = "the relay" // as it is shown

// pauseSource pauses a source for some time from now on, or prolongs that. An operator's own pause stays as it is, and
// a pool keeps its last source.
func (r *operators) pauseSource(name, why string, long time.Duration) error {
	p, on := r.rules.Get(rules.Key(api.Selection{Source: name}))
	last := func(pool *config.Pool) bool {
		all, weight := pool.Sources(), r.weights.In(pool)
		used := func(source string) bool { return weight == nil || weight(source) > 0 }
		return slices.Contains(all, name) && used(name) && !slices.ContainsFunc(all, func(other string) bool {
			return other != name && used(other) && !r.noSource(other)
		})
	}
	switch {
	case on && (p.By != byRelay || !p.Until.After(r.now())):
		return nil
	case !on && slices.ContainsFunc(r.inForce().Pools, last):
		return errors.New("it is the last one of a pool")
	}
	p = api.Rule{Action: api.RuleSuspend, Selection: api.Selection{Source: name}, Reason: why, By: byRelay,
		Since: cmp.Or(p.Since, r.now()), Until: r.now().Add(long)}
	if _, err := r.rules.Begin(p, false); err != nil || on {
		return err
	}
	r.log.Warn("source is paused", "source", name, "reason", why)
	return r.audit.Add(audit.Line{Actor: audit.Actor{Kind: audit.ByRelay}, Action: "rule add",
		Subject: "action=suspend source=" + name, Reason: why, Outcome: audit.Done})
}
