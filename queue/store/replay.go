package store

import (
	"cmp"
	"slices"
)

// History is what the journal says of one message, put together from all segments.
type History struct {
	ID     uint64
	Run    int   // index of the run with its latest data
	Off    int64 // and where in the segment that is
	Size   uint8 // schedule.SizeClass of the record
	Large  uint64
	Tenant TenantHistory
	Origin uint32 // in the keys of run, see index.nameOf
	Tier   uint8
	At     uint32 // when it was accepted, in seconds since 1970; 0 where that was not written down
	Plan   Plan   // when it is, or was, to be released
	// expires is when it is given up whatever its age, in seconds since 1970; 0: never.
	Expires uint32
	Moved   bool // plan is another than its record has
	Rcpts   []RecipientHistory
	Living  int
	dataIn  []int // the runs that have its data, the latest last
}

// TenantHistory is whose a message is.
type TenantHistory struct {
	Run    int // whose keys have the name; -1: it has none
	Key    uint32
	Octets int64 // of the content
}

// RecipientHistory is what the journal says of one recipient.
type RecipientHistory struct {
	Living   bool
	Marks    Marks
	Attempts uint16
	Due      uint32
	Said     uint32 // when due was written down; 0 where that was not
	Key      uint32 // in the keys of keyRun
	Domain   uint32 // in the keys of history.run, see index.nameOf
	KeyRun   int
	NoteRun  int // the run with its last reply, -1 for none
	NoteOff  int64
}

// Replay merges the runs, which are in the order of the journal, into the history of each message
// that has living recipients, by id. It calls depends for each run whose messages have later
// records in another one. Memory does not grow with the number of messages.
type Replay struct {
	runs    []*Run
	bufSize int
	buried  [][]Stretch // by run, in order
	depends func(of, on int, changed bool)

	order []int // runs, that with the smallest (id, run) last
	heads []Item
	cur   History
	told  map[dep]bool // dependencies that depends has been called for
}

// ReplayMemory bounds the buffers of all runs together, in octets.
const ReplayMemory = 32 << 20

// NewReplay begins to merge runs.
func NewReplay(runs []*Run, depends func(of, on int, changed bool)) *Replay {
	r := &Replay{runs: runs, depends: depends, heads: make([]Item, len(runs)), buried: make([][]Stretch, len(runs)),
		told: map[dep]bool{}}
	r.bufSize = min(max(ReplayMemory/max(len(runs), 1), 4<<10), 256<<10)
	r.bury()
	return r
}

// bury collects the burials of each run.
func (r *Replay) bury() {
	byNumber := map[uint32]int{}
	for i, run := range r.runs {
		byNumber[run.segment.Number] = i
	}
	for on, run := range r.runs {
		for _, g := range run.Buried {
			if of, ok := byNumber[g.Segment]; ok {
				r.buried[of] = append(r.buried[of], g.Stretches...)
				r.depend(of, on, false)
			}
		}
	}
	for i := range r.buried {
		r.buried[i] = joined(r.buried[i])
	}
}

// joined gives the same stretches in order and without overlap.
func joined(s []Stretch) []Stretch {
	slices.SortFunc(s, func(a, b Stretch) int { return cmp.Compare(a.From, b.From) })
	out := s[:0]
	for _, x := range s {
		if n := len(out); n > 0 && x.From <= out[n-1].To {
			out[n-1].To = max(out[n-1].To, x.To)
		} else {
			out = append(out, x)
		}
	}
	return out
}

func (r *Replay) isBuried(run int, off int64) bool {
	s := r.buried[run]
	i, ok := slices.BinarySearchFunc(s, off, func(s Stretch, off int64) int { return cmp.Compare(s.From, off) })
	return ok || i > 0 && s[i-1].To > off
}

type dep struct {
	of, on  int
	changed bool
}

func (r *Replay) depend(of, on int, changed bool) {
	d := dep{of, on, changed}
	if of == on || r.told[d] {
		return
	}
	r.told[d] = true
	r.depends(of, on, changed)
}

// All calls visit for each message with living recipients. The history is valid during the call.
func (r *Replay) All(visit func(*History) error) error {
	for i := range r.runs {
		if err := r.advance(i); err != nil {
			return err
		}
	}
	first := true
	for len(r.order) > 0 {
		i := r.order[len(r.order)-1]
		it := &r.heads[i]
		if first || it.ID != r.cur.ID {
			if err := r.emit(visit); err != nil {
				return err
			}
			first = false
			r.cur = History{ID: it.ID, Rcpts: r.cur.Rcpts[:0], dataIn: r.cur.dataIn[:0]}
		}
		r.apply(it, i)
		r.order = r.order[:len(r.order)-1]
		if err := r.advance(i); err != nil {
			return err
		}
	}
	return r.emit(visit)
}

