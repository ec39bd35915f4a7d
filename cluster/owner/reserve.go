package owner

import (
	"math"
	"time"

	"example.org/mta/cluster/term"
)

// Intervals of reserves. A node begins to use its reserve a term, fresh and margin after the newest result that it got.
const (
	fresh   = 10 * time.Second // for so long an owner takes a node to reach the engine, from a moment when it did
	margin  = 5 * time.Second
	settle  = 5 * time.Second // after a gap an owner waits so long for the nodes to show that they reach the engine
	closing = time.Second     // in which connections end when a node's use of its reserve does
)

// Reserve is the row of a node that goes on after it has lost the engine: with a fixed part of each limit.
type Reserve struct {
	Node    uint16
	Order   term.Order // of the newest wish
	Divisor int64      // the part is one in so many; 0: there was no room for one yet
	Heard   Moment     // of a result that the node had got when it sent the wish
}

// Wish is what a node writes about its reserve with a call.
type Wish struct {
	Node    uint16
	Order   term.Order
	Divisor int64 // 0: it gives the reserve up, and waits after a loss
	Heard   Moment
}

// Moment is how far the rows of an engine have come. A later reading never has an earlier one.
type Moment struct{ Timeline, Beats uint64 }

// After reports whether m was read after n was, or before n by a call that was acknowledged after it.
func (m Moment) After(n Moment) bool {
	return m.Timeline > n.Timeline || m.Timeline == n.Timeline && m.Beats > n.Beats
}

func momentOf(r *Result) Moment {
	m := Moment{Timeline: r.Origin.Timeline}
	for _, h := range r.Heads {
		m.Beats += h.Beat
	}
	return m
}

// Apply is what the statement does: it returns the node's row after a wish, nil for none, and whether it was carried
// out. was is the row before, nil for none. closed: a node has a program that knows no reserves.
func (w *Wish) Apply(was *Reserve, others []Reserve, closed bool) (after *Reserve, done bool) {
	if was != nil && !w.Order.After(was.Order) {
		return was, false
	}
	if w.Divisor == 0 {
		return nil, true
	}
	r := Reserve{w.Node, w.Order, w.Divisor, w.Heard}
	if had := was != nil && was.Divisor > 0; !had || r.Divisor < was.Divisor {
		switch room := room(others); {
		case had && (closed || room == 0 || room > was.Divisor):
			r.Divisor = was.Divisor
		case closed || room == 0:
			r.Divisor = 0
		default:
			r.Divisor = max(r.Divisor, room)
		}
	}
	return &r, true
}

// room is the divisor of what others leave, 0 for nothing.
func room(others []Reserve) int64 {
	left := 1.
	for _, r := range others {
		if r.Divisor > 0 {
			left -= 1 / float64(r.Divisor)
		}
	}
	if left < 1e-4 {
		return 0
	}
	return int64(math.Ceil(1/left - 1e-6))
}

// reserves is what a keeper knows of them.
type reserves struct {
	known  bool                     // the engine has them
	others []Reserve                // as read last
	alive  map[uint16]time.Duration // when an own call was sent, of which a node has read the rows, or later ones
	calls  []reading                // of late
	asked  time.Duration            // when the call of the newest result was sent
	steady time.Duration            // since when readings have had no gap

	wanting int64 // nodes that have a row, this one among them
	row     bool  // this node has one
	own     int64 // the divisor that this node may use at most, 0: nothing
	heard   Moment
	told    Moment        // the one that calls carry
	got     time.Duration // when the newest result came
	ended   time.Duration // when the use of the reserve did
}

// reading is a result of an own call.
type reading struct {
	sent   time.Duration
	moment Moment
}

// Knows notes that the engine has reserves.
func (k *Keeper) Knows() { k.res.known = true }

// Reserve is the part that this node may use of each limit from a moment on, one in divisor; 0: none.
func (k *Keeper) Reserve() (divisor int64, from time.Duration) {
	if k.lost != nil || k.leaving {
		return 0, 0
	}
	return k.res.own, k.res.got + k.cfg.Term.Waits() + fresh + margin
}

// Rest is the part of each limit that this owner may give to others than those that may be using their reserves; false:
// it can't know that yet, and should answer nobody.
func (k *Keeper) Rest(now time.Duration) (float64, bool) {
	r, rest := &k.res, 1.
	for _, o := range r.others {
		if at, ever := r.alive[o.Node]; o.Divisor > 0 && (!ever || now-at > fresh) {
			rest -= 1 / float64(o.Divisor)
		}
	}
	switch {
	case !r.reserved():
		return 1, true
	case now-r.asked > Gap, rest < 1 && now-r.steady < settle:
		return 0, false
	}
	return max(0, rest), true
}

// reserved reports whether another node has a reserve.
func (r *reserves) reserved() bool {
	for _, o := range r.others {
		if o.Divisor > 0 {
			return true
		}
	}
	return false
}

// wish is what the next call asks for. A smaller part binds this node at once, a larger one when that is acknowledged.
func (k *Keeper) wish(now time.Duration) *Wish {
	r := &k.res
	w := &Wish{Node: k.cfg.Node, Order: term.Order{Incarnation: k.cfg.Incarnation, Process: k.cfg.Process,
		Seq: k.number}}
	switch {
	case !r.known:
		return nil
	case k.cfg.Reserve && !k.leaving:
		if now-r.ended >= closing {
			r.told = r.heard
		}
		w.Divisor, w.Heard = max(1, r.wanting), r.told
		if r.own > 0 {
			r.own = max(r.own, w.Divisor)
		}
		return w
	case k.cfg.Reserve, r.row:
		r.own = 0
		return w
	}
	return nil
}

// learn takes in what a result has of reserves. What was decided with the call may not leave when others may have got
// reserves before that, and this owner did not know; nor when this node has used its own.
func (k *Keeper) learn(now time.Duration, o *opened, result *Result, e *Events) {
	r, m := &k.res, momentOf(result)
	blind := !r.reserved() && o.sent-r.asked > Gap
	if o.sent-k.read > Gap || !k.hasRead {
		r.steady = o.sent
	}
	if _, from := k.Reserve(); r.own > 0 && now >= from {
		r.ended, e.Used = now, true
	}
	r.heard, r.got, r.asked = m, now, o.sent
	for len(r.calls) > 0 && o.sent-r.calls[0].sent > fresh {
		r.calls = r.calls[1:]
	}
	r.calls = append(r.calls, reading{o.sent, m})
	r.others, r.own, r.row = r.others[:0], 0, false
	if r.alive == nil {
		r.alive = make(map[uint16]time.Duration)
	}
	for _, row := range result.Reserves {
		if row.Node == k.cfg.Node {
			r.row = true
			if w := o.call.Wish; w != nil && row.Order == w.Order {
				r.own = row.Divisor
			}
			continue
		}
		r.others = append(r.others, row)
		for _, c := range r.calls {
			if row.Heard.After(c.moment) {
				r.alive[row.Node] = c.sent
			}
		}
	}
	r.wanting = int64(len(r.others)) + 1
	e.Hold = blind && r.reserved() || e.Used
}
