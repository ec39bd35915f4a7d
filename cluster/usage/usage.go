// Package usage has a relay use limits of its cluster by events, and by units in use: it notes how much, and has the
// node want that much and somewhat more, or all while something waits.
package usage

import (
	"context"
	"math"
	"sync"
	"time"

	"example.org/mta/cluster/share"
)

// Intervals and factors of a use.
const (
	tick      = time.Second
	again     = time.Second / 2 // who waits tries again, so that what it waits for is not forgotten
	patience  = 3 * time.Second // within which an answer to a larger ask comes, unless something is wrong
	kept      = 0.8             // of what was used a second ago, when less is
	headroom  = 1.25            // of what is used is wanted while nothing waits
	least     = 0.01            // events a second below which nothing is used
	forgotten = 60              // ticks without a note of units in use
	quiet     = 20              // ticks without a use of a rate whose definition may be an earlier one
	ahead     = 2               // for so many seconds units are wanted in advance
	next      = 64              // what had to wait for units is taken for so great a part of the limit
)

// Node is this relay's part in the cluster.
type Node interface {
	Want(l share.Limit, units int64)
	Allowed(limit string) int64
	Left(limit string) (events int64, part float64)
	Next(limit string) (wait time.Duration, depth float64)
	Spend(limit string, events int64) int64
	Return(limit string, events int64)
	Occupy(limit string, units int64, forced bool) bool
}

// Room is whether something may be used now.
type Room struct {
	OK       bool
	None     bool          // this relay has no part of the limit
	Wait     time.Duration // until a rate has what is lacking, if this relay has a part
	Patience time.Duration // for so long it pays to wait for a larger part
}

// Uses are those of one relay. It is safe for concurrent use.
//
// Its goroutine is Run's.
type Uses struct {
	node func() Node // nil while this relay takes no part
	now  func() time.Time

	mu      sync.Mutex // guards what follows
	last    Node
	all     map[string]*use
	changed chan struct{} // closed when more may be used
}

// use is one limit's.
type use struct {
	limit share.Limit
	units int64 // in use, of a lasting limit
	spent int64 // since the last tick: events, or units more
	pace  float64
	met   bool      // since the last tick something waits
	since time.Time // since when all is wanted; zero: it is not
	idle  int       // ticks in which nobody has noted the units, or used the rate
	old   bool      // its definition may be an earlier one
	owed  int64     // events that have happened, and are to be taken from those that come
	paid  float64   // of these, by waiting: less than one
}

// New makes the uses of a relay that has used nothing. now must not go back.
func New(node func() Node, now func() time.Time) *Uses {
	return &Uses{node: node, now: now, all: make(map[string]*use), changed: make(chan struct{})}
}

// Run has the node know once a second what is wanted, until ctx ends. Before each time it calls count.
func (u *Uses) Run(ctx context.Context, count func()) {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			count()
			u.Tick()
		}
	}
}

// of gives a limit's, which has this definition from now on. u.mu is held.
func (u *Uses) of(l share.Limit) *use {
	x := u.all[l.Name]
	if x == nil {
		x = &use{limit: l}
		u.all[l.Name] = x
	}
	x.limit, x.old = l, false
	if l.Connections == 0 {
		x.idle = 0
	}
	return x
}

// Redefined notes that limits may have another definition from now on. A rate that nobody uses soon is not wanted then,
// whatever is owed: all nodes would be held to the earlier one, if that is smaller. What is owed is paid by waiting.
func (u *Uses) Redefined() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, x := range u.all {
		x.old = true
	}
}

// Tick has the node know what each use has come to within a second.
func (u *Uses) Tick() {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := u.node()
	for name, x := range u.all {
		x.pay(n)
		x.pace, x.spent = max(x.pace*kept, float64(x.spent)), 0
		if x.idle++; x.idle > forgotten && x.units > 0 { // it is no limit any more
			if x.units = 0; n != nil {
				n.Occupy(name, 0, true)
			}
		}
		if x.old && x.limit.Connections == 0 && x.idle > quiet {
			x.pace, x.met = 0, false
			x.lapse()
		}
		want := x.want()
		if x.met = x.owed > 0; want < x.limit.Units() {
			x.since = time.Time{}
		}
		if n != nil {
			n.Want(x.limit, want)
		}
		if want == 0 && x.owed == 0 {
			delete(u.all, name)
		}
	}
}

// want is how many units could be used.
func (x *use) want() int64 {
	all := x.limit.Units()
	busy := x.pace >= least
	switch {
	case x.met:
		return all
	case x.limit.Connections > 0 && busy:
		return min(x.units+max(1, int64(math.Ceil(ahead*x.pace))), all)
	case x.limit.Connections > 0:
		return min(x.units, all)
	case busy:
		return int64(min(headroom*x.pace/x.limit.Rate, 1) * float64(all))
	}
	return 0
}

// meet has all of a limit be wanted, as something waits, and returns for how long it pays to wait. u.mu is held.
func (u *Uses) meet(x *use, n Node) time.Duration {
	x.met = true
	if x.since.IsZero() {
		if x.since = u.now(); n != nil {
			n.Want(x.limit, x.limit.Units())
		}
	}
	return max(0, patience-u.now().Sub(x.since))
}

// Changed has the uses follow a change of what the node may use, or of the node itself. It does not block.
func (u *Uses) Changed() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if n := u.node(); n != u.last {
		u.last = n
		for name, x := range u.all {
			if n != nil {
				n.Want(x.limit, max(x.want(), x.units, 1))
				n.Occupy(name, x.units, true)
			}
		}
	}
	close(u.changed)
	u.changed = make(chan struct{})
}

