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
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"example.org/mta/mta/config"
	"example.org/mta/operator/answer"
	"example.org/mta/operator/api"
	"example.org/mta/submission/auth"
)

// httpServer answers monitoring: health and metrics. Nothing there changes anything or shows mail. It answers from
// the first, since reading a large queue takes a while.
type httpServer struct {
	server  http.Server
	socket  net.Listener
	metrics atomic.Pointer[http.Handler] // nil until all parts are there
	ended   chan struct{}                // closed when nothing is answered any more
	log     *slog.Logger
}

func (r *Relay) openHTTP(cfg *config.Config, undo *undoer) error {
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
func (r *Relay) openMetrics(*config.Config, *undoer) error {
	if r.http == nil {
		return nil
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(r.meter.Collectors()...)
	metrics.MustRegister(r.metrics().Collectors()...)
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	h := promhttp.HandlerFor(answer.Bounded(metrics), promhttp.HandlerOpts{EnableOpenMetrics: true})
	r.http.metrics.Store(&h)
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

func (r *Relay) closeHTTP(ctx context.Context) error {
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
func (r *Relay) withToken(h http.Handler) http.Handler {
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
func (r *Relay) readyz(w http.ResponseWriter, _ *http.Request) {
	switch state, reason := r.state(); {
	case state == api.Running:
		fmt.Fprintln(w, "ok")
	case state == api.Draining:
		http.Error(w, "shutting down", http.StatusServiceUnavailable)
	default:
		http.Error(w, cmp.Or(reason, state), http.StatusServiceUnavailable)
	}
}

// livez answers 200 unless the process can't go on and a new one could: the dispatcher has failed. A full disk or an
// unreachable network are no reason to kill a relay. The parts that all mail passes are asked for their state, so
// that a deadlock in them leaves the question unanswered.
func (r *Relay) livez(w http.ResponseWriter, _ *http.Request) {
	if r.failed.Load() {
		http.Error(w, "the dispatcher has failed: the relay is stopping", http.StatusServiceUnavailable)
		return
	}
	if state, _ := r.state(); state == api.Running || state == api.Refusing {
		r.queue.Stats()
		r.delivery.Counts()
	}
	fmt.Fprintln(w, "ok")
}

// metrics are the figures of all parts.
func (r *Relay) metrics() answer.Metrics {
	return answer.Metrics{
		Admission: r.admission.Status,
		Relay:     &r.operated, Version: r.opts.Version, Accounting: r.accountingStats, Certificates: r.expiries, Checks: r.checks.Last,
		Alarms: r.alarms.states, Clients: r.clients.open, TenantsIgnored: &r.tenantsIgnored, Quotas: r.quotas, Callouts: r.callouts,
		Signatures: func() answer.Signatures {
			c := r.dispatcher.SigningCounts()
			return answer.Signatures{Signed: c.Signed.Load(), Unsigned: c.Unsigned.Load(), Failed: c.Failed.Load()}
		},
		Logins: func() (s auth.Stats, on bool) {
			logins := r.logins.Load()
			if logins == nil {
				return s, false
			}
			return logins.Stats(), true
		},
	}
}
