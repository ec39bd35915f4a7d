package mta

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"

	"example.org/mta/bounce/returnpath"
	"example.org/mta/delivery"
	"example.org/mta/delivery/blackhole"
	"example.org/mta/delivery/outages"
	"example.org/mta/delivery/suspensions"
	"example.org/mta/delivery/tlspolicy/tlsrpt"
	"example.org/mta/destdb"
	"example.org/mta/dispatch"
	"example.org/mta/dispatch/rules"
	"example.org/mta/dispatch/weights"
	"example.org/mta/internal/certificates"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/mta/config"
	"example.org/mta/mta/listen"
	"example.org/mta/mta/tlsout"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/answer/connections"
	"example.org/mta/router"
)

// mailOut is the second stage: mail goes out, and what is known of hosts comes in. Nothing of it takes mail.
type mailOut struct {
	*stores

	certs       *certificates.Store
	sources     *delivery.AddressWatch
	sites       dispatch.Sites
	returnPaths atomic.Pointer[returnpath.Keys]
	uses        *wiring.Uses      // of limits that the cluster's nodes share; nil without one
	othersPaths returnpath.Others // of the cluster's other nodes
	node        returnpath.Node
	router      *router.Router
	tls         *tlsout.TLS
	rules       *rules.Rules
	outages     *outages.Store
	suspensions *suspensions.Shared
	tracer      *connections.Tracer
	delivery    *delivery.Scheduler
	dispatcher  *dispatch.Dispatcher
	writer      *dispatch.ReportWriter // of reports to senders
	reporter    *dispatch.Reporter
}

func openMailOut(cfg *config.Config, kept *stores, undo *undoer) (*mailOut, error) {
	r := &mailOut{stores: kept, certs: certificates.New(kept.now, kept.log)}
	r.tracer = connections.NewTracer(r.now, func() { r.delivery.Retrace() })
	local := func() map[string]netip.Addr { return r.inForce().LocalAddresses() }
	r.sources = delivery.NewAddressWatch(local, r.opts.Bind, r.log)
	return r, openAll(cfg, undo, []step{
		{"", r.openReports},
		{"return paths", r.openReturnPaths},
		{"router", r.openRouter},
		{"", r.openRules},
		{"delivery", r.openDelivery},
	})
}

// openReports starts what writes reports to senders.
func (r *mailOut) openReports(_ *config.Config, undo *undoer) error {
	r.writer = &dispatch.ReportWriter{
		Queue: r.queue, Events: r.events, Policy: r.policy.Load, Sites: &r.sites, Ids: new(envelope.IDs),
		Now: r.now, Log: r.log,
	}
	r.reporter = dispatch.StartReporter(r.writer.Write)
	undo.add(r.reporter.Close)
	return nil
}

func (r *mailOut) openRouter(cfg *config.Config, undo *undoer) error {
	settings, err := wiring.Router(cfg, r.listeners.Addresses(listen.SMTP))
	if err != nil {
		return err
	}
	if cfg.Defaults.Traffic.DANE && !r.resolver.Trusted() {
		r.log.Info("no DANE: not all name servers are on loopback or trusted to validate DNSSEC, see resolver { " +
			"trusted }")
	}
	r.tls = &tlsout.TLS{Config: tlsout.Config{
		Resolver: r.resolver, Kept: r.destinations, Certificates: r.certs, Policy: r.policy.Load, Mail: r.mailTLSReport,
		Transport: r.opts.policyTransport, Now: r.now, Log: r.log,
	}}
	r.router = router.New(router.Config{Settings: settings, Policies: r.tls, Rand: r.opts.Rand(), Log: r.log},
		r.resolver)
	undo.add(r.router.Close)
	if err := r.tls.Open(cfg, r.router); err != nil {
		return err
	}
	undo.add(func() { r.tls.Close() })
	return nil
}

// mailTLSReport puts a TLS report into the queue.
func (r *mailOut) mailTLSReport(mail tlsrpt.Mail) error {
	return r.store.Own(&envelope.Message{
		Sender: envelope.Address(mail.From), Recipients: []envelope.Recipient{{Address: envelope.Address(mail.To)}},
		Tier: 5, TLSOptional: true, Received: r.now(), Protocol: envelope.LocalProtocol,
	}, mail.Content)
}

