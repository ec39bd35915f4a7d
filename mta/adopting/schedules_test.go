package adopting_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/cluster/link"
	"example.org/mta/cluster/membership"
	"example.org/mta/cluster/moving"
	"example.org/mta/cluster/spool"
	"example.org/mta/cluster/spool/spooltest"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/mta/adopting"
	"example.org/mta/mta/config"
	"example.org/mta/mta/datadir"
	"example.org/mta/mta/events"
	"example.org/mta/mta/exported"
	"example.org/mta/mta/replica"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
)

var (
	schedules = flag.Int("schedules", 24, "how many schedules TestSchedules runs")
	seed      = flag.Uint64("seed", 1, "the first one's")
)

// TestSchedules has random schedules befall a cluster whose queues have copies: kills, disks that are lost, processes
// that stand still and go on, nodes without the database, a database that is away, commits with unknown outcomes,
// take-overs by themselves and by hand, directories that are adopted. At the end each acknowledged message has left. None
// is sent by a node whose log another one has, and once more only for each time that its holder ended, or lost the log,
// before what had become of it was there.
func TestSchedules(t *testing.T) {
	for i := range *schedules {
		s := *seed + uint64(i)
		dir := bubble.Folder(t)
		bubble.Test(t, func(t *testing.T) { newCluster(t, dir, s).run() })
		if os.RemoveAll(dir); t.Failed() {
			t.Fatalf("with -seed %d", s)
		}
	}
}

const nodes = 3

type cluster struct {
	*testing.T
	spooltest.Memory
	machines [nodes]*machine
	submits  sync.WaitGroup

	mu    sync.Mutex // guards what follows
	rnd   *rand.Rand
	away  bool               // the database
	odd   int                // in how many of a hundred calls there is no answer
	calm  bool               // the end: all leaves
	rows  map[uint16]*row    // of the nodes
	mail  map[string]*letter // by its sender
	ids   map[string]string  // the sender of a message that moves
	beats map[uint64]time.Time
	story []string
}

// row is that of a node.
type row struct {
	incarnation uint64
	forgotten   bool
	seen        time.Time
}

// letter is what has become of a message.
type letter struct {
	acked         bool
	arrived, more int
	log           uint64 // from which it has arrived last
	open          bool   // nothing durable shows that yet
}

// machine is that of a node.
type machine struct {
	*cluster
	number uint16
	cfg    *config.Config
	p      *process    // nil: none runs
	gone   atomic.Bool // its directory is being adopted
}

// process is one of a relay.
type process struct {
	*machine
	ctx  context.Context
	kill func()
	over chan struct{}

	mu      sync.Mutex // guards what follows
	stands  chan struct{}
	cut     bool
	queue   *queue.Queue
	adopter *adopting.Adopter
	copies  *replica.Replica
	own     uint64 // its incarnation
	dead    map[uint16]uint64
}

func newCluster(t *testing.T, dir string, seed uint64) *cluster {
	c := &cluster{T: t, rnd: rand.New(rand.NewPCG(seed, 1)), rows: make(map[uint16]*row), mail: make(map[string]*letter),
		ids: make(map[string]string), beats: make(map[uint64]time.Time)}
	for i := range c.machines {
		data := fmt.Sprintf("%s/%d", dir, i+1)
		cfg, err := config.Parse([]byte(fmt.Sprintf("data_dir = %q", data)), "test.conf", os.Getenv)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Cluster.Takeover, cfg.Cluster.Path, cfg.Accounting.Enabled = time.Minute, data+"/cluster", false
		c.machines[i] = &machine{cluster: c, number: uint16(i + 1), cfg: cfg}
	}
	return c
}

// note adds to the story that is logged if the test fails.
func (c *cluster) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.story = append(c.story, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, args...))
}

func (c *cluster) intn(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rnd.IntN(n)
}

func (c *cluster) seconds(most int) time.Duration {
	return time.Duration(c.intn(most*1000)) * time.Millisecond
}

