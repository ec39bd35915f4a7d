// Package sink is an SMTP server that keeps no mail: it stands for a mailbox provider in the
// demo, in tests and in benchmarks, fast when it is to measure and as difficult as asked when
// it is to annoy. It counts what it took, so that a test can say what came once, twice or never. A [DNSServer] answers
// for the names of such hosts.
//
// In the order of use: New makes a server from a Config, Serve gives it a listener (a TCP one,
// or the PipeListener), Stats and the Recorder tell what came, Close ends it.
//
// Long-lived goroutines:
//   - Serve, the caller's own: takes connections from one listener; Close ends it and waits.
//   - session, one per connection: owns the connection's state and its reading side; it ends with
//     the connection; Close cuts the connection and waits.
//   - lane, one per connection of a server whose replies are delayed: owns the connection's
//     writing side; ended by its session, which waits.
//
// Time is the process's own: in a testing/synctest bubble, with a PipeListener, it is virtual.
package sink

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"hash/maphash"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"
)

// Extension is a set of what EHLO offers.
type Extension uint16

// What a server can be without. All are offered unless Config.Without names them.
const (
	Pipelining    Extension = 1 << iota // RFC 2920
	Chunking                            // RFC 3030, with BINARYMIME
	EightBitMIME                        // RFC 6152
	SMTPUTF8                            // RFC 6531
	DSN                                 // RFC 3461
	Size                                // RFC 1870
	EnhancedCodes                       // RFC 2034: announced only; the replies carry them all the same
	EHLO                                // ESMTP as such: EHLO is answered by 502
)

// Config says how a server behaves. The zero Config is a fast and friendly one.
type Config struct {
	Hostname string    // in the banner; "" is sink.example
	Without  Extension // what EHLO doesn't offer
	// DeliverBy is the least number of seconds of DELIVERBY (RFC 2852), 0 for a server without that.
	DeliverBy int
	MaxSize   int64 // octets of content; more is refused by 552 5.3.4; 0 is any size

	// TLS makes STARTTLS offered; see SelfSigned. TLSOnly refuses mail without it (530 5.7.0).
	TLS     *tls.Config
	TLSOnly bool
	// Auth makes AUTH PLAIN and LOGIN offered, and demanded before MAIL (530 5.7.0).
	Auth func(username, password string) bool

	// Latency is how long after a command its reply leaves, as a round trip would. It delays
	// whole flights: commands that come together are answered together. Jitter adds up to that
	// much, at random; the order of the replies stays.
	Latency, Jitter time.Duration
	// Work is how long the server is busy with a command, on top: what comes after waits.
	// Greeting is the time before the banner.
	Work map[Phase]time.Duration

	MaxConnections          int // more are greeted by 421 4.7.0; 0 is any number
	MaxConnectionsPerClient int // the same, for each client address
	MaxMessages             int // taken on a connection, whose next MAIL gets 421 4.7.0; 0 is any number
	MaxRecipients           int // in a transaction, further ones get 452 4.5.3; 0 is any number

	// Greylist is how long a new triple of client, sender and recipient is told 450 4.7.1.
	Greylist time.Duration

	Refusals []Refusal // the first that fits a command answers it

	// Chances from 0 to 1, for each time that the phase comes.
	Drop    map[Phase]float64 // the connection is cut instead of a reply
	Stray   map[Phase]float64 // a reply that nobody asked for is sent before the right one
	Swallow map[Phase]float64 // the reply is never sent; the session goes on
	// DropAfter is how many messages a connection takes before chance may cut it.
	DropAfter int
	// DropByReset makes a drop a RST, by which the client can lose earlier replies too. A drop is
	// a FIN otherwise.
	DropByReset bool

	IdleTimeout time.Duration // of a client that sends nothing, told 421 4.4.2; 0 is 5 minutes

	// Hook is asked about each command when it isn't nil; see Command.
	Hook func(Command) Answer

	// Recorder takes what was accepted; several servers can share one. nil: Stats only.
	Recorder *Recorder
	// Inspect looks at each line for what a careful client doesn't do; see Stats.Faults.
	Inspect bool

	Seed uint64 // of all that is random
}

// Server is a sink. It is safe for use by many goroutines.
type Server struct {
	cfg    Config
	faults faults
	hash   maphash.Seed // of the greylist's triples
	done   chan struct{}
	stats  counters

	mu struct { // guards what follows
		sync.Mutex
		closed    bool
		listeners map[net.Listener]struct{}
		sessions  map[*session]struct{}
		clients   map[netip.Addr]int   // open connections by client
		greyed    map[uint64]time.Time // triple -> when first seen
		seen      uint64               // connections so far
		open      int                  // connections now, without those greeted by 421
		peak      int                  // most of them at a time
	}
	wait sync.WaitGroup // Serve calls and sessions
}

// ErrClosed is what Serve returns when the server was closed before.
var ErrClosed = errors.New("sink is closed")

const (
	defaultHostname    = "sink.example"
	defaultIdleTimeout = 5 * time.Minute
)

// New makes a server that behaves as cfg says.
func New(cfg Config) *Server {
	cfg.Hostname = cmp.Or(cfg.Hostname, defaultHostname)
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, defaultIdleTimeout)
	s := &Server{cfg: cfg, faults: newFaults(&cfg), hash: maphash.MakeSeed(), done: make(chan struct{})}
	s.mu.listeners = make(map[net.Listener]struct{})
	s.mu.sessions = make(map[*session]struct{})
	s.mu.clients = make(map[netip.Addr]int)
	s.mu.greyed = make(map[uint64]time.Time)
	return s
}

