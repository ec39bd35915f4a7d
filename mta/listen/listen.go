// Package listen has the sockets at which mail comes in, and hands their connections to servers. A reload opens and
// closes sockets and replaces servers; what stays is not disturbed.
//
// The order of use: Open opens the sockets, Serve begins to take mail, Prepare and Commit bring another configuration
// into force, Shutdown ends it.
package listen

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"example.org/mta/internal/network"
)

// Server takes the connections of one block's clients, by SMTP or by HTTP.
type Server interface {
	Serve(net.Listener) error
	// Shutdown is for the end of the relay, Retire for a server that another one replaces.
	Shutdown(context.Context) error
	Retire(context.Context) error
}

// Entrance is a block of the configuration by which mail comes in.
type Entrance struct {
	Kind    string // of the block: SMTP or HTTP
	Name    string // its label
	Address []string
	Server  Server
	Ended   error // that Serve returns after Shutdown or Retire
}

// The kinds of entrances, as their blocks are called.
const (
	SMTP = "listener"
	HTTP = "api"
)

func (e *Entrance) String() string { return fmt.Sprintf("%s %q", e.Kind, e.Name) }

// Listeners take mail in: sockets, and behind those of each entrance a server.
//
// Goroutines: accept, one for each socket, owns it; serve, one for each server. shutdown ends them
// and waits.
type Listeners struct {
	log     *slog.Logger
	given   []*socket // by the service manager, which keeps them open; not changed
	running sync.WaitGroup

	mu      sync.Mutex // guards the rest; it changes by New, serve, Reload and the end of sessions
	groups  []*group
	retired []*group // replaced by a reload, with sessions that have not ended
	serving bool     // serve was called

	replaced context.Context // bounds the sessions with servers that were replaced
	cut      context.CancelFunc
}

// group is one entrance. It is not changed once others can see it.
type group struct {
	kind    string // of the entrance
	name    string
	sockets []*socket
	in      *inlet
}

// socket is where clients connect to.
type socket struct {
	net.Listener
	address string                 // as configured
	given   string                 // the block that the service manager opened it for; "": we did
	in      atomic.Pointer[inlet]  // who gets its connections
	name    atomic.Pointer[string] // of its entrance
}

// inlet is a server and the way by which connections get to it.
type inlet struct {
	server Server
	ended  error
	conns  *network.Handover
}

// Open opens all sockets that the service manager has not opened, or none. Nothing is accepted before Serve.
func Open(entrances []Entrance, given []Socket, log *slog.Logger) (*Listeners, error) {
	ls := &Listeners{log: log, given: givenSockets(given)}
	ls.replaced, ls.cut = context.WithCancel(context.Background())
	c, err := ls.Prepare(entrances, false)
	if err != nil {
		return nil, err
	}
	ls.groups = c.groups
	return ls, nil
}

// Attach sets the servers of entrances whose sockets are open, before Serve.
func (ls *Listeners) Attach(entrances []Entrance) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, e := range entrances {
		for _, g := range ls.groups {
			if g.kind == e.Kind && g.name == e.Name {
				g.in = &inlet{e.Server, e.Ended, network.NewHandover()}
			}
		}
	}
}

// Serve begins to take mail. A reload can come before it, and then only changes what it begins with.
func (ls *Listeners) Serve() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.serving = true
	for _, g := range ls.groups {
		ls.start(g)
		for _, s := range g.sockets {
			ls.accepting(g, s)
		}
	}
}

// Change is what a configuration makes of the listeners. Its new sockets are open, and
// nothing is accepted on them before Commit.
type Change struct {
	ls     *Listeners
	groups []*group
	opened []*socket
	going  []*socket // not in the configuration any more, and open
	closed []*socket // of those, what had to make room for another
	trial  bool      // nothing makes room: it is undone
}

