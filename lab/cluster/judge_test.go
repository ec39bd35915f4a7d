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
	w      *world
	term   time.Duration
	limits []*observed
	faults []string

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
	share.Limit             // the largest that a node has, or had within the last term
	least       share.Limit // the smallest that a node has
	had         []had
	room        float64 // events that may happen now
	at          time.Duration
	open        int64 // connections, without those of stopped nodes
	peak        int64 // with those
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

// define notes that a node has a limit in another way from now on.
func (j *judge) define(limit int, node uint16, l share.Limit) {
	o := j.limits[limit]
	for i := range o.had {
		if h := &o.had[i]; h.node == node && h.until == yet {
			h.until = j.w.now + j.term
		}
	}
	o.had = append(o.had, had{l, node, yet})
	j.measure(o)
	j.w.after(j.term, func() { j.measure(o) })
}

// measure finds the largest and the smallest definition. A larger burst may happen at once, and so may no more than a
// smaller one.
func (j *judge) measure(o *observed) {
	o.flow(j.w.now)
	o.had = slices.DeleteFunc(o.had, func(h had) bool { return h.until <= j.w.now })
	most, least := o.had[0].Limit, share.Limit{Connections: math.MaxInt64, Rate: math.Inf(1)}
	for _, h := range o.had {
		most.Connections, most.Rate = max(most.Connections, h.Connections), max(most.Rate, h.Rate)
		if most.Burst = max(most.Burst, h.Burst); h.until == yet {
			least.Connections, least.Rate = min(least.Connections, h.Connections), min(least.Rate, h.Rate)
		}
	}
	o.room = min(o.room+float64(max(0, most.Burst-o.Burst)), float64(most.Burst))
	o.Limit, o.least = most, least
}

// flow adds to a rate's room what has flowed until now.
func (o *observed) flow(now time.Duration) {
	if o.Connections == 0 {
		o.room = min(o.room+o.Rate*(now-o.at).Seconds(), float64(o.Burst))
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
	o.room -= float64(n)
	o.use.used += float64(n)
	if o.room < -1e-3 {
		j.fault("limit %s: node %d is over the rate by %.3f events", o.Name, node, -o.room)
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
		most = float64(o.least.Connections)
	}
	o.use.wanted += min(demand, most) * d.Seconds()
}
