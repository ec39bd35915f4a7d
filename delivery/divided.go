package delivery

import (
	"slices"
	"time"

	"example.org/mta/internal/gcra"
	"example.org/mta/internal/parking"
)

// Divider gives this relay its part of the limits that it shares with others. A limit has the same name in all of them.
// The scheduler calls it with its lock held: it must be quick, and not call the scheduler.
type Divider interface {
	// WantConnections declares a limit on connections, and how many this relay could use.
	WantConnections(name string, limit, want int)
	// WantRate declares a rate, and how many events a second this relay could use.
	WantRate(name string, limit gcra.Rate, want float64)

	// Allowed is how many connections this relay may have now.
	Allowed(name string) int
	// Open notes up to n new connections, and returns how many there may be.
	Open(name string, n int) int
	Close(name string, n int)

	// Next is how long it takes until this relay may have an event, below 0 while it has no part of the rate.
	Next(name string) time.Duration
	// Spend notes an event.
	Spend(name string)
	// Held reports whether this relay has a part of a limit. Connections ask for each message.
	Held(name string) bool
	// Lacks is why this relay has no part of a limit, if nothing can give it one now; "" otherwise.
	Lacks(name string) string
}

// division is what a budget has in place of limits of this relay alone. Connections are places of the budget as those
// of any other; the rates are the Divider's to pace.
type division struct {
	d     Divider
	limit Scope // as the lanes have it: the smallest of each
	gen   int   // of limit
	names [3]string
	met   [3]bool // at the last tick mail waited for the limit itself
	due   bool    // then it waited for another limit, and will need this one
	open  int     // connections that the Divider knows of
	paces [3]pace
}

// The limits of a division, by which names and paces are indexed.
const (
	dividedConnections = iota
	dividedMessages
	dividedOpenings
)

// pace is how fast a rate is used.
type pace struct {
	spent  int     // since the last tick
	recent float64 // events a second, of late
}

// Intervals and factors of a division.
const (
	paceKept = 0.8  // of what a pace was a second ago, when less is used
	headroom = 1.25 // of the pace is wanted while nothing waits
	paceless = 0.01 // events a second below which nothing is

	dividedLife  = time.Minute      // for which a limit is kept that no lane has
	dividedQuiet = 20 * time.Second // and one from before a reload
)

// divide gives the budget of a divided limit, as a lane or a tenant's mail has it.
func (s *Scheduler) divide(x NamedScope, now time.Time) *budget {
	b := s.budget(budgetKey{kind: scopeDivided, name: x.Name})
	if b.division == nil {
		b.division = &division{d: s.cfg.Divider, gen: -1, names: [3]string{
			x.Name + ": connections", x.Name + ": messages", x.Name + ": new connections"}}
	}
	v, was := b.division, b.division.limit
	b.named = now
	if v.gen == s.limGen {
		v.limit = v.limit.Least(x.Scope)
	} else {
		v.limit, v.gen = x.Scope, s.limGen
	}
	if v.limit != was {
		v.forgo(was, v.limit)
		v.met, v.due = [3]bool{true, true, true}, true // mail is about to come
		v.want(b)
	}
	return b
}

// forgo wants nothing any more of what is no limit now.
func (v *division) forgo(was, is Scope) {
	if was.Connections > 0 && is.Connections == 0 {
		v.d.WantConnections(v.names[dividedConnections], was.Connections, 0)
	}
	for i, r := range [3][2]gcra.Rate{dividedMessages: {was.MessageRate, is.MessageRate},
		dividedOpenings: {was.ConnectionRate, is.ConnectionRate}} {
		if !r[0].Unlimited() && r[1].Unlimited() {
			v.d.WantRate(v.names[i], r[0], 0)
		}
	}
}

// tick is called once a second. A limit from before a reload may be another one now: without mail of it this relay
// would hold all others to the earlier one, if that is smaller.
func (v *division) tick(b *budget, gen int, now time.Time) {
	if v.gen != gen && now.Sub(b.named) > dividedQuiet {
		v.forgo(v.limit, Scope{})
		v.limit = Scope{}
	}
	v.want(b)
}

// want has the Divider know how much this relay could use.
func (v *division) want(b *budget) {
	v.wantConnections(b)
	for i, r := range v.rates() {
		p, want := &v.paces[i], 0.
		p.recent, p.spent = max(p.recent*paceKept, float64(p.spent)), 0
		switch {
		case r.Unlimited():
			continue
		case v.met[i]:
			want = r.PerSecond()
		case v.due, p.recent >= paceless:
			want = min(max(headroom*p.recent, paceless), r.PerSecond())
		}
		v.d.WantRate(v.names[i], r, want)
	}
	v.met, v.due = [3]bool{}, false
}

