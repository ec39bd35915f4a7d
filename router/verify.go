package router

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/router/resolver"
)

// verifications is the questions of SMTP sessions whether a domain can take mail at all. Finch's
// advice: they are one pseudo-message, with a separate small concurrency, so that a client that asks
// about a great many domains takes no more workers from mail than that (S16). It is a tenant of its
// own, too, and the schedule's guard doesn't know it: a session waits for seconds only.
//
// It is guarded by Router.mu.
type verifications struct {
	entry
	asking map[string][]chan routed // who waits for a domain, which is in entry.waiting or being looked up
}

// maxVerifications bounds the domains that wait for one of the workers for verification. Who asks
// for more gets no answer, which is as good as one that comes too late.
const maxVerifications = 10_000

// verificationTenant is not a name that a tenant can have.
const verificationTenant = "\x00verification"

func newVerifications() *verifications {
	v := &verifications{asking: make(map[string][]chan routed)}
	v.index = -1
	v.request = Request{Tenant: verificationTenant}
	return v
}

// Verify reports whether a domain can take mail: it gives the reply by which the mail is refused, or
// nil when there is a route. Known is false when ctx ended first, or would have. What is known
// already needs no worker; for the rest, all calls together have Settings.VerifyWorkers.
func (r *Router) Verify(ctx context.Context, domain string) (refused *reply.Reply, known bool) {
	if v, ok := r.recall(domain); ok {
		return v.failure, true
	}
	answer, ok := r.ask(domain)
	if !ok {
		return nil, false
	}
	select {
	case v := <-answer:
		return v.failure, true
	case <-ctx.Done():
		r.withdraw(domain, answer)
		return nil, false
	}
}

// ask lets a question wait, once for each domain. It says no when too many wait.
func (r *Router) ask(domain string) (chan routed, bool) {
	answer := make(chan routed, 1) // nobody may be there to take it
	r.mu.Lock()
	v := r.mu.verify
	others, asked := v.asking[domain]
	if r.mu.closed || !asked && len(v.waiting) >= maxVerifications {
		r.mu.Unlock()
		return nil, false
	}
	v.asking[domain] = append(others, answer)
	if !asked {
		v.waiting = append(v.waiting, domain)
		if v.index < 0 && v.running < v.most {
			r.mu.schedule.enter(&v.entry)
		}
	}
	jobs := r.take()
	r.mu.Unlock()
	r.start(jobs)
	return answer, true
}

// withdraw takes a question back. A domain that nobody asks for any more is not looked up when its
// turn comes; a look-up that is under way goes on, and its answer is kept for the next who asks.
func (r *Router) withdraw(domain string, answer chan routed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.mu.verify
	others := v.asking[domain]
	i := slices.Index(others, answer)
	switch {
	case i < 0: // it was answered just now
	case len(others) == 1:
		delete(v.asking, domain)
	default:
		v.asking[domain] = slices.Delete(others, i, i+1)
	}
}

// wanted reports whether a job is still worth doing.
func (r *Router) wanted(j *job) bool {
	v := r.mu.verify
	return j.entry != &v.entry || len(v.asking[j.domain]) > 0
}

// verified answers all who ask about a domain.
func (r *Router) verified(domain string, rt *route.Route, err *reply.Reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.mu.verify
	for _, answer := range v.asking[domain] {
		answer <- routed{rt, err}
	}
	delete(v.asking, domain)
}

// refuse ends the questions that wait, for Close. r.mu is held.
func (v *verifications) refuse(s *schedule) {
	v.waiting = nil
	s.remove(&v.entry)
	for domain, who := range v.asking {
		for _, answer := range who {
			answer <- routed{failure: stopping()}
		}
		delete(v.asking, domain)
	}
}

// Addresses gives the addresses of a host that is not a mail exchanger, IPv4 first, such as a web server that the DNS
// names. The rules are those for exchangers: a record of a stranger's does not make the relay talk to itself, or to
// the private network where that is refused.
func (r *Router) Addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	r.mu.Lock()
	s := r.mu.settings
	r.mu.Unlock()
	var usable []netip.Addr
	var why error
	for _, family := range []struct {
		off  bool
		find func(context.Context, string) (*resolver.Answer, error)
	}{{s.NoIPv4, r.resolver.A}, {s.NoIPv6, r.resolver.AAAA}} {
		if family.off {
			continue
		}
		answer, err := family.find(ctx, host)
		if err != nil {
			if why == nil || resolver.KindOf(err) == resolver.Temporary {
				why = err
			}
			continue
		}
		for _, a := range answer.Addrs {
			if bad := s.unusable(a); bad != "" {
				why = fmt.Errorf("%s is at %s, and %s", host, a, bad)
				continue
			}
			usable = append(usable, a.Unmap())
		}
	}
	if len(usable) > 0 {
		return usable, nil
	}
	return nil, why
}
