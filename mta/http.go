package mta

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"example.org/mta/cluster/membership"
	"example.org/mta/delivery/tlspolicy/tlsrpt"
	"example.org/mta/internal/envelope"
	"example.org/mta/mta/admit"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/answer/metrics"
	"example.org/mta/operator/answer/submitted"
	"example.org/mta/operator/api"
)

// httpServer answers monitoring: health and metrics. Nothing there changes anything or shows mail. It answers from
// the first, since reading a large queue takes a while.
type httpServer struct {
	server  http.Server
	socket  net.Listener
	metrics atomic.Pointer[http.Handler] // nil until all parts are there
	touch   atomic.Pointer[func()]       // asks the parts that all mail passes; likewise
	ended   chan struct{}                // closed when nothing is answered any more
	log     *slog.Logger
}

func (r *stores) openHTTP(cfg *config.Config, undo *undoer) error {
	if cfg.HTTP.Address == "" {
		return nil
	}
	socket, err := net.Listen("tcp", cfg.HTTP.Address)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	s := &httpServer{socket: socket, ended: make(chan struct{}), log: r.log, server: http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		WriteTimeout:      time.Minute,
		ErrorLog:          slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
	}}
	mux.Handle("GET /metrics", r.withToken(s))
	mux.HandleFunc("GET /healthz", r.readyz)
	mux.HandleFunc("GET /readyz", r.readyz)
	mux.HandleFunc("GET /livez", r.livez)
	r.http = s
	go s.serve()
	undo.add(func() { s.server.Close(); <-s.ended })
	return nil
}

// openMetrics adds the metrics, once the parts are there.
func (r *operators) openMetrics(*config.Config, *undoer) error {
	if r.http == nil {
		return nil
	}
	all := prometheus.NewRegistry()
	all.MustRegister(r.meter.Collectors()...)
	all.MustRegister(r.collectors()...)
	all.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	h := promhttp.HandlerFor(metrics.Bounded(all), promhttp.HandlerOpts{EnableOpenMetrics: true})
	r.http.metrics.Store(&h)
	touch := func() {
		r.queue.Stats()
		r.delivery.Counts()
	}
	r.http.touch.Store(&touch)
	return nil
}

// address is where the server listens; "" without one.
func (s *httpServer) address() string {
	if s == nil {
		return ""
	}
	return s.socket.Addr().String()
}

func (s *httpServer) serve() {
	defer close(s.ended)
	s.log.Info("answering monitoring", "address", s.socket.Addr().String())
	if err := s.server.Serve(s.socket); !errors.Is(err, http.ErrServerClosed) {
		s.log.Error("http listener ended", "error", err)
	}
}

// ServeHTTP answers with the metrics.
func (s *httpServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if h := s.metrics.Load(); h != nil {
		(*h).ServeHTTP(w, req)
		return
	}
	http.Error(w, api.Starting, http.StatusServiceUnavailable)
}

func (r *stores) closeHTTP(ctx context.Context) error {
	if r.http == nil {
		return nil
	}
	err := r.http.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, r.http.server.Close())
	}
	<-r.http.ended
	return err
}

// withToken lets only those in who have the token, if the configuration has one.
func (r *stores) withToken(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		want := "Bearer " + string(r.policy.Load().Config.HTTP.MetricsToken)
		if want != "Bearer " && subtle.ConstantTimeCompare([]byte(req.Header.Get("Authorization")), []byte(want)) == 0 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "metrics are for those who have the token: http { metrics_token }", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, req)
	})
}

