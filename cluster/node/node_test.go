package node

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/cluster/ca"
	"example.org/mta/cluster/link"
	"example.org/mta/cluster/member"
	"example.org/mta/cluster/once"
	"example.org/mta/cluster/owner"
	"example.org/mta/cluster/share"
	"example.org/mta/cluster/term"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/certificates"
	"example.org/mta/internal/smallfile"
	"example.org/mta/lab/sink"
)

var (
	terms   = term.Term{Length: 3 * time.Minute, Drift: 200e-6}
	hundred = share.Limit{Name: "hundred", Rate: 100, Burst: 10}
	seven   = share.Limit{Name: "seven", Connections: 7}
)

// engine does what it is asked, unless it is away.
type engine struct {
	mu     sync.Mutex
	away   bool
	calls  int
	origin owner.Origin
	heads  [owner.Shards]owner.Head
	books  [owner.Shards]map[string]owner.Entry
	keys   map[string]*once.Row
	bad    func(*owner.Result)
	fault  error // of calls about keys
	old    int   // rows to be dropped
}

var errGone = errors.New("connection refused")

func (e *engine) do(ctx context.Context, f func()) error {
	time.Sleep(2 * time.Millisecond)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.away || ctx.Err() != nil {
		return errGone
	}
	f()
	return nil
}

func (e *engine) Shards(ctx context.Context, c owner.Call) (r owner.Result, err error) {
	err = e.do(ctx, func() {
		e.calls++
		r = owner.Result{Number: c.Number, Heads: new([owner.Shards]owner.Head), Books: make(map[int][]owner.Entry),
			Origin: e.origin}
		for i := range c.Parts {
			p := &c.Parts[i]
			ok := p.Fits(e.heads[p.Shard])
			if r.Done = append(r.Done, ok); !ok {
				continue
			}
			e.heads[p.Shard] = p.To
			e.heads[p.Shard].Clock = time.Now().UnixNano()
			if e.books[p.Shard] == nil {
				e.books[p.Shard] = make(map[string]owner.Entry)
			}
			for _, c := range p.Changes {
				e.books[p.Shard][c.Name+string(rune(c.Node))] = c
			}
			for _, c := range e.books[p.Shard] {
				if p.Take {
					r.Books[p.Shard] = append(r.Books[p.Shard], c)
				}
			}
		}
		*r.Heads = e.heads
		if e.bad != nil {
			e.bad(&r)
		}
	})
	return r, err
}

func (e *engine) Keys(ctx context.Context, c once.Call) (r once.Result, err error) {
	err = e.do(ctx, func() {
		r.Number, r.Fault = c.Number, e.fault
		if r.Elsewhere = c.Timeline != e.origin.Timeline; r.Elsewhere {
			return
		}
		for i := range c.Parts {
			p := &c.Parts[i]
			row, _ := p.Apply(e.keys[p.Key], false)
			if r.Rows = append(r.Rows, row); row == nil {
				delete(e.keys, p.Key)
			} else {
				e.keys[p.Key] = row
			}
		}
	})
	return r, err
}

func (e *engine) Unsettled(ctx context.Context, node uint16) (rows []once.Row, err error) {
	err = e.do(ctx, func() {
		for _, row := range e.keys {
			if row.Node == node && !row.Done {
				rows = append(rows, *row)
			}
		}
	})
	return rows, err
}

func (e *engine) DropKeys(ctx context.Context, most int) (gone int, err error) {
	err = e.do(ctx, func() {
		gone = min(e.old, most)
		e.old -= gone
	})
	return gone, err
}

// set changes the engine.
func (e *engine) set(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

// owner is who has the shard of a name.
func (e *engine) owner(name string) (node uint16) {
	e.set(func() { node = e.heads[member.Shard(name)].Node })
	return node
}

// site is a cluster in a test, with its judge.
type site struct {
	t *testing.T
	*engine
	dir   string
	nodes map[uint16]*machine

	judge sync.Mutex // guards what follows
	level float64
	at    time.Time
	used  float64
	open  int64
	text  bytes.Buffer // of the log
	log   *slog.Logger
}

// Write adds to the log.
func (s *site) Write(p []byte) (int, error) {
	s.judge.Lock()
	defer s.judge.Unlock()
	return s.text.Write(p)
}

func (s *site) logged() string {
	s.judge.Lock()
	defer s.judge.Unlock()
	return s.text.String()
}

// machine is a node's, and the process that runs on it.
type machine struct {
	*site
	id    uint16
	drift float64
	mu    sync.Mutex // guards what follows
	now   *Node
	gate  chan struct {
	} // closed: it runs
	dead    chan struct{}
	mail    map[string]once.Request
	opened  int64
	stop    context.CancelFunc
	stopped chan struct{}
	send    func(link.Message) // nil: without a link
	watch   func(link.Message) // nil: nobody does
	changed func()
	rows    map[uint16]uint64 // the incarnations of members; nil: all have 1
	off     map[uint16]uint64 // as of share.Book.Census
}

// three begins a cluster of three nodes that want 50 events a second and 3 connections each.
func three(t *testing.T) *site {
	s := prepare(t)
	for _, m := range s.nodes {
		m.begin()
	}
	return s
}

// prepare makes a cluster of three nodes that have not begun.
func prepare(t *testing.T) *site {
	s := &site{t: t, engine: &engine{origin: owner.Origin{System: 7, Timeline: 1}, keys: make(map[string]*once.Row)},
		dir: bubble.Folder(t), nodes: make(map[uint16]*machine), at: time.Now()}
	s.log = slog.New(slog.NewTextHandler(s, nil))
	for i := uint16(1); i <= 3; i++ {
		m := &machine{site: s, id: i, drift: (float64(i) - 2) * 190e-6, gate: make(chan struct{}),
			mail: make(map[string]once.Request)}
		close(m.gate)
		s.nodes[i] = m
		if err := Create(m.path(), 1); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, m := range s.nodes {
			m.end()
		}
		time.Sleep(time.Minute) // for those who were killed
	})
	return s
}