// wantConnections does so for connections: those that there are, and half as many again while lanes wait for one.
func (v *division) wantConnections(b *budget) {
	if v == nil || v.limit.Connections == 0 {
		return
	}
	limit, want := v.limit.Connections, b.live
	v.count(b.live)
	if b.waiting > 0 {
		want += max(b.waiting, b.live/2)
	} else if v.due || v.met[dividedConnections] {
		want = max(want, 1)
	}
	v.d.WantConnections(v.names[dividedConnections], limit, min(want, limit))
}

// forgotten reports whether no mail has named the limit of late.
func (v *division) forgotten(b *budget, now time.Time) bool {
	return v == nil || now.Sub(b.named) > dividedLife
}

// rates are those of the limits that have one.
func (v *division) rates() [3]gcra.Rate {
	return [3]gcra.Rate{dividedMessages: v.limit.MessageRate, dividedOpenings: v.limit.ConnectionRate}
}

// allowed is how many connections there may be; bounded is false when there is no limit on them.
func (v *division) allowed() (n int, bounded bool) {
	if v.limit.Connections == 0 {
		return 0, false
	}
	return v.d.Allowed(v.names[dividedConnections]), true
}

// count has the Divider know how many connections there are. Those that were there before their limit may be too many.
func (v *division) count(live int) {
	if v == nil {
		return
	}
	switch more := live - v.open; {
	case more > 0 && v.limit.Connections > 0:
		v.open += v.d.Open(v.names[dividedConnections], more)
	case more < 0:
		v.d.Close(v.names[dividedConnections], -more)
		v.open = live
	}
}

// spend notes an event of a rate.
func (v *division) spend(i int) {
	if !v.rates()[i].Unlimited() {
		v.paces[i].spent++
		v.d.Spend(v.names[i])
	}
}

// keeps returns why mail must wait for its part of a rate, and until when; zero: until this relay's part has grown.
func (b *budget) keeps(i int, now time.Time) (why string, until time.Time) {
	v := b.division
	rate := v.rates()[i]
	if rate.Unlimited() {
		return "", now
	}
	wait := v.d.Next(v.names[i])
	if wait == 0 {
		return "", now
	}
	why = "max_connection_rate of " + b.String()
	if i == dividedMessages {
		why = b.rateText(rate)
	}
	if wait < 0 {
		return PartOf + why, time.Time{}
	}
	return why, now.Add(wait)
}

// lacking adds to why mail waits for a limit why nothing gives this relay a part of it now.
func (v *division) lacking(why string, i int) string {
	if lacks := v.d.Lacks(v.names[i]); lacks != "" {
		why += ": " + lacks
	}
	return why
}

// next is when a lane that waits for a limit may go on; zero: when this relay's part has grown.
func (v *division) next(i int, now time.Time) time.Time {
	wait := v.d.Next(v.names[i])
	if n, bounded := v.allowed(); i == dividedConnections && bounded && n > 0 {
		wait = 0
	}
	if wait < 0 {
		return time.Time{}
	}
	return now.Add(wait)
}

// keptBy is keeps for all divided limits of a lane. Without a part of a limit on connections mail does not go on one
// that was there before the limit either.
func (l *lane) keptBy(i int, now time.Time) waitReason {
	for _, p := range l.divided {
		why, until := p.b.keeps(i, now)
		if n, bounded := p.b.division.allowed(); why == "" && bounded && n == 0 {
			why, until, i = p.b.limitText(), time.Time{}, dividedConnections
		}
		if why != "" {
			l.keep(p.b, i)
			return waitReason{What: why, Until: until, Waits: parking.Limit,
				line: p.b.lineAt(i, gcra.Rate{})}
		}
	}
	return waitReason{}
}

// kept is a divided limit for which mail of a lane waits.
type kept struct {
	b *budget
	i int
}

func (l *lane) keep(b *budget, i int) {
	if k := (kept{b, i}); !slices.Contains(l.kept, k) {
		l.kept = append(l.kept, k)
	}
}

// keptTenant is keeps for those of a tenant.
func (l *lane) keptTenant(a *account, now time.Time) (why waitReason) {
	for _, x := range a.divided() {
		if why = l.keptMessages(x, a.name, now); why.What != "" {
			break
		}
	}
	return why
}

