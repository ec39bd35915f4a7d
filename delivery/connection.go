package delivery

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"example.org/mta/delivery/smtpclient"
	"example.org/mta/delivery/tlspolicy"
	"example.org/mta/destdb"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
)

// session is what a connection needs of the SMTP client; tests have their own.
type session interface {
	Send(*smtpclient.Transaction) bool
	Recall()
	Depth() int
	Finish()
	Close()
	Err() error
	BytesSent() int64
	Mode() smtpclient.Mode
	Window() smtpclient.Window
	Capabilities() *smtpclient.Capabilities
	TLS() *tls.ConnectionState
	SetTrace(*smtpclient.Trace)
}

func handshake(ctx context.Context, nc net.Conn, cfg smtpclient.Config) (session, error) {
	c, err := smtpclient.Handshake(ctx, nc, cfg)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// connection is a connection of the pool, from the decision to open it to its end.
type connection struct {
	s      *Scheduler
	rec    *destdb.Conn
	lane   *lane // for whose sake it was opened
	host   route.Host
	source Source
	route  *route.Route
	demand tlspolicy.Demand
	limits Limits // when it was begun, for those who don't have the lock: the lane has those in force
	id     string

	// Guarded by Scheduler.mu.
	attempted
	places
	session  session // nil while it is being opened
	tenant   string  // for whose message it was opened
	cargo    []cargo
	given    int // transactions handed to it
	learned  learned
	last     time.Time // when a transaction was settled last, or it became busy
	sent     int64     // octets, when the watch looked last
	looked   time.Time
	ended    bool
	answered bool        // the host has said something about a message
	said     reply.Reply // the last of that
	link     Link        // set before it stands, then read-only
}

// attempted is how a connection is being opened, or was.
type attempted struct {
	cancel   context.CancelFunc // ends it
	opener   *message           // for whose sake; the connection counts as a worker of it until it stands
	heard    time.Time          // when the host answered last; at first when it was begun
	hurried  time.Duration      // after which it was given up, for the sake of others
	unwanted bool               // an operator, or a smaller part of a limit, has closed it meanwhile
	stood    time.Time          // when it came to stand

	connecting, shaking time.Duration // that dial and handshake took: set before it stands, then read-only
}

// cargo is how many parts of one message are on a connection.
type cargo struct {
	message *message
	parts   int
}

// open begins a connection for the sake of g's message.
func (s *Scheduler) open(l *lane, p *destdb.Path, g *group, now time.Time) {
	s.nextConn++
	ctx, cancel := context.WithCancel(s.dialing)
	c := &connection{
		s: s, lane: l, host: route.Host{Name: p.Name, Addr: p.Addr}, source: l.source, route: l.route, limits: l.limits,
		demand: l.demand, id: fmt.Sprintf("%08x%04x", uint32(now.Unix()), s.nextConn&0xffff), tenant: g.tenant.name,
		attempted: attempted{cancel: cancel, opener: g.message, heard: now},
	}
	c.rec = s.db.Open(p, l.site, now)
	c.rec.Owner = c
	s.budget(budgetKey{kind: scopeHost, name: c.host.Addr.String()})
	c.countIn()
	c.takePlaces()
	l.queued = time.Time{}
	for _, x := range l.scopes {
		x.b.connections.Take(now, x.scope.ConnectionRate, 1)
	}
	l.spend(dividedOpenings)
	g.message.workers++
	l.opening++
	l.dialing = append(l.dialing, c)
	s.conns[c] = struct{}{}
	s.opened.Add(1)
	go c.establish(ctx)
}

// countIn gives c its budgets.
func (c *connection) countIn() {
	s := c.s
	var strangers, suspects *budget
	if stranger(c.rec.Path) {
		strangers = s.openings.strangers
	}
	if c.rec.Path.Suspect() {
		suspects = s.openings.suspects
	}
	c.budgets = c.own[:0]
	for _, x := range c.lane.scopes {
		c.budgets = append(c.budgets, x.b)
	}
	c.budgets = append(c.budgets, s.budgets[budgetKey{kind: scopeHost, name: c.host.Addr.String()}], s.openings.all,
		strangers, suspects)
}

// establish dials and shakes hands. It is the one goroutine that an opening connection has; the
// SMTP client's two take over.
func (c *connection) establish(ctx context.Context) {
	defer c.cancel()
	sess, err := c.secured(ctx)
	if err != nil {
		c.s.failedToOpen(c, err)
		return
	}
	c.s.stands(c, sess)
}

// secured makes a session that satisfies the demand. Where clear text does, it is what is left when TLS
// fails, and no worse than TLS without a certificate check (RFC 7435, 4.1).
func (c *connection) secured(ctx context.Context) (session, error) {
	terms, err := c.terms(ctx)
	if err != nil {
		return nil, err
	}
	if terms.Wanted() && !terms.Required() && c.plain() {
		sess, err := c.attempt(ctx, nil)
		if err == nil {
			terms.Broken(c.link.Local.Addr(), errPlain)
		}
		return sess, err
	}
	sess, err := c.attempt(ctx, terms)
	if err != nil && terms.Stale() && ctx.Err() == nil {
		sess, err = c.attempt(ctx, terms) // crypto/tls has forgotten the session
	}
	var e *smtpclient.Error
	switch from := c.link.Local.Addr(); {
	case ctx.Err() != nil:
	case err == nil:
		if sess.TLS() != nil {
			c.link.TLS = terms.Facts()
		}
		terms.Established(from)
	case errors.As(err, &e) && e.NoTLS:
		terms.NotOffered(from, err)
	case errors.As(err, &e) && e.TLS:
		terms.Broken(from, err)
		if !terms.Required() {
			if c.demand.MinVersion == 0 && c.demand.Certificate == "" { // else it may be our fault
				c.s.rememberPlain(c)
			}
			sess, err = c.attempt(ctx, nil)
		}
	}
	return sess, err
}

var errPlain = errors.New("TLS failed within the last hour, and was not tried again")

// terms are what the connection must satisfy. Finding out may take a look-up.
func (c *connection) terms(ctx context.Context) (*tlspolicy.Terms, error) {
	ctx, done := context.WithTimeout(ctx, c.limits.ConnectTimeout)
	defer done()
	t, err := c.s.cfg.TLS.Terms(ctx, c.demand, c.route, c.host)
	if err != nil {
		c.s.dialed(c)
		return nil, &termsError{err}
	}
	return t, nil
}

// termsError is that a host does not come into question.
type termsError struct{ err error }

func (e *termsError) Error() string { return e.err.Error() }
func (e *termsError) Unwrap() error { return e.err }

func (e *termsError) reply() reply.Reply {
	if r := (*tlspolicy.Refusal)(nil); errors.As(e.err, &r) {
		return reply.Local(550, reply.Enhanced{5, 7, 10}, "connect", "%v", e.err)
	}
	return reply.Local(451, reply.Enhanced{4, 7, 5}, "connect", "%v", e.err)
}

// plainFor is how long a host whose TLS failed is talked to in clear text.
const plainFor = time.Hour

func (c *connection) plain() bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	f := &c.rec.Path.Host.Facts
	return c.s.cfg.Now().Before(f.PlainUntil) && (f.PlainName == "" || f.PlainName == c.host.Name)
}