func (m *machine) path() string { return filepath.Join(m.dir, fmt.Sprint(m.id)) }

// wait stops those who run on a machine that is paused, and reports whether its process is alive.
func (m *machine) wait(dead chan struct{}) bool {
	m.mu.Lock()
	gate := m.gate
	m.mu.Unlock()
	<-gate
	select {
	case <-dead:
		return false
	default:
		return true
	}
}

// through is the engine as a process reaches it.
type through struct {
	*machine
	dead chan struct{}
}

// around has a call reach the engine and its result come back only while the process runs.
func (p through) around(f func() error) error {
	if !p.wait(p.dead) {
		return errGone
	}
	err := f()
	if !p.wait(p.dead) {
		return errGone
	}
	return err
}

func (p through) Shards(ctx context.Context, c owner.Call) (r owner.Result, err error) {
	err = p.around(func() error { r, err = p.engine.Shards(ctx, c); return err })
	return r, err
}

func (p through) Keys(ctx context.Context, c once.Call) (r once.Result, err error) {
	err = p.around(func() error { r, err = p.engine.Keys(ctx, c); return err })
	return r, err
}

func (p through) Unsettled(ctx context.Context, node uint16) ([]once.Row, error) {
	return p.engine.Unsettled(ctx, node)
}

func (p through) DropKeys(ctx context.Context, most int) (int, error) {
	return p.engine.DropKeys(ctx, most)
}

// config is that of a new process.
func (m *machine) config(dead chan struct{}) Config {
	base := time.Now().Add(-time.Duration(m.id) * time.Hour)
	return Config{Node: m.id, Engine: through{m, dead}, Term: terms,
		Path: m.path(), Boot: uint64(m.id), Rand: rand.New(rand.NewPCG(uint64(m.id), 1)), Now: time.Now,
		Clock:       func() time.Duration { return time.Duration(float64(time.Since(base)) * (1 + m.drift)) },
		Incarnation: m.incarnation,
		Members: func() ([]uint16, map[uint16]uint64) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return []uint16{1, 2, 3}, m.off
		},
		Send: func(msg link.Message) {
			if m.watch != nil {
				m.watch(msg)
			}
			if m.send != nil {
				m.send(msg)
				return
			}
			go func() {
				time.Sleep(time.Millisecond)
				if to := m.nodes[msg.To]; m.wait(dead) {
					if err := to.receive(msg); err != nil {
						m.t.Errorf("node %d refuses: %v", to.id, err)
					}
				}
			}()
		},
		Mail: func(row once.Row) (string, time.Duration, bool) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return fmt.Sprint(row.Request), time.Hour, m.mail[row.Key] == row.Request
		},
		Log: m.log, Changed: m.changed,
	}
}

func (m *machine) incarnation(node uint16) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rows == nil {
		return 1
	}
	return m.rows[node]
}

func (m *machine) receive(msg link.Message) error {
	m.mu.Lock()
	gate := m.gate
	m.mu.Unlock()
	<-gate
	if now := m.process(); now != nil {
		return now.Receive(msg)
	}
	return nil
}

// begin starts a process.
func (m *machine) begin() {
	dead := make(chan struct{})
	n, err := New(m.config(dead))
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.mu.Lock()
	stopped := make(chan struct{})
	m.now, m.dead, m.stop, m.stopped = n, dead, cancel, stopped
	m.mu.Unlock()
	go func() { n.Run(ctx); close(stopped) }()
	go m.deliver(ctx, n, dead)
}

// end shuts the process down.
func (m *machine) end() {
	if m.process() != nil {
		m.stop()
		<-m.stopped
		m.gone()
	}
}

// kill has the process vanish.
func (m *machine) kill() {
	close(m.dead)
	m.stop()
	m.gone()
}

func (m *machine) process() *Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

func (m *machine) gone() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = nil
}

// pause stops the process for a while; its clock goes on. Meanwhile the judge does not count its open connections.
func (m *machine) pause(d time.Duration) {
	gate := make(chan struct{})
	m.mu.Lock()
	m.gate = gate
	m.mu.Unlock()
	m.site.judge.Lock()
	m.open -= m.opened
	m.site.judge.Unlock()
	time.Sleep(d)
	over := max(0, m.opened-m.now.Allowed(seven.Name))
	m.now.Close(seven.Name, over)
	m.site.judge.Lock()
	m.opened -= over
	m.open += m.opened
	m.site.judge.Unlock()
	close(gate)
}

