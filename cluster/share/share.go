// Package share divides limits among nodes. A limit is a number of units: a connection, or an eighth of an event of a
// rate's burst together with the part of the rate that fills it. A limit's Book, at the owner of its shard, gives
// units to the nodes that ask; a node's Holder spends only what it was given.
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
package share

import (
	"cmp"
	"time"
)

// perEvent is how many units make one event of a burst.
const perEvent = 8

// Limit is what all nodes together may use of one thing.
type Limit struct {
	Name        string
	Connections int64   // at a time; 0: a rate
	Rate        float64 // events a second
	Burst       int64   // at least 1
}

// Units is how many there are to give.
func (l *Limit) Units() int64 { return cmp.Or(l.Connections, perEvent*max(1, l.Burst)) }

// Least is how many units are of use: a bucket that is not as deep as an event lets none pass.
func (l *Limit) Least() int64 {
	if l.Connections > 0 {
		return 1
	}
	return perEvent
}

// bucket is the content of some units of a rate, in events.
type bucket struct {
	content float64
	at      time.Duration
}

// fill lets events flow into a bucket of so many units until now, by a clock that may be fast by drift.
func (b *bucket) fill(now time.Duration, l *Limit, units int64, drift float64) {
	if l.Connections > 0 {
		return
	}
	flow := l.Rate * (1 - drift) * float64(units) / float64(l.Units())
	b.content = min(b.content+flow*max(0, now-b.at).Seconds(), float64(units)/perEvent)
	b.at = now
}

// part takes out what belongs to n of so many units.
func (b *bucket) part(n, units int64) float64 {
	if units <= 0 || n <= 0 {
		return 0
	}
	c := b.content * min(1, float64(n)/float64(units))
	b.content -= c
	return c
}

// Item is what an ask carries about one limit. A limit of which nothing is held and wanted is left out.
type Item struct {
	Limit      string
	Held, Want int64   // units
	Content    float64 // of the units that the holder has given up since its last ask
}

// Grant is what an answer carries about one limit: the units that the holder may have from now on. Where that is less
// than it holds, it gives up the others as soon as it can, and reports that.
type Grant struct {
	Limit   string
	Units   int64
	Content float64 // of those that are new
}