func (c *cluster) run() {
	for _, m := range c.machines {
		m.start()
	}
	time.Sleep(5 * time.Second)
	for range 12 + c.intn(30) {
		c.step()
		if c.intn(3) > 0 {
			time.Sleep(c.seconds(40))
		}
	}
	c.set(func() { c.away, c.odd, c.calm = false, 0, true })
	c.note("calm")
	for range 20 {
		for _, m := range c.machines {
			m.wakes()
			if p := m.runs(); p != nil {
				p.set(func() { p.cut = false })
			} else if !m.gone.Load() {
				m.start()
			}
			m.adopted()
		}
		time.Sleep(time.Minute)
		if c.lacks() == "" && !c.gone() {
			break
		}
	}
	if lacks := c.lacks(); lacks != "" {
		c.Errorf("these are lost: %s", lacks)
	}
	for _, m := range c.machines {
		m.ends()
	}
	c.submits.Wait()
	if c.Failed() {
		all, _ := c.Memory.Logs(c.Context())
		c.Logf("%s\n%+v", strings.Join(c.story, "\n"), all)
	}
}

func (c *cluster) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *cluster) gone() (is bool) {
	for _, m := range c.machines {
		is = is || m.gone.Load()
	}
	return is
}

// lacks returns which acknowledged messages have not left.
func (c *cluster) lacks() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for id, l := range c.mail {
		if l.acked && l.arrived == 0 {
			all = append(all, id)
		}
	}
	return strings.Join(all, " ")
}

// step is one of a schedule.
func (c *cluster) step() {
	m := c.machines[c.intn(nodes)]
	p := m.runs()
	switch k := c.intn(22); {
	case k < 7 && p != nil:
		for range 1 + c.intn(4) {
			p.submit()
		}
	case k < 9:
		m.dies(k == 8)
		c.later(90, func() { m.restarts() })
	case k < 10:
		c.note("node %d ends", m.number)
		m.ends()
		c.later(60, func() { m.restarts() })
	case k < 13 && p != nil:
		c.note("node %d stands still", m.number)
		p.set(func() {
			if p.stands == nil {
				p.stands = make(chan struct{})
			}
		})
		c.later(150, func() { m.wakes() })
	case k < 15 && p != nil:
		c.note("node %d is cut off", m.number)
		p.set(func() { p.cut = true })
		c.later(150, func() { p.set(func() { p.cut = false }) })
	case k < 16:
		c.note("the database is away")
		c.set(func() { c.away = true })
		c.later(100, func() { c.set(func() { c.away = false }) })
	case k < 17:
		odd := c.intn(30)
		c.note("%d %% of calls have no answer", odd)
		c.set(func() { c.odd = odd })
	case k < 19 && p != nil:
		of := 1 + c.intn(nodes)
		c.submits.Go(func() { p.adopt(api.Adopt{Node: of, Accept: true}) })
	case k < 20 && !c.gone():
		m.dies(false)
		m.gone.Store(true)
		c.note("the disk of node %d goes to another one", m.number)
		time.Sleep(time.Minute)
		m.adopted()
	default:
		time.Sleep(c.seconds(60))
	}
}

// later does something after a random time, at the end at the latest.
func (c *cluster) later(most int, do func()) {
	d := c.seconds(most)
	c.submits.Go(func() { time.Sleep(d); do() })
}

// adopted has another node adopt the directory of a machine, which has an empty disk then.
func (m *machine) adopted() {
	p := m.machines[(int(m.number)+m.intn(nodes-1))%nodes].runs()
	if !m.gone.Load() || p == nil {
		return
	}
	done, err := p.adopt(api.Adopt{Dir: m.cfg.DataDir, Accept: true})
	over := func(words string) bool { return err != nil && strings.Contains(err.Error(), words) }
	if err == nil && !done.Adoption.Ended.IsZero() || over("has taken over the mail of node") || over("no folder named queue") ||
		over("it has joined no cluster") {
		m.note("the disk of node %d is empty", m.number)
		os.RemoveAll(m.cfg.DataDir)
		m.gone.Store(false)
		m.start()
	}
}

func (m *machine) runs() *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.p == nil || m.p.ctx.Err() != nil {
		return nil
	}
	return m.p
}

