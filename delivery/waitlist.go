package delivery

import (
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/fair"
	"example.org/mta/internal/gcra"
	"example.org/mta/internal/minheap"
)

// waitlist is the parts that wait in one lane, and says whose turn it is: tenants by deficit round
// robin; of a tenant's tiers the first, with a share for each of the others; of a tier's messages the one
// with the fewest parts running in the lane, among equals the one that had its last turn longest ago, new
// ones first, the oldest of them before the rest; of a message's parts the first. Choosing, adding and taking cost
// O(log messages), however many parts a message has.
//
// While the lane drains after an outage, the backlog is apart: fresh mail goes first, the newest of
// it before the rest, and while both wait every fifth turn is the backlog's (docs/control.md, Drain).
// Newest first, since the budget may be less than what comes: some mail is then late, and not all.
type waitlist struct {
	n              int
	oldest, newest *part // all that wait, by age

	draining bool
	tenants  map[tenantKey]*tenant
	accounts map[string]*account
	rounds   [2]fair.Ring[*tenant] // of fresh mail, which is all but for a drain; of the backlog
	fresh    int                   // turns of fresh mail since the backlog's last, while both wait
	picks    int

	minExpires time.Time // no part expires before; zero: none does
}

// The rounds of a waitlist.
const (
	freshMail = iota
	backlogMail
)

// backlogShare is how much of a drain's budget the backlog has at least: one turn in so many.
const backlogShare = 5

type tenantKey struct {
	name  string
	round int
}

// tenant is one tenant's share of a round.
type tenant struct {
	fair.Member[*tenant]
	*account
	round   int
	newest  bool // its newest message goes first
	turns   envelope.TierTurns
	waiting envelope.TierSet // those that have messages
	tiers   [envelope.TierCount]minheap.Heap[*group]
	known   map[*message]*group
}

func newTenant(round int, a *account) *tenant {
	t := &tenant{round: round, account: a, known: make(map[*message]*group)}
	for i := range t.tiers {
		t.tiers[i] = minheap.New((*group).before, func(g *group, i int) { g.index = i })
	}
	t.Value = t
	return t
}

// next is the message whose turn it is; there must be one.
func (t *tenant) next() *group { return t.tiers[t.turns.Next(t.waiting)].Top() }

func (t *tenant) push(g *group) {
	t.tiers[g.tier].Push(g)
	t.waiting = t.waiting.With(g.tier)
}

func (t *tenant) fix(g *group) { t.tiers[g.tier].Fix(g.index) }

func (t *tenant) remove(g *group) {
	h := &t.tiers[g.tier]
	if h.Remove(g.index); h.Len() == 0 {
		t.waiting = t.waiting.Without(g.tier)
	}
}

// account is what a tenant may send in a lane.
type account struct {
	name     string
	rate     gcra.Limiter
	limits   Limits
	limitsAt int // generation of limits
	carried  int // recipients on connections
}

// group is the parts of one message that wait in one lane.
type group struct {
	tenant      *tenant
	message     *message
	next, prev  *group // of the message, in other lanes
	tier        uint8
	running     int // parts of it on connections by way of this lane
	took        int // the pick that took from it last, 0 before the first
	first, last *part
	since       time.Time // of the first
	index       int       // in the heap, -1 when nothing of it waits
}

// guardAge and guardShare are the starvation guard (docs/control.md, Turns): when the oldest part has
// waited so long, one pick in so many is its. A drain has a share for what is old as it is.
const (
	guardAge   = 5 * time.Minute
	guardShare = 10
)

func newWaitlist() waitlist {
	return waitlist{tenants: make(map[tenantKey]*tenant), accounts: make(map[string]*account)}
}

// add lets p wait, behind those of its message or, when it comes back, before them.
func (w *waitlist) add(p *part, front bool) {
	g := w.group(p)
	p.group, p.waiting, p.next = g, true, nil
	switch {
	case g.first == nil:
		g.first, g.last = p, p
	case front:
		p.next, g.first = g.first, p
	default:
		g.last.next, g.last = p, p
	}
	g.since = g.first.work.since
	w.link(p, front)
	if g.index < 0 {
		if t := g.tenant; t.waiting == 0 {
			t.newest = w.draining && t.round == freshMail
			w.rounds[t.round].Join(&t.Member)
		}
		g.tenant.push(g)
	} else {
		g.tenant.fix(g)
	}
	w.n++
	if e := p.work.Expires; !e.IsZero() && (w.minExpires.IsZero() || e.Before(w.minExpires)) {
		w.minExpires = e
	}
}

func (w *waitlist) group(p *part) *group {
	key := tenantKey{name: p.work.Message.Tenant}
	if w.draining && p.work.space.backlog {
		key.round = backlogMail
	}
	t := w.tenants[key]
	if t == nil {
		t = newTenant(key.round, w.account(key.name))
		w.tenants[key] = t
	}
	t.Weight = p.work.Weight
	g := t.known[p.work.message]
	if g == nil {
		g = &group{tenant: t, message: p.work.message, tier: envelope.TierOf(p.work.Message.Tier), index: -1}
		t.known[p.work.message] = g
		g.link()
	}
	return g
}

func (w *waitlist) account(name string) *account {
	a := w.accounts[name]
	if a == nil {
		a = &account{name: name, limitsAt: -1}
		w.accounts[name] = a
	}
	return a
}

