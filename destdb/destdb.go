// Package destdb is what this relay knows of the destinations of its mail: which hosts and sites
// there are, which connections are open to them, which are broken and until when, and what their
// answers have taught.
//
// The picture is in memory, and a [DB] is plain data: it has no goroutine and no lock. Its owner
// (delivery's scheduler) guards it by the lock that guards its own decisions, so that a decision
// sees hosts, connections and limits in one consistent state and costs no second lock.
//
// What should outlive the process is kept as [Record]s. The owner takes the changed ones with
// [DB.Changed] and writes them behind, to a [Store]; a record is a hint, and losing one costs a
// connection attempt. [File] is one on this machine; a store shared by a cluster can take its
// place (its records then reach the others' pictures by [DB.Learn]).
package destdb

import (
	"net/netip"
	"strings"
	"time"
)

// Store keeps records. Both methods take many at once, may be repeated with the same records
// without harm, and may fail: the picture goes on without them.
type Store interface {
	// Load hands all records to learn, in batches of a size that is the store's, so that they are
	// never in memory all at once. Of a store that has to be set aside it gives what came before the
	// damage, if anything. A batch is learn's to keep.
	Load(learn func([]Record)) error
	// Save replaces the records with these keys; those that are Gone are removed.
	Save([]Record) error
}

// Lifetimes of what is remembered. Zero fields take the defaults.
type Lifetimes struct {
	Closed time.Duration // when the last connection was made (10 min)
	Retry  time.Duration // a retry record, after its time has come (10 min)
	Facts  time.Duration // capabilities, windows, TLS, slow start, counted from their last use (7 days)
}

func (l Lifetimes) withDefaults() Lifetimes {
	if l.Closed <= 0 {
		l.Closed = 10 * time.Minute
	}
	if l.Retry <= 0 {
		l.Retry = 10 * time.Minute
	}
	if l.Facts <= 0 {
		l.Facts = 7 * 24 * time.Hour
	}
	return l
}

// DB is the picture. It must not be used by two goroutines at once.
type DB struct {
	lifetimes Lifetimes

	hosts map[netip.Addr][]*Host // one for each port
	paths map[PathKey]*Path
	ways  map[Key][]*Path // the paths of a source to a host: one for each policy
	sites map[string]*Site

	// For listings, and for Collect, which goes through them a part at a time.
	hostsInOrder ordered[HostKey, *Host]
	sitesInOrder ordered[string, *Site]
	hostsSwept   HostKey
	sitesSwept   string

	changed map[Key]struct{}
}

// New makes an empty picture.
func New(l Lifetimes) *DB {
	return &DB{
		lifetimes: l.withDefaults(),
		hosts:     make(map[netip.Addr][]*Host),
		paths:     make(map[PathKey]*Path),
		ways:      make(map[Key][]*Path),
		sites:     make(map[string]*Site),

		hostsInOrder: ordered[HostKey, *Host]{key: (*Host).place, compare: HostKey.Compare},
		sitesInOrder: ordered[string, *Site]{key: func(s *Site) string { return s.Name }, compare: strings.Compare},

		changed: make(map[Key]struct{}),
	}
}
