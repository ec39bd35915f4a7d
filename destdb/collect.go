package destdb

import (
	"net/netip"
	"slices"
	"time"
)

// Collect is the garbage collector: what is stale leaves the picture, and its record the store.
// A path that goes is unused when it is met again. Keep, if not nil, holds paths that are in use.
//
// A call looks at a sixtieth of a large picture and goes on there the next time, since all that wait
// for the picture wait for it: called each second, it has seen everything within a minute.
func (db *DB) Collect(now time.Time, keep func(*Path) bool) {
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
		db.collectSite(s, now)
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

func (db *DB) collectSite(s *Site, now time.Time) {
	s.Actions = slices.DeleteFunc(s.Actions, func(a Action) bool { return now.Sub(a.End) >= db.lifetimes.Closed })
	if s.live == 0 && now.Sub(s.used) >= db.lifetimes.Facts {
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
