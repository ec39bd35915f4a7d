package delivery

import (
	"cmp"
	"fmt"
	"strconv"
	"time"
	"unique"

	"example.org/mta/delivery/tlspolicy"
	"example.org/mta/destdb"
	"example.org/mta/internal/gcra"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
)

// laneKey names a lane: jobs of one lane can all go down the same connections.
type laneKey struct {
	site, source string
	demand       tlspolicy.Demand
	account      unique.Handle[route.Auth] // zero without; stands for credentials, which no key holds
}

// laneOf gives the lane of a job.
func laneOf(j *Job) laneKey {
	k := laneKey{site: j.Route.Site, source: j.Source, demand: j.Demand}
	if j.Route.Auth != nil {
		k.account = unique.Make(*j.Route.Auth)
	}
	return k
}

// policy tells the paths to a host apart whose connections differ in the host's name, TLS or account: it is
// their destdb.PathKey.Policy.
type policy struct {
	host    string
	demand  tlspolicy.Demand
	account unique.Handle[route.Auth]
}

func (k *laneKey) policy(h route.Host) any {
	if p := (policy{h.Name, k.demand, k.account}); p != (policy{host: h.Name}) {
		return p
	}
	return h.Name // nearly all mail, in less memory
}

// lane is the mail from one source to one site, as far as it is in the scheduler: what waits, and
// the paths that it can take.
type lane struct {
	laneKey
	s      *Scheduler
	route  *route.Route // of the job that came last
	source Source
	site   *destdb.Site
	tiers  [][]*destdb.Path
	pools  []*pool // of all tiers

	waiting waitlist
	opening int           // connections that were begun for its sake
	dialing []*connection // of those, the ones without a TCP connection
	running int           // parts on connections
	carried int           // recipients of those parts

	siteBudget *budget
	scopes     []scoped // in which the lane's connections and messages count, whoever's they are
	limits     Limits   // of no tenant in particular, as far as slows leave them
	divided    []dividedLimit
	kept       []kept // by one of these, a tenant's or a rule's
	slows      []slowing
	asked      asked

	failedAt time.Time // when a connection for its sake last failed
	used     time.Time
	why      waitReason // why it waits
	waitsOn  *budget    // for a place in which it is in line
	waitsFor string     // the tenant for whose mail it is
	queued   time.Time  // since when it has waited for a place; zero: it does not
	turn     int        // among strangers: lanes of an earlier turn go first, see budget.wait
	wake     time.Time  // its timer
	timer    int        // index in the scheduler's timers, -1 none
	pace     ratePlace
	drain    drain
}

// asked is when a lane asked for its limits.
type asked struct {
	gen    int  // generation of limits
	before bool // its route is from before the last reload
}

// pool is the lanes that use a path: when a connection can take more, they take turns.
type pool struct {
	path  *destdb.Path
	lanes []*lane
	next  int
}

// waitReason is why mail waits, as 'mta explain' says it.
type waitReason struct {
	What   string
	Until  time.Time      // zero: until something happens
	Tenant string         // whose rate it is: other tenants' mail goes past; "": it holds for all
	Waits  parking.Reason // Unclassed: Turn
	line   *rateLine      // of those that wait for the same; nil: by the time alone
}

// decision is what decide says about the message whose turn it is.
type decision struct {
	kind decisionKind
	conn *destdb.Conn // to take it
	path *destdb.Path // to open a connection on
	why  waitReason
	full *budget // whose limit is in the way
}

type decisionKind uint8

const (
	decisionWait decisionKind = iota
	decisionTake
	decisionOpen
	decisionGiveUp
)

// run gives out what waits as far as it can be given out. If the lane was in line for a rate, the next one follows.
func (l *lane) run(now time.Time) {
	line := l.leave()
	l.giveOut(now)
	line.call(now)
}