// Prepare opens the sockets that the configuration has and the relay has not, all or none.
func (ls *Listeners) Prepare(entrances []Entrance, trial bool) (*Change, error) {
	c := &Change{ls: ls, going: slices.Clone(ls.given), trial: trial}
	for _, g := range ls.all() {
		c.going = append(c.going, slices.DeleteFunc(slices.Clone(g.sockets), (*socket).isGiven)...)
	}
	open := make(map[*group][]string)
	for _, e := range entrances {
		g := &group{kind: e.Kind, name: e.Name, in: ls.inletOf(&e)}
		for _, address := range e.Address {
			if i := slices.IndexFunc(c.going, func(s *socket) bool { return s.serves(e.Name, address) }); i >= 0 {
				g.sockets = append(g.sockets, c.going[i])
				c.going = slices.Delete(c.going, i, i+1)
			} else {
				open[g] = append(open[g], address)
			}
		}
		c.groups = append(c.groups, g)
	}
	if err := unclaimed(c.going); err != nil {
		return nil, err
	}
	for _, g := range c.groups {
		for _, address := range open[g] {
			s, err := c.open(address)
			if err != nil {
				c.Undo()
				return nil, fmt.Errorf("%s %q: %w", g.kind, g.name, err)
			}
			if s != nil {
				g.sockets = append(g.sockets, s)
			}
		}
	}
	return c, nil
}

// inletOf gives the way to a server, which is there already when the server is.
func (ls *Listeners) inletOf(e *Entrance) *inlet {
	for _, g := range ls.all() {
		if g.kind == e.Kind && g.name == e.Name && g.in.server == e.Server {
			return g.in
		}
	}
	return &inlet{e.Server, e.Ended, network.NewHandover()}
}

// open opens a socket. One that goes can be in its way, as that of all addresses is in the way of
// one: it is closed first. A trial takes it that there would be room then, and opens nothing.
func (c *Change) open(address string) (*socket, error) {
	l, err := net.Listen("tcp", address)
	for errors.Is(err, syscall.EADDRINUSE) {
		i := slices.IndexFunc(c.going, func(s *socket) bool { return portOf(s.address) == portOf(address) })
		if i < 0 {
			break
		}
		if c.trial {
			return nil, nil
		}
		c.going[i].Close()
		c.closed = append(c.closed, c.going[i])
		c.going = slices.Delete(c.going, i, i+1)
		l, err = net.Listen("tcp", address)
	}
	if err != nil {
		return nil, err
	}
	s := &socket{Listener: l, address: address}
	c.opened = append(c.opened, s)
	return s, nil
}

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// Undo closes what was opened, and opens anew what had to make room.
func (c *Change) Undo() {
	for _, s := range c.opened {
		s.Close()
	}
	for _, s := range c.closed {
		l, err := net.Listen("tcp", s.address)
		if err != nil {
			c.ls.log.Error("opening a listener's address again after a reload that failed", "address",
				s.address, "error", err)
			continue
		}
		c.ls.reopen(s, &socket{Listener: l, address: s.address})
	}
}

// reopen puts a socket in the place of one that was closed.
func (ls *Listeners) reopen(old, s *socket) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.groups = slices.Clone(ls.groups)
	for i, g := range ls.groups {
		if j := slices.Index(g.sockets, old); j >= 0 {
			sockets := slices.Clone(g.sockets)
			sockets[j] = s
			ls.groups[i] = &group{g.kind, g.name, sockets, g.in}
			if ls.serving {
				ls.accepting(ls.groups[i], s)
			}
		}
	}
}

// Commit brings the change into force. Open transactions with servers that go may end; idle
// clients are told to come again.
func (c *Change) Commit() {
	ls := c.ls
	ls.mu.Lock()
	old, serving := ls.groups, ls.serving
	ls.groups = c.groups
	ls.mu.Unlock()
	if !serving {
		for _, s := range append(c.going, c.closed...) {
			s.Close()
		}
		return
	}
	had := make(map[*inlet]bool)
	for _, g := range old {
		had[g.in] = true
	}
	for _, g := range c.groups {
		if !had[g.in] {
			ls.start(g)
		}
		delete(had, g.in)
		for _, s := range g.sockets {
			ls.accepting(g, s)
		}
	}
	for _, s := range append(c.going, c.closed...) {
		s.Close()
		ls.log.Info("no longer taking mail", "listener", *s.name.Load(), "address", s.Addr().String())
	}
	for _, g := range old {
		if had[g.in] {
			ls.end(g)
		}
	}
}

// accepting has a socket's connections go to a listener's server, and begins to accept when nobody
// does yet.
func (ls *Listeners) accepting(g *group, s *socket) {
	s.name.Store(&g.name)
	if s.in.Swap(g.in) == nil {
		ls.log.Info("taking mail", g.kind, g.name, "address", s.Addr().String())
		ls.running.Go(func() { ls.accept(s) })
	}
}

