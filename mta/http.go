package mta

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"example.org/mta/mta/config"
	"example.org/mta/mta/operate"
	"example.org/mta/submission/auth"
)

// httpServer answers monitoring: /healthz and /metrics. Nothing there changes anything or shows
// mail.
type httpServer struct {
	server http.Server
	socket net.Listener
	log    *slog.Logger
}

func (r *Relay) openHTTP(cfg *config.Config, undo *undoer) error {
	if cfg.HTTP.Address == "" {
		return nil
	}
	socket, err := net.Listen("tcp", cfg.HTTP.Address)
	if err != nil {
		return err
	}
	undo.add(func() { socket.Close() })
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(r.meter.Collectors()...)
	metrics.MustRegister(r.metrics().Collectors()...)
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", r.healthz)
	r.http = &httpServer{socket: socket, log: r.log, server: http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		WriteTimeout:      time.Minute,
		ErrorLog:          slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
	}}
	return nil
}

func (s *httpServer) serve() {
	s.log.Info("answering monitoring", "address", s.socket.Addr().String())
	if err := s.server.Serve(s.socket); !errors.Is(err, http.ErrServerClosed) {
		s.log.Error("http listener ended", "error", err)
	}
}

func (r *Relay) closeHTTP(ctx context.Context) error {
	if r.http == nil {
		return nil
	}
	if err := r.http.server.Shutdown(ctx); err != nil {
		return errors.Join(err, r.http.server.Close())
	}
	return nil
}

// healthz says 200 while the relay can accept mail, and 503 with the reason when it can't: a
// load balancer needs no more.
func (r *Relay) healthz(w http.ResponseWriter, _ *http.Request) {
	reason := r.refusing()
	if r.draining.Load() {
		reason = "shutting down"
	}
	if reason != "" {
		http.Error(w, reason, http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// metrics are the figures of all parts.
func (r *Relay) metrics() operate.Metrics {
	return operate.Metrics{
		Admission: r.admission.Status,
		Relay:     &r.operated, Version: r.opts.Version, Accounting: r.accountingStats, Certificates: r.expiries, Checks: r.checks.last,
		Alarms: r.alarms.states, Clients: r.inbound.open, TenantsIgnored: &r.tenantsIgnored, Quotas: r.quotas, Callouts: r.callouts,
		Signatures: func() operate.Signatures {
			c := r.dispatcher.SigningCounts()
			return operate.Signatures{Signed: c.Signed.Load(), Unsigned: c.Unsigned.Load(), Failed: c.Failed.Load()}
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