func (s *Scheduler) rememberPlain(c *connection) {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	h := c.rec.Path.Host
	h.Facts.PlainUntil, h.Facts.PlainName = now.Add(plainFor), c.host.Name
	s.db.Taught(h, now)
	s.cfg.Log.Warn("tls handshake failed, clear text from now on", "host", c.host.String(), "until", h.Facts.PlainUntil)
}

// attempt is one dial and one handshake, each with its deadline. Terms are nil for clear text.
func (c *connection) attempt(ctx context.Context, terms *tlspolicy.Terms) (session, error) {
	begun := c.s.cfg.Now()
	dialing, done := context.WithTimeout(ctx, c.limits.ConnectTimeout)
	nc, err := c.s.cfg.Dial(dialing, c.source, c.host)
	done()
	c.s.dialed(c)
	if err != nil {
		return nil, &dialError{err}
	}
	dialed := c.s.cfg.Now()
	c.connecting, c.link.Local = dialed.Sub(begun), localEnd(nc, c.source)
	shaking, done := context.WithTimeout(ctx, c.limits.HandshakeTimeout)
	defer done()
	cfg := c.clientConfig()
	cfg.TLS = clientTLS(terms)
	sess, err := c.s.cfg.handshake(shaking, nc, cfg)
	c.shaking = c.s.cfg.Now().Sub(dialed)
	return sess, err
}

