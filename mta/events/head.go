package events

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"example.org/mta/internal/minheap"
)

const (
	// aheadWindows is how many windows a selection keeps for its slowest stream.
	aheadWindows = 16
	// aheadBytes bounds the windows of all selections that wait for a stream.
	aheadBytes = 8 << 20
	// readEvery is how often the head reads, at most: records are synced many times a second, and a look at the log
	// costs the same for one record as for hundreds.
	readEvery = 25 * time.Millisecond
	// nearBytes is how near the head a stream that reads files is when it joins.
	nearBytes = 8 << 20
)

// head reads the log once for all streams that are at its end. It looks up who wants a record by its tenant, so
// thousands of streams of a tenant each cost a look, not thousands.
type head struct {
	log  Log
	node string
	now  func() time.Time
	out  *slog.Logger

	chance func() float64

	mu       sync.Mutex
	at       Position // everything before was given to the selections
	all      map[string]*selection
	byTenant map[string][]*selection
	general  []*selection             // of any tenant
	due      minheap.Heap[*selection] // those whose open windows have events
	looked   time.Time                // when due was last looked at
	waiting  int                      // octets of full windows that somebody has yet to take
	octets   int64                    // octets of records, since the start
}

// selection is what streams with equal settings share: the windows that they send.
type selection struct {
	shape
	key      string
	members  map[*member]struct{}
	open     *window       // which is being filled; members wait for it to be full
	patience time.Duration // how long the first event of a window waits: linger, or a little less
	due      time.Time     // when the first event of the open window has waited that long
	place    int           // in head.due; noPlace: the open window is empty
	since    int64         // head.octets when the selection began
	events   int64         // that it had since
}

const noPlace = -1

// member is the place of a stream in its selection.
type member struct {
	sel  *selection
	next *window       // to take; nil: the stream fell behind, or has not joined
	idle bool          // the stream has nothing in hand, and waits for next
	wake chan struct{} // has room for one: a window is full, or the stream fell behind
}

func newHead(log Log, node string, now func() time.Time, chance func() float64, out *slog.Logger) *head {
	return &head{
		log: log, node: node, now: now, chance: chance, out: out, at: log.Synced(),
		all: make(map[string]*selection), byTenant: make(map[string][]*selection),
		due: minheap.New(func(a, b *selection) bool { return a.due.Before(b.due) },
			func(s *selection, place int) { s.place = place }),
	}
}

// begin has the head read from a position on.
func (h *head) begin(at Position) {
	h.mu.Lock()
	h.at = at
	h.mu.Unlock()
}

// run reads until ctx ends.
func (h *head) run(ctx context.Context) {
	linger := time.NewTimer(time.Hour)
	defer linger.Stop()
	changed, stop := h.log.Watch()
	defer stop()
	for {
		h.read(ctx)
		h.mu.Lock()
		wait := h.sealDue(h.now())
		h.mu.Unlock()
		linger.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-linger.C:
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(readEvery):
		}
	}
}

// read gives the selections what was written since.
func (h *head) read(ctx context.Context) {
	h.mu.Lock()
	from, idle := h.at, len(h.all) == 0
	h.mu.Unlock()
	to := h.log.Synced()
	if from.Compare(to) >= 0 {
		return
	}
	if idle {
		h.mu.Lock()
		h.at = to
		h.mu.Unlock()
		return
	}
	_, err := h.log.ReadFrom(ctx, from, to, h.take)
	if ctx.Err() != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at = to; err != nil {
		h.out.Error("the head of the accounting log can't be read for streams", "error", err)
		h.lost()
	}
}

// lost has all streams read by themselves, which find out what is missing. It needs the lock.
func (h *head) lost() {
	for _, s := range h.all {
		h.replace(s, newWindow(&s.shape, h.at))
		for m := range s.members {
			h.evict(m)
		}
	}
}

// take puts a record into the windows of those who want it.
func (h *head) take(at, next Position, line []byte) error {
	r, ok := scan(line)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at = next
	h.octets += int64(len(line))
	if !ok {
		return nil
	}
	for _, s := range h.general {
		h.offer(s, &r, at, next, line)
	}
	if len(r.tenant) > 0 {
		for _, s := range h.byTenant[string(r.tenant)] {
			h.offer(s, &r, at, next, line)
		}
	}
	return nil
}

func (h *head) offer(s *selection, r *fields, at, next Position, line []byte) {
	if !s.filter.wants(r) {
		return
	}
	s.events++
	if !s.open.add(&s.shape, r, at, next, line, h.node) {
		h.seal(s, at)
		s.open.add(&s.shape, r, at, next, line, h.node)
	}
	if s.place == noPlace {
		s.due = h.now().Add(s.patience)
		h.due.Push(s)
	}
	if s.lanes == 1 && s.open.events >= s.batch {
		h.seal(s, next)
	}
}

