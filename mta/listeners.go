package mta

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"mta/internal/envelope"
	"mta/internal/handover"
	"mta/mta/config"
	"mta/submission"
)

// listeners take mail in: sockets that stay open while the relay runs, and behind each group of
// them a server that a reload replaces.
//
// Goroutines: accept, one for each socket, owns it; serve, one for each server. shutdown ends them
// and waits.
type listeners struct {
	log     *slog.Logger
	groups  []*listenerGroup
	running sync.WaitGroup

	replaced context.Context // bounds the sessions with servers that were replaced
	cut      context.CancelFunc
}

// listenerGroup is the sockets of one listener block.
type listenerGroup struct {
	name    string
	sockets []net.Listener
	current atomic.Pointer[intake]
}

// intake is a server and the way by which connections get to it.
type intake struct {
	server *submission.Server
	conns  *handover.Listener
}

// openListeners opens all sockets, or none. Nothing is accepted before serve.
func openListeners(cfg *config.Config, build func(*config.Listener) (*submission.Server, error), log *slog.Logger) (*listeners, error) {
	ls := &listeners{log: log}
	ls.replaced, ls.cut = context.WithCancel(context.Background())
	for _, lc := range cfg.Listeners {
		if err := ls.open(lc, build); err != nil {
			ls.closeSockets()
			return nil, fmt.Errorf("listener %q: %w", lc.Name, err)
		}
	}
	return ls, nil
}

func (ls *listeners) open(lc *config.Listener, build func(*config.Listener) (*submission.Server, error)) error {
	server, err := build(lc)
	if err != nil {
		return err
	}
	g := &listenerGroup{name: lc.Name}
	g.current.Store(&intake{server, handover.New()})
	ls.groups = append(ls.groups, g)
	for _, address := range lc.Address {
		socket, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		g.sockets = append(g.sockets, socket)
	}
	return nil
}

func (ls *listeners) closeSockets() {
	for _, g := range ls.groups {
		for _, socket := range g.sockets {
			socket.Close()
		}
	}
}

func (ls *listeners) serve() {
	for _, g := range ls.groups {
		ls.start(g, g.current.Load())
		for _, socket := range g.sockets {
			ls.log.Info("taking mail", "listener", g.name, "address", socket.Addr().String())
			ls.running.Go(func() { ls.accept(g, socket) })
		}
	}
}

func (ls *listeners) start(g *listenerGroup, in *intake) {
	ls.running.Go(func() {
		if err := in.server.Serve(in.conns); err != nil && !errors.Is(err, submission.ErrServerClosed) {
			ls.log.Error("no longer taking mail", "listener", g.name, "error", err)
		}
	})
}

// accept hands the socket's connections to whichever server is in force.
func (ls *listeners) accept(g *listenerGroup, socket net.Listener) {
	for pause := time.Duration(0); ; {
		conn, err := socket.Accept()
		switch {
		case err == nil:
			pause = 0
			g.give(conn)
		case errors.Is(err, net.ErrClosed):
			return
		default: // too many open files, say: others may close some
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			ls.log.Warn("accepting a connection", "listener", g.name, "error", err, "again in", pause)
			time.Sleep(pause)
		}
	}
}

// give hands a connection to the server in force. While the relay stops there is none.
func (g *listenerGroup) give(conn net.Conn) {
	for {
		in := g.current.Load()
		if in.conns.Give(conn) {
			return
		}
		if g.current.Load() == in {
			conn.Close()
			return
		}
	}
}

// replace puts a new server behind a listener's sockets. Open transactions with the old one may
// end; idle clients are told to come again.
func (ls *listeners) replace(lc *config.Listener, server *submission.Server) {
	for _, g := range ls.groups {
		if g.name != lc.Name || g.current.Load().server == server {
			continue
		}
		in := &intake{server, handover.New()}
		ls.start(g, in)
		old := g.current.Swap(in)
		ls.running.Go(func() {
			// This closes old.conns, and whoever has a connection for it turns to the new one.
			if err := old.server.Shutdown(ls.replaced); err != nil {
				ls.log.Warn("sessions under the old configuration", "listener", g.name, "error", err)
			}
		})
	}
}

// shutdown stops taking mail. Open transactions may end until ctx does.
func (ls *listeners) shutdown(ctx context.Context) error {
	ls.closeSockets()
	defer context.AfterFunc(ctx, ls.cut)()
	errs := make([]error, len(ls.groups))
	var all sync.WaitGroup
	for i, g := range ls.groups {
		in := g.current.Load()
		all.Go(func() { errs[i] = in.server.Shutdown(ctx) })
	}
	all.Wait()
	ls.running.Wait()
	return errors.Join(errs...)
}

// addresses tells where mail is taken, in the order of the configuration.
func (ls *listeners) addresses() []string {
	var out []string
	for _, g := range ls.groups {
		for _, socket := range g.sockets {
			out = append(out, socket.Addr().String())
		}
	}
	return out
}

// addrPorts is the same for the router.
func (ls *listeners) addrPorts() []netip.AddrPort {
	var out []netip.AddrPort
	for _, a := range ls.addresses() {
		if ap, err := netip.ParseAddrPort(a); err == nil {
			out = append(out, ap)
		}
	}
	return out
}

// submissionConfig says in submission's words what a listener block says.
// inbound counts the connections of clients by listener, whatever server they came to.
type inbound struct {
	mu sync.Mutex // guards by
	by map[string]*atomic.Int64
}

// of gives the counter of a listener.
func (i *inbound) of(listener string) *atomic.Int64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.by == nil {
		i.by = make(map[string]*atomic.Int64)
	}
	if i.by[listener] == nil {
		i.by[listener] = new(atomic.Int64)
	}
	return i.by[listener]
}

// total is over all listeners.
func (i *inbound) total() (n int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, c := range i.by {
		n += c.Load()
	}
	return n
}

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
		MaxHold:     l.MaxHold,
		Tier:        uint8(tenantTier),
		TierCeiling: uint8(tenantTier),
		Limits: submission.Limits{
			Connections:          l.MaxConnections,
			ConnectionsPerClient: l.MaxConnectionsPerClient,
			MessagesPerSession:   l.MaxMessagesPerConnection,
			Recipients:           l.MaxRecipients,
			Size:                 int64(l.MaxMessageSize),
			LineLength:           int(l.MaxLineLength) - len("\r\n"),
			Hops:                 l.MaxReceived,
		},
		Timeouts: submission.Timeouts{
			Command:    l.CommandTimeout,
			Content:    l.DataTimeout,
			MinRate:    orNone(int64(l.MinDataRate)),
			GreetDelay: l.GreetDelay,
		},
		ImplicitTLS: l.TLS.Implicit,
	}
	out.Buffered = int64(cfg.Queue.LargeBody)
	out.VerifyRecipients = l.VerifyRecipients == "domain"
	out.NormaliseFrom, out.EncodeHeaders = l.NormaliseFrom, l.NonUTF8Header == "encode"
	if l.BareNewline == "normalise" {
		out.BareNewlines = submission.NormaliseBareNewlines
	}
	return out
}

// orNone says "no limit" in submission's way, where 0 stands for the default.
func orNone(n int64) int64 {
	if n == 0 {
		return -1
	}
	return n
}

// drainShare is the part of the time for shutting down that open submissions may use; the rest is
// for deliveries.
func drainShare(total time.Duration) time.Duration { return total / 3 }
