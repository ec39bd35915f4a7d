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
	tick     = time.Second
	patience = 2 * time.Second // within which an answer to a larger ask comes, unless something is wrong
	kept     = 0.8             // of what was used a second ago, when less is
	headroom = 1.25            // of what is used is wanted while nothing waits
	least    = 0.01            // events a second below which nothing is used
	ahead    = 2               // for so many seconds units are wanted in advance
)

// Node is this relay's part in the cluster.
type Node interface {
	Want(l share.Limit, units int64)
	Left(limit string) (events int64, part float64)
	Next(limit string) (wait time.Duration, depth float64)
	Spend(limit string, events int64) int64
	Return(limit string, events int64)
	Occupy(limit string, units int64, forced bool) bool
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
}

// New makes the uses of a relay that has used nothing. now must not go back.
func New(node func() Node, now func() time.Time) *Uses {
	return &Uses{node: node, now: now, all: make(map[string]*use), changed: make(chan struct{})}
}

// Run has the node know once a second what is wanted, until ctx ends. Nil has nothing to do.
func (u *Uses) Run(ctx context.Context) {
	if u == nil {
		return
	}
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			u.tick()
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
	x.limit = l
	return x
}

// tick wants what each use has come to.
func (u *Uses) tick() {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := u.node()
	for name, x := range u.all {
		x.pace, x.spent = max(x.pace*kept, float64(x.spent)), 0
		want := x.want()
		if x.met = false; want < x.limit.Units() {
			x.since = time.Time{}
		}
		if n != nil {
			n.Want(x.limit, want)
		}
		if want == 0 {
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
	if u == nil {
		return
	}
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

// More is closed when more may be used than now.
func (u *Uses) More() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.changed
}

// Left is how many events of a rate may happen now, and which part of it this relay has, from 0 to 1.
func (u *Uses) Left(l share.Limit) (events int64, part float64) {
	if n := u.node(); n != nil {
		return n.Left(l.Name)
	}
	return 0, 0
}

// Meet notes that events of a rate wait, and returns when the next may happen, below 0 while this relay has no part of
// it, and for how long it pays to wait for a larger part.
func (u *Uses) Meet(l share.Limit) (next, patience time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := u.node()
	if patience = u.meet(u.of(l), n); n != nil {
		if wait, depth := n.Next(l.Name); depth > 0 {
			return wait, patience
		}
	}
	return -1, patience
}

// Spend takes events of a rate that happen now, all or none. More than this relay can save up are taken when it has
// saved up all.
func (u *Uses) Spend(l share.Limit, events int64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := u.node()
	x := u.of(l)
	if n != nil {
		if left, _ := n.Left(l.Name); left >= events && n.Spend(l.Name, events) == events {
			x.spent += events
			return true
		}
	}
	u.meet(x, n)
	return false
}

// Return gives back events that did not happen.
func (u *Uses) Return(l share.Limit, events int64) {
	if n := u.node(); n != nil {
		n.Return(l.Name, events)
	}
}

// Occupy notes how many units of a lasting limit are in use from now on, and reports whether that may be: more than
// before only if this relay has them, unless they are forced. If not, it pays to wait for more for so long.
func (u *Uses) Occupy(l share.Limit, units int64, forced bool) (ok bool, patience time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	x, n := u.of(l), u.node()
	if units == x.units {
		return true, 0
	}
	if n != nil && units > 0 && x.units == 0 {
		n.Want(l, max(x.want(), 1)) // it may not know of the limit
	}
	if n != nil && n.Occupy(l.Name, units, forced) || forced || units < x.units {
		x.spent += max(0, units-x.units)
		x.units = units
		return true, 0
	}
	return false, u.meet(x, n)
}
