// Package share divides limits among nodes. A limit is a number of units: a connection, or a small part of a rate and
// of its burst. A limit's Book, at the owner of its shard, gives units to the nodes that ask; a node's Holder spends
// only what it was given.
//
// The rules, each with the failure that it prevents:
//
//   - Only the answer to the newest ask counts, so a late one revives nothing.
//   - A grant ends a term, less drift, after its holder sent the ask; the book counts it for a term and drift from
//     when the ask came.
//   - The book counts for each holder what it reported last or was answered since, whichever is more: a share that
//     the book lowers is free when its holder reports less.
//   - A book that another process kept is counted in full until each holder reports, or a term and drift have passed.
//   - A bucket's content travels with its units, and fills slower than the rate by the drift, so that moving units
//     gives no new burst.
//   - Where a limit is too small for all that want it, they take turns, longest wait first.
//   - Asks carry the limit as its node has it, and the smallest of all holders counts: grants carry that, and a holder
//     uses it, or its own if that is smaller. A unit of a rate is the same part of it whatever its definition, so that
//     holders of different ones never have more than the largest.
//   - Units whose use outlives grants, such as queued messages, are reported as used, granted or not, and count. A book
//     that has just begun grants no more of them until all nodes have reported, or have had time to. While more are in
//     use than there are, nobody takes any.
//   - A book gives no more than the rest of each limit that others' reserves leave. What it may give again, since a
//     reserve is used no more, begins with an empty bucket, as does a holder that begins to use its reserve.
//   - A holder uses its reserve of a limit only while it has no grant of it, and does not report it as held.
//   - The book forgets a limit when nobody has or wants any of it and its bucket is full: one that comes back has what
//     has flowed since the book began, and that is not more than it had.
package share

import (
	"cmp"
	"fmt"
	"math"
	"time"
)

// Bounds of what a node may ask for.
const (
	most     = 10_000 // limits of a shard
	mostName = 256    // octets
	mostOf   = 1e6    // connections, burst, and rate a second
)

// whole is all units of a rate. Shares are multiples of an eighth of an event of the burst, or they would change all
// the time; that many units of a burst of a million are too few by less than grain.
const (
	whole = 1 << 44
	grain = 1e-6
)

// Limit is what all nodes together may use of one thing.
type Limit struct {
	Name        string  // at most 256 octets
	Connections int64   `json:",omitempty"` // at a time, at most a million; 0: a rate
	Rate        float64 `json:",omitempty"` // events a second, at most a million
	Burst       int64   `json:",omitempty"` // from 1 to a million
	Lasting     bool    `json:",omitempty"` // of connections: their use outlives a grant
}

// Units is how many there are to give.
func (l *Limit) Units() int64 { return cmp.Or(l.Connections, whole) }

// reserve is how many units one in divisor of the limit is: 0 where that is of no use.
func (l *Limit) reserve(divisor int64) int64 {
	if n := l.Units() / divisor / l.step() * l.step(); n >= l.Least() {
		return n
	}
	return 0
}

// rest is how many units there are to give when reserves of others leave a part of the limit. A part of a connection is
// a whole one: whatever definitions others have, the whole numbers of their reserves leave it.
func (l *Limit) rest(part float64) int64 {
	switch {
	case part == 1:
		return l.Units()
	case l.Connections > 0:
		return int64(math.Ceil(part*float64(l.Connections) - grain))
	}
	return int64(part*whole) / l.step() * l.step()
}

// Least is how many units are of use: a bucket that is not as deep as an event lets none pass.
func (l *Limit) Least() int64 {
	if l.Connections > 0 {
		return 1
	}
	return 8 * l.step()
}

// step is that of which shares are multiples.
func (l *Limit) step() int64 {
	if l.Connections > 0 {
		return 1
	}
	return whole / 8 / max(1, l.Burst)
}

// check finds what no node's limit can be.
func (l *Limit) check() error {
	connections := l.Connections > 0 && l.Connections <= mostOf && l.Rate == 0 && l.Burst == 0
	rate := l.Connections == 0 && !l.Lasting && l.Rate > 0 && l.Rate <= mostOf && l.Burst > 0 && l.Burst <= mostOf
	if l.Name == "" || len(l.Name) > mostName || connections == rate {
		return fmt.Errorf("limit %.60q has %d connections, or %g events a second and a burst of %d (want 1 to %g)",
			l.Name, l.Connections, l.Rate, l.Burst, mostOf)
	}
	return nil
}

// smaller is the smaller of two definitions.
func (l *Limit) smaller(m *Limit) Limit {
	return Limit{l.Name, min(l.Connections, m.Connections), min(l.Rate, m.Rate), min(l.Burst, m.Burst),
		l.Lasting || m.Lasting}
}

// worth is how many units by this definition let as much pass as some units by a larger one, in steps.
func (l *Limit) worth(units int64, by *Limit) int64 {
	if l.Rate < by.Rate {
		units = int64(min(whole, float64(units)*by.Rate/l.Rate))
	}
	return min((units+l.step()-1)/l.step()*l.step(), l.Units())
}

// depth is how many events some of the units save up.
func (l *Limit) depth(units int64) float64 { return float64(l.Burst) * float64(units) / whole }

// flow is how many events a second they let pass, by a clock that may be fast by drift.
func (l *Limit) flow(units int64, drift float64) float64 {
	return l.Rate * (1 - drift) * float64(units) / whole
}

// bucket is the content of some units of a rate, in events.
type bucket struct {
	content float64
	at      time.Duration
}

// fill lets events flow into a bucket of so many units of a limit until now.
func (b *bucket) fill(now time.Duration, l *Limit, units int64, drift float64) {
	b.content = min(b.content+l.flow(units, drift)*max(0, now-b.at).Seconds(), l.depth(units))
	b.at = now
}

// part takes out what belongs to n of so many units.
func (b *bucket) part(n, units int64) float64 {
	if units <= 0 || n <= 0 {
		return 0
	}
	c := max(0, b.content) * min(1, float64(n)/float64(units)) // what was spent may be more, by less than grain
	b.content -= c
	return c
}

// Item is what an ask carries about one limit. A limit of which nothing is held and wanted is left out.
type Item struct {
	Limit              // as the holder's node has it
	Held, Want int64   `json:",omitempty"` // units
	Content    float64 `json:",omitempty"` // of the units that the holder has given up since its last ask
	Used       int64   `json:",omitempty"` // of a lasting limit: units in use, if these are more than are held
}

// Grant is what an answer carries about one limit: the units that the holder may have from now on. Where that is less
// than it holds, it gives up the others as soon as it can, and reports that.
type Grant struct {
	Limit           // the smallest of all holders
	Units   int64   `json:",omitempty"`
	Content float64 `json:",omitempty"` // of those that are new
}
