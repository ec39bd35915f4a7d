package queue

import (
	"cmp"
	"slices"
)

// history is what the journal says of one message, put together from all segments.
type history struct {
	id     uint64
	run    int   // index of the run with its latest data
	off    int64 // and where in the segment that is
	size   uint8 // schedule.SizeClass of the record
	large  uint64
	tenant tenantHistory
	origin uint32 // in the keys of run, see index.nameOf
	tier   uint8
	at     uint32 // when it was accepted, in seconds since 1970; 0 where that was not written down
	plan   plan   // when it is, or was, to be released
	// expires is when it is given up whatever its age, in seconds since 1970; 0: never.
	expires uint32
	moved   bool // plan is another than its record has
	rcpts   []recipientHistory
	living  int
	dataIn  []int // the runs that have its data, the latest last
}

// tenantHistory is whose a message is.
type tenantHistory struct {
	run    int // whose keys have the name; -1: it has none
	key    uint32
	octets int64 // of the content
}

type recipientHistory struct {
	living   bool
	marks    marks
	attempts uint16
	due      uint32
	said     uint32 // when due was written down; 0 where that was not
	key      uint32 // in the keys of keyRun
	domain   uint32 // in the keys of history.run, see index.nameOf
	keyRun   int
	noteRun  int // the run with its last reply, -1 for none
	noteOff  int64
}

// replay merges the runs, which are in the order of the journal, into the history of each message
// that has living recipients, by id. It calls depends for each run whose messages have later
// records in another one. Memory does not grow with the number of messages.
type replay struct {
	runs    []*run
	bufSize int
	buried  [][]stretch // by run, in order
	depends func(of, on int, changed bool)

	heap  []int // runs, that with the smallest (id, run) first
	heads []item
	cur   history
	told  map[dep]bool // dependencies that depends has been called for
}

// replayMemory bounds the buffers of all runs together, in octets.
const replayMemory = 32 << 20

func newReplay(runs []*run, depends func(of, on int, changed bool)) *replay {
	r := &replay{runs: runs, depends: depends, heads: make([]item, len(runs)), buried: make([][]stretch, len(runs)), told: map[dep]bool{}}
	r.bufSize = min(max(replayMemory/max(len(runs), 1), 4<<10), 256<<10)
	r.bury()
	return r
}

// bury collects the burials of each run.
func (r *replay) bury() {
	byNumber := map[uint32]int{}
	for i, run := range r.runs {
		byNumber[run.segment.Number] = i
	}
	for on, run := range r.runs {
		for _, g := range run.buried {
			if of, ok := byNumber[g.segment]; ok {
				r.buried[of] = append(r.buried[of], g.stretches...)
				r.depend(of, on, false)
			}
		}
	}
	for i := range r.buried {
		r.buried[i] = joined(r.buried[i])
	}
}

// joined gives the same stretches in order and without overlap.
func joined(s []stretch) []stretch {
	slices.SortFunc(s, func(a, b stretch) int { return cmp.Compare(a.from, b.from) })
	out := s[:0]
	for _, x := range s {
		if n := len(out); n > 0 && x.from <= out[n-1].to {
			out[n-1].to = max(out[n-1].to, x.to)
		} else {
			out = append(out, x)
		}
	}
	return out
}

func (r *replay) isBuried(run int, off int64) bool {
	s := r.buried[run]
	i, ok := slices.BinarySearchFunc(s, off, func(s stretch, off int64) int { return cmp.Compare(s.from, off) })
	return ok || i > 0 && s[i-1].to > off
}

type dep struct {
	of, on  int
	changed bool
}

func (r *replay) depend(of, on int, changed bool) {
	d := dep{of, on, changed}
	if of == on || r.told[d] {
		return
	}
	r.told[d] = true
	r.depends(of, on, changed)
}

// all calls visit for each message with living recipients. The history is valid during the call.
func (r *replay) all(visit func(*history) error) error {
	for i := range r.runs {
		if err := r.advance(i, true); err != nil {
			return err
		}
	}
	first := true
	for len(r.heap) > 0 {
		i := r.heap[0]
		it := &r.heads[i]
		if first || it.id != r.cur.id {
			if err := r.emit(visit); err != nil {
				return err
			}
			first = false
			r.cur = history{id: it.id, rcpts: r.cur.rcpts[:0], dataIn: r.cur.dataIn[:0]}
		}
		r.apply(it, i)
		if err := r.advance(i, false); err != nil {
			return err
		}
	}
	return r.emit(visit)
}

func (r *replay) emit(visit func(*history) error) error {
	if r.cur.living == 0 {
		return nil
	}
	return visit(&r.cur)
}