func (r *mailOut) openRules(cfg *config.Config, _ *undoer) (err error) {
	r.rules, err = rules.Read(cfg.DataDir, r.now, r.data.Number(rules.Format), r.policy.Load, r.log)
	if err != nil {
		return err
	}
	if r.cluster != nil {
		r.uses = wiring.NewUses(r.cluster.Node, r.now)
		r.rules.Paces = r.uses
		r.rules.Note, r.rules.Where = r.known.Of("rule"), fmt.Sprintf(" at node %d", r.cluster.Status().Number)
		w := r.weights
		w.Note, w.Where, w.Changed = r.known.Of("weight"), r.rules.Where, r.rules.SourceFree
		if err := errors.Join(r.known.Add("rule", rules.Shared{Rules: r.rules}, r.rules.Lost),
			r.known.Add("weight", weights.Shared{Weights: w}, w.Lost)); err != nil {
			return err
		}
	}
	r.rules.Changed = func() { r.delivery.Reload(r.rules.Stays) }
	r.rules.Resumed = func(key parking.Key) { r.dispatcher.Resume(key) }
	return nil
}

func (r *mailOut) openDelivery(cfg *config.Config, undo *undoer) error {
	r.outages = wiring.Outages(r.known, r.now, r.log)
	most := wiring.ShareDescriptors(r.files, cfg).Of(cfg.Delivery.MaxConnections)
	r.delivery = delivery.New(delivery.Config{
		DB:     r.learned,
		Store:  r.destinations,
		Source: func(name string) (delivery.Source, bool) { return r.policy.Load().Outgoing(name) },
		Limits: func(rt *route.Route, source, tenant string) delivery.Limits {
			limits := r.policy.Load().Limits(rt, source, tenant)
			limits.Rules = r.rules.Rates(rt, source, tenant)
			return limits
		},
		Dial: func(ctx context.Context, s delivery.Source, h route.Host) (net.Conn, error) {
			if h.Inside() {
				return blackhole.Open(h.Name), nil
			}
			if r.opts.Dial != nil {
				return r.opts.Dial(ctx, "tcp", h.Addr.String())
			}
			return r.policy.Load().Dialer(s)(ctx, h.Addr)
		},
		TLS:      r.tls.Terms,
		OnSpace:  func(f delivery.Flow) { r.dispatcher.Refill(f) },
		OnAction: r.logAction,
		OnRefused: func(rt *route.Route, source string, words reply.Reply) {
			r.dispatcher.Refused(rt, source, words)
		},
		Classes:        r.classes,
		Backoff:        wiring.Backoff(cfg),
		Trace:          r.tracer.Watch,
		Divider:        wiring.Divider(r.cluster),
		OnReach:        r.outages.OnReach(),
		MaxConnections: most,
		Rand:           r.opts.Rand(),
		Log:            r.log,
	})
	undo.add(r.delivery.Close)
	r.cluster.OnChange(r.useParts)
	r.dispatcher = dispatch.New(dispatch.Config{
		Queue: r.queue, Router: r.router, Delivery: r.delivery, Notifier: r.reporter, Events: r.events, Sites: &r.sites,
		Policy: r.policy.Load, Missing: r.noSource, Warmup: r.warm.Controller(), Rules: r.rules,
		Suppression: r.suppression, Feeder: r.feeder, Classes: r.classes,
		Token: r.token, Now: r.now, Chance: r.opts.Chance, Log: r.log, Frozen: r.frozen,
		MayEnd: r.copy.MayEnd(),
	})
	r.warm.Serve(r.dispatcher)
	r.outages.Join(r.delivery)
	r.suspensions = &suspensions.Shared{Scheduler: r.delivery, Note: r.known.Of("suspension")}
	return errors.Join(r.known.Add("host", r.outages, false),
		r.known.Add("suspension", r.suspensions, r.destinations.Damage() != nil))
}

// useParts has delivery use what this relay may use of limits now. More or fewer members have other parts of those that
// are not shared.
func (r *mailOut) useParts(members bool) {
	if members {
		r.delivery.Reload(r.rules.Stays)
	}
	r.delivery.PartsChanged()
	r.uses.Changed()
}

// logAction logs what the relay does by itself.
func (r *mailOut) logAction(site string, a destdb.Action) {
	r.log.Warn("automatic action", "site", site, "action", a.What, "source", a.Source, "reason",
		a.Reason, "until", a.End)
}

// noSource reports whether nothing can or may leave from a source.
func (r *mailOut) noSource(name string) bool {
	return r.sources.Missing(name) || r.rules.Source(name)
}