// deliver uses the limits as mail does.
func (m *machine) deliver(ctx context.Context, n *Node, dead chan struct{}) {
	defer m.connect(n, 0)
	for m.wait(dead) && ctx.Err() == nil {
		n.Want(hundred, hundred.Units()*42/80)
		n.Want(seven, 3)
		done := n.Spend(hundred.Name, 2)
		m.site.judge.Lock()
		m.level = max(0, m.level-hundred.Rate*time.Since(m.at).Seconds()) + float64(done)
		if m.at = time.Now(); m.level > float64(hundred.Burst)+1e-3 {
			m.t.Errorf("%v: node %d is over the rate by %.3f events", m.at, m.id, m.level-float64(hundred.Burst))
		}
		m.used += float64(done)
		m.site.judge.Unlock()
		m.connect(n, 3)
		wait(ctx, 40*time.Millisecond, nil)
	}
}

// connect opens or closes connections, so that there are want or as many as there may be.
func (m *machine) connect(n *Node, want int64) {
	less := max(m.opened-n.Allowed(seven.Name), m.opened-want)
	n.Close(seven.Name, less)
	more := n.Open(seven.Name, max(0, want-m.opened+less)) - less
	m.site.judge.Lock()
	defer m.site.judge.Unlock()
	m.opened += more
	if m.open += more; m.open > seven.Connections {
		m.t.Errorf("node %d makes it %d connections", m.id, m.open)
	}
}

// rate is how many events a second happen in a while.
func (s *site) rate(d time.Duration) float64 {
	read := func() float64 { s.judge.Lock(); defer s.judge.Unlock(); return s.used }
	before := read()
	time.Sleep(d)
	return (read() - before) / d.Seconds()
}

// uses has the nodes use a part of the rate.
func (s *site) uses(what string, d time.Duration, least, most float64) {
	s.t.Helper()
	if r := s.rate(d); r < least || r > most+.5 {
		s.t.Errorf("%s: %.1f events a second, want %.0f to %.0f", what, r, least, most)
	}
}

// settle waits until the limits are shared.
func (s *site) settle() { time.Sleep(30 * time.Second) }

func TestALimitIsHeldByThreeNodes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := three(t)
		s.settle()
		s.engine.set(func() { s.calls = 0 })
		s.uses("calm", time.Minute, 97, 100)
		s.engine.set(func() {
			if s.calls < 170 || s.calls > 181 {
				t.Errorf("%d calls of three nodes in a minute", s.calls)
			}
		})
		if s.open != seven.Connections {
			t.Errorf("%d connections of %d", s.open, seven.Connections)
		}
		owned := 0
		for _, m := range s.nodes {
			owned += len(m.now.Owned())
		}
		if owned != owner.Shards {
			t.Errorf("%d shards have an owner", owned)
		}
	})
}

// breaks is a connection over which nothing more goes when it is cut.
type breaks struct {
	net.Conn
	cut func() bool
}

func (b breaks) Write(p []byte) (int, error) {
	if b.cut() {
		b.Close()
		return 0, errGone
	}
	return b.Conn.Write(p)
}

// Two of them, one of which decides about a limit, no longer reach each other after a while.
func TestNodesThatAreLinked(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, dir, ports := prepare(t), filepath.Join(t.TempDir(), "ca"), make(map[string]*sink.PipeListener)
		if err := ca.Init(dir, "mail", time.Now()); err != nil {
			t.Fatal(err)
		}
		for n := range s.nodes {
			ports[fmt.Sprint(n)] = sink.NewPipeListener()
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		var cut atomic.Pointer[string]
		for n, m := range s.nodes {
			p, err := ca.Issue(dir, n, ca.NodeHolds, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			store := certificates.New(time.Now, s.log)
			l := link.New(link.Config{Node: n, Receive: m.receive, Now: time.Now, Log: s.log,
				Certificate: func() (*tls.Certificate, error) { return store.Client(p) },
				Authorities: func() (*x509.CertPool, error) { return store.Authorities(filepath.Join(dir, ca.Certificate)) },
				Address:     func(to uint16) (string, bool) { return fmt.Sprint(to), ports[fmt.Sprint(to)] != nil },
				Dial: func(ctx context.Context, address string) (net.Conn, error) {
					is := func() bool {
						joins := fmt.Sprint(n) + address
						return cut.Load() != nil && strings.Contains(*cut.Load(), joins)
					}
					if is() {
						return nil, errGone
					}
					conn, err := ports[address].Dial(ctx)
					return breaks{conn, is}, err
				}})
			all.Go(func() { l.Run(ctx, ports[fmt.Sprint(n)]) })
			m.send = l.Send
		}
		for _, m := range s.nodes {
			m.begin()
		}
		s.settle()
		s.uses("over links", 20*time.Second, 97, 100)
		if text := s.logged(); text != "" {
			t.Error(text)
		}
		one := s.engine.owner(hundred.Name)
		both := fmt.Sprintf("%d%d %[2]d%[1]d", one, one%3+1)
		cut.Store(&both)
		time.Sleep(terms.Length)
		s.uses("without one of the links", 20*time.Second, 97, 100)
		if _, part := s.nodes[one%3+1].now.Left(hundred.Name); part < .2 {
			t.Errorf("the node that does not reach the owner has %.2f of a limit", part)
		}
	})
}

func TestAnOwnerIsKilled(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := three(t)
		s.settle()
		at := s.nodes[s.owner(hundred.Name)]
		at.kill()
		s.uses("by what the others were granted", time.Minute, 60, 100)
		time.Sleep(terms.Waits())
		if now := s.owner(hundred.Name); now == at.id {
			t.Errorf("node %d owns it yet", now)
		}
		s.uses("of two nodes", time.Minute, 97, 100)
		at.begin()
		s.settle()
		s.uses("of three nodes", time.Minute, 97, 100)
	})
}

