package router

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/router/resolver"
)

// Result is a domain's route and how it came about, or why there is none.
type Result struct {
	Domain     string
	Route      *route.Route // nil when there is none
	Failure    *reply.Reply // then: why
	Expires    time.Time    // until when it holds
	Exchangers []Exchanger  // all that were considered, best first
	Notes      []string     // the steps, for people
}

// Exchanger is one host that a domain's mail could go to.
type Exchanger struct {
	Preference uint16
	Name       string
	Addrs      []netip.Addr // those that can be used
	Skipped    string       // why none is used; "" when some are
	Secure     bool         // the server vouches for all of it (AD)

	own       bool // it is this relay
	temporary bool // it may have addresses another time
	nothing   bool // it has no address at all, and the DNS is sure of it
}

// search is the work on one domain.
type search struct {
	Result
	settings *settings
	resolver Resolver
	rand     func(n int) int
	now      time.Time
	implicit bool // the domain is its own exchanger
	secure   bool // DNSSEC vouches for the list of exchangers
}

// run goes through the steps and gives the result.
func (q *search) run(ctx context.Context) Result {
	q.Expires = q.now.Add(q.settings.MaxRouteAge)
	if domain, text, ok := strings.Cut(q.Domain, via); ok {
		q.Domain = domain
		host, err := parseSmarthost(text)
		if err != nil {
			q.Failure = smarthostFailure(domain, err.Error())
			return q.Result
		}
		q.smarthost(ctx, []Smarthost{host})
	} else if hosts, ok := q.settings.smarthosts.find(q.Domain); ok && len(hosts) > 0 {
		q.smarthost(ctx, hosts)
	} else if strings.HasPrefix(q.Domain, "[") {
		q.literal()
	} else {
		q.exchangers(ctx)
	}
	return q.Result
}

func (q *search) note(format string, args ...any) {
	q.Notes = append(q.Notes, fmt.Sprintf(format, args...))
}

// until shortens how long the result holds.
func (q *search) until(t time.Time) {
	if t.Before(q.Expires) {
		q.Expires = t
	}
}

// smarthost makes the route that configuration asks for: each host a separate tier.
func (q *search) smarthost(ctx context.Context, hosts []Smarthost) {
	if answer := hosts[0].Answer; answer != "" {
		q.note("configuration has this relay answer for %s: %s", q.Domain, answer)
		q.Route = &route.Route{Domain: q.Domain, Site: bounded(answer), Configured: true,
			Tiers: []route.Tier{{route.Inside(answer)}}}
		return
	}
	names := make([]string, len(hosts))
	for i, h := range hosts {
		names[i] = h.address()
		q.note("mail for %s is sent to %s", q.Domain, h)
		q.Exchangers = append(q.Exchangers, Exchanger{Preference: uint16(i), Name: h.Host})
	}
	// Where the operator sends mail is the operator's business: loopback is fine.
	q.findAddresses(ctx, q.settings.familyOff, func(i int) uint16 { return hosts[i].Port })
	rt := &route.Route{Domain: q.Domain, Site: bounded(strings.Join(names, ",")), Auth: hosts[0].Auth,
		Implicit: hosts[0].Implicit, Configured: true}
	for i := range q.Exchangers {
		if tier := q.tier(q.Exchangers[i:i+1], hosts[i].Port, q.settings.MaxHosts-rt.Hosts()); len(tier) > 0 {
			rt.Tiers = append(rt.Tiers, tier)
		}
	}
	if len(rt.Tiers) == 0 {
		q.Failure = smarthostFailure(q.Domain, q.whySkipped())
		return
	}
	rt.Provider = q.provider(q.Exchangers[:1])
	q.Route = rt
}

// literal makes the route of an address literal.
func (q *search) literal() {
	a, err := parseLiteral(q.Domain)
	if err != nil {
		q.Failure = badLiteral(q.Domain, err)
		return
	}
	host := netip.AddrPortFrom(a, q.settings.Port)
	switch why := q.settings.unusable(a); {
	case q.settings.own(host):
		q.Failure = loop(q.Domain)
	case why != "":
		q.Failure = noUsableExchanger(q.Domain, why)
	default:
		q.note("%s is an address literal: no look-up", q.Domain)
		q.Exchangers = []Exchanger{{Name: a.String(), Addrs: []netip.Addr{a}}}
		q.Route = &route.Route{Domain: q.Domain, Site: literalName(a), Configured: true,
			Tiers: []route.Tier{{{Name: a.String(), Addr: host}}}}
	}
}

// heed notes an error of the resolver, and how long it holds.
func (q *search) heed(err error) {
	q.note("%v", err)
	if e, ok := err.(*resolver.Error); ok {
		q.until(e.Expires)
	} else {
		q.until(q.now)
	}
}

// reasonOf is what a report may say of an error: never which name servers we use.
func reasonOf(err error) string {
	if e, ok := err.(*resolver.Error); ok {
		return e.Reason
	}
	return "look-up failed"
}

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