// link puts p into the list by age. What comes back was among the oldest.
func (w *waitlist) link(p *part, front bool) {
	switch {
	case w.oldest == nil:
		w.oldest, w.newest, p.older, p.newer = p, p, nil, nil
	case front:
		p.older, p.newer = nil, w.oldest
		w.oldest.older, w.oldest = p, p
	default:
		p.newer, p.older = nil, w.newest
		w.newest.newer, w.newest = p, p
	}
}

func (w *waitlist) unlink(p *part) {
	if p.older != nil {
		p.older.newer = p.newer
	} else {
		w.oldest = p.newer
	}
	if p.newer != nil {
		p.newer.older = p.older
	} else {
		w.newest = p.older
	}
	p.older, p.newer = nil, nil
}

// pick gives the message whose turn it is; nil when none waits, or none that may. Held reports whether a
// tenant has to wait. It changes nobody's place until take.
func (w *waitlist) pick(now time.Time, held func(*tenant) bool) *group {
	if !w.draining && w.oldest != nil && w.picks%guardShare == guardShare-1 && now.Sub(w.oldest.work.since) > guardAge {
		if g := w.oldest.group; g.first == w.oldest && !held(g.tenant) {
			return g
		}
	}
	may := func(t *tenant) bool { return !held(t) }
	first := freshMail
	if w.fresh >= backlogShare-1 {
		first = backlogMail
	}
	for _, round := range [...]int{first, 1 - first} {
		if t := w.rounds[round].Pick(may); t != nil {
			return t.Value.next()
		}
	}
	return nil
}

// take takes the first part of g, which pick gave, out of the list. It counts as running until
// ended.
func (w *waitlist) take(g *group) *part {
	p, t := g.first, g.tenant
	w.picks++
	g.running, g.took = g.running+1, w.picks
	w.rounds[t.round].Took(&t.Member) // before it may leave the round
	t.turns.Took(g.tier, t.waiting)
	w.remove(p, nil)
	switch {
	case t.round == backlogMail || w.rounds[backlogMail].Empty():
		w.fresh = 0
	default:
		w.fresh++
	}
	return p
}

// drain parts the mail that waits, or joins it again. All that waits when a drain begins is backlog;
// after that it is what add is given as such.
func (w *waitlist) drain(on bool) {
	parts := w.all()
	w.draining, w.fresh = on, 0
	for _, p := range parts {
		w.add(p, false)
	}
}

// remove takes p out, which follows prev in its group (nil: it is the first).
func (w *waitlist) remove(p, prev *part) {
	g := p.group
	if prev == nil {
		g.first = p.next
	} else {
		prev.next = p.next
	}
	if g.last == p {
		g.last = prev
	}
	p.next, p.waiting = nil, false
	w.unlink(p)
	w.n--
	switch t := g.tenant; {
	case g.first != nil:
		g.since = g.first.work.since
		t.fix(g)
	default:
		t.remove(g)
		if t.waiting == 0 {
			w.rounds[t.round].Leave(&t.Member)
		}
		w.forget(g)
	}
	if w.n == 0 {
		w.minExpires = time.Time{}
	}
}

// ended notes that a part of g, once taken, runs no more.
func (w *waitlist) ended(g *group) {
	g.running--
	if g.index >= 0 {
		g.tenant.fix(g)
		return
	}
	w.forget(g)
}

// forget drops what has nothing waiting and nothing running.
func (w *waitlist) forget(g *group) {
	if g.first == nil && g.running == 0 {
		delete(g.tenant.known, g.message)
		g.unlink()
	}
}

// link puts g among its message's groups, so that they are found without a walk over all lanes.
func (g *group) link() {
	m := g.message
	g.next, m.groups = m.groups, g
	if g.next != nil {
		g.next.prev = g
	}
}

func (g *group) unlink() {
	if g.next != nil {
		g.next.prev = g.prev
	}
	if g.prev != nil {
		g.prev.next = g.next
	} else {
		g.message.groups = g.next
	}
}

// expired takes out what expires by now.
func (w *waitlist) expired(now time.Time) []*part {
	if w.minExpires.IsZero() || now.Before(w.minExpires) {
		return nil
	}
	w.minExpires = time.Time{}
	return w.removeIf(func(p *part) bool {
		e := p.work.Expires
		if e.IsZero() {
			return false
		}
		if e.After(now) && (w.minExpires.IsZero() || e.Before(w.minExpires)) {
			w.minExpires = e
		}
		return !e.After(now)
	})
}

// all takes everything out.
func (w *waitlist) all() []*part { return w.removeIf(func(*part) bool { return true }) }

// removeIf takes out the parts that match, oldest first. It visits all.
func (w *waitlist) removeIf(match func(*part) bool) []*part {
	var out []*part
	for p := w.oldest; p != nil; p = p.newer {
		if match(p) {
			out = append(out, p)
		}
	}
	for _, p := range out {
		var prev *part
		for q := p.group.first; q != p; q = q.next {
			prev = q
		}
		w.remove(p, prev)
	}
	return out
}

// before returns which of a tenant's messages goes first.
func (a *group) before(b *group) bool {
	if a.running != b.running {
		return a.running < b.running
	}
	if a.took != b.took {
		return a.took < b.took // a new message before what runs again and again
	}
	if a.tenant.newest {
		return a.message.id > b.message.id // ids grow with the time of acceptance
	}
	if !a.since.Equal(b.since) {
		return a.since.Before(b.since)
	}
	return a.message.id < b.message.id
}