// readyz answers 200 while the relay accepts mail, and otherwise 503 with the reason: a load balancer needs no more.
func (r *stores) readyz(w http.ResponseWriter, _ *http.Request) {
	if state, reason := r.state(); state != api.Running {
		if state == api.Draining && !r.life.Stopping() {
			reason = "" // it names the operator
		}
		http.Error(w, cmp.Or(reason, state), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// livez answers 200 unless the process can't go on and a new one could: the dispatcher has failed. A full disk or an
// unreachable network are no reason to kill a relay. The parts that all mail passes are asked for their state, so
// that a deadlock in them leaves the question unanswered.
func (r *stores) livez(w http.ResponseWriter, _ *http.Request) {
	if r.life.Failed.Load() {
		http.Error(w, "the dispatcher has failed: the relay is stopping", http.StatusServiceUnavailable)
		return
	}
	if touch := r.http.touch.Load(); touch != nil && r.life.Serving.Load() && !r.life.Stopping() {
		(*touch)()
	}
	fmt.Fprintln(w, "ok")
}

// collectors are those of all parts' figures.
func (r *operators) collectors() []prometheus.Collector {
	p := metrics.Parts{
		Version: r.opts.Version, Config: r.inForce, Now: r.now,
		Tally: r.tally, Delivery: r.delivery, Warmups: r.warm,
		WarmupSource: func(key string) string { return r.policy.Load().WarmupSource(key) },
		EachLine:     r.queue.EachLine, Waiting: r.queued.Waits.EachReason,
		ProviderOf: r.sites.Provider, Quota: r.quotas.State, Missing: r.sources.Missing,
		Clients: r.clients.Open, Checks: r.checks.Last, Certificates: r.expiries,
		Admission: r.admission.Status, Inbound: r.reports.inbox.Counts, STS: r.tls.Policies.Stats, Fed: r.feeder.Stats,
	}
	if r.streams != nil {
		p.Streams = r.streams.List
	}
	return append(p.Collectors(),
		metrics.Of("queue", r.queue.Stats),
		metrics.By("states", r.queued.States),
		metrics.Of("delivery", r.delivery.Counts),
		metrics.Of("signing", r.dispatcher.SigningCounts),
		metrics.Of("router", r.router.Stats),
		metrics.Of("dns", r.resolver.Stats),
		metrics.Of("sts", r.tls.Policies.Stats),
		metrics.IfThere("tls reports", func() *tlsrpt.Reporter { return r.tls.Reports }),
		metrics.Of("clients", func() int64 { return r.clients.Open("") }),
		metrics.Of("ignored fields", r.tenantsIgnored.Load),
		metrics.If("admission", func() (admit.Status, bool) { s := r.admission.Status(); return s, s.On }),
		metrics.IfThere("logins", r.logins.Load),
		metrics.IfThere("keys", r.keys.Load),
		metrics.Of("callouts", r.callouts.Stats),
		metrics.By("milters", r.milters.Counts),
		metrics.By("refused reports", r.reports.others.Refused),
		metrics.Of("kept", r.reports.folder.Stats),
		metrics.Of("suppressed", r.suppression.Stats),
		metrics.Of("feed", r.feeder.Stats),
		metrics.Of("accounting", r.accounting.Stats),
		metrics.By("alarms", r.alarms.States),
		metrics.If("cluster", func() (membership.Status, bool) { return r.cluster.Status(), r.cluster != nil }),
	)
}

// answersTenants makes what answers tenants about the mail that they submitted.
func (r *mailIn) answersTenants() *submitted.Submitted {
	return submitted.New(submitted.Submitted{
		Messages: &r.queued, LogDir: r.accountingDir, Flush: r.flushAccounting, Keyed: r.messagesOfRequest,
	})
}

// answersEverywhere makes what answers them about their mail at all nodes of a cluster.
func (r *mailIn) answersEverywhere() *submitted.Everywhere {
	e := &submitted.Everywhere{Own: r.submitted, Name: r.inForce().NodeID, Now: r.now, Log: r.log,
		// A relay that drains may move its queue.
		Moving: func() bool { return r.life.Refuses() && r.queue.Stats().Queued > 0 }}
	if r.cluster != nil {
		e.Nodes = wiring.Clients(r.cluster, e, r.log)
	}
	return e
}

// accountingDir is where the accounting log is; "" while it is switched off.
func (r *stores) accountingDir() string {
	if r.accounting == nil {
		return ""
	}
	return r.policy.Load().Config.Accounting.Path
}

func (r *stores) flushAccounting(ctx context.Context) error { return r.accounting.Flush(ctx) }

// messagesOfRequest gives the ids of the messages that came with an Idempotency-Key.
func (r *mailIn) messagesOfRequest(tenant, key string) ([]envelope.ID, bool, error) {
	known, ok, err := r.repeats.Taken(tenant, key)
	var ids []envelope.ID
	for _, id := range known.IDs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids, ok, err
}