// TestAMachineIsOff: when that is confirmed, others have all that it decided about and all that it was granted.
func TestAMachineIsOff(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := three(t)
		s.settle()
		at := s.nodes[s.owner(hundred.Name)]
		at.kill()
		s.engine.mu.Lock()
		for i := range s.heads {
			if h := &s.heads[i]; h.Node == at.id {
				*h = owner.Head{Epoch: h.Epoch, Beat: h.Beat + 1, Clock: h.Clock}
			}
		}
		s.engine.mu.Unlock()
		for _, m := range s.nodes {
			m.mu.Lock()
			m.off = map[uint16]uint64{at.id: 2}
			m.mu.Unlock()
		}
		time.Sleep(10 * time.Second)
		s.uses("of two nodes", time.Minute, 97, 100)
	})
}

func TestTheNextProcessOfAnOwnerGoesOnAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := three(t)
		s.settle()
		at := s.nodes[s.owner(hundred.Name)]
		at.kill()
		time.Sleep(10 * time.Second)
		at.begin()
		time.Sleep(10 * time.Second)
		if now := s.owner(hundred.Name); now != at.id {
			t.Errorf("node %d owns it", now)
		}
		s.uses("after a restart", time.Minute, 90, 100)
	})
}

// until waits for something, and returns for how long.
func until(t *testing.T, what string, is func() bool) time.Duration {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		if d := time.Since(began); is() {
			t.Logf("%s after %v", what, d)
			return d
		} else if d > time.Minute {
			t.Fatalf("%s: not in a minute", what)
		}
	}
}

// TestWhoHasNothingIsAnsweredAtOnce: the first event after a quiet while waits for no call that is on time. There are few
// more calls by that, however often somebody asks.
func TestWhoHasNothingIsAnsweredAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := three(t)
		s.settle()
		for i := range 6 {
			l := share.Limit{Name: fmt.Sprintf("quiet %d", i/2), Rate: 100, Burst: 100}
			n := s.nodes[uint16(i%3+1)].now
			began := time.Now()
			n.Want(l, l.Units())
			if d := until(t, l.Name, func() bool { left, _ := n.Left(l.Name); return left > 0 }); d > 100*time.Millisecond {
				t.Errorf("node %d has a part of %q after %v", i%3+1, l.Name, d)
			}
			n.Want(l, 0)
			time.Sleep(20*time.Second - time.Since(began))
		}
		s.engine.set(func() { s.calls = 0 })
		for i := range 600 { // in a minute
			l := share.Limit{Name: fmt.Sprintf("new %d", i), Rate: 100, Burst: 100}
			s.nodes[uint16(i%3+1)].now.Want(l, l.Units())
			time.Sleep(100 * time.Millisecond)
		}
		s.engine.set(func() {
			if s.calls > 3*(60+60/calm+mostNow) {
				t.Errorf("%d calls of three nodes in a minute", s.calls)
			}
		})
	})
}

// TestANodeAloneBegins: it has all shards in seconds, and those of its last process at once.
func TestANodeAloneBegins(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := prepare(t)
		m := s.nodes[1]
		has := func(what string, most time.Duration) {
			t.Helper()
			m.begin()
			all := func() bool { return len(m.now.Owned()) == owner.Shards }
			part := func() bool { left, _ := m.now.Left(hundred.Name); return left > 0 }
			if d := until(t, what+": all shards", all) + until(t, what+": a part", part); d > most {
				t.Errorf("%s: after %v, want at most %v", what, d, most)
			}
		}
		has("the first start", 5*time.Second)
		time.Sleep(time.Minute)
		m.kill()
		time.Sleep(5 * time.Second)
		has("after a crash", time.Second/2)
		time.Sleep(time.Minute)
		m.end()
		time.Sleep(5 * time.Second)
		has("after a shutdown", 5*time.Second)
	})
}

// TestARestartedRelayHasItsPart of a limit that is too small for all, whether its process has ended or crashed, and
// whoever decides about the limit.
func TestARestartedRelayHasItsPart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := three(t)
		s.settle()
		for i := range 12 {
			l := share.Limit{Name: fmt.Sprintf("small %d", i), Connections: 1}
			m := s.nodes[1]
			part := func() bool { return m.now.Allowed(l.Name) > 0 }
			m.now.Want(l, 1)
			until(t, l.Name, part)
			what, most := fmt.Sprintf("after a crash with node %d", s.owner(l.Name)), time.Second
			if i%2 == 0 {
				m.kill()
			} else { // another node takes what this one has handed over, two seconds and a call later at most
				what, most = fmt.Sprintf("after a shutdown with node %d", s.owner(l.Name)), 5*time.Second
				m.end()
			}
			time.Sleep(time.Second)
			m.begin()
			m.now.Want(l, 1)
			if d := until(t, what, part); d > most {
				t.Errorf("%s the relay waits for its part for %v, want %v", what, d, most)
			}
			m.now.Want(l, 0)
			s.settle()
		}
	})
}

