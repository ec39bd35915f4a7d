package mta

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/destdb"
	"example.org/mta/destdb/file"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/route"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/router"
	"example.org/mta/router/resolver"
)

func (r *Relay) openRouter(cfg *config.Config, undo *undoer) error {
	rc, err := wiring.Resolver(cfg.Resolver)
	if err != nil {
		return err
	}
	settings, err := wiring.Router(cfg, addrPorts(r.listeners.all()))
	if err != nil {
		return err
	}
	r.resolver = resolver.New(rc)
	if cfg.Defaults.Traffic.DANE && !r.resolver.Trusted() {
		r.log.Info("no DANE: not all name servers are on loopback or trusted to validate DNSSEC, see resolver { trusted }")
	}
	r.router = router.New(router.Config{Settings: settings, Policies: routePolicies{r}, Log: r.log}, r.resolver)
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

func (r *Relay) openPauses(cfg *config.Config, _ *undoer) (err error) {
	r.resumed = newRefiller(
		func(key parking.Key) bool { return r.dispatcher.unparkPaused(key) },
		func(ctx context.Context) error { return r.dispatcher.pause(ctx) },
	)
	r.pauses, err = readPauses(cfg.DataDir, r.now, r.policy.Load, r.log)
	if err != nil {
		return err
	}
	r.pauses.taken = func() { r.delivery.Reload(r.pauses.stays) }
	r.pauses.resumed = r.resumed.call
	return nil
}

func (r *Relay) openDelivery(cfg *config.Config, undo *undoer) error {
	pause := func(ctx context.Context) error { return r.dispatcher.pause(ctx) }
	r.refiller = newRefiller(func(f delivery.Flow) bool { return r.dispatcher.unpark(f) }, pause)
	r.routedMail = newRefiller(func(domain string) bool { return r.dispatcher.unparkRouted(domain) }, pause)
	most := cfg.Delivery.MaxConnections
	if d := shareDescriptors(r.files, cfg); d.out > 0 {
		most = d.out
	}
	r.delivery = delivery.New(delivery.Config{
		DB:     r.learned,
		Store:  r.destinations,
		Source: func(name string) (delivery.Source, bool) { return r.policy.Load().Outgoing(name) },
		Limits: func(rt *route.Route, source, tenant string) delivery.Limits {
			return r.policy.Load().Limits(rt, source, tenant)
		},
		Dial: func(ctx context.Context, s delivery.Source, h route.Host) (net.Conn, error) {
			return r.policy.Load().Dialer(s)(ctx, h.Addr)
		},
		TLS:                   r.newTLSPolicy(),
		OnRoom:                r.refiller.call,
		OnAction:              r.tellAction,
		OnRefused:             r.warm.refused,
		Backoff:               wiring.Backoff(cfg),
		Trace:                 r.tracer.Watch,
		MaxConnections:        most,
		MaxMessageConcurrency: cfg.Delivery.MaxMessageConcurrency,
		ScaleMaxConcurrency:   cfg.Delivery.ScaleMaxConcurrency,
		Log:                   r.log,
	})
	undo.add(r.delivery.Close)
	r.dispatcher = (&dispatcher{
		queue:    r.queue,
		router:   r.router,
		delivery: r.delivery,
		notifier: r.reporter,
		events:   r.events,
		sites:    &r.sites,
		policy:   r.policy.Load,
		split:    &splitter{warm: r.warm.ctl, missing: r.noSource, now: r.now, suspended: r.delivery.Suspended, waiting: r.warm.waiting},
		pauses:   r.pauses,
		warm:     r.warm,
		refill:   r.refiller.call,
		takeUp:   r.routedMail.call,
		now:      r.now,
		log:      r.log,

		suppression: r.suppression,
	}).ready()
	return nil
}

// lookupOf says how the look-up of a domain's route stands, for which mail waits.
func (r *Relay) lookupOf(domain string) string {
	if r.router.LookingUp(domain) {
		return "the route of " + domain + " is being looked up"
	}
	return "the look-up of " + domain + " waits for its turn"
}

// tellAction puts what the relay does by itself into the log.
func (r *Relay) tellAction(site string, a destdb.Action) {
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
	return r.sources.isMissing(name) || r.pauses.source(name)
}

// siteProviders remembers the provider of each site, since the queue knows sites only. It is bounded: of
// what it has forgotten the provider is not known until it is routed again.
type siteProviders struct {
	mu     sync.Mutex // guards bySite
	bySite map[string]string
}

// maxSites is how many sites are remembered.
const maxSites = 100_000

func (s *siteProviders) remember(rt *route.Route) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bySite == nil {
		s.bySite = make(map[string]string)
	}
	if _, known := s.bySite[rt.Site]; !known && len(s.bySite) >= maxSites {
		for any := range s.bySite {
			delete(s.bySite, any) // it is remembered when it is routed again
			break
		}
	}
	s.bySite[rt.Site] = rt.Provider
}

// of gives the provider of what waits under a key, that of a site or of a warm-up; false when it is
// not known whether it has one.
func (s *siteProviders) of(key parking.Key) (name string, known bool) {
	if key.Kind == parking.Tokens {
		return key.Provider, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name, known = s.bySite[key.Site()]
	return name, known
}
