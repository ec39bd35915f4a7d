package delivery

import (
	"math/rand/v2"
	"time"

	"example.org/mta/destdb"
)

// The steps of Finch's scheduler. Each looks at the picture and changes nothing; paths are those
// from one source to the hosts of one tier. Their order is in lane.decide.

// anyWorking reports whether a tier is of any use now: it has connections, or a host that may be
// tried. (Step 6: if not, the next tier's turn comes.)
func anyWorking(paths []*destdb.Path, now time.Time) bool {
	for _, p := range paths {
		if p.Working(now) {
			return true
		}
	}
	return false
}

// newestToShare is the newest busy connection on which one more job goes along in the same round trip.
func newestToShare(paths []*destdb.Path) *destdb.Conn {
	return newestBelow(paths, (*destdb.Conn).Shares)
}

// newestWithSpace is step 2: the newest busy connection on which a job waits for a round trip at most.
func newestWithSpace(paths []*destdb.Path) *destdb.Conn {
	return newestBelow(paths, (*destdb.Conn).Space)
}

func newestBelow(paths []*destdb.Path, takes func(*destdb.Conn) bool) *destdb.Conn {
	var best *destdb.Conn
	for _, p := range paths {
		for _, c := range p.Conns() {
			if best != nil && !newer(c, best) {
				break
			}
			if c.Backlog > 0 && takes(c) {
				best = c
				break
			}
		}
	}
	return best
}

// ride is step 3: the newest busy connection with fewer jobs than the newest one has, else the
// newest, so that jobs that may not have a worker of their own spread evenly. A connection that
// has as much as it may ever have is left out.
func ride(paths []*destdb.Path) *destdb.Conn {
	newest := newestBusy(paths)
	if newest == nil {
		return nil
	}
	var shorter, any *destdb.Conn
	for _, p := range paths {
		for _, c := range p.Conns() {
			if c.Backlog == 0 || !c.Rideable() {
				continue
			}
			if c.Backlog < newest.Backlog && (shorter == nil || newer(c, shorter)) {
				shorter = c
			}
			if any == nil || newer(c, any) {
				any = c
			}
		}
	}
	switch {
	case shorter != nil:
		return shorter
	case newest.Rideable():
		return newest
	}
	return any
}

func newestBusy(paths []*destdb.Path) *destdb.Conn {
	var best *destdb.Conn
	for _, p := range paths {
		for _, c := range p.Conns() {
			if c.Phase == destdb.Open && c.Backlog > 0 {
				if best == nil || newer(c, best) {
					best = c
				}
				break
			}
		}
	}
	return best
}

// newestIdle is the first half of step 4: the idle connection that was busy last.
func newestIdle(paths []*destdb.Path) *destdb.Conn {
	var best *destdb.Conn
	for _, p := range paths {
		for _, c := range p.Conns() {
			if c.Phase == destdb.Open && c.Backlog == 0 && (best == nil || c.Since.After(best.Since)) {
				best = c
			}
		}
	}
	return best
}

// newer orders connections by when they were made.
func newer(a, b *destdb.Conn) bool { return a.Made.After(b.Made) }

// pathToOpen is the second half of step 4, and step 5: where a new connection goes. A random
// unused path; else the closed one whose connection was made longest ago; else a random one on the
// retry list whose time has come; else the host with the fewest connections, random among equals.
// MayOpen leaves out what has met a limit of its own.
func pathToOpen(paths []*destdb.Path, now time.Time, rnd *rand.Rand, mayOpen func(*destdb.Path) bool) *destdb.Path {
	var unused, closed, retry, least *destdb.Path
	var nUnused, nRetry, nLeast int
	for _, p := range paths {
		if _, retrying := p.Retrying(now); retrying || !mayOpen(p) {
			continue
		}
		switch p.State() {
		case destdb.Unused:
			unused = oneOf(unused, p, &nUnused, rnd)
		case destdb.Closed:
			if closed == nil || p.Made.Before(closed.Made) {
				closed = p
			}
		case destdb.Retry:
			// A connection that is on its way out keeps its host off this list until it is gone.
			if len(p.Conns()) == 0 {
				retry = oneOf(retry, p, &nRetry, rnd)
			}
		default:
			switch {
			case p.Suspect():
				// One connection tries it; more follow when that one stands.
			case least == nil || p.Host.Live() < least.Host.Live():
				least, nLeast = p, 1
			case p.Host.Live() == least.Host.Live():
				least = oneOf(least, p, &nLeast, rnd)
			}
		}
	}
	for _, p := range []*destdb.Path{unused, closed, retry, least} {
		if p != nil {
			return p
		}
	}
	return nil
}

// oneOf keeps each of n candidates with the same chance.
func oneOf(have, candidate *destdb.Path, n *int, rnd *rand.Rand) *destdb.Path {
	*n++
	if *n == 1 || rnd.IntN(*n) == 0 {
		return candidate
	}
	return have
}

// firstToRetry is the path whose time comes first, and when; nil when no path waits.
func firstToRetry(tiers [][]*destdb.Path, now time.Time) (first *destdb.Path, when time.Time) {
	for _, paths := range tiers {
		for _, p := range paths {
			if at, _ := p.Retrying(now); !at.IsZero() && (first == nil || at.Before(when)) {
				first, when = p, at
			}
		}
	}
	return first, when
}

// nextRetry is the next time at which a broken path may be tried; zero when none waits for it.
func nextRetry(paths []*destdb.Path, now time.Time) (next time.Time) {
	for _, p := range paths {
		if at, retrying := p.Retrying(now); retrying && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}
