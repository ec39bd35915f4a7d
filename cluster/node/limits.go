package node

import (
	"time"

	"example.org/mta/cluster/member"
	"example.org/mta/cluster/share"
)

// The clock is read with mu held: a bucket that is filled by an earlier moment than the last one would be filled twice.

// at is where this node has a limit, with mu held.
func (n *Node) at(limit string) *share.Holder { return n.member.Shares(member.Shard(limit)) }

// Want sets how this node has a limit now, and how many of its units it could use. A limit that was never wanted has
// nothing. One that is out of bounds (1 to 256 octets of name; a million connections, events a second or events of a
// burst; 10,000 limits of an owner's shard) or that becomes a rate while connections are held has nothing, and that is
// logged.
func (n *Node) Want(l share.Limit, units int64) {
	n.mu.Lock()
	var err error
	if !n.leaving {
		h := n.at(l.Name)
		if err = h.Want(l, units, n.cfg.Clock); h.Lacks(n.cfg.Clock(), l.Name) {
			nudge(n.lacks)
		}
	}
	n.mu.Unlock()
	n.complain(err)
}

// Allowed is how many connections may be open now.
func (n *Node) Allowed(limit string) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.at(limit).Allowed(n.cfg.Clock(), limit)
}

// Spend takes up to some events of a rate that happen now, and returns how many.
func (n *Node) Spend(limit string, events int64) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.at(limit).Spend(n.cfg.Clock(), limit, events)
}

// Next is how long it takes until this node has an event of a rate, and how many it can save up; 0, 0 without a share.
func (n *Node) Next(limit string) (time.Duration, float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.at(limit).Next(n.cfg.Clock(), limit)
}

// Open notes up to some new connections, and returns how many there may be.
func (n *Node) Open(limit string, connections int64) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.at(limit).Open(n.cfg.Clock(), limit, connections)
}

// Close notes that connections have ended.
func (n *Node) Close(limit string, connections int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at(limit).Close(limit, connections)
}

// Left is how many events of a rate may happen now, and which part of the rate this node has, from 0 to 1.
func (n *Node) Left(limit string) (int64, float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.at(limit).Left(n.cfg.Clock(), limit)
}

// Return gives back events that did not happen.
func (n *Node) Return(limit string, events int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at(limit).Return(n.cfg.Clock(), limit, events)
}

// Occupy notes how many units of a lasting limit are in use from now on, if they are granted, or forced. It reports
// whether it has.
func (n *Node) Occupy(limit string, units int64, forced bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.at(limit).Occupy(n.cfg.Clock(), limit, units, forced)
}
