package moving

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"example.org/mta/internal/faultlog"
)

// worker sends to a node during a pass.
type worker struct {
	*peer
	node Node
	conn net.Conn
	name string // its nodeid
}

// crew is the workers of a pass. All but back and all is for one goroutine.
type crew struct {
	m     *Mover
	all   sync.WaitGroup
	back  chan *worker // has room for all; without a connection: it sends no more
	with  map[uint16]bool
	out   int // of with: they send, or their talks are being opened
	free  []*worker
	again time.Time // when nodes that came back are looked for
}

// errNobody ends a pass: no node takes mail any more.
var errNobody = errors.New("no node takes mail")

// pass goes through the queue once, and sends what can leave to the nodes that take it. It reports whether nothing more
// can move now.
func (m *Mover) pass(ctx context.Context) (rests bool) {
	passing := make(chan struct{})
	defer close(passing)
	m.mu.Lock()
	m.passing = passing
	m.mu.Unlock()
	before := m.Status().Recipients
	c := m.engage(ctx)
	busy, err := 0, errNobody
	if len(c.free) > 0 {
		busy, err = m.cfg.Mail.Leave(ctx, c.mark, func(b Batch, mark uint64) error {
			w, err := c.next(ctx, mark)
			if err == nil && (ctx.Err() != nil || !m.wants()) {
				err = context.Canceled
			}
			if err != nil {
				if w != nil {
					c.free = append(c.free, w)
				}
				m.cfg.Mail.Stay(b.Parts())
				return err
			}
			if w == nil { // all that have not declined it are gone
				m.cfg.Mail.Stay(b.Parts())
				return nil
			}
			c.out++
			w.sent += len(b.Parts())
			c.all.Go(func() { c.send(ctx, w, b) })
			return nil
		})
	}
	c.dismiss()
	if err != nil && ctx.Err() == nil && !errors.Is(err, errNobody) && !errors.Is(err, context.Canceled) {
		m.cfg.Log.Warn("moving mail to other nodes broke off", "error", err)
	}
	_ = m.write() // has reported its error: what is settled is only gone from the file later
	m.mu.Lock()
	defer m.mu.Unlock()
	m.status.Busy = busy
	m.status.Rests = m.status.Recipients == before && (busy == 0 || errors.Is(err, errNobody))
	return m.status.Rests
}

// engage opens talks with all nodes that take mail.
func (m *Mover) engage(ctx context.Context) *crew {
	c := &crew{m: m, back: make(chan *worker, 1<<10), with: make(map[uint16]bool)}
	c.invite(ctx)
	for c.out > 0 && len(c.free) == 0 { // the others come when they come
		c.took(<-c.back)
	}
	return c
}

// invite opens talks with nodes that take mail and are not in the crew, once a second: a pass through a large queue
// takes longer than a restart.
func (c *crew) invite(ctx context.Context) {
	m, now := c.m, c.m.cfg.Now()
	if now.Before(c.again) {
		return
	}
	c.again = now.Add(look)
	for _, n := range m.cfg.Nodes() {
		if n.Forgotten || c.with[n.Number] {
			continue
		}
		p := m.peer(n.Number)
		m.mu.Lock()
		rests := now.Before(p.next)
		waits := slices.ContainsFunc(m.pending, func(q *pending) bool {
			return q.To == n.Number && q.stuck.IsZero()
		})
		m.mu.Unlock()
		switch {
		case waits, rests:
		case n.Away != "":
			m.leftOut(p, errors.New(n.Away))
		default:
			c.with[n.Number] = true
			c.out++
			c.all.Go(func() {
				w := &worker{peer: p, node: n}
				if err := m.begin(ctx, w); err != nil {
					m.leftOut(p, err)
				}
				c.back <- w
			})
		}
	}
}

// dismiss ends the talks, when what was sent was answered.
func (c *crew) dismiss() {
	c.all.Wait()
	close(c.back)
	for w := range c.back {
		if w.conn != nil {
			w.conn.Close()
		}
	}
	for _, w := range c.free {
		w.conn.Close()
	}
}

// Inform gives the keys to all nodes that take mail, before any of it moves.
func (m *Mover) Inform(ctx context.Context) { m.engage(ctx).dismiss() }