// apply brings the current history forward by an item of run i.
func (r *replay) apply(it *item, i int) {
	h := &r.cur
	switch it.kind {
	case itemAccepted, itemMoved:
		r.begin(it, i)
		return
	case itemLarge:
		h.large = uint64(it.key)<<32 | uint64(it.due)
		return
	case itemTenant:
		h.tenant = tenantHistory{i, it.key, it.octets()}
		return
	case itemExpires:
		h.expires = it.due
		return
	case itemPlan:
		h.release(plan{it.due, it.key})
		return
	case itemDomain:
		for j := int(it.rcpt); j < len(h.rcpts); j++ {
			h.rcpts[j].domain = it.key
		}
		return
	}
	if it.kind == itemSettled || it.kind == itemChanged {
		for _, of := range h.dataIn {
			r.depend(of, i, it.kind == itemChanged)
		}
	}
	if int(it.rcpt) >= len(h.rcpts) {
		return // its message is gone
	}
	rc := &h.rcpts[it.rcpt]
	switch it.kind {
	case itemState:
		if !rc.living && !r.isBuried(i, it.offset()) {
			rc.living = true
			h.living++
		}
		rc.marks, rc.attempts, rc.due, rc.said, rc.key, rc.keyRun = it.marks, it.attempts, it.due, it.at, it.key, i
		if it.size != 0 {
			rc.noteRun, rc.noteOff = i, it.offset()
		}
	case itemDeferred:
		rc.attempts, rc.due, rc.said, rc.key, rc.keyRun = it.attempts, it.due, it.at, it.key, i
		rc.noteRun, rc.noteOff = i, it.offset()
	case itemChanged:
		rc.marks = it.marks
		if it.key != 0 {
			h.plan.release, h.moved = it.key, true
			rc.due, rc.said = h.plan.due(h.id, int(it.rcpt)), it.at
		}
		if it.due != 0 {
			rc.due, rc.said = it.due, it.at
		}
	case itemSettled:
		if rc.living {
			rc.living = false
			h.living--
		}
	}
}

// begin starts the states of the current message: all due when it was accepted, or when it is to
// be released, none living yet when it was moved.
func (r *replay) begin(it *item, i int) {
	h := &r.cur
	for _, of := range h.dataIn {
		r.depend(of, i, false)
	}
	h.dataIn = append(h.dataIn, i)
	h.run, h.off, h.size, h.large = i, it.offset(), it.size, 0
	h.tenant.run, h.expires, h.moved = -1, 0, false
	h.tier, h.at, h.plan, h.origin = it.tier, it.at, plan{}, it.due
	h.rcpts = slices.Grow(h.rcpts[:0], int(it.rcpt))[:it.rcpt]
	living := it.kind == itemAccepted && !r.isBuried(i, it.offset())
	h.living = 0
	if living {
		h.living = int(it.rcpt)
	}
	for j := range h.rcpts {
		h.rcpts[j] = recipientHistory{living: living, noteRun: -1, keyRun: -1, domain: it.key}
	}
}

// release gives the recipients of a message that was just begun the times of its plan.
func (h *history) release(p plan) {
	h.plan = p
	for j := range h.rcpts {
		h.rcpts[j].due = p.due(h.id, j)
	}
}

// advance reads the next item of run i, which is at the top of the heap unless it is new there.
func (r *replay) advance(i int, enter bool) error {
	ok, err := r.runs[i].read(&r.heads[i], r.bufSize)
	if err != nil {
		return err
	}
	switch {
	case enter && ok:
		r.heap = append(r.heap, i)
		r.up(len(r.heap) - 1)
	case enter:
	case ok:
		r.down(0)
	default:
		last := len(r.heap) - 1
		r.heap[0] = r.heap[last]
		r.heap = r.heap[:last]
		r.down(0)
	}
	return nil
}

func (r *replay) less(a, b int) bool {
	x, y := r.heap[a], r.heap[b]
	if r.heads[x].id != r.heads[y].id {
		return r.heads[x].id < r.heads[y].id
	}
	return x < y
}

func (r *replay) up(i int) {
	for i > 0 && r.less(i, (i-1)/2) {
		r.heap[i], r.heap[(i-1)/2] = r.heap[(i-1)/2], r.heap[i]
		i = (i - 1) / 2
	}
}

func (r *replay) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(r.heap) {
			return
		}
		if c+1 < len(r.heap) && r.less(c+1, c) {
			c++
		}
		if !r.less(c, i) {
			return
		}
		r.heap[i], r.heap[c] = r.heap[c], r.heap[i]
		i = c
	}
}