// Left is how many events of a rate may happen now, and which part of it this relay has, from 0 to 1.
func (u *Uses) Left(l share.Limit) (events int64, part float64) {
	if n := u.node(); n != nil {
		return n.Left(l.Name)
	}
	return 0, 0
}

// Meet notes that events of a rate wait, and returns for how long.
func (u *Uses) Meet(l share.Limit) Room {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.wait(u.of(l), u.node(), 1)
}

// wait is Meet for some events of a use. u.mu is held.
func (u *Uses) wait(x *use, n Node, events int64) Room {
	r := Room{None: true, Patience: u.meet(x, n)}
	if n == nil {
		return r
	}
	wait, depth := n.Next(x.limit.Name)
	left, part := n.Left(x.limit.Name)
	if r.None = depth == 0; left > 0 {
		wait = 0 // who has one and waits for more would try again at once, all the time
	}
	if lacks := float64(x.owed) + min(float64(events), depth) - float64(max(left, 1)); part > 0 && lacks > 0 {
		wait += time.Duration(min(lacks/part/x.limit.Rate*float64(time.Second), math.MaxInt64/2))
	}
	r.Wait = wait
	return r
}

// Spend takes events of a rate that happen now, all or none.
func (u *Uses) Spend(l share.Limit, events int64) Room {
	u.mu.Lock()
	defer u.mu.Unlock()
	n, x := u.node(), u.of(l)
	if n != nil {
		if left, _ := n.Left(l.Name); left >= events && n.Spend(l.Name, events) == events {
			x.spent += events
			return Room{OK: true}
		}
	}
	return u.wait(x, n, events)
}

// Charge is Spend for what can be more than this relay's part can save up. That is taken when all of the part is saved
// up, and no larger one has come in a while; what is missing is owed.
func (u *Uses) Charge(l share.Limit, events int64) Room {
	u.mu.Lock()
	defer u.mu.Unlock()
	n, x := u.node(), u.of(l)
	if n == nil {
		return u.wait(x, n, events)
	}
	x.pay(n)
	left, _ := n.Left(l.Name)
	_, depth := n.Next(l.Name)
	saved := depth >= 1 && left >= int64(depth)
	final := int64(depth) >= l.Burst-1 || !x.since.IsZero() && u.now().Sub(x.since) >= patience
	if left < events && !(saved && final) { // so it is while something is owed
		return u.wait(x, n, events)
	}
	x.owe(n, events)
	return Room{OK: true}
}

// Owe takes events that have happened. They may be more than there are.
func (u *Uses) Owe(l share.Limit, events int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.of(l).owe(u.node(), events)
}

// owe takes events from what there is, and then from what comes.
func (x *use) owe(n Node, events int64) {
	x.owed += events
	x.pay(n)
}

// pay takes what is owed, as far as it is there.
func (x *use) pay(n Node) {
	if n == nil || x.owed == 0 {
		return
	}
	paid := n.Spend(x.limit.Name, x.owed)
	x.owed -= paid
	x.spent += paid
}

// lapse pays what came in a tick in which nobody used the limit.
func (x *use) lapse() {
	x.paid += x.limit.Rate * tick.Seconds()
	whole := math.Floor(x.paid)
	x.owed, x.paid = max(0, x.owed-int64(whole)), x.paid-whole
}

// Await waits until more may be used than when something was refused, or it no longer pays. It reports whether to try
// again; until is zero at first.
func (u *Uses) Await(r Room, until *time.Time) bool {
	now := u.now()
	if r.Patience <= 0 {
		return false
	}
	if until.IsZero() {
		*until = now.Add(r.Patience)
	}
	wait := min(until.Sub(now), again)
	if wait <= 0 {
		return false
	}
	if r.Wait > 0 {
		wait = min(wait, r.Wait)
	}
	u.mu.Lock()
	more := u.changed
	u.mu.Unlock()
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-more:
	case <-t.C:
	}
	return true
}

// Return gives back events that did not happen.
func (u *Uses) Return(l share.Limit, events int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if x := u.all[l.Name]; x != nil {
		owed := min(x.owed, events)
		x.owed, events = x.owed-owed, events-owed
	}
	if n := u.node(); n != nil && events > 0 {
		n.Return(l.Name, events)
	}
}

// Occupy notes how many units of a lasting limit are in use from now on, if this relay has them, or they are forced.
func (u *Uses) Occupy(l share.Limit, units int64, forced bool) Room {
	u.mu.Lock()
	defer u.mu.Unlock()
	if forced && units == 0 && u.all[l.Name] == nil {
		return Room{OK: true}
	}
	x, n := u.of(l), u.node()
	x.idle = 0
	if forced && units == x.units {
		return Room{OK: true}
	}
	if n != nil && units > 0 && x.units == 0 && x.since.IsZero() {
		n.Want(l, max(x.want(), 1)) // it may not know of the limit
	}
	if n != nil && n.Occupy(l.Name, units, forced) || forced {
		x.spent += max(0, units-x.units)
		if !forced && !x.since.IsZero() {
			x.spent = max(x.spent, l.Units()/next) // the rest of a message, and others
		}
		x.units = units
		return Room{OK: true}
	}
	return Room{None: n == nil || n.Allowed(l.Name) == 0, Patience: u.meet(x, n)}
}
