package dispatch

import (
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/mta/wiring"
	"example.org/mta/queue"
	"example.org/mta/router"
)

// lookups is the mail whose route is not known yet. A little of each message and tenant waits in
// memory for its look-up, which takes milliseconds as a rule. The rest waits in the queue, in a line
// for each domain, and is taken up when the domain's route is found: domains whose name servers are
// silent cost no memory but their names, and whatever acts on the queue acts on their mail.
type lookups struct {
	parked func(parking.Line) int // recipients that wait in a line of the queue

	mu       sync.Mutex                 // guards the rest; the queue's own lock may be taken under it
	total    int                        // recipients in memory
	tenants  map[string]int             // of those, by tenant
	messages map[envelope.ID]*unrouted  // of those, by message
	domains  map[string]*unroutedDomain // that mail in the queue waits for
}

// What may wait in memory for look-ups, in recipients.
const (
	maxRouting           = 20_000
	maxRoutingPerTenant  = 2000
	maxRoutingPerMessage = 500
)

// lookupPatience is longer than mail in memory waits for its look-up, whatever name servers do: mail that expires
// sooner waits in the queue.
const lookupPatience = 15 * time.Minute

// unrouted is the recipients of a message that wait in memory.
type unrouted struct {
	*envelope.Message
	n        int
	byDomain map[string][]queue.Pending
}

// unroutedDomain is a domain for whose route mail waits in the queue.
type unroutedDomain struct {
	// asked are the messages on whose behalf the router was asked; the last of a tenant has the fewest domains.
	asked []asker
	found *answer // nil until the router has answered
}

// asker is the message on whose behalf the router is asked, and for how many domains at once.
type asker struct {
	tenant  string
	weight  int // of the tenant
	tier    uint8
	message envelope.ID
	domains int
}

// answer is a domain's route, or why there is none, by the configuration of a policy.
type answer struct {
	route  *route.Route
	failed *reply.Reply
	policy *wiring.Policy
}

// routeLine is the line of the queue in which mail waits for the route of a domain.
func routeLine(domain string) parking.Line {
	return parking.Line{Key: parking.Key{Name: domain}, Route: true}
}

func newLookups(parked func(parking.Line) int) *lookups {
	return &lookups{
		parked: parked, tenants: make(map[string]int),
		messages: make(map[envelope.ID]*unrouted), domains: make(map[string]*unroutedDomain),
	}
}

// admit lets recipients at one domain wait in memory. It reports false when there is no space for them.
func (k *lookups) admit(m *envelope.Message, domain string, recipients []queue.Pending) bool {
	n := len(recipients)
	k.mu.Lock()
	defer k.mu.Unlock()
	u := k.messages[m.ID]
	has := 0
	if u != nil {
		has = u.n
	}
	if has+n > maxRoutingPerMessage || k.tenants[m.Tenant]+n > maxRoutingPerTenant || k.total+n > maxRouting {
		return false
	}
	if u == nil {
		u = &unrouted{Message: m, byDomain: make(map[string][]queue.Pending, 1)}
		k.messages[m.ID] = u
	}
	u.byDomain[domain] = append(u.byDomain[domain], recipients...)
	k.count(u, n)
	return true
}

// count adds n recipients, or takes -n away. k.mu is held.
func (k *lookups) count(u *unrouted, n int) {
	u.n += n
	k.total += n
	if k.tenants[u.Tenant] += n; k.tenants[u.Tenant] == 0 {
		delete(k.tenants, u.Tenant)
	}
}

// take removes from memory the recipients of a message that wait for a domain, and returns them.
func (k *lookups) take(id envelope.ID, domain string) (*envelope.Message, []queue.Pending) {
	k.mu.Lock()
	defer k.mu.Unlock()
	u := k.messages[id]
	if u == nil {
		return nil, nil
	}
	recipients := u.byDomain[domain]
	delete(u.byDomain, domain)
	if len(u.byDomain) == 0 {
		delete(k.messages, id)
	}
	k.count(u, -len(recipients))
	return u.Message, recipients
}

// takeAll is take for all domains.
func (k *lookups) takeAll(id envelope.ID) (all []queue.Pending) {
	k.mu.Lock()
	defer k.mu.Unlock()
	u := k.messages[id]
	if u == nil {
		return nil
	}
	for _, recipients := range u.byDomain {
		all = append(all, recipients...)
	}
	delete(k.messages, id)
	k.count(u, -u.n)
	return all
}

// has reports whether a recipient waits in memory.
func (k *lookups) has(id envelope.ID, domain string, recipient int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	u := k.messages[id]
	return u != nil && slices.ContainsFunc(u.byDomain[domain], func(p queue.Pending) bool {
		return p.Index == recipient
	})
}

// ask notes that mail was parked for the route of a domain. It reports whether the router must be asked
// on behalf of by: the first time, and for a message of the same tenant only where it matters
// more, or has far fewer domains, than those before, and so an earlier turn.
func (k *lookups) ask(domain string, by asker) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.domains[domain]
	if d == nil {
		d = &unroutedDomain{}
		k.domains[strings.Clone(domain)] = d // an envelope hangs from the string
	}
	if d.found != nil {
		return false // its mail is being taken up, and this with it
	}
	i := slices.IndexFunc(d.asked, func(a asker) bool { return a.tenant == by.tenant })
	switch {
	case i < 0:
		d.asked = append(d.asked, by)
	case by.tier < d.asked[i].tier, 2*by.domains <= d.asked[i].domains:
		d.asked[i] = by
	default:
		return false
	}
	return true
}

