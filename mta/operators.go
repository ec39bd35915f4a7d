package mta

import (
	"net"
	"sync"

	"example.org/mta/mta/alarm"
	"example.org/mta/mta/check"
	"example.org/mta/mta/config"
	"example.org/mta/mta/standing"
	"example.org/mta/operator/answer/blocks"
	"example.org/mta/operator/api"
	"example.org/mta/operator/audit"
	"example.org/mta/operator/history"
)

// operators is the last stage: operators ask, change and reload.
type operators struct {
	*mailIn

	checks   *check.Daily
	standing *standing.Standing
	rates    blocks.Rates
	history  *history.History
	audit    *audit.Log
	api      api.Config
	control  *api.Server
	socket   net.Listener
	console  *console   // nil without a console block
	reload   sync.Mutex // one reload at a time
	compared compared
}

func openOperators(cfg *config.Config, in *mailIn, undo *undoer) (*operators, error) {
	r := &operators{mailIn: in, checks: check.NewDaily(in.inForce, in.resolver, in.now, in.log)}
	r.standing = &standing.Standing{Config: r.inForce, Tally: r.tally, Rules: r.rules, Weights: r.weights,
		Missing: r.noSource, Audit: func(l audit.Line) error { return r.audit.Add(l) }, Now: r.now, Log: r.log}
	r.checks.Found = r.standing.Listed
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