func (r *Replay) emit(visit func(*History) error) error {
	if r.cur.Living == 0 {
		return nil
	}
	return visit(&r.cur)
}

// apply brings the current history forward by an item of run i.
func (r *Replay) apply(it *Item, i int) {
	h := &r.cur
	switch it.Kind {
	case ItemAccepted, ItemMoved:
		r.begin(it, i)
		return
	case itemLarge:
		h.Large = uint64(it.key)<<32 | uint64(it.due)
		return
	case itemTenant:
		h.Tenant = TenantHistory{i, it.key, it.octets()}
		return
	case itemExpires:
		h.Expires = it.due
		return
	case itemPlan:
		h.release(Plan{it.due, it.key})
		return
	case itemDomain:
		for j := int(it.Rcpt); j < len(h.Rcpts); j++ {
			h.Rcpts[j].Domain = it.key
		}
		return
	}
	if it.Kind == itemSettled || it.Kind == ItemChanged {
		for _, of := range h.dataIn {
			r.depend(of, i, it.Kind == ItemChanged)
		}
	}
	if int(it.Rcpt) >= len(h.Rcpts) {
		return // its message is gone
	}
	rc := &h.Rcpts[it.Rcpt]
	switch it.Kind {
	case ItemState:
		if !rc.Living && !r.isBuried(i, it.Offset()) {
			rc.Living = true
			h.Living++
		}
		rc.Marks, rc.Attempts, rc.Due, rc.Said, rc.Key, rc.KeyRun = it.marks, it.attempts, it.due, it.at, it.key, i
		if it.Size != 0 {
			rc.NoteRun, rc.NoteOff = i, it.Offset()
		}
	case ItemDeferred:
		rc.Attempts, rc.Due, rc.Said, rc.Key, rc.KeyRun = it.attempts, it.due, it.at, it.key, i
		rc.NoteRun, rc.NoteOff = i, it.Offset()
	case ItemChanged:
		rc.Marks = it.marks
		if it.key != 0 {
			h.Plan.Release, h.Moved = it.key, true
			rc.Due, rc.Said = h.Plan.Due(h.ID, int(it.Rcpt)), it.at
		}
		if it.due != 0 {
			rc.Due, rc.Said = it.due, it.at
		}
	case itemSettled:
		if rc.Living {
			rc.Living = false
			h.Living--
		}
	}
}

// begin starts the states of the current message: all due when it was accepted, or when it is to
// be released, none living yet when it was moved.
func (r *Replay) begin(it *Item, i int) {
	h := &r.cur
	for _, of := range h.dataIn {
		r.depend(of, i, false)
	}
	h.dataIn = append(h.dataIn, i)
	h.Run, h.Off, h.Size, h.Large = i, it.Offset(), it.Size, 0
	h.Tenant.Run, h.Expires, h.Moved = -1, 0, false
	h.Tier, h.At, h.Plan, h.Origin = it.Tier, it.at, Plan{}, it.due
	h.Rcpts = slices.Grow(h.Rcpts[:0], int(it.Rcpt))[:it.Rcpt]
	living := it.Kind == ItemAccepted && !r.isBuried(i, it.Offset())
	h.Living = 0
	if living {
		h.Living = int(it.Rcpt)
	}
	for j := range h.Rcpts {
		h.Rcpts[j] = RecipientHistory{Living: living, NoteRun: -1, KeyRun: -1, Domain: it.key}
	}
}

// release gives the recipients of a message that was just begun the times of its plan.
func (h *History) release(p Plan) {
	h.Plan = p
	for j := range h.Rcpts {
		h.Rcpts[j].Due = p.Due(h.ID, j)
	}
}

// advance reads the next item of run i, and puts the run in order. Most often that is near the end: later runs have
// later messages.
func (r *Replay) advance(i int) error {
	ok, err := r.runs[i].Read(&r.heads[i], r.bufSize)
	if !ok || err != nil {
		return err
	}
	at, _ := slices.BinarySearchFunc(r.order, i, func(a, b int) int {
		if x, y := r.heads[a].ID, r.heads[b].ID; x != y {
			return cmp.Compare(y, x)
		}
		return b - a
	})
	r.order = slices.Insert(r.order, at, i)
	return nil
}
