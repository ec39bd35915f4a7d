package wiring

import (
	"math"
	"time"

	"example.org/mta/cluster/node"
	"example.org/mta/cluster/share"
	"example.org/mta/internal/gcra"
)

// Parts has this relay's parts of a cluster's limits in the terms of delivery: connections, and events of a rate. It
// asks the node that it returns; while that is nil, this relay has no part of anything.
type Parts func() *node.Node

// WantConnections declares a limit on connections, and how many this relay could use.
func (p Parts) WantConnections(name string, limit, want int) {
	p.want(share.Limit{Name: limitName(name), Connections: int64(limit)}, int64(want))
}

// WantRate declares a rate, and how many events a second this relay could use.
func (p Parts) WantRate(name string, limit gcra.Rate, want float64) {
	l := rateLimit(name, limit)
	p.want(l, int64(math.Ceil(want/l.Rate*float64(l.Units()))))
}

func (p Parts) want(l share.Limit, units int64) {
	if n := p(); n != nil {
		n.Want(l, units)
	}
}

// Allowed is how many connections this relay may have now.
func (p Parts) Allowed(name string) int {
	if n := p(); n != nil {
		return int(n.Allowed(limitName(name)))
	}
	return 0
}

// Open notes up to n new connections, and returns how many there may be.
func (p Parts) Open(name string, n int) int {
	if at := p(); at != nil {
		return int(at.Open(limitName(name), int64(n)))
	}
	return 0
}

// Close notes that n connections have ended.
func (p Parts) Close(name string, n int) {
	if at := p(); at != nil {
		at.Close(limitName(name), int64(n))
	}
}

// Next is how long it takes until this relay may have an event of a rate, below 0 while it has no part.
func (p Parts) Next(name string) time.Duration {
	if n := p(); n != nil {
		if wait, depth := n.Next(limitName(name)); depth > 0 {
			return wait
		}
	}
	return -1
}

// Spend notes an event.
func (p Parts) Spend(name string) {
	if n := p(); n != nil {
		n.Spend(limitName(name), 1)
	}
}

// Lacks is why nothing can give this relay a part of a limit now; "" otherwise.
func (p Parts) Lacks(name string) string {
	if n := p(); n != nil {
		return n.Lacks(limitName(name))
	}
	return "this relay takes no part in its cluster"
}

// Held reports whether this relay has a part of a limit.
func (p Parts) Held(name string) bool { return p.Allowed(name) > 0 || p.Next(name) >= 0 }