// seal ends the open window at a position and begins the next.
func (h *head) seal(s *selection, at Position) {
	w := s.open
	w.to = at
	w.users = 0
	w.next = newWindow(&s.shape, at)
	w.next.expect(w)
	w.next.number = w.number + 1
	h.replace(s, w.next)
	for m := range s.members {
		if m.next != nil {
			w.users++
			signal(m.wake)
		}
	}
	if w.users > 0 {
		h.waiting += w.size
	}
	for m := range s.members {
		if m.next != nil && (w.number-m.next.number >= aheadWindows || h.waiting > aheadBytes && m.next != w) {
			h.evict(m)
		}
	}
}

// replace gives a selection another open window, which is empty.
func (h *head) replace(s *selection, w *window) {
	if s.open = w; s.place != noPlace {
		h.due.Remove(s.place)
	}
}

// evict has a stream that is too slow read files.
func (h *head) evict(m *member) {
	for w := m.next; w != nil && w.next != nil; w = w.next {
		h.release(w)
	}
	m.next, m.idle = nil, false
	signal(m.wake)
}

func (h *head) release(w *window) {
	if w.users--; w.users == 0 {
		h.waiting -= w.size
	}
}

// sealDue ends windows whose first event has waited long enough, and returns how long the next can wait.
func (h *head) sealDue(now time.Time) time.Duration {
	back := now.Before(h.looked) // a clock that was set back makes nobody wait for longer
	h.looked = now
	for h.due.Len() > 0 {
		s := h.due.Top()
		if wait := s.due.Sub(now); wait > 0 && !back {
			return wait
		}
		h.seal(s, h.at)
	}
	return time.Hour
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// enter makes a stream a member of the selection of its shape. It reads files until it joins.
func (h *head) enter(s shape) *member {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := s.key()
	sel := h.all[key]
	if sel == nil {
		sel = &selection{shape: s, key: key, members: make(map[*member]struct{}), since: h.octets, place: noPlace,
			open: newWindow(&s, h.at)}
		// Thousands of streams that begin together don't call their receivers in the same instant for ever.
		sel.patience = s.linger - time.Duration(float64(s.linger)*h.chance()/8)
		h.all[key] = sel
		if len(s.filter.Tenants) == 0 {
			h.general = append(h.general, sel)
		}
		for _, t := range s.filter.Tenants {
			h.byTenant[t] = append(h.byTenant[t], sel)
		}
	}
	m := &member{sel: sel, wake: make(chan struct{}, 1)}
	sel.members[m] = struct{}{}
	return m
}

// part has a stream read files until it joins again.
func (h *head) part(m *member) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.evict(m)
}

// leave ends a membership.
func (h *head) leave(m *member) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.evict(m)
	sel := m.sel
	delete(sel.members, m)
	if len(sel.members) > 0 {
		return
	}
	delete(h.all, sel.key)
	h.replace(sel, nil)
	isIt := func(s *selection) bool { return s == sel }
	h.general = slices.DeleteFunc(h.general, isIt)
	for _, t := range sel.filter.Tenants {
		if h.byTenant[t] = slices.DeleteFunc(h.byTenant[t], isIt); len(h.byTenant[t]) == 0 {
			delete(h.byTenant, t)
		}
	}
}

// join gives a stream that reads files the position from which on the head has its events, when it is near.
func (h *head) join(m *member, at Position) (from Position, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.next != nil {
		return m.next.from, true
	}
	if at.Compare(h.at) < 0 && h.log.Octets(at, h.at) > nearBytes {
		return h.at, false
	}
	if m.sel.open.events > 0 && at.Compare(m.sel.open.from) > 0 {
		h.seal(m.sel, h.at)
	}
	m.next = m.sel.open
	if m.next.events == 0 {
		m.next.from = h.at
	}
	return m.next.from, true
}

var errBehind = errors.New("the stream is behind the head of the log")

// take returns the next window, once it is full. The window is shared and not to be changed.
//
// It is nil when disturbed reports true, which is asked again when m.wake is signalled.
func (m *member) take(ctx context.Context, h *head, disturbed func() bool) (*window, error) {
	for {
		if disturbed() {
			return nil, nil
		}
		h.mu.Lock()
		w := m.next
		if w == nil {
			h.mu.Unlock()
			return nil, errBehind
		}
		if w.next != nil {
			m.next, m.idle = w.next, false
			h.release(w)
			h.mu.Unlock()
			return w, nil
		}
		m.idle = true
		h.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-m.wake:
		}
	}
}

// reached returns up to where a stream that waits at the head has nothing to send.
func (h *head) reached(m *member) (Position, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.next == nil || m.next.next != nil || !m.idle {
		return Position{}, false
	}
	if m.next.events > 0 {
		return m.next.from, true
	}
	return h.at, true
}