// keptRule is keeps for a rule that relays share.
func (l *lane) keptRule(r *RuleRate, now time.Time) waitReason {
	why := l.keptMessages(r.scope(), r.Tenant, now)
	if why.What != "" {
		why.What = r.Why
	}
	return why
}

// keptMessages is keeps for the messages of a tenant, or all.
func (l *lane) keptMessages(x NamedScope, tenant string, now time.Time) waitReason {
	b := l.s.divide(x, now)
	why, until := b.keeps(dividedMessages, now)
	if why == "" {
		return waitReason{}
	}
	l.keep(b, dividedMessages)
	if until.IsZero() {
		until = now.Add(tick) // other mail may have a time
	}
	return waitReason{What: why, Until: until, Tenant: tenant, Waits: parking.Limit,
		line: b.lineAt(dividedMessages, gcra.Rate{})}
}

// divided are the limits of a tenant's mail. Without a name they are the lane's.
func (a *account) divided() []NamedScope {
	if a.name == "" {
		return nil
	}
	return a.limits.Divided
}

// spend notes an event of a rate in the lane's divided limits.
func (l *lane) spend(i int) {
	for _, p := range l.divided {
		p.b.division.spend(i)
	}
}

// spendTenant notes a message in those of a tenant, and of the rules that slow it.
func (l *lane) spendTenant(a *account, now time.Time) {
	for _, x := range a.divided() {
		l.s.divide(x, now).division.spend(dividedMessages)
	}
	for i := range a.limits.Rules {
		if r := &a.limits.Rules[i]; r.Shared != "" {
			l.s.divide(r.scope(), now).division.spend(dividedMessages)
		}
	}
}

// dividedLimit is a divided limit as a lane's mail has it.
type dividedLimit struct {
	b     *budget
	limit Scope
}

// held reports whether this relay has a part of what a message needs. It needs no lock.
func (x *dividedLimit) held() bool {
	v := x.b.division
	return (x.limit.Connections == 0 || v.d.Held(v.names[dividedConnections])) &&
		(x.limit.MessageRate.Unlimited() || v.d.Held(v.names[dividedMessages]))
}

// mayBegin has a transaction ask whether this relay still has its parts, and then what else it asks: the process may
// have been stopped since the message was given to a connection.
func mayBegin(limits []dividedLimit, ask func(int) bool) func(int) bool {
	if len(limits) == 0 {
		return ask
	}
	return func(recipients int) bool {
		for i := range limits {
			if !limits[i].held() {
				return false
			}
		}
		return ask == nil || ask(recipients)
	}
}

// meet notes once a second that the lane's mail waits for a divided limit. It needs something of all of them: a part of
// one that was given up while the mail waited for another would have to be waited for again.
func (l *lane) meet() {
	if len(l.kept) == 0 && (l.waitsOn == nil || l.waitsOn.division == nil) || l.waiting.n == 0 {
		return
	}
	for _, k := range l.kept {
		k.b.division.met[k.i] = true
	}
	for _, p := range l.divided {
		p.b.division.due = true
	}
}

// PartsChanged has the scheduler look at what it may use of divided limits. It does not block.
func (s *Scheduler) PartsChanged() {
	s.changed.Store(true)
	s.signal()
}

// useParts closes connections beyond this relay's parts, and lets the lanes go on that have waited for one.
func (s *Scheduler) useParts(now time.Time) {
	for _, b := range s.budgets {
		if b.division == nil {
			continue
		}
		if n, bounded := b.division.allowed(); bounded {
			s.shrink(b, b.live-b.leaving-n, now)
		}
		s.runWaiters(b, now)
		for _, x := range b.lines {
			x.call(now)
		}
	}
}

// shrink has so many connections of a scope end: idle ones first, others after the job in hand. Those that are being
// opened and were given up count.
func (s *Scheduler) shrink(b *budget, surplus int, now time.Time) {
	for c := range s.conns {
		if surplus <= 0 {
			return
		}
		if c.unwanted && c.session == nil && c.countsIn(b) {
			surplus--
		}
	}
	for ; surplus > 0 && b.idle > 0; surplus-- {
		s.retireIdle(b)
	}
	for c := range s.conns {
		if surplus <= 0 {
			return
		}
		if c.countsIn(b) && s.dismiss(c, now) {
			surplus--
		}
	}
}