func (l *lane) giveOut(now time.Time) {
	s := l.s
	l.kept = l.kept[:0]
	for l.waiting.n > 0 {
		if why := l.gate(now); why.What != "" {
			l.stopWaiting()
			l.wait(why, now)
			return
		}
		var held waitReason
		g := l.waiting.pick(now, func(t *tenant) bool {
			why := l.tenantGate(t, now)
			if why.What == "" {
				return false
			}
			same := held.What == "" || why.line == held.line
			if held.What == "" || why.Until.Before(held.Until) {
				held = why
			}
			if !same {
				held.line = nil // one place can't be in two lines
			}
			return true
		})
		if g == nil {
			l.stopWaiting()
			l.wait(held, now)
			return
		}
		switch v := l.decide(g, now); v.kind {
		case decisionTake:
			s.assign(l, g, v.conn.Owner.(*connection), now)
		case decisionOpen:
			s.open(l, v.path, g, now)
		case decisionGiveUp:
			l.giveUp(now)
		default:
			l.wait(v.why, now)
			if v.full == nil {
				l.stopWaiting()
				return
			}
			v.full.wait(l, g, now)
			s.makeSpace(v.full)
			if v.full.kind.ofOpening() {
				s.signal() // whose patience ends now
			}
			return
		}
	}
	l.rest()
}

// rest ends the lane's waiting for places and times: it has no mail that waits.
func (l *lane) rest() {
	l.why = waitReason{}
	l.stopWaiting()
	l.queued = time.Time{}
	line := l.leave()
	l.s.setTimer(l, time.Time{})
	if line != nil { // its mail was cancelled, or has expired
		line.call(l.s.cfg.Now())
	}
}

// decide is Finch's algorithm for the message whose turn it is.
func (l *lane) decide(g *group, now time.Time) decision {
	for _, paths := range l.tiers {
		// A broken tier is passed over, a busy one is not.
		if !anyWorking(paths, now) {
			continue
		}
		if c := newestToShare(paths); c != nil {
			return decision{kind: decisionTake, conn: c}
		}
		allowed := l.s.cfg.allows(g.message.workers, l.free())
		if c := newestIdle(paths); c != nil && allowed {
			return decision{kind: decisionTake, conn: c}
		}
		if c := newestWithSpace(paths); c != nil {
			return decision{kind: decisionTake, conn: c}
		}
		if !allowed {
			return l.rideOrWait(paths,
				decision{why: waitReason{What: "the message has as many connections as it may have"}})
		}
		return l.decideOpening(paths, now)
	}
	return decision{kind: decisionGiveUp}
}

const strangersWait = "half of the relay's connections wait for hosts that have not proved themselves, as this one " +
	"has not"

const suspectsWait = "a quarter of the relay's connections wait for hosts that could not be reached the last time, " +
	"as this one could not, or that take long to answer"

const beingOpened = "a connection is being opened"

// decideOpening reports whether a connection may be begun for a message that may have a worker.
func (l *lane) decideOpening(paths []*destdb.Path, now time.Time) decision {
	// Jobs are bound to a connection when it is ready and not before. So one that is on its way
	// counts for as many as it will take at once.
	slow, next := l.slow(now)
	if (l.opening-slow)*expected(paths) >= l.waiting.n {
		return l.rideOrWait(paths, decision{why: waitReason{What: beingOpened, Until: next}})
	}
	if v, blocked := l.blocked(now); blocked {
		return l.rideOrWait(paths, v)
	}
	var full *budget
	s := l.s
	p := pathToOpen(paths, now, l.s.cfg.Rand, func(p *destdb.Path) bool {
		if n := l.limits.Host.Connections; n > 0 && p.Host.Live() >= n {
			if b := l.s.budget(budgetKey{kind: scopeHost, name: p.Addr.String()}); full == nil || b.idle > full.idle {
				full = b
			}
			return false
		}
		if b := s.fullForStranger(p); b != nil {
			full = b
			return false
		}
		return slow == 0 || !l.slowPath(p, now)
	})
	if p == nil {
		v := decision{full: full,
			why: waitReason{What: "the hosts that work have connections, those that are broken wait for another try"}}
		switch {
		case full == s.openings.strangers:
			v.why.What = strangersWait
		case full == s.openings.suspects:
			v.why.What = suspectsWait
		case full != nil:
			v.why.What = full.limitText()
		case slow > 0:
			v.why.What = beingOpened
			fallthrough
		default:
			v.why.Until = nextRetry(paths, now)
			if !next.IsZero() && (v.why.Until.IsZero() || next.Before(v.why.Until)) {
				v.why.Until = next
			}
		}
		return l.rideOrWait(paths, v)
	}
	return decision{kind: decisionOpen, path: p}
}

