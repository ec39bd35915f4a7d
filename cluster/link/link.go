// Package link carries messages between the nodes of a cluster. A node dials each other one that it sends to and only
// sends there; what it receives comes over the connections that others have dialled. It passes on what one member sends
// another through it. A talk, such as one about mail that moves, has a separate connection, in both directions. Both
// ends have certificates of the cluster's authority, which name their nodes, and each checks the other's after the
// handshake, so that it can give the reason of a refusal in words.
//
// A message may be lost, and a newer one takes the place of one that waits: the protocol of package member allows both.
package link

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/internal/faultlog"
)

// newest and oldest are the versions of the protocol that this program speaks, and passing is the first in which
// members pass messages on. A version of the program speaks that of the one before, too. One whose asks have something
// that must not be lost raises passing, as an earlier member drops what it does not know.
const newest, oldest, passing = 6, 1, 6

// Purpose is what a talk is opened for.
type Purpose struct {
	Name  string // stands in errors as what an earlier version lacks
	Since int    // the version of the protocol that has such talks first: 2 or later
}

// Intervals and bounds of connections.
const (
	patience   = 10 * time.Second // for a handshake, and for a frame that has begun
	leastPause = time.Second      // before a node is dialled again
	mostPause  = 4 * time.Second
	mostGuests = 64 // handshakes at a time with those who dial
	mostOfOne  = 16 // and with one client
	maxHello   = 4 << 10
	maxWaiting = 1 << 10 // messages for a node: more than all asks, answers and nudges together
	maxPassed  = 1 << 7  // messages of a node that wait to be passed on: its asks and answers of all shards to one
	maxTalks   = 16      // that a node has opened, at a time: for clients, operators, reports, mail, and some cut off
)

// Config is a link's.
type Config struct {
	Node        uint16
	Certificate func() (*tls.Certificate, error) // this node's
	Authorities func() (*x509.CertPool, error)
	Address     func(node uint16) (address string, ok bool) // of a member
	Dial        func(ctx context.Context, address string) (net.Conn, error)
	// Receive takes in what has been checked as far as that is possible without knowing the limits, and returns why it
	// is refused.
	Receive func(Message) error
	// Talks are what other nodes may open a talk for, by the names of the purposes. Each is called with one, which ends
	// when it returns, or ctx does.
	Talks map[string]func(ctx context.Context, from uint16, talk net.Conn)
	Now   func() time.Time
	Log   *slog.Logger
}

// Link is a node's end of all connections.
//
// Goroutines: two for each node that messages go to, one for each connection from others; they end with Run.
type Link struct {
	cfg       Config
	strangers *faultlog.Kind
	all       sync.WaitGroup

	mu     sync.Mutex // guards what follows
	ctx    context.Context
	peers  map[uint16]*peer
	guests []*guest // with whom there is a handshake, the oldest first
}

// peer is another node.
type peer struct {
	node     uint16
	wake     chan struct{}
	dialled  *faultlog.Kind
	received *faultlog.Kind

	passed atomic.Int32 // messages from it that wait for others

	mu      sync.Mutex // guards what follows
	waiting map[slot]Message
	from    net.Conn // over which it sends
	talking int      // talks that it has opened
}

// slot is what a newer message takes the place of.
type slot struct {
	from, to    uint16
	shard       int
	ask, answer bool
	key         string
}

// New makes a link.
func New(cfg Config) *Link {
	return &Link{cfg: cfg, peers: make(map[uint16]*peer),
		strangers: faultlog.New(cfg.Log, cfg.Now, slog.LevelWarn, "a connection to the cluster's port is refused",
			"no more connections to the cluster's port are refused")}
}

// Run takes connections of a listener and sends messages until ctx ends, and closes the listener.
func (l *Link) Run(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	l.mu.Lock()
	l.ctx = ctx
	for _, p := range l.peers {
		l.all.Go(func() { l.send(ctx, p) })
	}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock() // Send begins nothing more
		cancel()
		l.mu.Unlock()
		l.all.Wait()
	}()
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	for {
		conn, err := listener.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // too many open files: that passes
			l.strangers.Failed("", "error", err)
			pause(ctx, leastPause, nil)
			continue
		}
		g := newGuest(ctx, conn)
		l.enter(g)
		l.all.Go(func() { l.guest(ctx, conn, g) })
	}
}

