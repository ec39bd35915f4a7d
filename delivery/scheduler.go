package delivery

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/delivery/smtpclient"
	"example.org/mta/delivery/tlspolicy"
	"example.org/mta/destdb"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/minheap"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
)

// Config says how a Scheduler works. Source is needed; the rest has defaults.
type Config struct {
	// Source gives the source of that name. Asked once for each lane and again after Reload.
	Source func(name string) (Source, bool)
	// Limits gives what applies to a tenant's mail along a route from a source; tenant "" asks for
	// what doesn't depend on the tenant. Asked once for each lane and tenant, and again after
	// Reload. nil: no limits but the defaults. Like Source it is called with the lock held: it must
	// be quick, and not call the scheduler.
	Limits func(r *route.Route, source, tenant string) Limits
	// OnSpace is called when a flow has space again for which Reserve or Space found none: when half its
	// part is free, when the time has come to try the site's hosts again, when they work again. It is
	// called from the scheduler's own goroutine, and may Reserve and Submit.
	OnSpace func(Flow)
	// Share is how many jobs may wait for each site in memory (2,000), in equal parts for its flows.
	// MaxJobs is how many may wait in all (100,000): while there are more, a site's share is a tenth
	// of that.
	Share, MaxJobs int

	MaxConnections        int // of the relay: 2,000
	MaxMessageConcurrency int // workers that any message may have: 2
	ScaleMaxConcurrency   int // and as many times the free ones: 10

	// Dial opens a connection from a source's address; the context has a deadline. nil: a
	// net.Dialer bound to the address.
	Dial func(ctx context.Context, s Source, h route.Host) (net.Conn, error)
	// TLS gives what each connection must satisfy; nil is a policy that knows the demands only.
	TLS *tlspolicy.Policy
	// Trace is asked at each new connection, and by Retrace, who watches it; nil: nobody. It must not
	// block, nor call the scheduler.
	Trace func(Watched) *smtpclient.Trace
	// Divider has this relay's parts of limits that it shares with others; nil: there are none.
	Divider Divider
	// OnAction is called for each automatic action when it begins. It must not block, nor call the
	// scheduler.
	OnAction func(site string, a destdb.Action)
	// OnRefused is called for each connection that a host turned away in words: by its greeting, or by the
	// reply to EHLO, STARTTLS or AUTH. That is once, however much mail waits for it and comes back with
	// those words. It must not block, nor call the scheduler.
	OnRefused func(r *route.Route, source string, words reply.Reply)
	// OnReach is called for each connection that comes to stand, or is not answered on the network; nil: nobody asks.
	// It must not block, nor call the scheduler.
	OnReach func(Reach)
	// Classes classifies replies; nil: by the built-in rules.
	Classes *bounce.Classifier
	// Backoff are the rules by which replies lead to automatic actions; nil is DefaultRules.
	Backoff []Rule

	DB    *destdb.DB   // what is known; nil: nothing. It is the scheduler's from now on.
	Store destdb.Store // where it is kept; nil: nowhere

	Now  func() time.Time // nil: time.Now
	Rand *rand.Rand       // nil: one with a random seed
	Log  *slog.Logger     // nil: nowhere

	handshake func(ctx context.Context, nc net.Conn, cfg smtpclient.Config) (session, error)
}

// allows is Finch's rule about who may have one more worker: whether a message with so many may have another one of the
// free. One that has few may, and any may have scale times as many as are free: so a big envelope uses nearly all of an
// idle system, and shares a busy one (S3).
func (c *Config) allows(workers, free int) bool {
	return workers < c.MaxMessageConcurrency || workers < c.ScaleMaxConcurrency*free
}

func (c Config) withDefaults() Config {
	or(&c.Share, 2000)
	or(&c.MaxJobs, 100_000)
	or(&c.MaxConnections, 2000)
	or(&c.MaxMessageConcurrency, 2)
	or(&c.ScaleMaxConcurrency, 10)
	if c.Limits == nil {
		c.Limits = func(*route.Route, string, string) Limits { return Limits{} }
	}
	if c.OnSpace == nil {
		c.OnSpace = func(Flow) {}
	}
	if c.OnAction == nil {
		c.OnAction = func(string, destdb.Action) {}
	}
	if c.OnRefused == nil {
		c.OnRefused = func(*route.Route, string, reply.Reply) {}
	}
	if c.Dial == nil {
		c.Dial = dialer
	}
	if c.Backoff == nil {
		c.Backoff = DefaultRules()
	}
	c.DB = cmp.Or(c.DB, destdb.New(destdb.Lifetimes{}))
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Rand = cmp.Or(c.Rand, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())))
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.TLS = cmp.Or(c.TLS, tlspolicy.New(tlspolicy.Config{Now: c.Now}))
	if c.handshake == nil {
		c.handshake = handshake
	}
	return c
}