func (ls *Listeners) start(g *group) {
	ls.running.Go(func() {
		if err := g.in.server.Serve(g.in.conns); err != nil && !errors.Is(err, g.in.ended) {
			ls.log.Error("no longer taking mail", g.kind, g.name, "error", err)
		}
	})
}

// end ends the sessions with a listener's server.
func (ls *Listeners) end(g *group) {
	ls.mu.Lock()
	ls.retired = append(ls.retired, g)
	ls.mu.Unlock()
	ls.running.Go(func() {
		defer ls.forget(g)
		// This closes the way to it, and whoever has a connection for it turns to its successor.
		if err := g.in.server.Retire(ls.replaced); err != nil {
			ls.log.Warn("sessions under the old configuration", g.kind, g.name, "error", err)
		}
	})
}

// forget drops a listener whose sessions have ended.
func (ls *Listeners) forget(g *group) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.retired = slices.DeleteFunc(slices.Clone(ls.retired), func(other *group) bool { return other == g })
}

// accept hands the socket's connections to whichever server is in force.
func (ls *Listeners) accept(s *socket) {
	for pause := time.Duration(0); ; {
		conn, err := s.Accept()
		switch {
		case err == nil:
			pause = 0
			s.give(conn)
		case errors.Is(err, net.ErrClosed):
			return
		default: // too many open files, say: others may close some
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			ls.log.Warn("accepting a connection", "listener", *s.name.Load(), "error", err, "again in", pause)
			time.Sleep(pause)
		}
	}
}

// give hands a connection to the server in force. While the relay stops there is none.
func (s *socket) give(conn net.Conn) {
	for {
		in := s.in.Load()
		if in.conns.Give(conn) {
			return
		}
		if s.in.Load() == in {
			conn.Close()
			return
		}
	}
}

// all gives the entrances in force.
func (ls *Listeners) all() []*group {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.groups
}

// Close closes the sockets.
func (ls *Listeners) Close() {
	for _, g := range ls.all() {
		for _, s := range g.sockets {
			s.Close()
		}
	}
}

// Shutdown stops taking mail. Open transactions may end until ctx does.
func (ls *Listeners) Shutdown(ctx context.Context) error {
	ls.Close()
	defer context.AfterFunc(ctx, ls.cut)()
	groups := ls.all()
	errs := make([]error, len(groups))
	var all sync.WaitGroup
	for i, g := range groups {
		all.Go(func() { errs[i] = g.in.server.Shutdown(ctx) })
	}
	all.Wait()
	ls.running.Wait()
	return errors.Join(errs...)
}

// WithSessions gives the entrances in force, and those that a reload has replaced while they have sessions.
func (ls *Listeners) WithSessions() (all []Entrance) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, g := range slices.Concat(ls.groups, ls.retired) {
		all = append(all, Entrance{Kind: g.kind, Name: g.name, Server: g.in.server})
	}
	return all
}

// Addresses returns the addresses of the blocks of a kind, in the order of the configuration.
func (ls *Listeners) Addresses(kind string) []string { return addresses(ls.all(), kind, "") }

// AddressesOf returns the addresses of a block.
func (ls *Listeners) AddressesOf(kind, name string) []string { return addresses(ls.all(), kind, name) }

// Addresses returns those of the blocks of a kind once the change is in force.
func (c *Change) Addresses(kind string) []string { return addresses(c.groups, kind, "") }

// addresses returns those of a block, or of all of its kind.
func addresses(groups []*group, kind, name string) []string {
	out := []string{} // never null in JSON
	for _, g := range groups {
		if g.kind != kind || name != "" && g.name != name {
			continue
		}
		for _, s := range g.sockets {
			out = append(out, s.Addr().String())
		}
	}
	return out
}

// Counts counts the connections of clients by listener, whatever server they came to.
type Counts struct {
	mu sync.Mutex // guards by
	by map[string]*atomic.Int64
}

// Of gives the counter of a listener.
func (i *Counts) Of(listener string) *atomic.Int64 {
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

// Open counts the connections to a listener, or to all: "".
func (i *Counts) Open(listener string) (n int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for name, c := range i.by {
		if listener == "" || name == listener {
			n += c.Load()
		}
	}
	return n
}