// Send has a message sent, soon or never. It does not block.
func (l *Link) Send(m Message) {
	s := slot{from: m.From, to: m.To, shard: m.Shard, ask: m.Ask != nil, answer: m.Answer != nil}
	if m.Met != nil {
		s.key = m.Met.Key
	}
	next := m.To
	if m.Via != 0 && m.From == l.cfg.Node {
		next = m.Via
	}
	p := l.peer(next)
	p.mu.Lock()
	_, waits := p.waiting[s]
	if waits || len(p.waiting) < maxWaiting && l.passes(m, 1) {
		p.waiting[s] = m
	}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// passes counts a message from another node that begins or ends to wait here, and reports whether there is room.
func (l *Link) passes(m Message, n int32) bool {
	if m.From == l.cfg.Node {
		return true
	}
	p := l.peer(m.From)
	if p.passed.Add(n) > maxPassed && n > 0 {
		p.passed.Add(-n)
		return false
	}
	return true
}

func (l *Link) peer(node uint16) *peer {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.peers[node]
	if p == nil {
		log := l.cfg.Log.With("node", node)
		p = &peer{node: node, wake: make(chan struct{}, 1), waiting: make(map[slot]Message),
			dialled: faultlog.New(log, l.cfg.Now, slog.LevelWarn, "no connection to a node of the cluster",
				"the node of the cluster is connected again"),
			received: faultlog.New(log, l.cfg.Now, slog.LevelWarn,
				"a message or connection of a node of the cluster is refused",
				"nothing more of the node of the cluster is refused")}
		l.peers[node] = p
		if l.ctx != nil && l.ctx.Err() == nil {
			l.all.Go(func() { l.send(l.ctx, p) })
		}
	}
	return p
}

func (l *Link) take(p *peer) (m Message, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s, m := range p.waiting {
		delete(p.waiting, s)
		l.passes(m, -1)
		return m, true
	}
	return m, false
}

// send sends what waits for a node, over one connection after the other.
func (l *Link) send(ctx context.Context, p *peer) {
	wait := leastPause
	for pause(ctx, 0, p.wake) {
		conn, other, err := l.dial(ctx, p.node, Purpose{})
		if err == nil {
			wait = leastPause
			err = l.pump(ctx, p, conn, other)
			conn.Close()
		}
		if ctx.Err() != nil {
			return
		}
		p.dialled.Failed(class(err), "error", err)
		pause(ctx, wait/2+rand.N(wait/2), nil)
		wait = min(2*wait, mostPause)
		p.mu.Lock()
		maps.DeleteFunc(p.waiting, func(_ slot, m Message) bool { // asked again, and through another
			return m.Via != 0 && l.passes(m, -1)
		})
		if len(p.waiting) > 0 {
			select {
			case p.wake <- struct{}{}:
			default:
			}
		}
		p.mu.Unlock()
	}
}

// class is what failures have in common that are logged once. Errors of sockets have changing ports in them.
func class(err error) string {
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		return op.Op
	}
	return err.Error()
}

// pause waits for d, or without end when d is 0, or until woken; it reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration, woken <-chan struct{}) bool {
	var passed <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		passed = timer.C
	}
	select {
	case <-passed:
	case <-woken:
	case <-ctx.Done():
		return false
	}
	return ctx.Err() == nil
}