// Scheduler gives jobs to connections. It is safe for use by many goroutines.
type Scheduler struct {
	cfg      Config
	doneFunc func(*smtpclient.Transaction, smtpclient.Outcome)
	dialing  context.Context // ends with Close
	stop     context.CancelFunc
	waker
	saving sync.Mutex     // one batch at a time is written, so that none is older than what is there
	opened sync.WaitGroup // connections, from the dial to the end, and recalls when the scheduler stops

	// mu guards all that follows, and what hangs from it: lanes, budgets, connections, the picture.
	// It is never held while a connection is read or written, or while Done is called.
	mu       sync.Mutex
	db       *destdb.DB
	lanes    map[laneKey]*lane
	bySite   map[string][]*lane
	started  time.Time
	pools    map[*destdb.Path]*pool
	messages map[envelope.ID]*message
	budgets  map[budgetKey]*budget
	shares   map[string]*share
	total    *budget
	openings openings

	conns    map[*connection]struct{}
	idle     idleList
	timers   minheap.Heap[*lane] // those that wait for a time, the first on top
	calls    calls
	limGen   int
	charged  uint64 // messages that were given to connections
	nextConn uint64
	draining bool
	closed   bool
	quiet    chan struct{} // closed when draining and no connection is left
	counts   Counts        // Running, Live and Messages are counted when they are asked for
	tallies
}

// waker is to the clock.
type waker struct {
	wake    chan struct{} // something is due sooner, or finished
	changed atomic.Bool   // what this relay may use of divided limits
	stopped chan struct{} // closed when the clock has ended
}

// tallies are counts by name.
type tallies struct {
	bySource map[string]SourceCounts
	refused  map[refused][]time.Time
}

// Counts are what has happened since New, and what is under way.
type Counts struct {
	// jobs; the refused ones, for which Reserve had no space, are not among the submitted
	Submitted, Refused, Done uint64
	Ambiguous                uint64 // recipients of whom the host's answer was lost
	Moved                    uint64 // parts that changed connection before they had their turn
	Connected, ConnectFailed uint64 // connections that were made, and that could not be
	Waiting                  int    // jobs that are not done
	Running                  int    // of their parts, those on a connection
	Carried                  int    // recipients of those parts
	Live                     int    // connections, those being opened included
	Messages                 int    // with jobs that are not done
}

// New makes a scheduler, and starts its clock.
func New(cfg Config) *Scheduler {
	cfg = cfg.withDefaults()
	s := &Scheduler{
		cfg:      cfg,
		waker:    waker{wake: make(chan struct{}, 1), stopped: make(chan struct{})},
		db:       cfg.DB,
		lanes:    make(map[laneKey]*lane),
		bySite:   make(map[string][]*lane),
		tallies:  tallies{make(map[string]SourceCounts), make(map[refused][]time.Time)},
		started:  cfg.Now(),
		pools:    make(map[*destdb.Path]*pool),
		messages: make(map[envelope.ID]*message),
		timers:   minheap.New((*lane).wakesBefore, func(l *lane, i int) { l.timer = i }),
		budgets:  make(map[budgetKey]*budget),
		shares:   make(map[string]*share),
		conns:    make(map[*connection]struct{}),
		quiet:    make(chan struct{}),
	}
	s.doneFunc = s.done
	s.total = s.budget(budgetKey{kind: scopeTotal})
	s.openings = openings{
		all: s.budget(budgetKey{kind: scopeOnTheirWay}), strangers: s.budget(budgetKey{kind: scopeStrangers}),
		suspects: s.budget(budgetKey{kind: scopeSuspects}),
	}
	s.dialing, s.stop = context.WithCancel(context.Background())
	go s.clock()
	return s
}

