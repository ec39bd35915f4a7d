package mta

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/destdb"
	"example.org/mta/destdb/file"
	"example.org/mta/dispatch"
	"example.org/mta/dispatch/pauses"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/alarm"
	"example.org/mta/mta/check"
	"example.org/mta/mta/config"
	"example.org/mta/mta/listen"
	"example.org/mta/mta/warming"
	"example.org/mta/mta/wiring"
	"example.org/mta/router"
	"example.org/mta/router/resolver"
)

func (r *Relay) openRouter(cfg *config.Config, undo *undoer) error {
	rc, err := wiring.Resolver(cfg.Resolver)
	if err != nil {
		return err
	}
	settings, err := wiring.Router(cfg, addrPorts(r.listeners.Addresses(listen.SMTP)))
	if err != nil {
		return err
	}
	rc.Dial = r.opts.Dial
	r.resolver = resolver.New(rc)
	r.checks = check.NewDaily(r.inForce, r.resolver, r.now, r.log)
	if cfg.Defaults.Traffic.DANE && !r.resolver.Trusted() {
		r.log.Info("no DANE: not all name servers are on loopback or trusted to validate DNSSEC, see resolver { trusted }")
	}
	r.router = router.New(router.Config{Settings: settings, Policies: routePolicies{r}, Rand: r.opts.Rand(), Log: r.log}, r.resolver)
	undo.add(r.router.Close)
	return nil
}

// openDestinations brings back what was learned of destinations. The warm-up has its second copy there,
// and so it is opened before that.
func (r *Relay) openDestinations(cfg *config.Config, undo *undoer) error {
	store, db, err := openDestDB(filepath.Join(cfg.DataDir, "destdb"), r.now(), r.log)
	if err != nil {
		return err
	}
	r.destinations, r.learned = store, db
	undo.add(func() { store.Close() })
	return nil
}

func (r *Relay) openWarmup(cfg *config.Config, undo *undoer) (err error) {
	r.warm, err = warming.Open(cfg, warming.Config{
		Open: r.opts.openLedger, Copies: r.destinations.Values(file.WarmupCopies), Policy: r.policy.Load,
		Records: func(rec *accounting.Record) {
			if r.accounting != nil {
				r.accounting.Add(rec)
			}
		},
		Count: r.meter.Warmup, Now: r.now, Rand: r.opts.Rand(), Log: r.log,
	})
	if err != nil {
		return err
	}
	undo.add(func() { r.warm.Close() })
	r.alarms.Set(r.now(), alarm.Warmup, r.warm.Lost())
	return nil
}

func (r *Relay) openPauses(cfg *config.Config, _ *undoer) (err error) {
	r.pauses, err = pauses.Read(cfg.DataDir, r.now, r.policy.Load, r.log)
	if err != nil {
		return err
	}
	r.pauses.Taken = func() { r.delivery.Reload(r.pauses.Stays) }
	r.pauses.Resumed = func(key parking.Key) { r.dispatcher.Resume(key) }
	return nil
}

func (r *Relay) openDelivery(cfg *config.Config, undo *undoer) error {
	most := wiring.ShareDescriptors(r.files, cfg).Of(cfg.Delivery.MaxConnections)
	r.delivery = delivery.New(delivery.Config{
		DB:     r.learned,
		Store:  r.destinations,
		Source: func(name string) (delivery.Source, bool) { return r.policy.Load().Outgoing(name) },
		Limits: func(rt *route.Route, source, tenant string) delivery.Limits {
			return r.policy.Load().Limits(rt, source, tenant)
		},
		Dial: func(ctx context.Context, s delivery.Source, h route.Host) (net.Conn, error) {
			if r.opts.Dial != nil {
				return r.opts.Dial(ctx, "tcp", h.Addr.String())
			}
			return r.policy.Load().Dialer(s)(ctx, h.Addr)
		},
		TLS:                   r.newTLSPolicy(),
		OnRoom:                func(f delivery.Flow) { r.dispatcher.Refill(f) },
		OnAction:              r.logAction,
		OnRefused:             func(rt *route.Route, source string, words reply.Reply) { r.dispatcher.Refused(rt, source, words) },
		Classes:               r.classes,
		Backoff:               wiring.Backoff(cfg),
		Trace:                 r.tracer.Watch,
		MaxConnections:        most,
		MaxMessageConcurrency: cfg.Delivery.MaxMessageConcurrency,
		ScaleMaxConcurrency:   cfg.Delivery.ScaleMaxConcurrency,
		Rand:                  r.opts.Rand(),
		Log:                   r.log,
	})
	undo.add(r.delivery.Close)
	r.dispatcher = dispatch.New(dispatch.Config{
		Queue: r.queue, Router: r.router, Delivery: r.delivery, Notifier: r.reporter, Events: r.events, Sites: &r.sites,
		Policy: r.policy.Load, Missing: r.noSource, Warmup: r.warm.Controller(), Pauses: r.pauses, Suppression: r.suppression, Feeder: r.feeder, Classes: r.classes,
		Token: r.token, Now: r.now, Chance: r.opts.Chance, Log: r.log,
	})
	r.warm.Serve(r.dispatcher)
	return nil
}

// logAction logs what the relay does by itself.
func (r *Relay) logAction(site string, a destdb.Action) {
	r.log.Warn("automatic action", "site", site, "action", a.What, "source", a.Source, "reason", a.Reason, "until", a.End)
}

// openDestDB brings back what was learned of destinations.
func openDestDB(path string, now time.Time, log *slog.Logger) (*file.Store, *destdb.DB, error) {
	store, err := file.Open(path, log)
	if err != nil {
		return nil, nil, err
	}
	db := destdb.New(destdb.Lifetimes{})
	learn := func(records []destdb.Record) {
		for i := range records {
			records[i].Judge(now)
		}
		db.Learn(records)
	}
	if err := store.Load(learn); err != nil {
		store.Close()
		return nil, nil, err
	}
	return store, db, nil
}

// noSource reports whether nothing can or may leave from a source.
func (r *Relay) noSource(name string) bool {
	return r.sources.Missing(name) || r.pauses.Source(name)
}
