package delivery

import (
	"time"

	"mta/internal/reply"
)

// share is what the jobs of one site take of the memory.
type share struct {
	jobs    int
	backlog int  // of those, accepted before an outage that has ended
	refused bool // the caller has parked some
	// The caller may have parked a job only after he was told of room: he is told once more.
	again bool
}

// probeJobs is how many jobs a site has while its hosts are broken and their time to be tried has
// come: the connection decides, and its failure costs an attempt of each.
const probeJobs = 1

// Room is how many more jobs a site's share holds. Who is told 0 is as one refused: OnRoom tells
// of room later. Else a caller who took just as much as there was room for would never hear.
func (s *Scheduler) Room(site string) int {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return 0
	}
	h := s.share(site)
	_, free := s.space(site, h, false, now)
	if free <= 0 {
		h.refused, h.again = true, true
		return 0
	}
	s.tidyShare(site, h)
	return free
}

// Draining reports whether a backlog of the site leaves at a limited rate just now: then the caller
// hands over what is newest, but for every fifth job, which is the oldest (control.md 3.5).
func (s *Scheduler) Draining(site string) bool {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stock(site, now) > 0
}

// Trouble is why no mail for a site can leave, as a reply; false when some can.
func (s *Scheduler) Trouble(site string) (reply.Reply, bool) {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	var out *lane
	for _, l := range s.bySite[site] {
		if l.prospects(now) == laneWorks {
			return reply.Reply{}, false
		}
		out = l
	}
	if out == nil {
		return reply.Reply{}, false
	}
	r, _, _ := out.outOfService(now)
	return r, true
}

func (s *Scheduler) share(site string) *share {
	h := s.shares[site]
	if h == nil {
		h = &share{}
		s.shares[site] = h
	}
	return h
}

// tidyShare forgets a share that says nothing.
func (s *Scheduler) tidyShare(site string, h *share) {
	if h.jobs == 0 && !h.refused && !h.again {
		delete(s.shares, site)
	}
}

// shareNow is how many jobs each site may have.
func (s *Scheduler) shareNow() int {
	if s.waiting >= s.cfg.MaxJobs {
		return max(s.cfg.Share/10, 1)
	}
	return s.cfg.Share
}

// space is how many jobs of a site there may be, and how many more. When no lane of the site has a
// host that works, that is none, or as many as it takes to find out: mail waits at its owner's then,
// and costs no attempt. While the site drains there may be as much backlog as leaves in a few
// seconds, so that fresh mail finds room.
func (s *Scheduler) space(site string, h *share, fresh bool, now time.Time) (most, free int) {
	most = s.shareNow()
	free = most - h.jobs
	lanes := s.bySite[site]
	best := laneOut
	for _, l := range lanes {
		if best = max(best, l.prospects(now)); best == laneWorks {
			break
		}
	}
	switch {
	case len(lanes) == 0 || best == laneWorks:
	case best == laneOut:
		return 0, 0
	default:
		most = min(most, probeJobs)
		return most, min(free, most-h.jobs)
	}
	if stock := s.stock(site, now); stock > 0 && !fresh {
		most = min(most, stock)
		free = min(free, most-h.backlog)
	}
	return most, free
}

// stock is how many jobs of a draining site's backlog are in memory at most; 0 when it doesn't
// drain.
func (s *Scheduler) stock(site string, now time.Time) (n int) {
	for _, l := range s.bySite[site] {
		n += l.drain.stock(l, now)
	}
	return n
}

// prospects is what can become of mail of a lane.
type prospects int

const (
	laneOut    prospects = iota // no host may be tried: each waits for its time
	laneProbes                  // hosts are broken, and one may be tried
	laneWorks
)

func (l *lane) prospects(now time.Time) prospects {
	best := laneOut
	if len(l.tiers) == 0 {
		return laneWorks // there is no host to wait for: delivery says so
	}
	for _, paths := range l.tiers {
		for _, p := range paths {
			switch {
			case p.Proven(now):
				return laneWorks
			case p.Working(now):
				best = laneProbes
			}
		}
	}
	return best
}

// admit takes room for one job, which is for lane l; nil when it has none.
func (s *Scheduler) admit(w *work, l *lane, now time.Time) bool {
	w.key = w.Route.Site
	h := s.share(w.key)
	w.backlog = l != nil && l.drain.running(l, now) && w.Message.Start().Before(l.drain.began)
	if _, free := s.space(w.key, h, !w.backlog, now); free <= 0 {
		h.refused, h.again = true, true
		return false
	}
	h.jobs++
	if w.backlog {
		h.backlog++
	}
	s.waiting++
	return true
}

// leave gives a job's room back. Who was refused is told when half of it is free: not at each job.
func (s *Scheduler) leave(w *work, now time.Time) {
	h := s.shares[w.key]
	h.jobs--
	if w.backlog {
		h.backlog--
	}
	s.waiting--
	s.offer(w.key, h, now)
	s.tidyShare(w.key, h)
}

// offer tells who was refused when there is enough room for it to be worth it.
func (s *Scheduler) offer(site string, h *share, now time.Time) {
	if !h.refused {
		return
	}
	if most, free := s.space(site, h, false, now); free > 0 && free >= most-most/2 {
		h.refused = false
		s.room = append(s.room, site)
		s.signal()
	}
}

// remind tells those of room for whom it came with time, and those once more who were refused and
// told of room since.
func (s *Scheduler) remind(now time.Time) {
	for site, h := range s.shares {
		if h.refused {
			s.offer(site, h, now)
			continue
		}
		if h.again {
			h.again = false
			if _, free := s.space(site, h, false, now); free > 0 {
				s.room = append(s.room, site)
				s.signal()
			}
		}
		s.tidyShare(site, h)
	}
}

// makeWay keeps the mail of a suspended source from taking all of its site's share: above half of it,
// what came last goes back, down to three eighths, so that other sources have room. It comes again when
// the suspension has ended, or to see whether it has; that is no attempt.
func (l *lane) makeWay(now time.Time) {
	a := l.suspension(now)
	most := l.s.shareNow()
	if a == nil || a.Source == "" || l.waiting.n <= most/2 {
		return
	}
	again := a.End
	if latest := now.Add(l.limits.MaxHostRetry); latest.Before(again) {
		again = latest
	}
	why := reply.Local(451, reply.Enhanced{4, 3, 2}, "route", "source %s is suspended for %s: %s", l.source.Name, l.laneKey.site, a.Reason)
	keep := max(most*3/8, 1)
	for _, p := range l.waiting.removeIf(func(*part) bool { keep--; return keep < 0 }) {
		l.s.fail(p, Result{Reply: why, RetryAfter: again})
	}
}