// rideOrWait gives the job to a busy connection all the same, if one can take more; else v.
func (l *lane) rideOrWait(paths []*destdb.Path, v decision) decision {
	if c := ride(paths); c != nil {
		return decision{kind: decisionTake, conn: c}
	}
	return v
}

// blocked returns which limit, other than a host's, keeps the lane from one more connection.
func (l *lane) blocked(now time.Time) (decision, bool) {
	s := l.s
	if s.draining {
		return decision{why: waitReason{What: "the relay is stopping"}}, true
	}
	for _, x := range l.scopes {
		if n := x.scope.Connections; x.b.full(n) {
			why := l.whySlow(x, func(s Scope) bool { return s.Connections == n }, x.b.limitText())
			return decision{full: x.b, why: why}, true
		}
		if at := x.b.connections.Next(now, x.scope.ConnectionRate, 1); at.After(now) {
			return decision{why: waitReason{What: "max_connection_rate of " + x.b.String(), Until: at,
				Waits: parking.Limit, line: x.b.lineAt(dividedOpenings, x.scope.ConnectionRate)}}, true
		}
	}
	if why := l.keptBy(dividedOpenings, now); why.What != "" {
		return decision{why: why}, true
	}
	slow, next := l.slow(now)
	if allowed := l.slowStart(); l.siteBudget.live-slow >= allowed {
		return decision{full: l.siteBudget,
			why: waitReason{What: "slow start: " + connections(allowed) + " so far", Until: next,
				Waits: parking.Limit}}, true
	}
	if s.total.full(s.cfg.MaxConnections) {
		return decision{full: s.total, why: waitReason{What: "the relay has as many connections as it may have",
			Waits: parking.Limit}}, true
	}
	if s.openings.all.full(s.onTheirWayLimit()) {
		return decision{full: s.openings.all,
				why: waitReason{What: "three quarters of the relay's connections wait for hosts to be ready for mail",
					Waits: parking.Limit}},
			true
	}
	return decision{}, false
}

func connections(n int) string {
	if n == 1 {
		return "1 connection"
	}
	return fmt.Sprintf("%d connections", n)
}

// free is the workers that a message of this lane could get: what the limits leave, and what is
// idle, since that yields.
func (l *lane) free() int {
	free := l.s.total.free(l.s.cfg.MaxConnections)
	for _, x := range l.scopes {
		if most, bounded := x.b.most(x.scope.Connections); bounded {
			free = min(free, x.b.free(most))
		}
	}
	return max(free, 0)
}

// gate returns what keeps all mail of the lane from being sent now.
func (l *lane) gate(now time.Time) waitReason {
	if a := l.suspension(now); a != nil {
		return waitReason{What: "suspended: " + a.Reason, Until: a.End, Waits: cmp.Or(a.Waits, parking.Suspended)}
	}
	for _, x := range l.scopes {
		if x.scope.MessageRate.Unlimited() {
			continue
		}
		if at := x.b.messages.Next(now, x.scope.MessageRate, 1); at.After(now) {
			why := l.whySlow(x, func(s Scope) bool { return s.MessageRate == x.scope.MessageRate },
				x.b.rateText(x.scope.MessageRate))
			why.Until, why.line = at, x.b.lineAt(dividedMessages, x.scope.MessageRate)
			return why
		}
	}
	if why := l.keptBy(dividedMessages, now); why.What != "" {
		return why
	}
	return l.drainGate(now)
}