// Informed gives the keys to all nodes, in the background if ctx ends before. Then done is false: ask again. why is of
// nodes that have not got them.
func (m *Mover) Informed(ctx context.Context) (why []NodeStatus, done bool) {
	m.mu.Lock()
	ended := m.informed
	if ended == nil {
		ended = make(chan struct{})
		m.informed = ended
		go func() { // ended by the bounds of its talks
			m.Inform(context.WithoutCancel(ctx))
			close(ended)
		}()
	}
	m.mu.Unlock()
	select {
	case <-ended:
	case <-ctx.Done():
		return nil, false
	}
	m.mu.Lock()
	m.informed = nil
	m.mu.Unlock()
	nodes := m.cfg.Nodes()
	for _, n := range m.Status().Nodes {
		member := slices.ContainsFunc(nodes, func(is Node) bool { return is.Number == n.Node && !is.Forgotten })
		if n.Why != "" && member {
			why = append(why, n)
		}
	}
	return why, true
}

// begin opens the talk of a worker. Its node has the keys then, but those of submissions that are still under way.
func (m *Mover) begin(ctx context.Context, w *worker) error {
	conn, err := m.cfg.Open(ctx, w.node.Number, Purpose)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	a, err := ask(conn, request{verbOffer, m.cfg.Name, m.cfg.Node}, offered, nil)
	m.mu.Lock()
	keyed := w.keyed
	m.mu.Unlock()
	if keys := m.cfg.Mail.Requested(); err == nil && a.Refused == "" && keys > keyed {
		a, err = ask(conn, request{verbKeys, m.cfg.Name, m.cfg.Node}, patience, m.cfg.Mail.Keys)
		if err == nil && a.Refused == "" {
			m.mu.Lock()
			w.keyed = max(w.keyed, keys)
			m.mu.Unlock()
		}
	}
	if err == nil && a.Refused != "" {
		err = fmt.Errorf("it refuses mail: %q", a.Refused)
	}
	if err != nil {
		conn.Close()
		return err
	}
	w.conn, w.name = conn, a.Name
	m.mu.Lock()
	w.Why = ""
	m.mu.Unlock()
	return nil
}

// took takes a worker back.
func (c *crew) took(w *worker) {
	c.out--
	if w.conn == nil {
		delete(c.with, w.Node)
		return
	}
	c.free = append(c.free, w)
}

// next waits for a worker that has not declined a mark, of several the one that was sent the least. It is nil when
// there can be none.
func (c *crew) next(ctx context.Context, mark uint64) (*worker, error) {
	for {
		c.invite(ctx)
		for more := true; more; {
			select {
			case w := <-c.back:
				c.took(w)
			default:
				more = false
			}
		}
		fits := func(w *worker) bool { return w.bit == 0 || mark&w.bit == 0 }
		if best := c.least(fits); best != nil {
			return best, nil
		}
		if c.out == 0 && len(c.free) == 0 {
			return nil, errNobody
		}
		if c.out == 0 {
			return nil, nil
		}
		select {
		case w := <-c.back:
			c.took(w)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (c *crew) least(fits func(*worker) bool) (best *worker) {
	for _, w := range c.free {
		if fits(w) && (best == nil || w.sent < best.sent) {
			best = w
		}
	}
	c.free = slices.DeleteFunc(c.free, func(w *worker) bool { return w == best })
	return best
}

// mark returns which nodes have declined a message, Skip when all have that take mail.
func (c *crew) mark(id string) uint64 {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	declined := c.m.declined[id]
	if declined == 0 {
		return 0
	}
	for _, p := range c.m.nodes {
		if p.Why == "" && declined&p.bit == 0 {
			return declined
		}
	}
	return Skip
}

// send sends a batch, and acts on the answer. Afterwards the worker is back, unless its node is left out.
func (c *crew) send(ctx context.Context, w *worker, b Batch) {
	err := c.m.send(ctx, w, b)
	if err != nil {
		c.m.leftOut(w.peer, err)
		w.conn.Close()
		w.conn = nil
	}
	c.back <- w
}

func (m *Mover) send(ctx context.Context, w *worker, b Batch) error {
	p := &pending{To: w.Node, Name: m.cfg.Name, Parts: b.Parts(), busy: true}
	err := b.Going(w.name)
	if err == nil {
		err = m.hold(p)
	}
	if err != nil {
		m.cfg.Mail.Stay(p.Parts)
		return err
	}
	defer m.idle(p)
	conn := w.conn // which is gone from w when the node ends it
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(goodbye, func() { conn.Close() }) })
	defer stop()
	a, err := ask(w.conn, request{verbTake, m.cfg.Name, m.cfg.Node}, committed, b.Write)
	if err != nil {
		return fmt.Errorf("it has not answered whether it has the last %d messages: %w", len(p.Parts), err)
	}
	if err := m.settle(p, p.Parts, a.Taken, nil); err != nil {
		return err
	}
	if a.Refused != "" {
		return fmt.Errorf("it refuses mail: %q", a.Refused)
	}
	return m.decline(w.peer, b.Parts(), a.Declined)
}

// idle notes that nobody cares for a batch, if it is pending yet.
func (m *Mover) idle(p *pending) {
	m.mu.Lock()
	if p.busy = false; p.since.IsZero() {
		p.since = m.cfg.Now()
	}
	m.mu.Unlock()
}

// decline notes which messages of a batch a node does not take. One that declines very many is left out.
func (m *Mover) decline(p *peer, sent []Part, all []Declined) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range all {
		if !slices.ContainsFunc(sent, func(s Part) bool { return s.ID == d.ID }) {
			return fmt.Errorf("it declines message %.40q, which was not sent", d.ID)
		}
		if m.declined[d.ID] == 0 && len(m.declined) == mostMarks || p.bit == 0 {
			return fmt.Errorf("it declines mail: %q", d.Why)
		}
		if len(m.declined) == 0 {
			m.cfg.Log.Warn("a node of the cluster declines a message", "node", p.Node, "id", d.ID, "why", d.Why)
		}
		m.declined[d.ID] |= p.bit
	}
	return nil
}