// clientTLS puts terms into the client's words.
func clientTLS(t *tlspolicy.Terms) *smtpclient.TLS {
	if t == nil || !t.Wanted() {
		return nil
	}
	return &smtpclient.TLS{Config: t.Config(), Verify: t.Verify, Required: t.Required(), Implicit: t.Implicit(),
		REQUIRETLS: t.REQUIRETLS()}
}

func (c *connection) clientConfig() smtpclient.Config {
	s := c.s
	cfg := smtpclient.Config{
		Name: c.source.EHLO, Host: c.host, Auth: c.route.Auth, Timeouts: c.limits.Timeouts, MaxMode: c.limits.MaxMode,
		Log: s.cfg.Log, Closed: func(*smtpclient.Conn) { s.ended(c) }, Answered: func() { s.hears(c) },
	}
	if s.cfg.Trace != nil {
		cfg.Trace = s.cfg.Trace(c.watched())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &c.rec.Path.Host.Facts
	cfg.Window = smtpclient.Window{Messages: f.WindowMessages, Bytes: f.WindowBytes}
	if s.cfg.Now().Sub(f.OutOfStep) < outOfStepFor {
		cfg.MaxMode = smtpclient.LockStep
	}
	return cfg
}

// outOfStepFor is how long a host that answered out of step is talked to in lock-step.
const outOfStepFor = 7 * 24 * time.Hour

// dialError is a connection that did not come about.
type dialError struct{ err error }

func (e *dialError) Error() string { return "connect: " + e.words() }
func (e *dialError) Unwrap() error { return e.err }

// words are the cause without addresses, which the host's name stands beside anyway.
func (e *dialError) words() string {
	var timeout net.Error
	var errno syscall.Errno
	var source *SourceError
	switch {
	case errors.As(e.err, &source):
		return source.Error()
	case errors.Is(e.err, context.DeadlineExceeded), errors.Is(e.err, os.ErrDeadlineExceeded),
		errors.As(e.err, &timeout) && timeout.Timeout():
		return "connection timed out"
	case errors.As(e.err, &errno):
		return errno.Error()
	}
	return e.err.Error()
}

// ours reports whether the fault is the source's and not the host's.
func (e *dialError) ours() bool {
	var source *SourceError
	return errors.As(e.err, &source) || errors.Is(e.err, syscall.EADDRNOTAVAIL) || errors.Is(e.err, syscall.EMFILE) ||
		errors.Is(e.err, syscall.ENFILE)
}

// why gives the reply that stands for a failed opening, and whether every source would meet it.
func why(err error) (r reply.Reply, anySource bool) {
	var d *dialError
	if errors.As(err, &d) {
		r = reply.Local(451, reply.Enhanced{4, 4, 1}, "connect", "%s", d.words())
		return r, !d.ours()
	}
	var e *smtpclient.Error
	if errors.As(err, &e) {
		return e.Reply, false
	}
	var terms *termsError
	if errors.As(err, &terms) {
		return terms.reply(), false
	}
	var p *reply.Reply
	if errors.As(err, &p) {
		return *p, false
	}
	return reply.Local(451, reply.Enhanced{4, 4, 2}, "connect", "%s", strings.TrimSpace(err.Error())), false
}

// unfit reports whether a host lacks no more than what was demanded of its TLS: other mail may do without.
func unfit(err error) bool {
	if terms := (*termsError)(nil); errors.As(err, &terms) {
		return true
	}
	var e *smtpclient.Error
	return errors.As(err, &e) && (e.TLS || e.NoTLS || e.Reply.Local && e.Reply.Permanent())
}

// failedToOpen notes that c never came to stand: its host is left alone for a while, and what waits
// is tried elsewhere.
func (s *Scheduler) failedToOpen(c *connection, err error) {
	now := s.cfg.Now()
	r, anySource := why(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.opened.Done()
	if c.hurried > 0 {
		r = c.tooSlow()
	}
	s.counts.ConnectFailed++
	s.countConnect(c, err)
	s.opening(c)
	if s.dialing.Err() == nil && !s.draining && !c.unwanted {
		backoff := c.lane.limits.backoff()
		failed := c.rec.Path.Host.Broken.Failures
		if anySource {
			s.db.Unreachable(c.rec.Path.Host, now, r, backoff)
		} else if unfit(err) {
			s.db.Unfit(c.rec.Path, now, r, backoff)
		} else {
			s.db.Refused(c.rec.Path, now, r, backoff)
		}
		s.reach(c, err, failed, now)
		c.lane.failedAt = now
		c.lane.drain.failure(now)
		if !r.Local {
			s.cfg.OnRefused(c.route, c.source.Name, r)
		}
		s.judge(c, r, true, now)
		s.cfg.Log.Info("connection failed", "host", c.host.String(), "source", c.source.Name, "site",
			c.lane.laneKey.site, "error", r.Error())
	}
	s.gone(c, now)
}

// opening ends c's time as an opening connection.
func (s *Scheduler) opening(c *connection) {
	c.lane.opening--
	c.opener.workers--
	c.opener = nil
}

// stands notes that c is ready, and gives it work.
func (s *Scheduler) stands(c *connection, sess session) {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Connected++
	s.countConnect(c, nil)
	s.opening(c)
	c.session = sess
	s.retrace(c) // who watches may have changed since it was begun
	c.looked = now
	c.link.Extended = sess.Capabilities().Extended
	c.link.Auth = c.route.Auth != nil
	s.reach(c, nil, c.rec.Path.Host.Broken.Failures, now)
	s.db.Works(c.rec.Path, now)
	c.learn(now)
	free := c.arrived()
	c.rec.Since, c.rec.Phase, c.stood = now, destdb.Open, now
	c.measure()
	c.recount()
	switch {
	case c.ended: // it was lost while the handshake returned
		s.lost(c, now)
	case s.closed:
		sess.Close()
	case s.draining, c.unwanted, c.rec.Path.Suspension(now) != nil:
		c.retire()
	default:
		s.poolOf(c).run(now)
		s.offerPlaces(c, now)
	}
	for _, b := range free {
		s.runWaiters(b, now)
	}
}

func (s *Scheduler) poolOf(c *connection) *pool {
	if p := s.pools[c.rec.Path]; p != nil {
		return p
	}
	return &pool{path: c.rec.Path}
}

// localEnd is the address that a connection is made from, as the host sees it where that is known: a
// source behind a proxy has its own.
func localEnd(nc net.Conn, s Source) netip.AddrPort {
	var end netip.AddrPort
	if a, ok := nc.LocalAddr().(*net.TCPAddr); ok {
		end = netip.AddrPortFrom(a.AddrPort().Addr().Unmap().WithZone(""), a.AddrPort().Port())
	}
	if own := s.Address.Unmap(); own.IsValid() && own != end.Addr() {
		return netip.AddrPortFrom(own, 0)
	}
	return end
}

// learn takes what the host said about itself into the picture.
func (c *connection) learn(now time.Time) {
	f, caps := &c.rec.Path.Host.Facts, c.session.Capabilities()
	f.Mode = c.session.Mode().String()
	t := &c.link.TLS
	f.TLS = destdb.TLS{Version: t.Version, Cipher: t.Cipher, Verified: string(t.Verified), Unverified: t.Unverified,
		Certificate: t.Certificate}
	f.Extensions = extensions(f.Extensions, caps)
	f.RcptMax = caps.RcptMax
	if caps.MailMax > 0 {
		f.MailMax = caps.MailMax
	}
	c.s.db.Taught(c.rec.Path.Host, now)
}

// extensions lists what EHLO offered; a list that is as before is kept.
func extensions(before []string, c *smtpclient.Capabilities) []string {
	var list []string
	for _, x := range [...]struct {
		on   bool
		name string
	}{{c.Pipelining, "PIPELINING"}, {c.Chunking, "CHUNKING"}, {c.BinaryMIME, "BINARYMIME"},
		{c.EightBitMIME, "8BITMIME"}, {c.UTF8, "SMTPUTF8"},
		{c.DSN, "DSN"}, {c.StartTLS, "STARTTLS"}, {c.RequireTLS, "REQUIRETLS"}, {c.Size, "SIZE"}} {
		if x.on {
			list = append(list, x.name)
		}
	}
	if strings.Join(list, " ") == strings.Join(before, " ") {
		return before
	}
	return list
}

// assign gives the first part of g to c.
func (s *Scheduler) assign(l *lane, g *group, c *connection, now time.Time) {
	p := l.waiting.take(g)
	p.conn, p.handed, p.ahead = c, now, c.rec.Backlog
	s.counts.Carried += len(p.tx.Recipients)
	l.carried += len(p.tx.Recipients)
	p.group.tenant.carried += len(p.tx.Recipients)
	if c.rec.Backlog == 0 {
		c.rec.Since, c.last = now, now
	}
	c.rec.Backlog++
	c.recount()
	c.load(p.work.message)
	c.given++
	p.fresh = c.given == 1
	l.running++
	if !c.session.Send(&p.tx) {
		// It has ended, and ended will be called.
		c.rec.Phase = destdb.Closing
		s.unassign(p, now) // which recounts
		s.requeue(p)
		return
	}
	l.charge(g.tenant, now)
	if c.given >= c.mostGiven() || now.Sub(c.rec.Made) >= c.lane.limits.ActiveTimeout {
		c.retire()
	}
}

// mostGiven is how many transactions the connection may have in all.
func (c *connection) mostGiven() int {
	n := c.lane.limits.MaxDeliveriesPerConnection
	if m := c.rec.Path.Host.Facts.MailMax; m > 0 {
		n = min(n, m)
	}
	return n
}

// unassign takes p off its connection's books.
func (s *Scheduler) unassign(p *part, now time.Time) {
	c := p.conn
	s.counts.Carried -= len(p.tx.Recipients)
	p.work.lane.carried -= len(p.tx.Recipients)
	p.group.tenant.carried -= len(p.tx.Recipients)
	c.rec.Backlog--
	if c.rec.Backlog == 0 {
		c.rec.Since = now
	}
	c.recount()
	c.unload(p.work.message)
	p.work.lane.running--
	p.work.lane.waiting.ended(p.group)
	p.conn = nil
}

func (c *connection) load(m *message) {
	for i := range c.cargo {
		if c.cargo[i].message == m {
			c.cargo[i].parts++
			return
		}
	}
	c.cargo = append(c.cargo, cargo{m, 1})
	m.workers++
}

func (c *connection) unload(m *message) {
	for i := range c.cargo {
		if c.cargo[i].message != m {
			continue
		}
		if c.cargo[i].parts--; c.cargo[i].parts == 0 {
			last := len(c.cargo) - 1
			c.cargo[i] = c.cargo[last]
			c.cargo[last] = cargo{}
			c.cargo = c.cargo[:last]
			m.workers--
		}
		return
	}
}

// retire lets c end when it has done what it has.
func (c *connection) retire() {
	if c.rec.Phase == destdb.Open {
		c.rec.Phase = destdb.Closing
		c.rec.Since = c.s.cfg.Now()
		c.recount()
		c.session.Finish()
	}
}

func (c *connection) recallAndFinish() {
	c.session.Recall()
	c.session.Finish()
}

// ended is called by the client when a connection is over.
func (s *Scheduler) ended(c *connection) {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	c.ended = true
	if c.session != nil {
		s.lost(c, now)
	}
}

// lost notes the end of a connection that stood.
func (s *Scheduler) lost(c *connection, now time.Time) {
	defer s.opened.Done()
	c.rec.Phase = destdb.Closing
	h := c.rec.Path.Host
	if w := c.session.Window(); c.session.Mode() == smtpclient.Chunked && c.given > 0 {
		h.Facts.WindowMessages, h.Facts.WindowBytes = w.Messages, w.Bytes
	}
	err := c.session.Err()
	if errors.Is(err, smtpclient.ErrOutOfStep) {
		h.Facts.OutOfStep = now
	}
	s.db.Taught(h, now)
	s.judgeEnd(c, err, now)
	if err != nil && c.given > 0 && !c.answered && !s.draining && !errors.Is(err, smtpclient.ErrClosed) {
		// It greets, and then does nothing: as bad as not greeting.
		r, _ := why(err)
		s.db.Refused(c.rec.Path, now, r, c.lane.limits.backoff())
	}
	s.gone(c, now)
}

// gone takes c off the books, and lets those go on who waited for its place.
func (s *Scheduler) gone(c *connection, now time.Time) {
	s.db.Closed(c.rec)
	delete(s.conns, c)
	c.leavePlaces()
	// Who has waited for the place comes before the lane that had it.
	for _, b := range c.budgets {
		if b != nil {
			s.runWaiters(b, now)
		}
	}
	s.poolOf(c).run(now)
	if c.lane.waiting.n > 0 {
		c.lane.run(now) // it may have moved on to other hosts
	}
	s.checkQuiet()
}
