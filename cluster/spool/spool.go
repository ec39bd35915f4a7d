// Package spool has the log of a node's queue in the engine of the cluster, so that the queue outlives its machine.
//
// A node has one log that is not sealed. Each process begins a session of it, and only that of the newest may append:
// entry after entry, one at a time. Another node that takes a log seals it by that, has all that was ever acknowledged
// of it, and goes on with it.
package spool

import (
	"context"
	"crypto/sha256"
	"fmt"
)

// Engine keeps logs. After an error of a call nothing was done, or the outcome is unknown, and to repeat it is
// harmless.
type Engine interface {
	// OpenLog begins a session of the log of a node that is not sealed, and makes one if there is none, unless the
	// claim is for another log. All that it has counts, also what was appended with an unknown outcome.
	OpenLog(context.Context, Claim) (Opened, error)
	// AppendEntry appends the next entry by the newest session of a log that is not sealed. The entry that is the last
	// already, with its session and hash, is appended again.
	AppendEntry(context.Context, Entry) (Answer, error)
	// ReadLog gives entries in order, so many octets of changes at a time, but one entry at least; from a number on, 0:
	// from the newest that begins with an image, or the first of all.
	ReadLog(ctx context.Context, log, from uint64, most int) ([]Head, error)
	// EntryData is the data of an entry, nil if it is not there.
	EntryData(ctx context.Context, log, entry uint64) ([]byte, error)
	// DropEntries forgets the entries before one that begins with an image, but for those that are kept, by the newest
	// session of a log that is not sealed. A call that is late drops nothing that was appended after it.
	DropEntries(ctx context.Context, log, session, image uint64, kept []uint64) (Answer, error)
}

// Sealer is an engine that shows logs, and ends them.
type Sealer interface {
	Engine
	// TakeLog seals a log as it was found: its node and all sessions before append nothing more, and the taker may go
	// on. To repeat it is as an entry for Status.Ago.
	TakeLog(context.Context, Take) (Answer, error)
	Logs(context.Context) ([]Status, error)
	// ClearLog forgets the entries of a log that a node has sealed.
	ClearLog(ctx context.Context, log uint64, by uint16) error
}

// Claim is the right of a directory to its node's log: nobody has written to that without the directory.
type Claim struct {
	Node    uint16
	Log     uint64 // 0: none yet
	Session uint64 // the newest of the directory that was begun
	Next    uint64 // the one to begin, above that. It may have been begun: then that was the last
	Zone    string // where the node is
}

// Take is the claim of another node to a log.
type Take struct {
	Log         uint64 `json:"log"`
	By          uint16 `json:"by"`
	Session     uint64 `json:"session"` // the newest, as the log was found
	Last        uint64 `json:"last"`    // likewise
	Next        uint64 `json:"next"`    // the session to begin, above that
	Incarnation uint64 `json:"incarnation"`
	Ends        bool   `json:"ends"` // nobody goes on with the log
}

// Opened is a log with a new session; or, if the claim is for another one, why: Done is false.
type Opened struct {
	Log uint64 // never used again
	Answer
}

// Entry is one to append. Changes and Data are as this package stores them.
type Entry struct {
	Log, Session uint64
	Number       uint64 // from 1 on
	Image        bool   // it begins with one
	Hash         [sha256.Size]byte
	Changes      []byte
	Data         []byte
}

// Head is an entry without its data.
type Head struct {
	Number  uint64
	Image   bool
	Changes []byte
}

// Answer is how far a log is, after a call for a session.
type Answer struct {
	Done    bool
	Session uint64 // the newest; 0: there is no such log
	Last    uint64
	Sealed  uint16 // the node that has sealed it, 0: none
}

// Status is how far a log is.
type Status struct {
	Log         uint64
	Node        uint16
	Zone        string
	Session     uint64
	Last        uint64
	Sealed      uint16
	Incarnation uint64  // of the node, when the log was first taken; 0: it was not
	Ended       bool    // nobody goes on with it
	Empty       bool    // there are no entries: none yet, or all was cleared
	Beat        float64 // when the last entry or session came, in seconds since 1970 by the engine's clock
	Ago         float64 // how many seconds ago that was
}

// Taken is the error of what can't be done any more, because of how far the log is.
type Taken struct {
	Node    uint16
	Log     uint64
	Session uint64 // of this process; of Open: the last that the directory knows, 0: it knows no log
	Entry   uint64 // that was to be appended, 0: others were to be dropped, or the log opened
	Is      Answer
}

// Lost reports whether the engine lacks what it has acknowledged.
func (t *Taken) Lost() bool {
	return t.Is.Sealed == 0 && (t.Is.Session < t.Session || t.Is.Session == t.Session && t.Entry > t.Is.Last+1)
}

// Error says what has happened, and what to do.
func (t *Taken) Error() string {
	log := fmt.Sprintf("log %d of node %d's queue", t.Log, t.Node)
	switch {
	case t.Session == 0:
		return fmt.Sprintf("%s is in the database, and was written with another directory than this one: restore "+
			"that, or have another node take the mail over by 'mta cluster takeover %d'", log, t.Node)
	case t.Is.Sealed == t.Node:
		return fmt.Sprintf("the node itself, or the adoption of a copy of its directory, has ended %s: 'mta cluster "+
			"rejoin' begins another", log)
	case t.Is.Sealed != 0:
		return fmt.Sprintf("%s was sealed by node %d, which has the mail now: this process must not deliver it, too",
			log, t.Is.Sealed)
	case t.Lost() && t.Entry == 0:
		return "the database has lost writes, or is another one: it lacks the newest session of " + log +
			": if it is the right one, 'mta cluster rejoin --send' begins another copy with what is here"
	case t.Lost():
		return fmt.Sprintf("the database has lost writes: %s ends at entry %d there, and entry %d was acknowledged: "+
			"start the node again, and it appends what its disk has", log, t.Is.Last, t.Entry-1)
	case t.Is.Session > t.Session:
		return fmt.Sprintf("another process of the node has opened %s after this one: stop one of the two; if they "+
			"run on two machines, one has a copy of the node's files; if this is an old copy, have another node take "+
			"the mail over by 'mta cluster takeover %d'", log, t.Node)
	}
	return fmt.Sprintf("%s has another entry %d, by this very session: a copy of this process or its machine runs: "+
		"stop one of them, and start the other one again", log, t.Entry)
}
