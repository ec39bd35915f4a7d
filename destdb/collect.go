package destdb

import (
	"slices"
	"time"
)

// Collect is the garbage collector: what is stale leaves the picture, and its record the store.
// A path that goes is unused when it is met again. Keep, if not nil, holds paths that are in use.
func (db *DB) Collect(now time.Time, keep func(*Path) bool) {
	for key, p := range db.paths {
		db.forgetStale(p, now)
		if len(p.conns) == 0 && p.State() == Unused && p.Broken.Failures == 0 && (keep == nil || !keep(p)) {
			db.drop(key, p)
		}
	}
	for addr, h := range db.hosts {
		if h.Broken.stale(now, db.lifetimes.Retry) {
			h.Broken = Broken{}
			db.touch(h.key())
		}
		h.Suspensions = slices.DeleteFunc(h.Suspensions, func(a Action) bool { return now.Sub(a.End) >= db.lifetimes.Closed })
		if h.paths == 0 && h.Broken.Failures == 0 && len(h.Suspensions) == 0 && now.Sub(h.used) >= db.lifetimes.Facts {
			delete(db.hosts, addr)
			db.touch(h.key())
		}
	}
	for name, s := range db.sites {
		s.Actions = slices.DeleteFunc(s.Actions, func(a Action) bool { return now.Sub(a.End) >= db.lifetimes.Closed })
		if s.live == 0 && now.Sub(s.used) >= db.lifetimes.Facts {
			delete(db.sites, name)
			db.touch(s.key())
		}
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

func (db *DB) drop(key PathKey, p *Path) {
	delete(db.paths, key)
	p.Host.paths--
	k := p.key()
	db.ways[k] = slices.DeleteFunc(db.ways[k], func(o *Path) bool { return o == p })
	if len(db.ways[k]) == 0 {
		delete(db.ways, k)
		db.touch(k)
	}
}

// Forget takes all that is known of a host out of the picture, live connections apart, so that it
// is tried anew. It reports whether there was anything.
func (db *DB) Forget(match func(name string, addr string) bool, now time.Time) int {
	n := 0
	for _, h := range db.hosts {
		if !match(h.Name, h.Addr.Addr().String()) {
			continue
		}
		h.Broken, h.Facts = Broken{}, Facts{}
		db.touch(h.key())
		n++
	}
	for _, p := range db.paths {
		if match(p.Host.Name, p.Addr.Addr().String()) {
			p.Broken = Broken{}
			if len(p.conns) == 0 {
				p.Made = time.Time{}
			}
			db.touch(p.key())
		}
	}
	return n
}