// Submit hands over a job for which Reserve took space. While the scheduler is stopping, the job comes back
// unattempted; after Close it doesn't come back.
func (s *Scheduler) Submit(j *Job) {
	now := s.cfg.Now()
	w := newWork(j, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Submitted++
	l := s.lane(j, now)
	switch {
	case s.draining:
		s.refuse(w, stopping)
		return
	case l == nil:
		s.refuse(w, reply.Local(451, reply.Enhanced{4, 3, 5}, "route",
			"there is no source %q: see the sources of the configuration", j.Source))
		return
	}
	w.lane, w.message = l, s.message(j.Message.ID)
	w.split(l.rcptMax(), func(p *part) {
		p.tx.Done, p.tx.MayBegin = s.doneFunc, mayBegin(l.divided, p.tx.MayBegin)
		l.waiting.add(p, false)
	})
	l.run(now)
}

func (s *Scheduler) message(id envelope.ID) *message {
	m := s.messages[id]
	if m == nil {
		m = &message{id: id}
		s.messages[id] = m
	}
	m.works++
	return m
}

// lane gives the lane of a job, making it if need be; nil when its source is unknown.
func (s *Scheduler) lane(j *Job, now time.Time) *lane {
	key := laneOf(j)
	l := s.lanes[key]
	fresh := l == nil
	if fresh {
		l = &lane{laneKey: key, s: s, timer: -1, asked: asked{gen: -1}, waiting: newWaitlist()}
		l.site = s.db.Site(key.site)
	}
	if l.asked.gen != s.limGen || l.outdated(j.Route) {
		src, ok := s.cfg.Source(j.Source)
		if !ok {
			return nil
		}
		l.reload(j.Route, src, now)
		if l.asked.before = false; !fresh {
			s.renew(l, now)
		}
	} else if l.route != j.Route {
		l.follow(j.Route)
	}
	l.used = now
	if fresh {
		s.lanes[key] = l
		s.bySite[key.site] = append(s.bySite[key.site], l)
		l.drain.resume(l, now)
	}
	return l
}

// adopt takes over limits and source as they are configured now.
func (l *lane) adopt(r *route.Route, src Source, now time.Time) {
	s := l.s
	l.source, l.asked.gen = src, s.limGen
	l.limits, l.route = s.limitsFor(r, src.Name, ""), r
	lim := &l.limits
	l.siteBudget = s.budget(budgetKey{kind: scopeSite, name: r.Site})
	l.scopes = append(l.scopes[:0], scoped{s.total, &lim.Relay}, scoped{l.siteBudget, &lim.Site},
		scoped{s.budget(budgetKey{kind: scopePath, name: r.Site, source: src.Name}), &lim.Path},
		scoped{s.budget(budgetKey{kind: scopeSource, source: src.Name}), &lim.Source})
	if r.Provider != "" {
		l.scopes = append(l.scopes, scoped{s.budget(budgetKey{kind: scopeProvider, name: r.Provider}), &lim.Provider})
	}
	for i := range lim.Shared {
		x := &lim.Shared[i]
		l.scopes = append(l.scopes, scoped{s.budget(budgetKey{kind: scopeShared, name: x.Name}), &x.Scope})
	}
	l.divided = nil
	for _, x := range lim.Divided {
		b := s.divide(x, now)
		l.divided = append(l.divided, dividedLimit{b, x.Scope})
		l.scopes = append(l.scopes, scoped{b, new(Scope)})
	}
	l.slows = nil
	l.slowDown(now)
	l.forgive(now)
}

func (s *Scheduler) limitsFor(r *route.Route, source, tenant string) Limits {
	return s.cfg.Limits(r, source, tenant).FillIn()
}

// follow makes the lane take the paths of r from now on. Look-ups give equal routes again and
// again: those change nothing.
func (l *lane) follow(r *route.Route) {
	same := l.route != nil && sameHosts(l.route, r)
	l.route = r
	if same {
		return
	}
	for _, p := range l.pools {
		p.remove(l)
	}
	l.tiers, l.pools = l.tiers[:0], l.pools[:0]
	for _, tier := range r.Tiers {
		var paths []*destdb.Path
		for _, h := range tier {
			if !l.source.Reaches(h) {
				continue
			}
			p := l.s.db.Path(destdb.PathKey{Source: l.laneKey.source, Addr: h.Addr, Policy: l.policy(h)}, h.Name)
			paths = append(paths, p)
			l.pools = append(l.pools, l.s.pool(p, l))
		}
		if len(paths) > 0 {
			l.tiers = append(l.tiers, paths)
		}
	}
}

func sameHosts(a, b *route.Route) bool {
	return a == b || slices.EqualFunc(a.Tiers, b.Tiers, slices.Equal[route.Tier])
}

// pool gives the pool of a path, with l among its lanes.
func (s *Scheduler) pool(p *destdb.Path, l *lane) *pool {
	q := s.pools[p]
	if q == nil {
		q = &pool{path: p}
		s.pools[p] = q
	}
	if !slices.Contains(q.lanes, l) {
		q.lanes = append(q.lanes, l)
	}
	return q
}

func (p *pool) remove(l *lane) {
	if i := slices.Index(p.lanes, l); i >= 0 {
		p.lanes = slices.Delete(p.lanes, i, i+1)
	}
}

// run lets the lanes that use the path go on, in turns.
func (p *pool) run(now time.Time) {
	for range len(p.lanes) {
		if len(p.lanes) == 0 {
			return
		}
		p.next = (p.next + 1) % len(p.lanes)
		if l := p.lanes[p.next]; l.waiting.n > 0 {
			l.run(now)
		}
	}
}

// rcptMax is how many recipients a transaction to the lane's best tier may have.
func (l *lane) rcptMax() int {
	n := l.limits.MaxRecipients
	if len(l.tiers) > 0 {
		for _, p := range l.tiers[0] {
			if m := p.Host.Facts.RcptMax; m > 0 {
				n = min(n, m)
			}
		}
	}
	return n
}

// Cancel takes the parts of a message that no connection has yet, and gives their recipients back
// Withdrawn. It returns how many recipients those were.
func (s *Scheduler) Cancel(id envelope.ID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.messages[id]
	if m == nil {
		return 0
	}
	n := 0
	for g, next := m.groups, (*group)(nil); g != nil; g = next {
		next = g.next // g may be gone with its last part
		for p := g.first; p != nil; p = g.first {
			p.work.lane.waiting.remove(p, nil)
			n += len(p.tx.Recipients)
			s.fail(p, Result{Reply: cancelled, Withdrawn: true})
		}
	}
	return n
}

var cancelled = reply.Local(451, reply.Enhanced{4, 3, 0}, "route", "cancelled by the operator")

// Counts gives the counters and how much is under way.
func (s *Scheduler) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts
	c.Live, c.Messages = s.total.live, len(s.messages)
	for _, l := range s.lanes {
		c.Running += l.running
	}
	return c
}

