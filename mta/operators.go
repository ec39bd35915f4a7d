package mta

import (
	"cmp"
	"maps"
	"net"
	"slices"
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

// pauseListed pauses the sources that a check has found on a block list, where the configuration wants that. An
// operator's own pause stays as it is, and a pool keeps its last source.
func (r *operators) pauseListed(found []dnscheck.Finding) {
	cfg := r.inForce()
	if cfg.Checks.Listed != "pause" {
		return
	}
	const by = "the relay"
	why := make(map[string]string)
	for _, f := range found {
		if f.Check == dnscheck.CheckList && f.Result == dnscheck.Failed {
			why[f.Source] = f.Text
		}
	}
	for _, name := range slices.Sorted(maps.Keys(why)) {
		p, on := r.rules.Get(rules.Key(api.Selection{Source: name}))
		last := func(pool *config.Pool) bool {
			all := pool.Sources()
			return slices.Contains(all, name) && !slices.ContainsFunc(all, func(other string) bool {
				return other != name && !r.noSource(other)
			})
		}
		switch {
		case on && (p.By != by || !p.Until.After(r.now())):
			continue
		case !on && slices.ContainsFunc(cfg.Pools, last):
			r.log.Warn("source is on a block list, and not paused: it is the last one of a pool", "source", name,
				"reason", why[name])
			continue
		}
		p = api.Rule{Action: api.RuleSuspend, Selection: api.Selection{Source: name}, Reason: why[name], By: by,
			Since: cmp.Or(p.Since, r.now()), Until: r.now().Add(listedFor)}
		if _, err := r.rules.Begin(p, false); err != nil {
			r.log.Error("source is on a block list, and can't be paused", "source", name, "error", err)
		} else if !on {
			r.log.Warn("source is paused: it is on a block list", "source", name, "reason", why[name])
		}
	}
}
