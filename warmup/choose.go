package warmup

import "time"

// Pool is the sources that a tenant's mail may use.
type Pool struct {
	Shared    []string // warm sources
	Dedicated []string // preferred; those with a plan are bound to it
	Overflow  Overflow // what happens to mail that no dedicated source has room for
	// Skip reports that the mail can't take a dedicated source, as if the pool were without it.
	// Those before the one that is chosen are asked about, in order. Nil: none.
	Skip func(ip string) bool
}

// Choice is what was chosen for a message.
type Choice struct {
	// Source is what the message takes; "" when it must wait, or when the pool has no source. The
	// caller keeps it with the message and provider for all further attempts, as greylisting wants.
	Source     string
	Recipients int64 // how many of the message's take it; the others wait
	// Asking reports that the store is being asked for tokens: OnRoom comes when it has answered.
	Asking bool
}

// Choose picks a source for a message. The dedicated ones are tried in an order that depends on
// the message, so that several share the mail. It does no input or output and does not allocate.
func (c *Controller) Choose(pool *Pool, message uint64, q Ask) Choice {
	var x Choice
	n, tried := uint64(len(pool.Dedicated)), 0
	for i := range n {
		ip := pool.Dedicated[(message+i)%n]
		if pool.Skip != nil && pool.Skip(ip) {
			continue
		}
		tried++
		got, v := c.Look(ip, q)
		if got > 0 {
			return Choice{Source: ip, Recipients: got}
		}
		x.Asking = x.Asking || v == Asking
	}
	shared := uint64(len(pool.Shared))
	if shared > 0 && (tried == 0 || pool.Overflow == Divert && !x.Asking) {
		return Choice{Source: pool.Shared[message%shared], Recipients: q.Recipients}
	}
	return x
}

// Charges reports whether mail from a source takes tokens: one without a plan, or that has passed it,
// has no limits.
func (c *Controller) Charges(source string) bool {
	a := c.address(source)
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.view.unlimited()
}

// Left is how many recipients an IP can still take today and within a time: of a provider, and of all.
func (c *Controller) Left(ip, provider string, within time.Duration) (of, all int64) {
	a := c.address(ip)
	if a == nil {
		return 0, 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s, p := a.cur, a.plan
	if !a.view.known || a.problem != nil || s.Paused {
		return 0, 0
	}
	hours := int64(within / p.Hour)
	left := func(caps Caps, n *Counter) int64 {
		return max(0, min(caps.Daily-n.Day, caps.Hourly-n.Hour+hours*caps.Hourly))
	}
	all = left(s.Caps, &s.Total)
	of = all
	if i := s.Find(p, provider); i >= 0 {
		v := &s.Providers[i]
		if of = min(all, left(v.Caps, &v.Count)); v.block.state == blocked {
			of = 0
		}
	}
	return of, all
}
