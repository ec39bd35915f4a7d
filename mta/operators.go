package mta

import (
	"cmp"
	"net"
	"net/http"
	"sync"

	"example.org/mta/cluster/moving"
	"example.org/mta/mta/adopting"
	"example.org/mta/mta/alarm"
	"example.org/mta/mta/check"
	"example.org/mta/mta/config"
	"example.org/mta/mta/replica"
	"example.org/mta/mta/standing"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/answer/blocks"
	"example.org/mta/operator/answer/kept"
	"example.org/mta/operator/answer/messages"
	"example.org/mta/operator/api"
	"example.org/mta/operator/audit"
	"example.org/mta/operator/history"
)

// operators is the last stage: operators ask, change and reload.
type operators struct {
	*mailIn

	moves    messages.Moves
	mover    *moving.Mover // nil without a cluster
	members  api.Members   // likewise
	adopter  *adopting.Adopter
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
		{"cluster", r.openMover},
		{"", r.openControl}, // its errors name the socket
		{"console", r.openConsole},
		{"metrics", r.openMetrics},
	})
	if err == nil {
		r.alarms.Set(r.now(), alarm.Damage, r.data.Damaged())
	}
	return r, err
}

// openMover makes what moves mail to other relays. It withholds what other nodes of the cluster may have.
func (r *operators) openMover(cfg *config.Config, _ *undoer) (err error) {
	r.moves = messages.Moves{Messages: &r.queued, Repeats: r.repeats, Receptions: r.events, Version: r.opts.Version}
	refuses := func() string {
		state, why := r.state()
		if state == api.Running {
			return ""
		}
		return cmp.Or(why, state)
	}
	r.mover, err = wiring.Mover(cfg, r.cluster, messages.Moving{Moves: &r.moves}, refuses, r.life.Refuses, r.frozen,
		r.now, r.log)
	ac := adopting.Config{InForce: r.inForce, Classes: r.classes, Version: r.opts.Version, Now: r.now, Log: r.log,
		Streams: r.streamsOf, Drains: r.life.Refuses}
	if r.mover != nil {
		ac.Cluster = wiring.Adopting{Membership: r.cluster, Own: r.mover, Now: r.now, Log: r.log}
		ac.Copies = adopting.Taker{Taker: &replica.Taker{Node: r.cluster.Status().Number, Now: r.now, Log: r.log,
			Open: func() (replica.Engine, error) { return replica.Database(cfg) }}}
		r.members = wiring.Operators(r.cluster, func(from int) http.Handler { return r.control.FromNode(from) },
			r.log)
	}
	r.adopter = adopting.New(ac)
	return err
}

func (r *operators) clusters() kept.Cluster {
	return kept.Cluster{Part: r.cluster, Mover: r.mover, Relay: r,
		Queued: func() int64 { return r.queue.Stats().Queued }, Copy: r.copy.Status}
}

// sums are those of what all nodes of a cluster need.
func (r *operators) sums() map[string]string {
	return wiring.Sums(r.inForce())
}

// sharedSums are those of its users and templates.
func (r *operators) sharedSums() map[string]string {
	return wiring.SharedSums(r.logins.Load(), r.consoleLogins(), r.templates)
}

// clusterTrouble returns the reasons of the cluster's alarms.
func (r *operators) clusterTrouble() (part, database, standby, certificate string) {
	part, database, standby, certificate = r.cluster.Trouble()
	_, late := r.copy.Status()
	return cmp.Or(late, part, r.adopter.Trouble(), r.mover.Trouble()), database, standby, certificate
}
