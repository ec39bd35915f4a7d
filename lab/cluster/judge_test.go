package cluster

import (
	"fmt"
	"math"
	"slices"
	"time"

	"example.org/mta/cluster/share"
)

// judge sees what hosts see: events and open connections, with the right time.
type judge struct {
	w   *world
	lag time.Duration // for which an earlier definition counts
	// settle is how long after a change of a limit the smallest definition counts and is used; 0: it does not.
	settle time.Duration
	wants  func(limit int, node uint16) (always, ever bool) // in that time
	limits []*observed
	faults []string
	quotas map[int]*quota                  // by limit
	kept   func(limit int, node int) int64 // messages in a queue

	mails    map[string]uint16 // keys of mail that exists, with its node
	accepted map[string]bool
	repeats  int
}

// use is how much of what was wanted was used.
type use struct{ wanted, used float64 }

func (u *use) add(v use) { u.wanted, u.used = u.wanted+v.wanted, u.used+v.used }

func (u *use) percent() float64 { return 100 * u.used / max(u.wanted, 1e-9) }

// observed is a limit.
type observed struct {
	share.Limit               // what may be used
	least       share.Limit   // the smallest of the nodes that want it, or of all if none does
	late        share.Limit   // the largest that a node has, or had within the lag
	rooms       [2]float64    // events that may happen now, by each
	at          time.Duration // of them
	had         []had
	changed     time.Duration // the definition of a node, or what is wanted
	counted     float64       // of use.used, for firm
	firm        use           // while it is settled
	open        int64         // connections, without those of stopped nodes
	peak        int64         // with those
	stuck       int64
	use         use
}

// had is how a node has a limit, or had it until a moment.
type had struct {
	share.Limit
	node  uint16
	until time.Duration
}

const yet = time.Duration(math.MaxInt64)

// define notes that a node has a limit in another way from now on; a limit without a name: not at all.
func (j *judge) define(limit int, node uint16, l share.Limit) {
	o := j.limits[limit]
	for i := range o.had {
		if h := &o.had[i]; h.node == node && h.until == yet {
			h.until = j.w.now + j.lag
		}
	}
	if l.Name != "" {
		o.had = append(o.had, had{l, node, yet})
	}
	j.touch(limit)
	j.w.after(j.lag, func() { j.measure(limit) })
}

// touch notes that something of a limit has changed.
func (j *judge) touch(limit int) {
	j.limits[limit].changed = j.w.now
	j.measure(limit)
	j.w.after(j.settle, func() { j.measure(limit) })
}

// needed notes that a node has begun or ceased to want a limit.
func (j *judge) needed(limit int) {
	was := j.limits[limit].least
	if j.measure(limit); j.limits[limit].least != was {
		j.touch(limit)
	}
}

// settled reports whether nothing of a limit has changed of late.
func (j *judge) settled(o *observed) bool { return j.settle > 0 && j.w.now-o.changed >= j.settle }

// measure finds what may be used: the largest definition, or the smallest of the nodes that want it when it is
// settled. Connections by an earlier one may stay for a while.
func (j *judge) measure(limit int) {
	o := j.limits[limit]
	o.flow(j.w.now)
	o.had = slices.DeleteFunc(o.had, func(h had) bool { return h.until <= j.w.now })
	if len(o.had) == 0 {
		return
	}
	late, most, all, wanting, least := o.had[0].Limit, share.Limit{}, boundless, boundless, boundless
	for _, h := range o.had {
		if late = larger(late, h.Limit); h.until < yet {
			continue
		}
		most, all = larger(most, h.Limit), smaller(all, h.Limit)
		always, ever := j.wants(limit, h.node)
		if always {
			wanting = smaller(wanting, h.Limit)
		}
		if ever {
			least = smaller(least, h.Limit)
		}
	}
	if o.least = least; least == boundless {
		o.least = all
	}
	switch {
	case j.settled(o) && wanting != boundless:
		most = wanting
	case o.Connections > 0 || all == boundless:
		most = late
	}
	o.become(most, late)
}

// become has a limit be another one. By what may be used now a burst may happen anew, and one more until the owner
// has heard of it; by the largest of late only what is larger.
func (o *observed) become(most, late share.Limit) {
	most.Name, late.Name = o.Name, o.Name
	if most != o.Limit {
		o.rooms[0] = 2 * float64(most.Burst)
	}
	o.rooms[1] = min(o.rooms[1]+float64(max(0, late.Burst-o.late.Burst)), float64(late.Burst))
	o.Limit, o.late = most, late
}

// boundless is larger than any limit.
var boundless = share.Limit{Connections: math.MaxInt64, Rate: math.Inf(1), Burst: math.MaxInt64}

func smaller(a, b share.Limit) share.Limit {
	return share.Limit{Connections: min(a.Connections, b.Connections), Rate: min(a.Rate, b.Rate),
		Burst: min(a.Burst, b.Burst)}
}

func larger(a, b share.Limit) share.Limit {
	return share.Limit{Connections: max(a.Connections, b.Connections), Rate: max(a.Rate, b.Rate),
		Burst: max(a.Burst, b.Burst)}
}

// flow adds to a rate's rooms what has flowed until now.
func (o *observed) flow(now time.Duration) {
	if o.Connections == 0 {
		for i, l := range []share.Limit{o.Limit, o.late} {
			o.rooms[i] = max(o.rooms[i], min(o.rooms[i]+l.Rate*(now-o.at).Seconds(), float64(l.Burst)))
		}
		o.at = now
	}
}

func (j *judge) fault(format string, args ...any) {
	if len(j.faults) < 20 {
		j.faults = append(j.faults, fmt.Sprintf("%v: ", j.w.now)+fmt.Sprintf(format, args...))
	}
}

// events notes that n events of a limit happen now: in no window of w seconds may there be more than rate * w + burst,
// by the largest definition in that window.
func (j *judge) events(limit int, node uint16, n int64) {
	o := j.limits[limit]
	o.flow(j.w.now)
	o.use.used += float64(n)
	for i, by := range []string{"the rate", "all rates of late"} {
		if o.rooms[i] -= float64(n); o.rooms[i] < -1e-3 {
			j.fault("limit %s: node %d is over %s by %.3f events", o.Name, node, by, -o.rooms[i])
		}
	}
}

// connections notes that a node opens or closes some.
func (j *judge) connections(limit int, node uint16, n int64) {
	o := j.limits[limit]
	o.use.used += float64(o.open) * (j.w.now - o.at).Seconds()
	o.at = j.w.now
	o.open += n
	if o.open > o.Connections {
		j.fault("limit %s: node %d makes it %d connections of %d", o.Name, node, o.open, o.Connections)
	}
}

// stuck notes that connections stay open while their node is stopped, or no longer do.
func (j *judge) stuck(limit int, node uint16, n int64) {
	j.connections(limit, node, -n)
	o := j.limits[limit]
	o.stuck += n
	o.peak = max(o.peak, o.stuck+o.open)
}

// wanted notes how much all nodes could have used of a limit in d.
func (j *judge) wanted(limit int, demand float64, d time.Duration) {
	o := j.limits[limit]
	most := o.least.Rate
	if o.Connections > 0 {
		j.connections(limit, 0, 0)
		most = float64(o.least.Connections)
	}
	wanted := min(demand, most) * d.Seconds()
	if o.use.wanted += wanted; j.settled(o) {
		o.firm.add(use{wanted, o.use.used - o.counted})
	}
	o.counted = o.use.used
}
