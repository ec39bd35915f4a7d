// Package owner decides which node decides: each of 64 shards is a row of the engine with an owner, an epoch and a
// beat, and a node learns only from the engine what it owns.
//
// The rules, each with the failure that it prevents:
//
//   - A write compares owner, epoch and beat, so one that comes late or twice changes nothing.
//   - A node takes a shard when it has found the row unchanged for a term and its drift, by its own clock, and the
//     statement compares the whole row: a beat that arrives meanwhile wins.
//   - What an owner decides in a round leaves it only when the write that carries it was acknowledged. Whatever was
//     asked for in that round was asked for before that beat, so all of it has ended when the row was silent for a
//     term. An owner therefore needs no clock to stop by.
//   - A row older than what this node wrote, or was granted under, shows that the engine has lost writes: the node
//     makes no further call.
package owner

import "time"

// Shards is how many rows there are; it never changes in the life of a cluster.
const Shards = 64

// Head is the part of a row that every node reads.
type Head struct {
	Node        uint16 // 0: nobody
	Incarnation uint64
	Boot        uint64 // of the owner's machine, a number made of its boot_id
	Epoch       uint64 // raised by each take-over
	Beat        uint64 // raised by each write, also by a take-over
	Clock       int64  // the engine's at the last write, in nanoseconds; it never goes back
}

// Decides is the node that answers asks, 0: none does. After a reset a row has an owner that never beats, so that the
// shard is taken a term later.
func (h *Head) Decides() uint16 {
	if h.Incarnation == 0 {
		return 0
	}
	return h.Node
}

// Mark is how far a row was seen to be.
type Mark struct{ Epoch, Beat uint64 }

// Before reports whether m is older than n.
func (m Mark) Before(n Mark) bool { return m.Epoch < n.Epoch || m.Epoch == n.Epoch && m.Beat < n.Beat }

// Entry is a line of a shard's book. One whose first two numbers are 0 is deleted.
type Entry struct {
	Name string // of a limit or an address
	Node uint16 // of the holder, 0 for all
	N    [4]int64
}

// Zero reports whether the entry need not be kept.
func (e Entry) Zero() bool { return e.N[0] == 0 && e.N[1] == 0 }

// Part is what a call does to one shard. Its statement changes nothing unless the row is in the state that the part
// expects; that of an earlier try of the same part is fine, too.
type Part struct {
	Shard   int
	Take    bool
	Was     Head // of a take: the whole row; otherwise Was.Beat is the lowest beat that may stand there
	To      Head // the row afterwards, except Clock
	Changes []Entry
}

// Fits reports whether the part may be carried out on a row: the condition of its statement.
func (p *Part) Fits(row Head) bool {
	if p.Take {
		again := p.To
		again.Clock = row.Clock
		return row == p.Was || row == again
	}
	return row.Node == p.Was.Node && row.Incarnation == p.Was.Incarnation && row.Boot == p.Was.Boot &&
		row.Epoch == p.Was.Epoch && p.Was.Beat <= row.Beat && row.Beat < p.To.Beat
}

// Call is one statement, and a transaction.
type Call struct {
	Number   uint64
	Parts    []Part
	Reserves bool  // the engine has reserves: the result has those of all nodes
	Wish     *Wish // about the reserve of this node; nil: none
}

// Origin names an engine and the life of it: PostgreSQL's system identifier and timeline.
type Origin struct{ System, Timeline uint64 }

// Result is the engine's answer to a call. A call without one has an unknown outcome, as has one whose commit ended
// with a warning.
type Result struct {
	Number uint64
	Done   []bool // for each part
	Heads  *[Shards]Head
	Books  map[int][]Entry // of the shards taken
	Origin Origin
	// Reserves are the rows of all nodes that have one, as they are after the wish.
	Reserves []Reserve
	Fault    error // what of the rows was left out
	Standby  error // why a failover may lose what was acknowledged; nil: it can't, as far as is known
}

// Intervals of a keeper.
const (
	Patience = 3 * time.Second // after which a call without a result counts as unknown
	Gap      = 5 * time.Second // between two readings at most, or the wait for silence begins anew
)
