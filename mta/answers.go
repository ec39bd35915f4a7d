package mta

import (
	"cmp"
	"context"
	"net/netip"
	"path/filepath"
	"time"

	"example.org/mta/dispatch"
	"example.org/mta/internal/envelope"
	"example.org/mta/mta/config"
	"example.org/mta/mta/events"
	"example.org/mta/operator/answer/blocks"
	"example.org/mta/operator/answer/connections"
	"example.org/mta/operator/answer/kept"
	"example.org/mta/operator/answer/sites"
	"example.org/mta/operator/api"
	"example.org/mta/operator/history"
	"example.org/mta/router/resolver"
)

// warmupAnswers answers about warm-ups.
func (r *mailOut) warmupAnswers() *blocks.Warmups {
	return &blocks.Warmups{
		Policy: r.policy.Load, Now: r.now, Controller: r.warm, Rules: r.rules, Diverted: r.diverted,
	}
}

// answers gives each topic of the control API the parts that it asks.
func (r *operators) answers() api.Config {
	return api.Config{
		Queue: &r.queued, Warmups: r.warmups,
		Destinations: &sites.Sites{
			Policy: r.policy.Load, Now: r.now, Queue: r.queue, Delivery: r.suspensions, Router: r.router,
			Tally: r.tally, Messages: &r.queued, Suppressed: r.suppressedSince, TLSA: r.tls.Records(),
			STS: r.tls.Policies, Missing: r.sources.Missing, Weights: r.weights, Files: r.files,
			Behind: r.behind("suspension"),
		},
		Moves: &r.moves,
		Blocks: blocks.Blocks{
			Config: r.inForce, Now: r.now, Delivery: r.delivery, Tally: r.tally, Rates: &r.rates,
			Rules: r.rules, Warmups: r.warmups, Missing: r.sources.Missing, Quotas: r.quotas,
			Weights: r.weights, Queued: r.queue.CountTenants, Waits: r.queued.Waits,
			Behind: r.behind("weight"),
		},
		Histories:       blocks.Histories{Figures: r.history},
		OpenConnections: connections.Connections{Delivery: r.delivery, Entrances: r.openEntrances},
		Rules: blocks.Rules{
			Config: r.inForce, Now: r.now, Kept: r.rules, Fitting: r.queued.Fitting, NoHost: r.noHost,
			Behind: r.behind("rule"),
		},
		APIKeys: kept.Keys{Config: r.inForce, Now: r.now, Book: r.keys.Load,
			Behind: r.behind("key")},
		Users: kept.Users{Listeners: r.logins.Load, Console: r.consoleLogins, Behind: r.known.Behind},
		Suppressions: kept.Suppressions{List: r.suppression, Feeder: r.feeder, Config: r.inForce, Now: r.now,
			Behind: r.behind("suppression")},
		Bounces:  kept.Bounces{Unknown: &r.unknown, Started: r.life.Started},
		Clusters: r.clusters(), Members: r.members, Adopters: r.adopter,
		TLSReports: kept.TLSReports{Reporter: r.tls.Reports},
		Inbound:    kept.Inbound{Folder: r.reports.folder},
		Streams:    kept.Streams{Open: cmp.Or(r.streams, new(events.Streams))},
		Admissions: kept.Admissions{Config: r.inForce, Gate: r.admission, Quotas: r.quotas},
		Log:        kept.Log{Writer: r.accounting, Out: r.log}, Relay: r, Upgrades: r.data, Backups: r.backups(),
		Tracer: r.tracer, Audit: r.audit, Events: r.log,
	}
}

// behind returns a function that waits until all nodes of the cluster know what changed of a kind, and returns which
// don't.
func (r *operators) behind(kind string) func(context.Context) string {
	return func(ctx context.Context) string { return r.known.Behind(ctx, kind) }
}

// noHost returns why no mail can go to a host, as far as the DNS says so for good.
func (r *operators) noHost(ctx context.Context, name string) error {
	if _, err := netip.ParseAddr(name); err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if _, err := r.router.Addresses(ctx, name); err != nil && resolver.KindOf(err) != resolver.Temporary {
		return err
	}
	return nil
}

// openHistory opens the figures over time.
func (r *operators) openHistory(cfg *config.Config) {
	clients := func(tenant string) int64 {
		s, _ := r.quotas.State(tenant)
		return int64(s.Connections)
	}
	r.history = history.Open(history.Config{
		Meter: blocks.Meter{
			Config: r.inForce, Tally: r.tally, Queue: r.queue, Delivery: r.delivery, States: r.queued.States,
			ProviderOf: r.sites.Provider, Clients: func() int64 { return r.clients.Open("") }, TenantClients: clients,
		},
		Path: filepath.Join(cfg.DataDir, "history"), Now: r.now, Log: r.log,
	})
}

// suppressedSince returns since when and why an address gets no mail of a tenant.
func (r *operators) suppressedSince(tenant string, a envelope.Address) (string, bool) {
	e, yes := r.suppression.Keeps(tenant, a)
	return e.String(), yes
}

// diverted puts into operators' words where the mail went that a warming source could have taken.
func (r *mailOut) diverted(key string, since time.Time) blocks.Diverted {
	d := r.dispatcher.DivertedSince(key, since)
	return blocks.Diverted{Offered: d.Offered(), Faster: d[dispatch.CameFaster], WarmupDiverted: api.WarmupDiverted{
		TooFast: d[dispatch.CameFaster] + d[dispatch.CameTooFast], OverCap: d[dispatch.ExceededCap],
		Waited: d[dispatch.LostPatience], Suspended: d[dispatch.FoundNoWay],
	}}
}
