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
// connection attempt. [File] is one on this machine. Of other relays' hosts there is [DB.Heard].
package destdb

import (
	"net/netip"
	"slices"
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

// Collect is the garbage collector: what is stale leaves the picture, and its record the store.
// A path that goes is unused when it is met again. keep, if not nil, holds paths that are in use, and keepSite
// sites: whoever has one that goes would no longer see what happens to the site of that name.
//
// A call looks at a sixtieth of a large picture and goes on there the next time, since all that wait
// for the picture wait for it: called each second, it has seen everything within a minute.
func (db *DB) Collect(now time.Time, keep func(*Path) bool, keepSite func(*Site) bool) {
	n := sweep(db.hostsInOrder.n)
	hosts := db.hostsInOrder.after(db.hostsSwept, n)
	for _, h := range hosts {
		db.hostsSwept = h.place()
		db.collectHost(h, now, keep)
	}
	if len(hosts) < n { // the next time from the beginning
		db.hostsSwept = HostKey{}
	}
	n = sweep(db.sitesInOrder.n)
	sites := db.sitesInOrder.after(db.sitesSwept, n)
	for _, s := range sites {
		db.sitesSwept = s.Name
		db.collectSite(s, now, keepSite)
	}
	if len(sites) < n {
		db.sitesSwept = ""
	}
}

// sweep is how many of n are looked at in one call.
func sweep(n int) int { return max(1000, (n+59)/60) }

func (db *DB) collectHost(h *Host, now time.Time, keep func(*Path) bool) {
	for _, p := range slices.Backward(h.paths) { // drop puts the last one in the place of what goes
		db.forgetStale(p, now)
		if len(p.conns) == 0 && p.State() == Unused && p.Broken.Failures == 0 && (keep == nil || !keep(p)) {
			db.drop(p.PathKey, p)
		}
	}
	if h.Broken.stale(now, db.lifetimes.Retry) {
		h.Broken = Broken{}
		db.touch(h.key())
	}
	h.Suspensions = slices.DeleteFunc(h.Suspensions, func(a Action) bool {
		return now.Sub(a.End) >= db.lifetimes.Closed
	})
	if len(h.paths) == 0 && h.Broken.Failures == 0 && len(h.Suspensions) == 0 && now.Sub(h.used) >= db.lifetimes.Facts {
		db.dropHost(h)
	}
}

func (db *DB) collectSite(s *Site, now time.Time, keep func(*Site) bool) {
	s.Actions = slices.DeleteFunc(s.Actions, func(a Action) bool { return now.Sub(a.End) >= db.lifetimes.Closed })
	if s.live == 0 && len(s.Actions) == 0 && now.Sub(s.used) >= db.lifetimes.Facts && (keep == nil || !keep(s)) {
		db.dropSite(s)
	}
}

// forgetStale takes away what p's records say once they are too old to say anything.
func (db *DB) forgetStale(p *Path, now time.Time) {
	if p.Broken.stale(now, db.lifetimes.Retry) {
		p.Broken = Broken{}
		db.touch(p.key())
	}
	if len(p.conns) == 0 && !p.Made.IsZero() && now.Sub(p.Made) >= db.lifetimes.Closed {
		p.Made = time.Time{}
		db.touch(p.key())
	}
}

// Forget takes all that is known of hosts out of the picture, live connections apart, so that they
// are tried anew. It returns how many of them were known.
func (db *DB) Forget(addrs []netip.AddrPort) (n int) {
	for _, addr := range addrs {
		h := db.Known(addr)
		if h == nil {
			continue
		}
		h.Broken, h.Facts = Broken{}, Facts{}
		db.touch(h.key())
		n++
		for _, p := range h.paths {
			p.Broken = Broken{}
			if len(p.conns) == 0 {
				p.Made = time.Time{}
			}
			db.touch(p.key())
		}
	}
	return n
}

// ordered is a list in the order of its keys. It is cut into pieces, so that what comes or goes moves
// a piece at most, and not all that lies behind it.
type ordered[K, T any] struct {
	pieces  [][]T // none is empty
	n       int   // how many there are
	key     func(T) K
	compare func(a, b K) int
}

// pieceMax is how long a piece grows before it is cut in two.
const pieceMax = 512

// find gives the place of the first element whose key is not below k, and whether it is k.
func (o *ordered[K, T]) find(k K) (piece, at int, found bool) {
	piece, _ = slices.BinarySearchFunc(o.pieces, k, func(p []T, k K) int { return o.compare(o.key(p[len(p)-1]), k) })
	if piece == len(o.pieces) {
		return piece, 0, false
	}
	at, found = slices.BinarySearchFunc(o.pieces[piece], k, func(x T, k K) int { return o.compare(o.key(x), k) })
	return piece, at, found
}

// insert adds an element whose key is not there yet.
func (o *ordered[K, T]) insert(x T) {
	o.n++
	piece, at, _ := o.find(o.key(x))
	if piece == len(o.pieces) { // behind all others
		if piece == 0 {
			o.pieces = append(o.pieces, []T{x})
			return
		}
		piece--
		at = len(o.pieces[piece])
	}
	p := slices.Insert(o.pieces[piece], at, x)
	o.pieces[piece] = p
	if half := len(p) / 2; len(p) > pieceMax {
		o.pieces = slices.Insert(o.pieces, piece+1, slices.Clone(p[half:]))
		o.pieces[piece] = slices.Delete(p, half, len(p))
	}
}

// remove takes out the element with that key, if there is one.
func (o *ordered[K, T]) remove(k K) {
	piece, at, found := o.find(k)
	if !found {
		return
	}
	o.n--
	o.pieces[piece] = slices.Delete(o.pieces[piece], at, at+1)
	if len(o.pieces[piece]) == 0 {
		o.pieces = slices.Delete(o.pieces, piece, piece+1)
	}
}

// after gives the first n elements whose keys are above k.
func (o *ordered[K, T]) after(k K, n int) []T {
	var list []T
	piece, at, found := o.find(k)
	if found {
		at++
	}
	for ; piece < len(o.pieces) && n > 0; piece, at = piece+1, 0 {
		some := o.pieces[piece][at:]
		some = some[:min(n, len(some))]
		list = append(list, some...)
		n -= len(some)
	}
	return list
}