// Serve answers l's connections until Close, and closes l. It returns nil after Close, else the
// listener's error.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	if !s.enter(l) {
		return ErrClosed
	}
	defer s.wait.Done()
	for {
		conn, err := l.Accept()
		if err != nil {
			if s.isClosed() {
				return nil
			}
			s.leave(l)
			return err
		}
		s.start(conn)
	}
}

func (s *Server) enter(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return false
	}
	s.mu.listeners[l] = struct{}{}
	s.wait.Add(1)
	return true
}

func (s *Server) leave(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.listeners, l)
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.closed
}

// start begins a session on conn, one that only says 421 when there are too many.
func (s *Server) start(conn net.Conn) {
	client := clientOf(conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		conn.Close()
		return
	}
	s.mu.seen++
	x := newSession(s, conn, client, s.mu.seen)
	s.mu.sessions[x] = struct{}{}
	if x.crowded = s.full(client.Addr()); !x.crowded {
		s.mu.open++
		s.mu.clients[client.Addr()]++
		s.mu.peak = max(s.mu.peak, s.mu.open)
	}
	s.wait.Add(1)
	go x.run()
}

// full reports whether one more connection of client is one too many. s.mu is held.
func (s *Server) full(client netip.Addr) bool {
	cfg := &s.cfg
	return cfg.MaxConnections > 0 && s.mu.open >= cfg.MaxConnections ||
		cfg.MaxConnectionsPerClient > 0 && s.mu.clients[client] >= cfg.MaxConnectionsPerClient
}

// ended takes x, whose connection is closed, off the books.
func (s *Server) ended(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.sessions, x)
	if x.crowded {
		return
	}
	s.mu.open--
	if s.mu.clients[x.client.Addr()]--; s.mu.clients[x.client.Addr()] == 0 {
		delete(s.mu.clients, x.client.Addr())
	}
}

// Close cuts all connections, closes the listeners and waits until nothing of the server is
// left running. The Recorder and Stats can be read afterwards.
func (s *Server) Close() {
	s.mu.Lock()
	if !s.mu.closed {
		s.mu.closed = true
		close(s.done)
	}
	for l := range s.mu.listeners {
		l.Close()
	}
	for x := range s.mu.sessions {
		x.conn.Close()
	}
	s.mu.Unlock()
	s.wait.Wait()
}

// clientOf gives the address of the client, zero when conn is not of TCP.
func clientOf(conn net.Conn) netip.AddrPort {
	if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return netip.AddrPortFrom(a.AddrPort().Addr().Unmap(), a.AddrPort().Port())
	}
	return netip.AddrPort{}
}

// ListenTogether opens one TCP port on every address, or none: hosts with addresses of their own are
// found at one port, as port 25 is that of all. port 0 is any that is free on all of them. The port is
// given back.
func ListenTogether(port int, addrs ...string) (listeners []net.Listener, found string, err error) {
	for range 10 { // a port that is free on one address may be taken on another
		if listeners, found, err = listenTogether(strconv.Itoa(port), addrs); err == nil || port != 0 {
			break
		}
	}
	return listeners, found, err
}

func listenTogether(port string, addrs []string) ([]net.Listener, string, error) {
	var open []net.Listener
	for _, addr := range addrs {
		l, err := net.Listen("tcp", net.JoinHostPort(addr, port))
		if err != nil {
			for _, l := range open {
				l.Close()
			}
			return nil, "", err
		}
		open = append(open, l)
		_, port, _ = net.SplitHostPort(l.Addr().String())
	}
	return open, port, nil
}

// Command is what a Config.Hook is asked about, before any other rule answers.
type Command struct {
	Phase      Phase
	Line       string         // as received, without CRLF; "" where the phase is no command
	Client     netip.AddrPort // zero when not over TCP
	Connection uint64         // 1 for the server's first
	Message    int            // transactions begun on this connection, this one included
	Sender     string         // as between < and >, from Mail on
	Recipients []string       // accepted so far; not to be kept or changed
	ID         string         // of the message, at End
	Content    []byte         // at End, when the Recorder captures it; not to be kept or changed
}

// Answer is what a hook wants done. The zero Answer leaves a command to the other rules.
// A hook runs in the session's own goroutine: while it blocks, the session stands still.
type Answer struct {
	Reply string        // code and text instead of any other; lines are parted by "\n"; a 421 closes
	Close bool          // the connection, after the reply
	Drop  bool          // the connection, without a reply
	Mute  bool          // the reply is not sent
	Delay time.Duration // of the reply, and of all after it
}

// PipeListener is a net.Listener without a network: each Dial makes a net.Pipe. Nothing in it
// waits for the outside, so it works in a testing/synctest bubble.
type PipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// NewPipeListener makes a listener that takes connections by its Dial.
func NewPipeListener() *PipeListener {
	return &PipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

// Dial gives the client's end of a new connection, once Accept has taken the other.
func (l *PipeListener) Dial(ctx context.Context) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.done:
		return nil, &net.OpError{Op: "dial", Net: "pipe", Addr: pipeAddr{}, Err: net.ErrClosed}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept gives the server's end of a connection.
func (l *PipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and Dial. Connections stay open.
func (l *PipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr is a name only.
func (l *PipeListener) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }
