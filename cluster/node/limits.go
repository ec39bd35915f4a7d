package node

import (
	"time"

	"example.org/mta/cluster/ledger"
	"example.org/mta/cluster/member"
	"example.org/mta/cluster/share"
)

// The clock is read with mu held: a bucket that is filled by an earlier moment than the last one would be filled twice.

// at is what this node has of a limit, with mu held. A limit that is not shared has nothing.
func (n *Node) at(limit string) *share.Holder { return n.member.Shares(n.shard[limit]) }

// Want sets how many units this node could use of a limit.
func (n *Node) Want(limit string, units int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.leaving {
		n.at(limit).Want(limit, units)
	}
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

// Over is how many open connections must end: at once when the grant has ended, and otherwise as soon as their
// transactions do.
func (n *Node) Over(limit string) (connections int64, ended bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.at(limit).Over(n.cfg.Clock(), limit)
}

// Close notes that connections have ended.
func (n *Node) Close(limit string, connections int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at(limit).Close(limit, connections)
}

// WantTokens sets how many tokens this node could use soon.
func (n *Node) WantTokens(k ledger.Key, tokens int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.leaving {
		n.member.Tokens(member.Shard(k.Address)).Want(k, tokens)
	}
}

// SpendTokens takes up to some tokens for mail that leaves now, and returns how many.
func (n *Node) SpendTokens(k ledger.Key, tokens int64) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.member.Tokens(member.Shard(k.Address)).Spend(n.cfg.Clock(), k, tokens)
}