// TestWhatIsInUseIsCountedSoon: units whose use outlives a grant are given as soon as all nodes have reported, after a
// start of all of them and after that of the next process of the node that decides; without one of them 10 s later.
func TestWhatIsInUseIsCountedSoon(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := three(t)
		l := share.Limit{Name: "queued", Connections: 100, Lasting: true}
		more := func(what string, n *Node, units int64, least, most time.Duration) {
			t.Helper()
			n.Want(l, units)
			if d := until(t, what, func() bool { return n.Allowed(l.Name) >= units }); d < least || d > most {
				t.Errorf("%s: %d units after %v, want %v to %v", what, units, d, least, most)
			}
		}
		more("the start of three nodes", s.nodes[1].now, 10, 0, 6*time.Second)
		s.settle()
		at := s.nodes[s.owner(l.Name)]
		at.kill()
		time.Sleep(2 * time.Second)
		at.begin()
		more("the next process", at.now, 20, 0, 4*time.Second)
		s.settle()
		at.kill()
		away := s.nodes[at.id%3+1]
		away.kill()
		time.Sleep(2 * time.Second)
		at.begin()
		more("without a node", at.now, 30, 10*time.Second, 14*time.Second)
	})
}

func TestAnEngineThatIsAway(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := three(t)
		s.settle()
		s.engine.set(func() { s.away = true })
		s.uses("for two minutes", 2*time.Minute, 97, 100)
		if d := s.nodes[1].now.Silent(); d < time.Minute || d > 3*time.Minute {
			t.Errorf("the engine is silent for %v", d)
		}
		if _, err := s.nodes[1].now.Claim(t.Context(), "k", ""); err != ErrAway {
			t.Errorf("a claim: %v", err)
		}
		time.Sleep(2 * time.Minute)
		s.uses("after a term", time.Minute, 0, 0)
		s.engine.set(func() { s.away = false })
		s.settle()
		s.uses("again", time.Minute, 97, 100)
		if n := strings.Count(s.logged(), "does not answer\""); n != 3 {
			t.Errorf("%d lines of three nodes: %s", n, s.logged())
		}
	})
}

// TestNodesFollowAReset, each at its time, after the engine has gone back by ten seconds: what was granted ends, nobody
// has any of a limit until a term has passed, and then all is as before. A key that is open again is settled.
func TestNodesFollowAReset(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := three(t)
		s.settle()
		first := s.nodes[1]
		d, err := first.now.Claim(t.Context(), "k", "note of k")
		if err != nil || d.Outcome != once.Fresh {
			t.Fatal(d, err)
		}
		var heads [owner.Shards]owner.Head
		var open once.Row
		s.engine.set(func() { heads, open = s.heads, *s.keys["k"] })
		first.mail["k"] = d.Row.Request
		first.now.Accepted(d, "whole", time.Hour)
		time.Sleep(10 * time.Second)
		s.engine.set(func() { s.heads, s.keys["k"] = heads, &open })
		s.uses("by what was granted", time.Minute, 60, 100)
		for _, m := range s.nodes {
			if m.now.Lost() == nil {
				t.Errorf("node %d has lost nothing", m.id)
			}
			if _, err := m.now.Claim(t.Context(), "other", ""); err != ErrLost {
				t.Errorf("a claim: %v", err)
			}
		}
		const number = 1_700_000_000
		s.engine.set(func() {
			for i := range s.heads {
				s.heads[i] = owner.Head{Node: 2, Epoch: number, Beat: s.heads[i].Beat + 1}
			}
		})
		time.Sleep(time.Minute) // what was granted ends
		for _, m := range s.nodes {
			m.now.Reset(number)
			time.Sleep(2 * time.Second)
		}
		time.Sleep(time.Minute)
		s.uses("before a term", time.Minute, 0, 0)
		for _, m := range s.nodes {
			if m.now.Lost() != nil || m.now.Resets() != number || len(m.now.Owned()) > 0 {
				t.Errorf("node %d: %v, %d, %d shards", m.id, m.now.Lost(), m.now.Resets(), len(m.now.Owned()))
			}
		}
		if o := s.claim(t, 2, "k"); o != once.Repeat {
			t.Errorf("the key: %v", o)
		}
		time.Sleep(time.Minute + 20*time.Second)
		s.uses("after a term", time.Minute, 97, 100)
		first.kill()
		time.Sleep(10 * time.Second)
		first.begin()
		if time.Sleep(10 * time.Second); first.now.Lost() != nil || first.now.Resets() != number {
			t.Errorf("the next process: %v, %d", first.now.Lost(), first.now.Resets())
		}
	})
}

func TestANodePauses(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := three(t)
		s.settle()
		at := s.nodes[s.owner(hundred.Name)]
		go at.pause(10 * time.Minute)
		time.Sleep(30 * time.Second)
		others := func(is string, ok func(node uint16, d time.Duration) bool) {
			for id, m := range s.nodes {
				if node, d := m.now.Unanswered(); id != at.id && !ok(node, d) {
					t.Errorf("%s, node %d has had no answer of node %d for %s", is, id, node, d)
				}
			}
		}
		others("amid the pause", func(node uint16, d time.Duration) bool { return node == at.id && d > 15*time.Second })
		time.Sleep(terms.Waits() - 10*time.Second)
		others("after a take-over", func(_ uint16, d time.Duration) bool { return d < 5*time.Second })
		s.uses("of two nodes", 5*time.Minute, 97, 100)
		time.Sleep(2 * time.Minute)
		s.settle()
		s.uses("of three nodes", time.Minute, 97, 100)
	})
}

