package mta

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"mta/internal/envelope"
	"mta/mta/config"
	"mta/queue"
	"mta/submission"
)

// queueStore lets submission put messages into the queue.
type queueStore struct{ q *queue.Queue }

func (s queueStore) Begin() submission.Draft { return s.q.Begin() }

// listeners are the SMTP servers that take mail in.
//
// Each address has a goroutine that accepts connections; shutdown ends them and waits.
type listeners struct {
	log     *slog.Logger
	servers []*listening
	running sync.WaitGroup
}

type listening struct {
	name   string
	server *submission.Server
	nets   []net.Listener
}

// openListeners opens all sockets, or none. Nothing is accepted before serve.
func openListeners(cfg *config.Config, build func(*config.Listener) (*submission.Server, error), log *slog.Logger) (*listeners, error) {
	ls := &listeners{log: log}
	for _, lc := range cfg.Listeners {
		server, err := build(lc)
		if err != nil {
			ls.closeSockets()
			return nil, fmt.Errorf("listener %q: %w", lc.Name, err)
		}
		l := &listening{name: lc.Name, server: server}
		ls.servers = append(ls.servers, l)
		for _, address := range lc.Address {
			socket, err := net.Listen("tcp", address)
			if err != nil {
				ls.closeSockets()
				return nil, fmt.Errorf("listener %q: %w", lc.Name, err)
			}
			l.nets = append(l.nets, socket)
		}
	}
	return ls, nil
}

func (ls *listeners) closeSockets() {
	for _, l := range ls.servers {
		for _, socket := range l.nets {
			socket.Close()
		}
	}
}

func (ls *listeners) serve() {
	for _, l := range ls.servers {
		for _, socket := range l.nets {
			ls.log.Info("taking mail", "listener", l.name, "address", socket.Addr().String())
			ls.running.Go(func() {
				if err := l.server.Serve(socket); err != nil && !errors.Is(err, submission.ErrServerClosed) {
					ls.log.Error("no longer taking mail", "listener", l.name, "address", socket.Addr().String(), "error", err)
				}
			})
		}
	}
}

// shutdown stops taking mail. Open transactions may end until ctx does.
func (ls *listeners) shutdown(ctx context.Context) error {
	errs := make([]error, len(ls.servers))
	var all sync.WaitGroup
	for i, l := range ls.servers {
		all.Go(func() { errs[i] = l.server.Shutdown(ctx) })
	}
	all.Wait()
	ls.running.Wait()
	return errors.Join(errs...)
}

// addresses tells where mail is taken, in the order of the configuration.
func (ls *listeners) addresses() []string {
	var out []string
	for _, l := range ls.servers {
		for _, socket := range l.nets {
			out = append(out, socket.Addr().String())
		}
	}
	return out
}

// certificate is the pair of files of a listener, read anew at a reload.
type certificate struct {
	files   config.TLS
	current atomic.Pointer[tls.Certificate]
}

func (c *certificate) load() error {
	pair, err := tls.LoadX509KeyPair(c.files.Certificate, c.files.Key)
	if err != nil {
		return fmt.Errorf("certificate %s with key %s: %w", c.files.Certificate, c.files.Key, err)
	}
	c.current.Store(&pair)
	return nil
}

func (c *certificate) config() *tls.Config {
	return &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return c.current.Load(), nil
	}}
}

// submissionConfig says in submission's words what a listener block says.
func submissionConfig(cfg *config.Config, l *config.Listener) submission.Config {
	tenantTier := l.Tier
	for _, t := range cfg.Tenants {
		if t.Name == l.Tenant {
			tenantTier = t.Tier
		}
	}
	hostname := l.Banner
	if hostname == "" {
		hostname = cfg.Hostname
	}
	out := submission.Config{
		Hostname:    hostname,
		RelayFrom:   l.RelayFrom,
		ProxyFrom:   l.ProxyFrom,
		Postmaster:  envelope.Address(cfg.Postmaster),
		Tenant:      l.Tenant,
		Tier:        uint8(tenantTier),
		TierCeiling: uint8(tenantTier),
		Limits: submission.Limits{
			Connections:          l.MaxConnections,
			ConnectionsPerClient: l.MaxConnectionsPerClient,
			MessagesPerSession:   l.MaxMessagesPerConnection,
			Recipients:           l.MaxRecipients,
			Size:                 int64(l.MaxMessageSize),
			LineLength:           int(l.MaxLineLength),
			Hops:                 l.MaxReceived,
		},
		Timeouts: submission.Timeouts{
			Command: l.CommandTimeout,
			Content: l.DataTimeout,
			MinRate: int64(l.MinDataRate),
		},
	}
	if l.BareNewline == "normalise" {
		out.BareNewlines = submission.NormaliseBareNewlines
	}
	return out
}

// drainShare is the part of the time for shutting down that open submissions may use; the rest is
// for deliveries.
func drainShare(total time.Duration) time.Duration { return total / 3 }