// Drain stops the starting: jobs that no connection has come back unattempted, what is under way
// goes on, idle connections say QUIT. It returns when no connection is left, or with ctx's error;
// Close then cuts the rest.
func (s *Scheduler) Drain(ctx context.Context) error {
	s.mu.Lock()
	s.beginDrain()
	s.mu.Unlock()
	select {
	case <-s.quiet:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var stopping = reply.Local(421, reply.Enhanced{4, 3, 2}, "route", "this relay is stopping")

func (s *Scheduler) beginDrain() {
	if s.draining {
		return
	}
	s.draining = true
	for _, l := range s.lanes {
		for _, p := range l.waiting.all() {
			s.fail(p, Result{Reply: stopping})
		}
	}
	for c := range s.conns {
		if c.session != nil {
			c.rec.Phase = destdb.Closing
			c.recount()
			// Recall calls done, which needs the lock. Close waits for it.
			s.opened.Go(c.recallAndFinish)
		} else {
			c.cancel()
		}
	}
	s.checkQuiet()
}

func (s *Scheduler) checkQuiet() {
	if s.draining && s.total.live == 0 && len(s.calls.done) == 0 {
		select {
		case <-s.quiet:
		default:
			close(s.quiet)
		}
	}
}

// Close cuts all connections, waits for them, and writes what was learned. What had no final reply
// comes back as after a lost connection; all Done have been called when Close returns.
func (s *Scheduler) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.stopped
		return
	}
	s.closed = true
	s.beginDrain()
	cut := s.sessions(func(*connection) bool { return true })
	s.mu.Unlock()
	s.stop()
	for _, c := range cut {
		c.Close()
	}
	s.opened.Wait()
	s.signal()
	<-s.stopped
}