func TestAShutdownHandsOver(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := three(t)
		s.settle()
		at := s.nodes[s.owner(hundred.Name)]
		began := time.Now()
		at.end()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
		s.engine.set(func() {
			for i, h := range s.heads {
				if h.Node == at.id {
					t.Errorf("shard %d is not handed over", i)
				}
			}
		})
		time.Sleep(10 * time.Second)
		s.uses("ten seconds later", time.Minute, 97, 100)
		for n, m := range s.nodes {
			if n != at.id && len(m.now.Owned()) < 20 {
				t.Errorf("node %d owns %v", n, m.now.Owned())
			}
		}
	})
}

// A process that can't reach the engine ends all the same.
func TestAShutdownWithoutAnEngine(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := three(t)
		s.settle()
		s.engine.set(func() { s.away = true })
		time.Sleep(10 * time.Second)
		began := time.Now()
		s.nodes[1].end()
		if took := time.Since(began); took > goodbye+owner.Patience {
			t.Errorf("it took %v", took)
		}
	})
}

// claim claims a key at a node, and accepts what is fresh.
func (s *site) claim(t *testing.T, node uint16, k string) once.Outcome {
	t.Helper()
	m := s.nodes[node]
	d, err := m.now.Claim(t.Context(), k, "note of "+k)
	if err != nil {
		t.Fatal(err)
	}
	if d.Outcome == once.Fresh {
		m.mu.Lock()
		m.mail[k] = d.Row.Request
		m.mu.Unlock()
		m.now.Accepted(d, "mail "+k, time.Hour)
	} else if d.Outcome == once.Repeat && d.Row.Note == "note of "+k {
		t.Error("a repeat has no answer")
	} else if d.Outcome == once.Running && d.Row.Node != 0 && d.Row.Note != "note of "+k {
		t.Errorf("the note is %q", d.Row.Note)
	}
	return d.Outcome
}

func TestAKeyIsAcceptedOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := three(t)
		s.settle()
		var mu sync.Mutex
		var all sync.WaitGroup
		outcomes := make(map[once.Outcome]int)
		for i := range 900 {
			all.Go(func() {
				o := s.claim(t, uint16(i%3+1), fmt.Sprint("k", i/9))
				mu.Lock()
				outcomes[o]++
				mu.Unlock()
			})
		}
		all.Wait()
		if outcomes[once.Fresh] != 100 || outcomes[once.Refuse] != 0 {
			t.Errorf("outcomes: %v", outcomes)
		}
		time.Sleep(time.Second)
		for i := range 100 {
			if o := s.claim(t, uint16(i%3+1), fmt.Sprint("k", i)); o != once.Repeat {
				t.Errorf("k%d: %v", i, o)
			}
		}
		m := s.nodes[1]
		d, err := m.now.Claim(t.Context(), "refused", "note of refused")
		if err != nil || d.Outcome != once.Fresh {
			t.Fatal(d, err)
		}
		if o := s.claim(t, 2, "refused"); o != once.Running {
			t.Errorf("claimed elsewhere: %v", o)
		}
		m.now.Refused(d)
		time.Sleep(time.Second)
		if o := s.claim(t, 2, "refused"); o != once.Fresh {
			t.Errorf("after its release: %v", o)
		}
		time.Sleep(time.Second)
		again := func(end func(*Node, once.Decision)) once.Decision { // a request that was cut off goes on at its node
			d, err := s.nodes[2].now.Claim(t.Context(), "refused", "")
			if err != nil || d.Outcome != once.Repeat {
				t.Fatal(d, err)
			}
			end(s.nodes[2].now, d)
			time.Sleep(time.Second)
			d, err = m.now.Claim(t.Context(), "refused", "")
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		if d := again(func(n *Node, d once.Decision) { n.Accepted(d, "whole", time.Hour) }); d.Row.Note != "whole" {
			t.Errorf("settled again: %+v", d)
		}
		if d := again((*Node).Refused); d.Outcome != once.Fresh {
			t.Errorf("released again: %+v", d)
		}
	})
}

// TestAClaimTakesOneCall, as long as the ends of earlier requests can go along with it. The last end goes by itself.
func TestAClaimTakesOneCall(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := three(t)
		s.settle()
		time.Sleep(time.Second)
		late := 0
		for i := range 100 {
			began := time.Now()
			if o := s.claim(t, 1, fmt.Sprint("k", i)); o != once.Fresh {
				t.Errorf("k%d: %v", i, o)
			}
			if time.Since(began) > 2*time.Millisecond { // a call of the engine
				late++
			}
			time.Sleep(time.Millisecond)
		}
		if late > 1 { // than the call of each minute for old keys
			t.Errorf("%d of 100 claims waited for another call", late)
		}
		time.Sleep(settling + 5*time.Millisecond)
		s.engine.set(func() {
			if !s.engine.keys["k99"].Done {
				t.Error("the last request has no end")
			}
		})
	})
}

// TestOldKeysAreDropped, all that there are, once a minute.
func TestOldKeysAreDropped(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := three(t)
		s.settle()
		s.engine.set(func() { s.engine.old = 2*mostDropped + 7 })
		time.Sleep(2 * time.Minute)
		s.engine.set(func() {
			if s.engine.old != 0 {
				t.Errorf("%d are left", s.engine.old)
			}
		})
	})
}

