// Package changes has all nodes of a cluster know what one has learned: values by key, of several kinds. Each node
// keeps them in stores of its own, and asks nobody else when mail needs one. The engine keeps the newest change of each
// key, under numbers that it gives. Package exchange drives a node.
//
// The rules, each with the failure that it prevents:
//
//   - Numbers are given in batches under one lock, so that a reader who has one has all before it.
//   - Order is the engine's, never a clock's. A change counts unless its key has a newer one that its node had not read
//     when it was made: so what waited for the engine overrides nothing that happened since. Of two such, the one of
//     the higher rank counts, so that nobody's wish to get no mail is lost to an operator's removal elsewhere.
//   - A key that is about to change is noted on the disk first, without its value: a crash loses no change.
//   - A node's changes have serials, of which the engine keeps the last: a repeated call does nothing again.
//   - What was read is applied first, then the position is written: a crash between the two applies it again.
//   - While a key waits in the outbox, what is read about it is left to the engine's answer to that change.
//   - What is applied is not noted. So nothing is sent back.
//   - A position counts in one era of the schema, and on one timeline: another one is read from its beginning, since a
//     failover may have taken back what readers saw. An engine that has less than was read of it has lost changes, and
//     nothing is written or read.
//   - What was read in an era counts as read while it is read again: a removal made meanwhile is not undone.
//   - A store that was damaged notes nothing, and is read again: what it has may have gone back.
package changes

import (
	"context"
	"time"
)

// Kind is the store of one kind. Values are JSON, and nil when there is none under a key. Its keys are
// noted before they change.
type Kind interface {
	// All calls each with all keys, some at a time.
	All(ctx context.Context, each func(keys []string) error) error
	// Get returns the values of those keys that have one.
	Get(ctx context.Context, keys []string) (map[string][]byte, error)
	// Look returns the rank of a value, from 1, and when it ends by itself, zero: never; an error if the store can't
	// have it.
	Look(key string, value []byte) (rank int, until time.Time, err error)
	// Apply puts values in place, durable on return, without noting their keys. It leaves out a key that stays: it asks
	// while nothing else can change the key.
	Apply(ctx context.Context, values map[string][]byte, stays func(key string) bool) error
}

// Row is what the engine has of a key.
type Row struct {
	Kind, Key   string
	Number      uint64 // the change's
	Node        uint16 // that made it
	Incarnation uint64
	Rank        int
	Value       []byte // nil: removed
	Size        int    // of a value, also of one that is too long to be given
	Fault       error  // why no node can have made it
}

// Part is one of a call's changes.
type Part struct {
	Kind, Key string
	Serial    uint64 // of the node's changes; in order
	Seen      uint64 // what the node had read of the kind
	Rank      int
	Value     []byte // nil: removed
	Until     time.Time
}

// Me is a node in one incarnation.
type Me struct {
	Node        uint16
	Incarnation uint64
}

// Fits reports whether the change of a node counts, given the row of its key, nil for none.
func (p *Part) Fits(row *Row, me Me) bool {
	return row == nil || row.Number <= p.Seen || row.Rank < p.Rank || Me{row.Node, row.Incarnation} == me
}

// Call is one statement, and a transaction. It makes changes, writes down what the node has read, and reads more.
type Call struct {
	Me
	Era          string
	Acknowledged uint64            // serial
	After        map[string]uint64 // the position in each kind
	Most         int               // rows
	Parts        []Part            // with serials that rise
}

// Stale reports whether an engine, of an era, a last number and the last serial of this node, is not the one that this
// node knows, or has lost what it had. Then a call does nothing.
func (c *Call) Stale(era string, last, serial uint64) bool {
	for _, n := range c.After {
		if n > last {
			return true
		}
	}
	return c.Era != era || serial < c.Acknowledged
}

// Origin is where a row was read.
type Origin struct {
	Era              string
	System, Timeline uint64
}

// Result is the engine's answer to a call.
type Result struct {
	Origin
	Last      uint64 // number
	Serial    uint64 // of the node, before the call
	Forgotten bool   // the node's incarnation has ended, and nothing was done
	Stale     bool   // likewise, nothing was done
	Rows      []Row  // behind Call.After, by number
	After     []*Row // for each part its key's row after it; nil: a repeated one, of a key that has gone since
}

// Engine is the database. After an error nothing was done, or the outcome is unknown. Calls return when their context
// ends.
type Engine interface {
	Changes(context.Context, Call) (Result, error)
	// Readers is what each member has read of a kind.
	Readers(ctx context.Context, kind string) (map[uint16]uint64, error)
	// Tidy deletes some of the rows that nobody needs any more, and returns how many.
	Tidy(ctx context.Context, most int) (int, error)
}

// Limits of rows.
const (
	MaxKey   = 2 << 10
	MaxValue = 16 << 10
)
