package delivery

import (
	"time"

	"example.org/mta/delivery/smtpclient"
	"example.org/mta/destdb"
)

// How much a connection is given is decided by how long a job would wait on it, and not by a count: its
// jobs, times what each takes of the host's round trip. With CHUNKING many messages share a round trip;
// with PIPELINING each takes one, since its envelope goes with the content before; in lock-step it takes
// four.

// learned is what a connection's jobs have shown.
type learned struct {
	jobs     int
	quickest time.Duration // that a job has taken, about one exchange
	each     time.Duration // by which a job was later for each job before it
	pace     time.Duration // from one job's end to the next while it is busy
}

// littleWait is a wait that is not worth another connection, however near the host.
const littleWait = 15 * time.Millisecond

// rideWait is how long a job may wait at least where no other connection can be had: a busy host nearby
// answers many at once, and a writer that always has more is spared much waking.
const rideWait = 25 * time.Millisecond

// fewJobs is how many jobs a connection may have in any case where their wait is that short.
const fewJobs = 5

// average moves v towards a sample by an eighth; the first sample is the average.
func average(v *time.Duration, sample time.Duration) {
	if *v == 0 {
		*v = sample
		return
	}
	*v += (sample - *v) / 8
}

// clocked learns from a job that has ended.
func (c *connection) clocked(p *part, results []smtpclient.Result, now time.Time) {
	gap, took := now.Sub(c.last), now.Sub(p.handed)
	c.last = now
	if results[0].Fate != smtpclient.Answered {
		return
	}
	x := &c.learned
	if x.jobs++; x.jobs == 1 || took < x.quickest {
		x.quickest = took
	}
	if p.ahead > 0 {
		average(&x.each, (took-x.quickest)/time.Duration(p.ahead))
	}
	average(&x.pace, gap)
}

// roundTrip is the host's, without what it works: the handshake has some, and a job too.
func (c *connection) roundTrip() time.Duration {
	trips := time.Duration(1)
	switch c.session.Mode() {
	case smtpclient.LockStep:
		trips = 4
	case smtpclient.Pipelined:
		trips = 2
	}
	return min(c.learned.quickest/trips, c.shaking/2)
}

// measure sets how much backlog c takes. By itself as much as keeps the wait below a round trip; when no
// other connection can be had, as much as the wire makes use of: what is done in the time of one
// exchange and one round trip, so that it never runs dry. A host that works on one message after the
// other gains nothing from a long queue, and what comes late would stand behind all of it.
func (c *connection) measure() {
	depth := c.session.Depth()
	x := &c.learned
	if x.jobs == 0 {
		c.rec.Shared, c.rec.Threshold = 0, atFirst(c.session.Mode(), depth)
		c.rec.Limit = c.rec.Threshold + 1
		if c.session.Mode() == smtpclient.Chunked {
			c.rec.Shared, c.rec.Limit = depth, max(c.rec.Limit, fewJobs)
		}
		return
	}
	trip := c.roundTrip()
	patience := max(trip, littleWait)
	share, each, ride := 0, max(x.each, trip), max(trip, rideWait)
	switch c.session.Mode() {
	case smtpclient.LockStep:
		each = max(x.each, 4*trip)
	case smtpclient.Chunked:
		each = max(x.each, trip/time.Duration(depth))
		share = min(depth, 1+jobsIn(max(trip/4, littleWait), x.each))
		ride = max(fewJobs*trip, rideWait) // while the window is small, it is what makes jobs late
	}
	c.rec.Shared = share
	c.rec.Threshold = min(1+jobsIn(patience, each), max(1+depth, fewJobs))
	more := min(max(depth+1, 2*fewJobs), jobsIn(x.quickest+ride+x.pace/2, x.pace))
	c.rec.Limit = max(c.rec.Threshold, more)
}

// jobsIn is how many jobs fit into a time.
func jobsIn(d, each time.Duration) int {
	if each <= 0 {
		return 1 << 20
	}
	return int(d / each)
}

// atFirst is how many jobs a connection takes by itself before it has shown anything.
func atFirst(mode smtpclient.Mode, window int) int {
	switch mode {
	case smtpclient.LockStep:
		return 1
	case smtpclient.Pipelined:
		return 2
	}
	return 1 + window
}

// expected is how many of the jobs that wait a connection will do for that is being opened on one of these
// paths, as far as can be known before it stands: as many as it takes by itself, but few in any case. They
// have waited for its handshake by then, and its window has yet to grow.
func expected(paths []*destdb.Path) int {
	for _, p := range paths {
		for _, c := range p.Conns() {
			if c.Phase == destdb.Open {
				return min(c.Threshold, fewJobs)
			}
		}
	}
	for _, p := range paths {
		switch p.Host.Facts.Mode {
		case smtpclient.LockStep.String():
			return 1
		case smtpclient.Pipelined.String():
			return 2
		}
	}
	return fewJobs
}
