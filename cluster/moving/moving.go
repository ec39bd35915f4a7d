// Package moving moves a node's queued mail to the other nodes of its cluster, each message once, whatever ends when.
//
// A batch of messages is withheld in the queue, its messages are written down with the node that they go to, and only
// then they are sent. That node has them durably before it answers, under their ids here. By the answer they leave the
// queue here, with a record. If no answer comes, or this process ends before it has acted on one, the batch stays
// withheld, also after a restart, until that node was asked what it has: that goes, and the rest is delivered here. A
// node that is asked takes nothing more of an earlier talk, so that its answer holds.
//
// The queue is an interface here (Mail), and a connection to another node comes from package link.
package moving

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"example.org/mta/cluster/link"
	"example.org/mta/internal/faultlog"
)

// Purpose is that of the talks in which mail moves.
var Purpose = link.Purpose{Name: "moves of mail", Since: 2}

// Part is recipients of a message.
type Part struct {
	ID         string `json:"id"`         // at the node that it leaves
	Recipients []int  `json:"recipients"` // their numbers there, in ascending order
}

// Taken is what a node has of a message of another one, durably.
type Taken struct {
	Part
	To string   `json:"to"` // the nodeid of the relay that has it
	As []string `json:"as"` // its ids there
}

// Declined is a message that a node does not take.
type Declined struct {
	ID  string `json:"id"`
	Why string `json:"why"`
}

// Mail is a relay's queue, for mail that leaves and mail that comes.
type Mail interface {
	// Leave withholds mail, and calls each with batches of it; each has to see to what becomes of them, also when it
	// returns an error, which ends the call. Messages of a batch have the same mark, those with Skip stay. busy is how
	// many recipients can't leave yet, since they are in delivery or about to be reported.
	Leave(ctx context.Context, mark func(id string) uint64, each func(b Batch, mark uint64) error) (busy int, err error)
	// Withhold withholds what was withheld before a restart, and Again makes a batch of what is withheld of some parts.
	Withhold([]Part)
	// The archive of that is of the relay under the nodeid that it had then. later is what can't be read.
	Again(name string, parts []Part) (b Batch, later []Part)
	// Moved has withheld mail leave the queue for good, since another node has it. That is durable when it returns
	// without an error.
	Moved([]Taken) error
	// Stay returns withheld mail to the queue as it was.
	Stay([]Part)
	// Keys writes the archive of all keys with which clients can repeat requests. Requested is how many there are of
	// requests to this relay.
	Keys(io.Writer) error
	Requested() int
	// Take takes an archive of the relay with a nodeid. With look it only looks what was taken before. What is in taken
	// is durable, also beside an error.
	Take(ctx context.Context, from string, archive io.Reader, look bool) (taken []Taken, declined []Declined, err error)
}

// Skip is the mark of messages that stay.
const Skip = ^uint64(0)

// Batch is messages that are withheld.
type Batch interface {
	Parts() []Part
	// Going notes that the batch goes to a relay, so that clients who ask hear of it.
	Going(to string) error
	// Write writes the archive. What can't be read is left out.
	Write(io.Writer) error
}

// Node is a row of a node, as it was read last.
type Node struct {
	Number    uint16
	Forgotten bool
	Away      string // why it counts as away, "": it does not
}

// Config is a mover's.
type Config struct {
	Node uint16 // whose mail it is: this one, or a dead one
	Name string // the nodeid of the relay of that node
	Path string // of the file that has what is on its way
	Mail Mail
	// Nodes returns the members of the cluster to which the mail can go: this one is among them if it is that of a dead
	// node, and so is a new relay under the number of that. There are none as long as they were not read.
	Nodes func() []Node
	// May reports whether this node takes part in the cluster, and Drains whether it takes no new mail for an operator.
	May, Drains func() bool
	// Refuses returns why this relay takes no mail from other nodes, "" if it does.
	Refuses func() string
	Open    func(ctx context.Context, node uint16, purpose link.Purpose) (net.Conn, error)
	Now     func() time.Time
	Log     *slog.Logger
}

// Bounds and intervals.
const (
	look      = time.Second      // between two passes through the queue
	offered   = 10 * time.Second // in which a node answers whether it takes mail
	patience  = 30 * time.Second // with a frame
	committed = time.Minute      // in which a node has taken a batch
	idle      = 10 * time.Minute // between two requests of a talk
	retry     = 5 * time.Second  // until a node is tried again, and between two passes when nothing more can move
	reread    = time.Minute      // between two attempts to read what could not be
	early     = time.Minute      // from when on mail that is withheld is an alarm
	goodbye   = 5 * time.Second  // for batches that are on their way when the process ends
	mostMarks = 100_000          // messages that are known to be declined
	mostNodes = 64               // whose declined messages are known
)