// Open opens a talk with a node: a connection for one purpose. The caller closes it.
func (l *Link) Open(ctx context.Context, node uint16, purpose Purpose) (net.Conn, error) {
	conn, _, err := l.dial(ctx, node, purpose)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// dial connects to a node.
func (l *Link) dial(ctx context.Context, node uint16, talk Purpose) (conn *tls.Conn, other met, err error) {
	address, ok := l.cfg.Address(node)
	if !ok {
		return nil, other, errNoMember
	}
	dialing, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	raw, err := l.cfg.Dial(dialing, address)
	if err != nil {
		return nil, other, err
	}
	conn = tls.Client(raw, l.settings())
	other, err = l.greet(dialing, conn, node, talk)
	if err != nil {
		raw.Close()
		return nil, other, fmt.Errorf("node %d at %s: %w", node, address, err)
	}
	return conn, other, nil
}

// pump sends what waits until the connection is of no use any more.
func (l *Link) pump(ctx context.Context, p *peer, conn *tls.Conn, other met) error {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	gone := make(chan error, 1)
	l.all.Go(func() {
		_, err := conn.Read(make([]byte, 1)) // the other side sends nothing
		gone <- cmp.Or(err, errors.New("it sends where it should receive"))
		conn.NetConn().Close()
	})
	for {
		if !l.cfg.Now().Before(other.until) {
			return errExpired
		}
		m, ok := l.take(p)
		if ok && m.Via != 0 && other.newest < passing {
			continue // it would refuse the message, and end the connection
		}
		if !ok {
			p.dialled.Well()
			select {
			case <-p.wake:
			case err := <-gone:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		}
		frame, err := encode(m)
		if err != nil {
			p.dialled.Failed("size", "error", err)
			continue
		}
		conn.SetWriteDeadline(time.Now().Add(patience))
		if _, err := conn.Write(frame); err != nil {
			return err
		}
	}
}

// guest receives what one sends who has dialled.
func (l *Link) guest(ctx context.Context, raw net.Conn, g *guest) {
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer stop()
	defer raw.Close()
	conn := tls.Server(raw, l.settings())
	other, err := l.greet(g.ctx, conn, 0, Purpose{})
	if l.known(g); !g.stays() {
		other, err = met{}, context.Cause(g.ctx)
	}
	g.leave(nil)
	if ctx.Err() != nil {
		return
	}
	if other.node == 0 {
		l.strangers.Failed("", "address", raw.RemoteAddr().String(), "error", err)
		return
	}
	l.strangers.Check()
	p := l.peer(other.node)
	if err != nil {
		p.received.Failed("greeting", "address", raw.RemoteAddr().String(), "error", err)
		return
	}
	if other.talk != "" {
		l.talk(ctx, p, conn, other.talk)
		return
	}
	p.mu.Lock()
	if p.from != nil {
		p.from.Close() // it has dialled anew
	}
	p.from = raw
	p.mu.Unlock()
	err = l.receive(p, conn, other.until)
	p.mu.Lock()
	replaced := p.from != raw
	if !replaced {
		p.from = nil
	}
	p.mu.Unlock()
	if ctx.Err() == nil && !replaced && !errors.Is(err, io.EOF) {
		p.received.Failed("frame", "address", raw.RemoteAddr().String(), "error", err)
	}
}

// talk has a talk that a node has opened.
func (l *Link) talk(ctx context.Context, p *peer, conn net.Conn, purpose string) {
	use := l.cfg.Talks[purpose]
	p.mu.Lock()
	full := p.talking == maxTalks
	if !full {
		p.talking++
	}
	p.mu.Unlock()
	if full || use == nil {
		p.received.Failed("talk", "purpose", fmt.Sprintf("%.40q", purpose), "too_many", full)
	} else {
		p.received.Well()
		use(ctx, p.node, conn)
	}
	if !full {
		p.mu.Lock()
		p.talking--
		p.mu.Unlock()
	}
}

// receive takes in messages until one is refused or the connection ends.
func (l *Link) receive(p *peer, conn *tls.Conn, until time.Time) error {
	for {
		conn.SetReadDeadline(time.Time{})
		var m Message
		err := decode(conn, maxFrame, func() { conn.SetReadDeadline(time.Now().Add(patience)) }, &m)
		if err == nil {
			err = m.check(p.node, l.cfg.Node)
		}
		if err == nil && !l.cfg.Now().Before(until) {
			err = errExpired
		}
		if err != nil {
			return err
		}
		p.received.Well()
		if m.To == l.cfg.Node {
			err = l.cfg.Receive(m)
		} else if _, ok := l.cfg.Address(m.To); ok {
			l.Send(m)
		}
		if err != nil {
			p.received.Failed("message", "error", err)
		}
	}
}