func (m *machine) start() {
	p := &process{machine: m, over: make(chan struct{}), dead: make(map[uint16]uint64)}
	p.ctx, p.kill = context.WithCancel(m.Context())
	m.set(func() { m.p = p })
	m.note("node %d starts", m.number)
	go func() {
		defer close(p.over)
		defer p.kill()
		if err := p.serve(); p.ctx.Err() == nil {
			m.note("node %d ends by itself: %v", m.number, err)
			m.doubts(func(l uint64) bool { return m.holds(l, m.number) })
		}
	}()
}

func (m *machine) restarts() {
	if !m.gone.Load() && m.runs() == nil {
		m.start()
	}
}

func (m *machine) wakes() {
	p := m.runs()
	if p == nil {
		return
	}
	p.set(func() {
		if p.stands != nil {
			close(p.stands)
			m.note("node %d goes on", m.number)
		}
		p.stands = nil
	})
}

// ends has the process end in order, and waits for that.
func (m *machine) ends() {
	m.wakes()
	var p *process
	if m.set(func() { p = m.p }); p != nil {
		p.kill()
		<-p.over
		m.doubts(func(l uint64) bool { return m.holds(l, m.number) })
	}
}

// dies ends the process: nothing that it does has an effect any more.
func (m *machine) dies(disk bool) {
	m.note("node %d is killed, with its disk: %v", m.number, disk)
	if p := m.runs(); p != nil {
		p.set(func() { p.cut = true })
	}
	m.ends()
	if disk && !m.gone.Load() {
		os.RemoveAll(m.cfg.DataDir)
	}
}

// holds reports whether a log is a node's.
func (c *cluster) holds(log uint64, node uint16) bool {
	all, _ := c.Memory.Logs(c.Context())
	for _, l := range all {
		if l.Log == log {
			return l.Sealed == node || l.Sealed == 0 && l.Node == node
		}
	}
	return false
}

// doubts notes that what has become of mail may be forgotten, as far as nothing durable shows it.
func (c *cluster) doubts(of func(log uint64) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.mail {
		if l.open && of(l.log) {
			l.more++
			l.open = false
		}
	}
}

// settled notes that what has become of messages is durable.
func (c *cluster) settled(senders ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range senders {
		c.mail[s].open = false
	}
}