// scoped is a budget and what it has to give to a lane.
type scoped struct {
	b     *budget
	scope *Scope
}

// pathAt is the place of the path among a lane's scopes.
const pathAt = 2

// tenantGate returns what keeps one tenant's mail from being sent now.
func (l *lane) tenantGate(t *tenant, now time.Time) waitReason {
	if t.limitsAt != l.asked.gen {
		t.limits, t.limitsAt = l.s.limitsFor(l.route, l.source.Name, t.name), l.asked.gen
		l.eachRate(t.account, func(b *budget, r gcra.Rate) { b.messages.Forgive(now, r) })
		t.rate.Forgive(now, t.limits.TenantPath.MessageRate)
	}
	if rate := t.limits.Tenant.MessageRate; !rate.Unlimited() {
		b := l.s.tenantBudget(t.name)
		if at := b.messages.Next(now, rate, 1); at.After(now) {
			return waitReason{What: fmt.Sprintf("max_message_rate %v of tenant %s", rate, t.name),
				Until: at, Tenant: t.name, Waits: parking.Limit, line: b.lineAt(dividedMessages, rate)}
		}
	}
	if rate := t.limits.TenantPath.MessageRate; !rate.Unlimited() {
		if at := t.rate.Next(now, rate, 1); at.After(now) {
			return waitReason{What: fmt.Sprintf("max_message_rate_per_source %v of tenant %s", rate, t.name),
				Until: at, Tenant: t.name, Waits: parking.Limit}
		}
	}
	why := l.keptTenant(t.account, now)
	for i := range t.limits.Rules {
		r := &t.limits.Rules[i]
		if r.Shared != "" {
			if w := l.keptRule(r, now); w.Until.After(why.Until) {
				why = w
			}
			continue
		}
		b := l.s.ruleBudget(r.Rule)
		if at := b.messages.Next(now, r.Rate, 1); at.After(now) && at.After(why.Until) {
			why = waitReason{What: r.Why, Until: at, Tenant: r.Tenant, Waits: parking.Limit,
				line: b.lineAt(dividedMessages, r.Rate)}
		}
	}
	return why
}

// ruleBudget is of all mail that a rule slows; see tenantBudget.
func (s *Scheduler) ruleBudget(rule int) *budget {
	return s.budget(budgetKey{kind: scopeRule, name: strconv.Itoa(rule)})
}

// tenantBudget is of all mail of a tenant. It is asked for anew each time: when its rate is paid off it
// is dropped.
func (s *Scheduler) tenantBudget(name string) *budget {
	return s.budget(budgetKey{kind: scopeTenant, name: name})
}

// charge pays for one message of t.
func (l *lane) charge(t *tenant, now time.Time) {
	l.eachRate(t.account, func(b *budget, r gcra.Rate) { b.messages.Take(now, r, 1) })
	t.rate.Take(now, t.limits.TenantPath.MessageRate, 1)
	l.spend(dividedMessages)
	l.spendTenant(t.account, now)
	l.drain.sent(now)
	l.s.charged++
	l.pace.charged = l.s.charged // in no line: the lane is being run
}

// giveBack undoes a charge for a message that did not begin: neither others nor, when it is handed over
// again, the message itself must wait for it. Events of limits that relays share are not given back: the part that they
// were of may have ended.
func (l *lane) giveBack(a *account, now time.Time) {
	l.eachRate(a, func(b *budget, r gcra.Rate) {
		b.messages.GiveBack(r, 1)
		b.lines[dividedMessages].call(now)
	})
	a.rate.GiveBack(a.limits.TenantPath.MessageRate, 1)
	l.drain.unsent(now)
}

