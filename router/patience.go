package router

import (
	"time"

	"example.org/mta/router/resolver"
)

// Silent name servers must not delay domains whose own servers answer at once. So a look-up has FirstTry to
// answer. A worker whose look-up takes longer is patient: the look-up may go on for the whole Timeout, but at
// most half of the workers may be patient. When that many are, the look-up is cut off, and its domain waits
// for a patient worker in a separate schedule, as does a domain that took as long within slowFor.

// slowFor is how long a domain counts as slow, and maxSlow how many are remembered.
const (
	slowFor = time.Hour
	maxSlow = 50_000
)

// patience is who is patient. It is guarded by Router.mu.
type patience struct {
	waiting *schedule
	running int // patient workers
	slow    *resolver.Cache[string, struct{}]
}

func newPatience(s *settings) patience {
	return patience{waiting: newSchedule(s.allowance(), s.guarding()),
		slow: resolver.NewCache[string, struct{}](maxSlow)}
}

// mostPatient is how many workers may be patient.
func (s *settings) mostPatient() int { return max(1, s.Workers/2) }

// next gives a patient job a worker when so many are free.
func (p *patience) next(now time.Time, s *settings, free int) (job, bool) {
	j, ok := p.waiting.next(now, min(free, s.mostPatient()-p.running))
	if ok {
		j.patient = true
		p.running++
	}
	return j, ok
}

// isSlow reports whether a domain's look-up took long not long ago.
func (p *patience) isSlow(domain string, now time.Time) bool {
	_, slow := p.slow.Get(domain, now)
	return slow
}

// learn notes whether a domain's look-up took long.
func (p *patience) learn(domain string, slow bool, now time.Time) {
	switch {
	case slow:
		p.slow.Put(domain, struct{}{}, now.Add(slowFor))
	case p.isSlow(domain, now):
		p.slow.Put(domain, struct{}{}, now)
	}
}

// postpone has a job wait for its turn among the patient. Those of a message stay together.
func (p *patience) postpone(j *job, now time.Time) {
	later := j.entry.later
	if later != nil && later.place != nil {
		later.waiting = append(later.waiting, j.domain)
		return
	}
	later = &entry{request: j.entry.request, waiting: []string{j.domain}, arrived: now}
	j.entry.later = later
	p.waiting.add(later)
}

// waitsItsTurn reports whether a job is for the patient workers: its domain was slow not long ago. After
// Close there is no later turn. r.mu is held.
func (r *Router) waitsItsTurn(j *job) bool {
	return !r.mu.closed && !j.patient && j.entry != &r.mu.verify.entry && r.mu.patience.isSlow(j.domain, r.now())
}

// tookLong is called when a look-up has had FirstTry. Look-ups for verification are never cut off: they
// have few workers anyway, and their callers don't wait for longer.
func (r *Router) tookLong(q *quest, cut func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &r.mu.patience
	switch {
	case q.over || q.job.entry == &r.mu.verify.entry:
	case p.running < r.mu.settings.mostPatient():
		q.job.patient = true
		p.running++
	default:
		q.cut = true
		cut()
	}
}

// postpone makes everyone who asked for a domain whose look-up was cut off wait for another. r.mu is held.
func (r *Router) postpone(q *quest) {
	for _, j := range append(q.waiting, q.job) {
		r.mu.patience.postpone(j, r.now())
	}
	q.waiting = nil
}