// Mover moves a node's mail. It is safe for concurrent use.
//
// Goroutines: Run's and another one, with one for each node that mail goes to or that is asked, all of which end with
// Run; and those of talks, which are their callers'.
type Mover struct {
	cfg  Config
	wake chan struct{}
	disk *faultlog.Kind

	writing sync.Mutex // held while the file is written

	mu       sync.Mutex    // guards what follows
	wanted   bool          // the queue is to leave, until the relay drains no more
	passing  chan struct{} // closed at the end of the latest pass; nil: there was none
	pending  []*pending
	written  bool // the file has what is pending
	status   Status
	nodes    map[uint16]*peer
	declined map[string]uint64 // nodes that have declined a message, by their bits
	guests   map[uint16]*guest // by the node whose mail it is
	end      func()            // Start's
	informed chan struct{}     // closed when all nodes have the keys that can get them; nil: nobody has asked
}

// pending is a batch that may be at another node.
type pending struct {
	To    uint16
	Name  string // the nodeid of this relay when the batch was sent; the receiver knows its messages under that
	Parts []Part

	busy  bool      // somebody sends it, or asks after it
	since time.Time // when that was unknown first
	stuck time.Time // when none of it could be read here, so that nobody can ask after it; zero: it is asked after
}

// peer is what is known of another node.
type peer struct {
	NodeStatus
	bit   uint64
	keyed int       // Requested, when it was sent the keys; -1: never
	sent  int       // messages that were sent to it
	next  time.Time // not tried before
}

// Status is how far a move is. Figures are since it began.
type Status struct {
	On         bool // the queue is to leave
	Since      time.Time
	Messages   int // moved
	Recipients int
	Waiting    int // messages withheld, since their node has not answered whether it has them
	Declined   int // messages that a node has declined
	// Rests is true when the last pass has found nothing more that could move now: what is left stays, or waits for a
	// node.
	Rests bool
	Busy  int // recipients in delivery, or about to be reported, in the last pass
	Nodes []NodeStatus
}

// NodeStatus is another node in a move.
type NodeStatus struct {
	Node       uint16
	Messages   int
	Recipients int
	Why        string // it takes no mail now; "": it does
}

// Open makes a mover, and withholds what was on its way when an earlier process has ended. It is called before mail is
// handed out.
func Open(cfg Config) (*Mover, error) {
	m := &Mover{cfg: cfg, wake: make(chan struct{}, 1), nodes: make(map[uint16]*peer),
		declined: make(map[string]uint64), guests: make(map[uint16]*guest)}
	m.disk = faultlog.New(cfg.Log, cfg.Now, slog.LevelError,
		"what mail is on its way to other nodes can't be written down: none moves",
		"what mail is on its way to other nodes is written down again")
	var err error
	if m.pending, err = read(cfg.Path); err != nil {
		return nil, err
	}
	m.written = true
	for _, p := range m.pending {
		p.since, p.Name = cfg.Now(), cmp.Or(p.Name, cfg.Name)
		cfg.Mail.Withhold(p.Parts)
	}
	return m, nil
}

// Drain has the queue leave, for as long as the relay drains.
func (m *Mover) Drain() {
	m.mu.Lock()
	if !m.wanted {
		m.wanted, m.status = true, Status{Since: m.cfg.Now().UTC()}
		m.nodes = make(map[uint16]*peer)
	}
	m.declined = make(map[string]uint64) // the reasons may be gone
	m.mu.Unlock()
	m.nudge()
}

// Stop ends that, and waits for what is on its way until ctx ends.
func (m *Mover) Stop(ctx context.Context) {
	m.mu.Lock()
	m.wanted = false
	passing := m.passing
	m.mu.Unlock()
	m.nudge()
	if passing != nil {
		select {
		case <-passing:
		case <-ctx.Done():
		}
	}
}

func (m *Mover) nudge() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Status returns how far the move is.
func (m *Mover) Status() Status {
	if m == nil {
		return Status{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.status
	s.On, s.Declined = m.wanted, len(m.declined)
	for _, p := range m.pending {
		if !p.busy {
			s.Waiting += len(p.Parts)
		}
	}
	for _, p := range m.nodes {
		s.Nodes = append(s.Nodes, p.NodeStatus)
	}
	for _, p := range m.pending {
		i := slices.IndexFunc(s.Nodes, func(n NodeStatus) bool { return n.Node == p.To })
		switch {
		case p.busy:
		case i < 0: // of an earlier process
			s.Nodes = append(s.Nodes, NodeStatus{Node: p.To, Why: "it is asked what it has"})
		case !p.stuck.IsZero() && s.Nodes[i].Why == "":
			s.Nodes[i].Why = p.why()
		}
	}
	slices.SortFunc(s.Nodes, func(a, b NodeStatus) int { return int(a.Node) - int(b.Node) })
	return s
}

// Trouble returns which messages are withheld for longer than a minute; "" for none.
func (m *Mover) Trouble() string {
	if m == nil {
		return ""
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pending {
		if !p.stuck.IsZero() {
			return p.why()
		}
		if d := m.cfg.Now().Sub(p.since); !p.since.IsZero() && d > early {
			return fmt.Sprintf("%d messages are withheld for %s, since node %d has not answered whether it has them: "+
				"start it, or 'mta cluster forget %d' if it is gone for good", len(p.Parts), d.Round(time.Second), p.To,
				p.To)
		}
	}
	return ""
}

// Start runs the mover until Close. Both do nothing when there is none.
func (m *Mover) Start() {
	if m == nil {
		return
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan struct{})
	m.mu.Lock()
	m.end = func() { end(); <-ended }
	m.mu.Unlock()
	go func() { m.Run(ctx); close(ended) }()
}

// Close ends what Start began: batches that are on their way have 5 s until their nodes are asked after the next start.
func (m *Mover) Close() error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	end := m.end
	m.mu.Unlock()
	if end != nil {
		end()
	}
	return nil
}

// Run moves mail while that is wanted, and finds out what has become of batches, until ctx ends.
func (m *Mover) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() {
		for m.pause(ctx, look, nil) {
			if m.cfg.May() {
				m.resolve(ctx)
			}
		}
	})
	for wait := look; m.pause(ctx, wait, m.wake); {
		if wait = look; m.wants() && m.pass(ctx) {
			wait = retry
		}
	}
	all.Wait()
}