// A key whose node crashed is settled by what the queue has: when its next process begins, or when another node meets it.
func TestAKeyOfACrashedProcess(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := three(t)
		s.settle()
		m := s.nodes[1]
		for _, k := range []string{"lost", "kept", "late"} {
			d, err := m.now.Claim(t.Context(), k, "note of "+k)
			if err != nil || d.Outcome != once.Fresh {
				t.Fatal(d, err)
			}
			if k == "kept" {
				m.mail[k] = d.Row.Request
			}
		}
		var late *once.Row
		s.engine.set(func() { late = s.engine.keys["late"]; delete(s.engine.keys, "late") })
		m.kill()
		time.Sleep(10 * time.Second)
		m.begin()
		time.Sleep(3 * time.Second)
		if a, b := s.claim(t, 2, "lost"), s.claim(t, 3, "kept"); a != once.Fresh || b != once.Repeat {
			t.Errorf("lost: %v, kept: %v", a, b)
		}
		s.engine.set(func() { s.engine.keys["late"] = late }) // after the list was read
		if o := s.claim(t, 2, "late"); o != once.Running {
			t.Errorf("late: %v", o)
		}
		time.Sleep(time.Second)
		if o := s.claim(t, 2, "late"); o != once.Fresh {
			t.Errorf("late: %v", o)
		}
	})
}

// A client that goes away keeps no key; one that waits when the process ends is answered.
func TestAClaimThatNobodyWaitsFor(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := three(t)
		s.settle()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if d, err := s.nodes[1].now.Claim(ctx, "k", ""); err == nil {
			t.Errorf("decided: %+v", d)
		}
		time.Sleep(time.Second)
		if o := s.claim(t, 2, "k"); o != once.Fresh {
			t.Errorf("the next: %v", o)
		}
		s.engine.set(func() { s.away = true })
		n, got, began := s.nodes[1].now, make(chan error), time.Now()
		go func() { _, err := n.Claim(t.Context(), "other", ""); got <- err }()
		if err := <-got; err != ErrAway || time.Since(began) != owner.Gap {
			t.Error(err, time.Since(began))
		}
		s.engine.set(func() { s.away = false })
		time.Sleep(time.Second)
		s.nodes[1].end()
		if _, err := n.Claim(t.Context(), "other", ""); err != ErrEnded {
			t.Error(err)
		}
	})
}

// What an answer rests on is on the disk before it leaves; without a disk none leaves.
func TestTheDiskComesBeforeAnswers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := prepare(t)
		var seen [4]atomic.Int64
		for n, m := range s.nodes {
			m.watch = func(msg link.Message) {
				if msg.Answer == nil {
					return
				}
				seen[n].Add(1)
				var on state
				text, err := os.ReadFile(m.path())
				if err == nil {
					_, err = smallfile.Unmarshal(text, &on)
				}
				if err != nil || on.Memory.Marks[msg.Shard].Before(msg.Answer.Mark) {
					t.Errorf("shard %d is at %v on the disk, and %v leaves, %v", msg.Shard, on.Memory.Marks[msg.Shard],
						msg.Answer.Mark, err)
				}
			}
			m.begin()
		}
		s.settle()
		at := s.owner(hundred.Name)
		if seen[at].Load() == 0 {
			t.Fatal("no answers")
		}
		file := s.nodes[at].path()
		// No file can take the place of a folder.
		if err := errors.Join(os.Rename(file, file+".old"), os.Mkdir(file, 0o700)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		before := seen[at].Load()
		time.Sleep(time.Minute)
		if more := seen[at].Load() - before; more != 0 {
			t.Errorf("%d answers without a disk", more)
		}
		if err := errors.Join(os.Remove(file), os.Rename(file+".old", file)); err != nil {
			t.Fatal(err)
		}
		s.settle()
		if seen[at].Load() == before {
			t.Error("no answers with a disk")
		}
	})
}

func TestAProcessReadsItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cluster")
	if _, err := begin(path, 3, "three", 0); err == nil || !strings.Contains(err.Error(), "must join again") {
		t.Error(err)
	}
	if err := Create(path, 5); err != nil {
		t.Fatal(err)
	}
	if err := Create(path, 5); err == nil {
		t.Error("a node joins twice")
	}
	for want := uint64(1); want < 4; want++ {
		if s, err := begin(path, 3, "three", 0); err != nil || s.Incarnation != 5 || s.Process != want || s.Node != 3 || s.Name != "three" {
			t.Errorf("process %d of incarnation %d of node %d %q, %v", s.Process, s.Incarnation, s.Node, s.Name, err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range [][]byte{nil, text[:len(text)/2], bytes.Replace(text, []byte("5"), []byte("6"), 1), []byte("{}")} {
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := begin(path, 3, "three", 0); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%.20s: %v", bad, err)
		}
	}
}

// Those who use limits hear of answers that change something, and of grants that end, without a call in vain each second.
func TestWhatChangesIsPassedOn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := prepare(t)
		var calls atomic.Int64
		m := s.nodes[1]
		m.changed = func() { m.now.Allowed(seven.Name); calls.Add(1) }
		for _, m := range s.nodes {
			m.begin()
		}
		s.settle()
		n := m.process()
		if n.Allowed(seven.Name) == 0 || calls.Load() == 0 {
			t.Errorf("%d connections are allowed after %d calls", n.Allowed(seven.Name), calls.Load())
		}
		if n.Allowed("never wanted") != 0 || n.Open("never wanted", 1) != 0 || n.Spend("never wanted", 1) != 0 {
			t.Error("there is something of a limit that was never wanted")
		}
		n.Close("never wanted", 1)
		time.Sleep(30 * time.Second)
		before := calls.Load()
		time.Sleep(30 * time.Second)
		if more := calls.Load() - before; more > 10 {
			t.Errorf("%d calls in half a minute in which little happens", more)
		}
		s.engine.set(func() { s.away = true })
		time.Sleep(terms.Holds() - time.Minute)
		for before = calls.Load(); n.Allowed(seven.Name) > 0; {
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(2 * step)
		if calls.Load() == before {
			t.Error("the end of the grants is not passed on")
		}
	})
}