// arrives notes that a message has left from a log, of whose directory by is the node.
func (c *cluster) arrives(id string, by uint16, log uint64, moves bool) {
	if !c.holds(log, by) {
		c.Errorf("%s: %s leaves from log %d at node %d, and another one has that", time.Now().Format("04:05"), id, log, by)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.mail[id]
	if moves && l.arrived > 0 && l.log == log { // it is known there
		return
	}
	if l.arrived++; l.arrived > 1+l.more {
		c.Errorf("%s leaves from log %d at node %d: for the time %d, and it may leave %d times", id, log, by, l.arrived, 1+l.more)
	}
	l.log, l.open = log, true
	c.story = append(c.story, fmt.Sprintf("%s %s leaves from log %d at node %d", time.Now().Format("04:05.000"), id, log, by))
}

func (p *process) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// acts waits while the process stands still, and reports whether it acts at all.
func (p *process) acts() bool {
	for {
		p.mu.Lock()
		stands := p.stands
		p.mu.Unlock()
		if stands == nil {
			return p.ctx.Err() == nil
		}
		select {
		case <-stands:
		case <-p.ctx.Done():
			return false
		}
	}
}

var errAway = errors.New("no answer")

// call is one of the database. The answer of a process that stands still comes when it goes on.
func call[T any](p *process, do func() (T, error)) (is T, err error) {
	p.acts()
	p.mu.Lock()
	cut := p.cut
	p.mu.Unlock()
	p.cluster.mu.Lock()
	cut = cut || p.away
	before, after := p.rnd.IntN(200) < p.odd, p.rnd.IntN(200) < p.odd
	p.cluster.mu.Unlock()
	if cut || before {
		return is, errAway
	}
	if is, err = do(); after && err == nil {
		err = errAway
	}
	if err == nil {
		p.cluster.set(func() {
			if r := p.rows[p.number]; r != nil && r.incarnation == p.own && !r.forgotten {
				r.seen = time.Now()
			}
		})
	}
	p.acts()
	return is, err
}

// engine is the database, as a process has it.
type engine struct{ p *process }

func (engine) Close() {}

func (e engine) OpenLog(ctx context.Context, c spool.Claim) (spool.Opened, error) {
	return call(e.p, func() (spool.Opened, error) { return e.p.Memory.OpenLog(ctx, c) })
}

func (e engine) AppendEntry(ctx context.Context, n spool.Entry) (spool.Answer, error) {
	return call(e.p, func() (spool.Answer, error) {
		is, err := e.p.Memory.AppendEntry(ctx, n)
		if is.Done {
			e.p.cluster.set(func() { e.p.beats[n.Log] = time.Now() })
		}
		return is, err
	})
}

func (e engine) ReadLog(ctx context.Context, log, from uint64, most int) ([]spool.Head, error) {
	return call(e.p, func() ([]spool.Head, error) { return e.p.Memory.ReadLog(ctx, log, from, most) })
}

func (e engine) EntryData(ctx context.Context, log, entry uint64) ([]byte, error) {
	return call(e.p, func() ([]byte, error) { return e.p.Memory.EntryData(ctx, log, entry) })
}

func (e engine) DropEntries(ctx context.Context, log, session, image uint64, kept []uint64) (spool.Answer, error) {
	return call(e.p, func() (spool.Answer, error) { return e.p.Memory.DropEntries(ctx, log, session, image, kept) })
}

func (e engine) TakeLog(ctx context.Context, t spool.Take) (spool.Answer, error) {
	return call(e.p, func() (spool.Answer, error) {
		held := e.p.holds(t.Log, t.By)
		is, err := e.p.Memory.TakeLog(ctx, t)
		if is.Done && !held {
			e.p.note("node %d takes log %d", t.By, t.Log)
			e.p.doubts(func(l uint64) bool { return l == t.Log })
		}
		return is, err
	})
}

func (e engine) Logs(ctx context.Context) ([]spool.Status, error) {
	return call(e.p, func() ([]spool.Status, error) {
		all, err := e.p.Memory.Logs(ctx)
		e.p.cluster.mu.Lock()
		defer e.p.cluster.mu.Unlock()
		for i, l := range all {
			all[i].Ago = time.Since(e.p.beats[l.Log]).Seconds()
		}
		return all, err
	})
}

func (e engine) ClearLog(ctx context.Context, log uint64, by uint16) error {
	_, err := call(e.p, func() (int, error) { return 0, e.p.Memory.ClearLog(ctx, log, by) })
	return err
}

// incarnation is that of a file of a node, 0 without.
func incarnation(path string) (number uint16, of uint64, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	if err == nil {
		_, err = fmt.Sscan(string(text), &number, &of)
	}
	return number, of, err
}

func writes(path string, number uint16, of uint64) error {
	return os.WriteFile(path, fmt.Appendf(nil, "%d %d", number, of), 0o600)
}

// fit is as membership.Newest.
func (p *process) fit(context.Context) (forgotten bool, err error) {
	_, have, err := incarnation(p.cfg.Cluster.Path)
	if err != nil {
		return false, err
	}
	return call(p, func() (bool, error) {
		p.cluster.mu.Lock()
		defer p.cluster.mu.Unlock()
		r := p.rows[p.number]
		if have == 0 {
			return r == nil || r.forgotten, nil
		}
		return r != nil && r.incarnation > have, nil
	})
}

// forget is as membership.Forget.
func (p *process) forget(context.Context) error {
	_, err := call(p, func() (int, error) {
		p.cluster.mu.Lock()
		defer p.cluster.mu.Unlock()
		r := p.rows[p.number]
		if r != nil && !r.forgotten {
			if time.Since(r.seen) < 20*time.Second {
				return 0, errors.New("it answers")
			}
			r.incarnation, r.forgotten = r.incarnation+1, true
		}
		return 0, nil
	})
	return err
}

// join is as that of package membership.
func (p *process) join() error {
	_, have, err := incarnation(p.cfg.Cluster.Path)
	if err != nil {
		return err
	}
	p.cluster.set(func() {
		r := p.rows[p.number]
		switch {
		case r == nil:
			r = &row{incarnation: 1}
			p.rows[p.number] = r
		case have == r.incarnation && !r.forgotten:
		case have != 0:
			err = errors.New("the node was forgotten")
		case !r.forgotten:
			err = errors.New("the number belongs to another relay")
		default:
			r.forgotten = false
		}
		p.own = r.incarnation
	})
	if err == nil {
		err = writes(p.cfg.Cluster.Path, p.number, p.own)
	}
	return err
}

func (p *process) serve() error {
	log := slog.New(teller{slog.DiscardHandler, p})
	dd, err := datadir.Open(p.cfg, datadir.Config{Version: "0.1.0", Now: time.Now, Log: log})
	if err != nil {
		return err
	}
	_ = dd
	dir := p.cfg.DataDir
	r, err := replica.Open(p.ctx, replica.Config{Dir: datadir.Queue(p.cfg), Mark: replica.MarkOf(p.cfg), Node: p.number,
		Engine: engine{p}, Fit: p.fit, Forget: p.forget, Aside: dir + "/superseded", Files: []string{p.cfg.Cluster.Path,
			p.cfg.Cluster.Path + "-moving"}, Now: time.Now, Log: log, Takeover: time.Minute})
	if err != nil {
		return err
	}
	defer r.Close()
	if err := p.join(); err != nil {
		return err
	}
	q, err := queue.Open(queue.Config{Dir: datadir.Queue(p.cfg), FS: r.Under(nil), MinFree: 1, SegmentSize: 64 << 10,
		Frozen: r.Frozen(), Log: log})
	if err != nil {
		return err
	}
	q.OfNode(p.number)
	defer q.Close()
	a := adopting.New(adopting.Config{Cluster: p, Copies: adopting.Taker{Taker: &replica.Taker{
		Open: func() (replica.Engine, error) { return engine{p}, nil }, Node: p.number, Now: time.Now, Log: log}},
		InForce: func() *config.Config { return p.cfg }, Streams: func(string) []events.Settings { return nil },
		Drains: func() bool { return false }, Classes: new(bounce.Classifier), Version: "0.1.0", Now: time.Now, Log: log})
	defer a.Close()
	p.set(func() { p.queue, p.adopter, p.copies = q, a, r })
	p.note("node %d serves log %d", p.number, p.log())
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	all.Go(func() { a.Watch(ctx) })
	all.Go(func() { p.delivers(ctx, q, r) })
	return r.Watch(ctx, dir, func() error {
		p.cluster.mu.Lock()
		defer p.cluster.mu.Unlock()
		if p.rows[p.number].incarnation != p.own || p.rows[p.number].forgotten {
			return errors.New("the node was forgotten")
		}
		return nil
	}, func() int { return 0 })
}

// log is the number of the process's.
func (p *process) log() uint64 {
	is, _ := p.copies.Status()
	return is.Log
}

func (p *process) adopt(c api.Adopt) (done api.Adopted, err error) {
	var a *adopting.Adopter
	if p.set(func() { a = p.adopter }); a == nil {
		return done, errAway
	}
	done, err = a.Adopt(p.ctx, c)
	p.note("node %d adopts %+v: %v", p.number, c, err)
	return done, err
}

// submit has a client send a message, and notes whether it was accepted.
func (p *process) submit() {
	var q *queue.Queue
	if p.set(func() { q = p.queue }); q == nil {
		return
	}
	var id string
	p.cluster.set(func() {
		id = fmt.Sprintf("m%d@a.example", len(p.mail))
		p.mail[id] = new(letter)
	})
	p.submits.Go(func() {
		d := q.Begin()
		_, err := d.Write([]byte("Subject: x\r\n\r\nx\r\n"))
		if err == nil {
			err = d.Commit(&envelope.Message{Sender: envelope.Address(id), Received: time.Now(),
				Recipients: []envelope.Recipient{{Address: "b@b.example"}}})
		}
		p.mu.Lock()
		cut := p.cut
		p.mu.Unlock()
		if p.acts() && err == nil && !cut {
			p.note("%s is accepted by node %d", id, p.number)
			p.cluster.set(func() { p.mail[id].acked = true })
		}
	})
}

// delivers hands out mail, some of it, and the rest later.
func (p *process) delivers(ctx context.Context, q *queue.Queue, r *replica.Replica) {
	var all sync.WaitGroup
	defer all.Wait()
	ends, frozen := r.MayEnd(), r.Frozen()
	for {
		l, err := q.Next(ctx)
		if err != nil {
			return
		}
		p.cluster.mu.Lock()
		calm := p.calm
		p.cluster.mu.Unlock()
		if !calm && p.intn(3) > 0 {
			_ = q.Defer(l.Message.ID, []int{0}, time.Now().Add(p.seconds(200)), queue.Attempt{}, parking.Key{})
			continue
		}
		if frozen() && p.acts() {
			p.Errorf("node %d hands out mail while it is frozen", p.number)
		}
		all.Go(func() {
			select {
			case <-time.After(p.seconds(60)):
			case <-ctx.Done():
				return
			}
			if !p.acts() {
				return
			}
			if !ends() {
				q.Return(l.Message.ID, []int{0})
				return
			}
			p.arrives(string(l.Message.Sender), p.number, p.log(), false)
			_ = q.Settle(l.Message.ID, []int{0}, queue.Delivered)
			syncs := q.Stats().Syncs + 2 // the next may be of what is being written
			for s := q.Stats(); ctx.Err() == nil && (s.Unwritten > 0 || s.Syncs < syncs); s = q.Stats() {
				time.Sleep(100 * time.Millisecond)
			}
			if ctx.Err() == nil {
				p.settled(string(l.Message.Sender))
			}
		})
	}
}

// Takes implements adopting.Cluster.
func (p *process) Takes() bool {
	p.cluster.mu.Lock()
	defer p.cluster.mu.Unlock()
	r := p.rows[p.number]
	return r.incarnation == p.own && !r.forgotten && p.ctx.Err() == nil
}

// Hears implements adopting.Cluster.
func (p *process) Hears() bool {
	_, err := call(p, func() (int, error) { return 0, nil })
	return err == nil
}

// Number implements adopting.Cluster.
func (p *process) Number() uint16 { return p.number }

// Gone implements adopting.Cluster.
func (p *process) Gone(node uint16) bool {
	p.cluster.mu.Lock()
	defer p.cluster.mu.Unlock()
	r := p.rows[node]
	return r == nil || r.forgotten
}

// Dead implements adopting.Cluster.
func (p *process) Dead(_ context.Context, path string, off bool) (membership.Dead, error) {
	number, of, err := incarnation(path)
	if err != nil || number == 0 {
		return membership.Dead{}, errors.Join(err, membership.Refusal("it has joined no cluster"))
	}
	return call(p, func() (membership.Dead, error) {
		p.cluster.mu.Lock()
		defer p.cluster.mu.Unlock()
		r := p.rows[number]
		if r.incarnation == of && !r.forgotten && time.Since(r.seen) < 20*time.Second && !off {
			return membership.Dead{}, membership.Refusal("it answers")
		}
		p.dead[number] = of
		return membership.Dead{Number: number, Name: fmt.Sprintf("n%d", number)}, nil
	})
}

// Leave implements adopting.Cluster.
func (p *process) Leave(_ context.Context, node uint16, off bool, of uint64) (leave func(string) error, is uint64, err error) {
	_, err = call(p, func() (int, error) {
		p.cluster.mu.Lock()
		defer p.cluster.mu.Unlock()
		switch r := p.rows[node]; {
		case r == nil:
			return 0, membership.Refusal("the database has no row")
		case node == p.number && of == 0:
			return 0, membership.Refusal("it is this node")
		case !r.forgotten && time.Since(r.seen) < 20*time.Second && !off:
			return 0, membership.Refusal("it answers")
		default:
			is = r.incarnation
			if r.forgotten {
				is--
			}
			if of != 0 {
				is = of
			}
		}
		return 0, nil
	})
	return func(path string) error { return writes(path, node, is) }, is, err
}

// Fence implements adopting.Cluster.
func (p *process) Fence(_ context.Context, d membership.Dead, _ bool) error {
	_, err := call(p, func() (int, error) {
		p.cluster.mu.Lock()
		defer p.cluster.mu.Unlock()
		if r := p.rows[d.Number]; r.incarnation == p.dead[d.Number] && !r.forgotten {
			r.incarnation, r.forgotten = r.incarnation+1, true
		}
		return 0, nil
	})
	return err
}

// Mover implements adopting.Cluster: mail goes to a node that never ends.
func (p *process) Mover(d membership.Dead, cfg *config.Config, mail moving.Mail) (*moving.Mover, error) {
	dir, err := os.MkdirTemp(p.TempDir(), "")
	if err != nil {
		return nil, err
	}
	c := moving.Config{Node: 9, Name: "nine", Path: dir + "/moving", May: func() bool { return true },
		Refuses: func() string { return "" }, Now: time.Now, Log: slog.New(slog.DiscardHandler)}
	c.Mail = taker{p: p, dir: filepath.Base(cfg.DataDir), dead: d.Number}
	own, err := moving.Open(c)
	if err != nil {
		return nil, err
	}
	c.Node, c.Name, c.Path, c.Mail, c.Drains = d.Number, cfg.NodeID, cfg.Cluster.Path+"-moving", leaver{mail, p}, func() bool { return true }
	c.Nodes = func() []moving.Node { return []moving.Node{{Number: 9}} }
	c.May = func() bool { return p.acts() && p.Takes() }
	c.Open = func(ctx context.Context, _ uint16, _ link.Purpose) (net.Conn, error) {
		here, there := net.Pipe()
		go func() { own.Serve(context.WithoutCancel(ctx), 9, there); there.Close() }()
		return here, nil
	}
	return moving.Open(c)
}

// leaver is the mail of a dead node.
type leaver struct {
	moving.Mail
	p *process
}

// Moved implements moving.Mail.
func (l leaver) Moved(taken []moving.Taken) error {
	err := l.Mail.Moved(taken)
	if err == nil {
		for _, t := range taken {
			l.p.cluster.mu.Lock()
			sender := l.p.ids[t.ID]
			l.p.cluster.mu.Unlock()
			l.p.settled(sender)
		}
	}
	return err
}

// taker is the mail of the node that never ends.
type taker struct {
	moving.Mail
	p    *process
	dir  string
	dead uint16
}

// Take implements moving.Mail.
func (k taker) Take(_ context.Context, _ string, archive io.Reader, look bool) (t []moving.Taken, d []moving.Declined, err error) {
	if !k.p.acts() {
		return nil, nil, errAway
	}
	var log uint64
	by := k.p.number
	if _, err := fmt.Sscanf(k.dir, "node-%d-log-%d", &k.dead, &log); err != nil { // it has the node's own log
		all, _ := k.p.Memory.Logs(k.p.Context())
		for _, l := range all {
			if l.Node == k.dead && l.Sealed == k.dead && l.Ended {
				by, log = k.dead, l.Log
			}
		}
	}
	for r := exported.NewReader(archive, "archive"); ; {
		m, _, err := r.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return t, d, err
		}
		sender := string(m.Sender)
		k.p.cluster.mu.Lock()
		k.p.ids[m.ID] = sender
		known := k.p.mail[sender].arrived > 0
		k.p.cluster.mu.Unlock()
		if look && !known {
			continue
		}
		part := moving.Part{ID: m.ID}
		for _, x := range m.Recipients {
			part.Recipients = append(part.Recipients, x.Index)
		}
		if !look {
			k.p.arrives(sender, by, log, true)
		}
		t = append(t, moving.Taken{Part: part, To: "nine", As: []string{m.ID}})
	}
}

// teller adds what is logged to the story.
type teller struct {
	slog.Handler
	p *process
}

func (t teller) Enabled(context.Context, slog.Level) bool { return true }

func (t teller) WithAttrs([]slog.Attr) slog.Handler { return t }

func (t teller) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, " waits for ") { // again and again
		return nil
	}
	var more strings.Builder
	r.Attrs(func(a slog.Attr) bool { fmt.Fprintf(&more, " %s", a); return true })
	t.p.note("node %d: %s%s", t.p.number, r.Message, &more)
	return nil
}