// pause waits for a while or until woken, and reports whether ctx goes on.
func (m *Mover) pause(ctx context.Context, d time.Duration, woken <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-woken:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// wants reports whether mail is to leave now.
func (m *Mover) wants() bool {
	drains, may := m.cfg.Drains(), m.cfg.May()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wanted = m.wanted && drains
	return m.wanted && may
}

// peer returns what is known of a node.
func (m *Mover) peer(node uint16) *peer {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.nodes[node]
	if p == nil {
		p = &peer{NodeStatus: NodeStatus{Node: node}, keyed: -1}
		if n := len(m.nodes); n < mostNodes {
			p.bit = 1 << n
		}
		m.nodes[node] = p
	}
	return p
}

// leftOut notes why a node takes no mail now, and leaves it alone for a while.
func (m *Mover) leftOut(p *peer, err error) {
	m.mu.Lock()
	news := p.Why != err.Error()
	p.Why, p.next = err.Error(), m.cfg.Now().Add(retry)
	m.mu.Unlock()
	if news {
		m.cfg.Log.Warn("a node of the cluster takes no mail of this one now", "node", p.Node, "why", err)
	}
}

// hold writes a batch down before it leaves.
func (m *Mover) hold(p *pending) error {
	m.mu.Lock()
	m.pending, m.written = append(m.pending, p), false
	m.mu.Unlock()
	err := m.write()
	if err != nil {
		m.drop(p)
	}
	return err
}

func (m *Mover) drop(p *pending) { m.leave(p, nil) }

// leave has some parts of a batch be all that is pending of it.
func (m *Mover) leave(p *pending, parts []Part) {
	m.mu.Lock()
	m.pending = slices.DeleteFunc(m.pending, func(q *pending) bool { return p == q })
	if len(parts) > 0 {
		p.Parts, m.pending = parts, append(m.pending, p)
	}
	m.written = false
	m.mu.Unlock()
}

// settle acts on the answer of the node that a batch went to: of what was asked after, what it has goes and the rest
// stays. later is pending yet, and after an error the whole batch is.
func (m *Mover) settle(p *pending, asked []Part, answer []Taken, later []Part) error {
	taken, rest, err := divide(asked, answer)
	if err == nil && len(taken) > 0 {
		err = m.cfg.Mail.Moved(taken)
	}
	if err != nil {
		return err
	}
	before := p.Parts
	m.leave(p, later)
	if len(rest) > 0 {
		// What stays can go to another node: it must not be asked after at this one then.
		if err := m.write(); err != nil {
			m.leave(p, before)
			return err
		}
		m.cfg.Mail.Stay(rest)
	}
	to := m.peer(p.To)
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for i := range taken {
		n += len(taken[i].Recipients)
	}
	to.Messages, to.Recipients = to.Messages+len(taken), to.Recipients+n
	m.status.Messages, m.status.Recipients = m.status.Messages+len(taken), m.status.Recipients+n
	return nil
}

// divide returns which of some parts a node has and which it does not have. An answer with others is refused.
func divide(parts []Part, answer []Taken) (taken []Taken, rest []Part, err error) {
	has := make(map[string]Taken, len(answer))
	for _, t := range answer {
		has[t.ID] = t
	}
	for _, p := range parts {
		t := has[p.ID]
		delete(has, p.ID)
		there, left := t.Recipients, Part{ID: p.ID}
		t.Part = Part{ID: p.ID}
		for _, r := range p.Recipients {
			if _, ok := slices.BinarySearch(there, r); ok {
				t.Recipients = append(t.Recipients, r)
			} else {
				left.Recipients = append(left.Recipients, r)
			}
		}
		if len(t.Recipients) > 0 {
			taken = append(taken, t)
		}
		if len(left.Recipients) > 0 {
			rest = append(rest, left)
		}
	}
	for id := range has {
		return nil, nil, fmt.Errorf("the answer has message %.40q, which was not sent", id)
	}
	return taken, rest, nil
}
