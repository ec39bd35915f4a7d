package delivery

import (
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

// Flow is a tenant's mail of one tier from one source to one site.
type Flow struct {
	Site, Source, Tenant string
	Tier                 uint8
}

// FlowOf gives the flow of a message from a source to a site.
func FlowOf(m *envelope.Message, site, source string) Flow {
	return Flow{Site: site, Source: source, Tenant: m.Tenant, Tier: envelope.TierOf(m.Tier)}
}

// share is the memory that the jobs of one site take. Its flows have equal parts of it, so that neither a
// slow source nor a tenant or tier with much mail keeps another waiting for space.
type share struct {
	jobs  int
	flows map[Flow]*flow // those that have jobs, or want space
	spare *flow          // one that had, for use again: at most sites one flow comes and goes with each message
}

// flow is one flow's part of a share.
type flow struct {
	Flow
	share *share

	jobs    int
	backlog int  // of those, accepted before an outage that has ended
	wanted  bool // the caller found no space, and waits for OnSpace
}

// space is what a job has from Reserve until it is done.
type space struct {
	flow    *flow
	backlog bool // the message was accepted before an outage ended; see drain
}

// wanted reports whether any flow wants space.
func (h *share) wanted() bool {
	for _, p := range h.flows {
		if p.wanted {
			return true
		}
	}
	return false
}

// probeJobs is how many jobs a site has while its hosts are broken and their time to be tried has
// come: the connection decides, and its failure costs an attempt of each.
const probeJobs = 1

// Space is how many more jobs a flow may have. When there is none, OnSpace is called once there is; otherwise a caller
// that took exactly as much as fitted would never hear of more.
func (s *Scheduler) Space(f Flow) int {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return 0
	}
	p := s.flow(f)
	_, free := s.part(p, false, now)
	p.wanted = p.wanted || free <= 0
	s.tidyShare(p)
	return max(free, 0)
}

// Reserve takes space for a job, which Submit or Release must follow. It returns false when the site's share of
// memory is full, when none of its hosts may be tried now, or when the scheduler is stopping: OnSpace is called
// when there is space for the flow. A caller that parks the job calls Space after that, as space may have come
// meanwhile, and sets Job.Called when it submits what Space gave space for.
func (s *Scheduler) Reserve(j *Job) bool {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lane(j, now)
	p := s.flow(FlowOf(j.Message, j.Route.Site, j.Source))
	backlog := l.isBacklog(j.Message, now)
	most, free := s.part(p, !backlog, now)
	called := j.Called && s.outlook(p.Site, now) == laneWorks // else one job finds out, whoever brings it
	if s.draining || most == 0 || free <= 0 && !called {
		p.wanted = true
		s.counts.Refused++
		return false
	}
	j.space = space{p, backlog}
	p.share.jobs++
	p.jobs++
	if backlog {
		p.backlog++
	}
	s.counts.Waiting++
	return true
}

// Release gives back the space of a job that is not submitted.
func (s *Scheduler) Release(j *Job) {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave(j, now)
}

// Draining reports whether a backlog of the flow is leaving at a limited rate. The caller then hands over
// the newest mail first, and the oldest with every fifth job (docs/control.md, Drain).
func (s *Scheduler) Draining(f Flow) bool {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stock(f, now) > 0
}

// Blocked is why no mail for a site can leave, as a reply; false when some can.
func (s *Scheduler) Blocked(site string) (reply.Reply, bool) {
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

// flow gives a flow's part of its site's share, making both if need be.
func (s *Scheduler) flow(f Flow) *flow {
	h := s.shares[f.Site]
	if h == nil {
		h = &share{flows: make(map[Flow]*flow, 1)}
		s.shares[f.Site] = h
	}
	p := h.flows[f]
	if p == nil {
		if p, h.spare = h.spare, nil; p == nil {
			p = new(flow)
		}
		*p = flow{Flow: f, share: h}
		h.flows[f] = p
	}
	return p
}

// tidyShare drops a flow that has no jobs and wants no space. A share without flows is left to remind.
func (s *Scheduler) tidyShare(p *flow) {
	if p.jobs > 0 || p.wanted {
		return
	}
	delete(p.share.flows, p.Flow)
	p.share.spare = p
}

// shareNow is how many jobs each site may have.
func (s *Scheduler) shareNow() int {
	if s.counts.Waiting >= s.cfg.MaxJobs {
		return max(s.cfg.Share/10, 1)
	}
	return s.cfg.Share
}

// part is how many jobs of a flow there may be, and how many more: an equal part of its site's share.
// What others had before there were so many flows, they may keep, so that n flows have up to 1 + 1/2 +
// ... + 1/n times the share for a while. When no lane of the site has a host that works, there may be
// none, or as many of the site as it takes to find out: mail waits at its owner's then, and costs no
// attempt. While the flow drains there may be as much backlog as leaves in a few seconds, so that fresh
// mail finds space.
func (s *Scheduler) part(p *flow, fresh bool, now time.Time) (most, free int) {
	most = max(s.shareNow()/len(p.share.flows), 1)
	free = most - p.jobs
	switch s.outlook(p.Site, now) {
	case laneOut:
		return 0, 0
	case laneProbes:
		most = min(most, probeJobs)
		return most, min(free, most-p.share.jobs)
	}
	if stock := s.stock(p.Flow, now); stock > 0 && !fresh {
		most = min(most, stock)
		free = min(free, most-p.backlog)
	}
	return most, free
}

// stock is how many jobs of a draining flow's backlog are in memory at most; 0 when it doesn't drain.
func (s *Scheduler) stock(f Flow, now time.Time) (n int) {
	for _, l := range s.bySite[f.Site] {
		if l.laneKey.source == f.Source {
			n += l.drain.stock(l, now)
		}
	}
	return n
}

// outlook is the best that can become of mail for a site. One without lanes is tried.
func (s *Scheduler) outlook(site string, now time.Time) prospects {
	lanes := s.bySite[site]
	if len(lanes) == 0 {
		return laneWorks
	}
	best := laneOut
	for _, l := range lanes {
		if best = max(best, l.prospects(now)); best == laneWorks {
			break
		}
	}
	return best
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

// leave gives a job's space back. A caller that wants space hears of it when half of its part is free, not
// at each job.
func (s *Scheduler) leave(j *Job, now time.Time) {
	p := j.space.flow
	p.share.jobs--
	p.jobs--
	if j.space.backlog {
		p.backlog--
	}
	s.counts.Waiting--
	s.offer(p, now)
	s.tidyShare(p)
}

// offer schedules OnSpace for a flow that wants space, once there is enough space to be worth it.
func (s *Scheduler) offer(p *flow, now time.Time) {
	if !p.wanted {
		return
	}
	if most, free := s.part(p, false, now); free > 0 && free >= most-most/2 {
		p.wanted = false
		s.calls.space = append(s.calls.space, p.Flow)
		s.signal()
	}
}

// remind schedules OnSpace for flows that want space, and have it because time has passed. It drops shares without
// flows.
func (s *Scheduler) remind(now time.Time) {
	for site, h := range s.shares {
		if len(h.flows) == 0 {
			delete(s.shares, site)
			continue
		}
		if !h.wanted() || s.outlook(site, now) == laneOut {
			continue
		}
		for _, p := range h.flows {
			s.offer(p, now)
			s.tidyShare(p)
		}
	}
}