// Messages of nodes that are no members any more, and answers of the engine that make no sense, change nothing.
func TestWhatANodeRefuses(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := three(t)
		s.settle()
		m := s.nodes[s.owner(hundred.Name)]
		n, row := m.now, func(rows map[uint16]uint64) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.rows = rows
		}
		row(map[uint16]uint64{1: 1, 2: 1, 3: 1, 8: 3})
		for from, want := range map[uint16]string{8: "node 8 asks as incarnation 2, and its row has 3",
			9: "node 9 asks as incarnation 2, and its row has 0"} {
			err := n.Receive(link.Message{Message: member.Message{From: from, To: n.cfg.Node,
				Ask: &member.Ask{Order: term.Order{Incarnation: 2}}}})
			if err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
		row(nil)
		err := n.Receive(link.Message{Message: member.Message{From: 3, To: n.cfg.Node, Shard: member.Shard("hundred"),
			Ask: &member.Ask{Order: term.Order{Incarnation: 9}, Shares: []share.Item{{Limit: hundred, Held: 1e14}}}}})
		if err == nil || !strings.HasPrefix(err.Error(), `node 3 asks for 0 units of limit "hundred" with 100000000000000`) {
			t.Error(err)
		}
		for _, bad := range []func(*owner.Result){func(r *owner.Result) { r.Heads = nil },
			func(r *owner.Result) { r.Done = append(r.Done, true) },
			func(r *owner.Result) { r.Fault = errors.New("shard 7 has too much") }} {
			s.engine.set(func() { s.bad = bad })
			time.Sleep(10 * time.Second)
		}
		if n := strings.Count(s.logged(), "shard 7 has too much"); n != 3 { // once for each node
			t.Errorf("%d lines about what was refused", n)
		}
		s.engine.set(func() { s.bad = nil })
		time.Sleep(10 * time.Second)
		if n.Lost() != nil || n.Silent() > 2*time.Second {
			t.Errorf("silent for %v, lost: %v", n.Silent(), n.Lost())
		}
		s.engine.set(func() { s.origin.System++ })
		time.Sleep(5 * time.Second)
		if n.Lost() == nil || len(n.Owned()) > 0 {
			t.Errorf("lost: %v, owned: %v", n.Lost(), n.Owned())
		}
	})
}

// A book that somebody has edited is named by who takes its shard, counts as far as it can, and keeps no node away.
func TestABookThatSomebodyHasEdited(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := three(t)
		s.settle()
		at := s.nodes[s.owner(hundred.Name)]
		shard := member.Shard(hundred.Name)
		for name, n := range map[string][4]int64{"a number": {1, -1, 1, 1}, "incarnation 9": {1, 9, 1, 1},
			"process": {1, 1, 1, -7}, "units": {-1, 1, 1, 1}} {
			at.kill()
			synctest.Wait() // until nothing of the process goes on
			s.engine.set(func() {
				for k, e := range s.books[shard] {
					if e.Node != at.id && e.Name == hundred.Name {
						if e.N = n; n[0] > 0 {
							e.N[0] = s.books[shard][k].N[0]
						}
						s.books[shard][k] = e
					}
				}
			})
			at.begin()
			time.Sleep(5 * time.Second)
			if now := s.owner(hundred.Name); now != at.id {
				t.Fatalf("%s: node %d owns it", name, now)
			}
			if err := at.now.LeftOut(); err == nil || !strings.Contains(err.Error(),
				fmt.Sprintf("a row of shard %d in mta_cluster.books", shard)) || !strings.Contains(err.Error(), `"hundred"`) {
				t.Errorf("%s: left out is %v", name, err)
			}
			s.uses(name, time.Minute, 90, 100)
		}
		time.Sleep(10 * time.Minute)
		if err := at.now.LeftOut(); err != nil {
			t.Errorf("left out is yet %v", err)
		}
		s.engine.set(func() { s.fault = errors.New("the row in mta_cluster.keys") })
		if s.claim(t, 1, "k"); s.nodes[1].now.LeftOut() == nil {
			t.Error("a row of a key is not named")
		}
	})
}

func BenchmarkSpend(b *testing.B) {
	path := filepath.Join(b.TempDir(), "cluster")
	clock, boot, err := Boot()
	if err == nil {
		err = Create(path, 1)
	}
	if err != nil {
		b.Fatal(err)
	}
	n, err := New(Config{Node: 1, Term: terms, Path: path, Clock: clock, Boot: boot,
		Rand: rand.New(rand.NewPCG(1, 1)), Now: time.Now, Log: slog.Default()})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.Run("limit", func(b *testing.B) {
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				n.Want(hundred, 8)
				n.Spend(hundred.Name, 1)
			}
		})
	})
}