// wanted reports whether anybody still waits for a domain that a message was asked for.
func (k *lookups) wanted(id envelope.ID, domain string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if u := k.messages[id]; u != nil && len(u.byDomain[domain]) > 0 {
		return true
	}
	return !k.forget(domain)
}

// forget drops a domain for which nothing waits in the queue. It reports whether nothing does. k.mu is
// held: who parks mail asks afterwards, and finds the domain gone or has been seen here.
func (k *lookups) forget(domain string) bool {
	if k.domains[domain] != nil && k.parked(routeLine(domain)) > 0 {
		return false
	}
	delete(k.domains, domain)
	return true
}

// found notes the answer of the router. It reports whether mail in the queue waits for it.
func (k *lookups) found(domain string, v answer) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.domains[domain]
	if d == nil {
		return false
	}
	d.found = &v
	return true
}

// answer returns the router's answer for mail that waits for a domain. One by an earlier configuration does
// not count: the router must be asked again, on behalf of by.
func (k *lookups) answer(domain string, now *wiring.Policy) (v answer, by asker, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.domains[domain]
	if d == nil || d.found == nil {
		return answer{}, asker{}, false
	}
	if d.found.policy != now {
		d.found = nil
		return answer{}, d.asked[0], false
	}
	return *d.found, asker{}, true
}

// done reports whether all mail that waited for a domain has been taken up.
func (k *lookups) done(domain string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.forget(domain)
}

// lookUp has recipients wait until the routes of their domains are found.
func (d *Dispatcher) lookUp(m *envelope.Message, unknown map[string][]queue.Pending) {
	by := asker{m.Tenant, d.Policy().Weight(m.Tenant), m.Tier, m.ID, len(unknown)}
	ask := make([]string, 0, len(unknown))
	for domain, recipients := range unknown {
		expires := d.expires(m, domain, nil)
		left := expires.Sub(d.Now())
		if left <= 0 {
			d.expire(m, nil, recipients)
			continue
		}
		if left > lookupPatience && d.lookups.admit(m, domain, recipients) {
			ask = append(ask, domain)
			if asked := d.Queue.File(m.ID, indexes(recipients), parking.Line{Key: parking.Key{Name: domain}}); asked {
				_, back := d.lookups.take(m.ID, domain)
				d.Queue.Return(m.ID, indexes(back))
			}
			continue
		}
		d.Queue.Park(m.ID, indexes(recipients), routeLine(domain), expires)
		if d.lookups.ask(domain, by) {
			ask = append(ask, strings.Clone(domain))
		}
	}
	if len(ask) > 0 {
		d.askRouter(by, ask)
	}
}

// askRouter asks for the routes of domains. An answer that comes after a reload may be by the configuration before:
// then the mail in memory goes back into the queue, and what waits there has the router asked again.
func (d *Dispatcher) askRouter(by asker, domains []string) {
	pol := d.Policy()
	d.Router.Submit(router.Request{
		Message: by.message, Tenant: by.tenant, Weight: by.weight, Tier: by.tier, Domains: domains,
		Wanted: func(domain string) bool { return d.lookups.wanted(by.message, domain) },
		Done: func(domain string, rt *route.Route, failed *reply.Reply) {
			v := answer{rt, failed, pol}
			switch m, recipients := d.lookups.take(by.message, domain); {
			case len(recipients) == 0:
			case d.Policy() != pol:
				d.Queue.Return(m.ID, indexes(recipients))
			default:
				d.routed(m, recipients, domain, &v)
			}
			if d.lookups.found(domain, v) {
				d.takeUp(domain)
			}
		},
	})
}

// routedAtOnce is how many messages are taken up at a time that waited for a route.
const routedAtOnce = 100

// unparkRouted takes up some mail that waited for the route of a domain, which has been found or can't
// be. It reports whether there may be more.
func (d *Dispatcher) unparkRouted(domain string) (more bool) {
	v, by, known := d.lookups.answer(domain, d.Policy())
	if !known {
		if by != (asker{}) {
			d.askRouter(by, []string{domain})
		}
		return false
	}
	for _, l := range d.Queue.Take(routeLine(domain), routedAtOnce) {
		if l = d.suppressed(l); l != nil {
			d.routed(l.Message, l.Recipients, domain, &v)
		}
	}
	return !d.lookups.done(domain)
}

// routed hands over recipients at one domain for which the router has answered. Those that go another way by now, as a
// reload took a route away or a rule gave one, go back into the queue.
func (d *Dispatcher) routed(m *envelope.Message, recipients []queue.Pending, domain string, v *answer) {
	cfg := d.Policy().Config
	var elsewhere []queue.Pending
	recipients = slices.DeleteFunc(recipients, func(p queue.Pending) bool {
		if d.routeOf(cfg, m, p) == domain {
			return false
		}
		elsewhere = append(elsewhere, p)
		return true
	})
	if len(elsewhere) > 0 {
		d.Queue.Return(m.ID, indexes(elsewhere))
	}
	if len(recipients) == 0 {
		return
	}
	if v.failed != nil {
		d.unroutable(m, recipients, domain, *v.failed)
		return
	}
	d.submit(m, v.route, recipients, delivery.Flow{})
}

// Cancel takes back the recipients of a message that wait in the dispatcher or in delivery, so that an
// operator's request to the queue takes effect at once.
func (d *Dispatcher) Cancel(id envelope.ID) {
	if waiting := d.lookups.takeAll(id); len(waiting) > 0 {
		d.Queue.Return(id, indexes(waiting))
	}
	d.Delivery.Cancel(id)
}