// eachRate calls f with what paces messages of an account and of others.
func (l *lane) eachRate(a *account, f func(*budget, gcra.Rate)) {
	for _, x := range l.scopes {
		f(x.b, x.scope.MessageRate)
	}
	if rate := a.limits.Tenant.MessageRate; !rate.Unlimited() {
		f(l.s.tenantBudget(a.name), rate)
	}
	for _, r := range a.limits.Rules {
		if r.Shared == "" {
			f(l.s.ruleBudget(r.Rule), r.Rate)
		}
	}
}

// wait notes why nothing more is given out, and sets the lane's timer, or puts it in line.
func (l *lane) wait(why waitReason, now time.Time) {
	if !why.Until.After(now) {
		why.Until = time.Time{} // a timer for what has passed would come at once, again and again
	}
	l.why = why
	if why.line != nil {
		why.line.join(l, now)
		return
	}
	at := why.Until
	if soon := now.Add(tick); len(l.kept) > 0 && (at.IsZero() || at.After(soon)) {
		at = soon // this relay's part of a limit, in whose line the lane is not, may grow
	}
	l.s.setTimer(l, at)
}

// giveUp gives back all that waits: no host of any tier works. What was not tried is withdrawn when
// the site has no other lane that works, since Reserve has no space for it before there is hope.
func (l *lane) giveUp(now time.Time) {
	r, host, at := l.outOfService(now)
	if latest := now.Add(l.limits.MaxHostRetry); at.After(latest) {
		at = latest // a suspension may end sooner than it was to
	}
	hopeless := l.s.outlook(l.laneKey.site, now) == laneOut
	for _, p := range l.waiting.all() {
		tried := !l.failedAt.Before(p.work.since) && !l.failedAt.IsZero()
		l.s.fail(p, Result{Reply: r, Host: host, Attempted: tried, RetryAfter: at, Withdrawn: !tried && hopeless})
	}
}

// outOfService returns why no host can be tried, and when one can.
func (l *lane) outOfService(now time.Time) (reply.Reply, route.Host, time.Time) {
	first, at := firstToRetry(l.tiers, now)
	if p := l.neverFit(); p != nil {
		host := route.Host{Name: p.Name, Addr: p.Addr}
		why := p.Broken.Why
		return reply.Local(why.Code, why.Enhanced, why.Command, "%s: %s", host, why.Text), host, time.Time{}
	}
	if first == nil {
		return reply.Local(451, reply.Enhanced{4, 4, 1}, "connect",
			"source %s (%v) reaches no host of %s: they have addresses of the other family only", l.source.Name,
			l.source.Address, l.route.Domain), route.Host{}, time.Time{}
	}
	why, host := first.Why(), route.Host{Name: first.Name, Addr: first.Addr}
	if a := first.Suspension(now); a != nil && !a.End.Before(at) {
		return reply.Local(451, reply.Enhanced{4, 4, 1}, "connect", "%s: suspended: %s", host, a.Reason), host, at
	}
	if !why.Local && why.Temporary() {
		return why, host, at
	}
	// A permanent refusal of the session says nothing about the message.
	enhanced := reply.Enhanced{4, 4, 1}
	if why.Local && why.Temporary() && why.Enhanced != (reply.Enhanced{}) {
		enhanced = why.Enhanced
	}
	said := why.Text
	if !why.Local {
		said = "the host answered " + why.String()
	}
	return reply.Local(451, enhanced, why.Command, "%s: %s", host, said), host, at
}

// neverFit is a host of the lane when every one of them lacks what the mail has asked for itself: that is
// no matter of time, and its sender is to hear of it (RFC 8689, 4.2.1).
func (l *lane) neverFit() (first *destdb.Path) {
	for _, paths := range l.tiers {
		for _, p := range paths {
			if b := &p.Broken; !b.Unfit || b.Failures == 0 || !b.Why.Local || !b.Why.Permanent() {
				return nil
			}
			if first == nil {
				first = p
			}
		}
	}
	return first
}

// answer puts why a host can't be tried in words: with its codes, where it is the host that answered.
func answer(why reply.Reply, host route.Host) string {
	if why.Local {
		return why.Text
	}
	return host.String() + " answered " + why.String()
}