// resolve asks after batches whose answers are missing.
func (m *Mover) resolve(ctx context.Context) {
	nodes := m.cfg.Nodes()
	var all sync.WaitGroup
	m.mu.Lock()
	batches := slices.Clone(m.pending)
	m.mu.Unlock()
	for _, p := range batches {
		to := m.peer(p.To)
		i := slices.IndexFunc(nodes, func(n Node) bool { return n.Number == p.To })
		m.mu.Lock()
		// What was settled meanwhile may be on its way to another node.
		may := !p.busy && i >= 0 && !m.cfg.Now().Before(to.next) && slices.Contains(m.pending, p) &&
			(p.stuck.IsZero() || nodes[i].Forgotten || m.cfg.Now().Sub(p.stuck) >= reread)
		p.busy = p.busy || may
		m.mu.Unlock()
		if !may {
			continue
		}
		all.Go(func() {
			defer m.idle(p)
			err := m.after(ctx, p, nodes[i].Forgotten)
			if err == nil {
				err = m.write()
			}
			if err != nil && ctx.Err() == nil {
				m.leftOut(to, fmt.Errorf("it has not answered whether it has %d messages: %w", len(p.Parts), err))
			}
		})
	}
	all.Wait()
}

// after asks the node that a batch went to what it has of it, unless that was forgotten, and acts on the answer. The
// error is that of what is pending yet.
func (m *Mover) after(ctx context.Context, p *pending, forgotten bool) error {
	if forgotten {
		m.cfg.Log.Warn("a node was forgotten that may have had mail of this one: it is delivered here", "node", p.To,
			"messages", len(p.Parts))
		return m.settle(p, p.Parts, nil, nil)
	}
	b, later := m.cfg.Mail.Again(p.Name, p.Parts)
	var taken []Taken
	if len(b.Parts()) > 0 {
		var err error
		if taken, err = m.lookAfter(ctx, p, b); err != nil {
			return err
		}
	}
	// What can't be read stays withheld: its node may have it, and here its sender would get a report.
	asked := slices.DeleteFunc(slices.Clone(p.Parts), func(x Part) bool {
		return slices.ContainsFunc(later, func(l Part) bool { return l.ID == x.ID })
	})
	if err := m.settle(p, asked, taken, later); err != nil {
		return err
	}
	if len(later) > 0 {
		m.mu.Lock()
		news := p.stuck.IsZero()
		p.stuck = m.cfg.Now()
		why := p.why()
		m.mu.Unlock()
		if news {
			m.cfg.Log.Error("messages stay withheld that another node may have", "node", p.To, "why", why)
		}
	}
	return nil
}

// why is why a batch that is stuck is. The caller has the mutex.
func (p *pending) why() string {
	var ids []string
	for _, part := range p.Parts {
		ids = append(ids, part.ID)
	}
	return fmt.Sprintf("node %d can't be asked whether it has messages that can't be read here, which 'mta queue "+
		"fsck' explains: %s", p.To, faultlog.Few(ids))
}

// lookAfter asks what a node has of a batch.
func (m *Mover) lookAfter(ctx context.Context, p *pending, b Batch) ([]Taken, error) {
	conn, err := m.cfg.Open(ctx, p.To, Purpose)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	a, err := ask(conn, request{verbLook, p.Name, m.cfg.Node}, committed, b.Write)
	if err == nil && a.Refused != "" {
		err = errors.New(a.Refused)
	}
	return a.Taken, err
}
