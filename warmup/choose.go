package warmup

import (
	"cmp"
	"math"
)

// Pool is the sources that a tenant's mail may use.
type Pool struct {
	Shared    []string // warm sources
	Dedicated []string // preferred; those with a plan are bound to it
	Overflow  Overflow // what happens to mail that no dedicated source has room for
	// Skip says of a dedicated source that the message can't take it, as if the pool were without it.
	// Those before the one that is chosen are asked about, in order. Nil: none.
	Skip func(ip string) bool
}

// Choice is what was chosen for a message.
type Choice struct {
	// Source is what the message takes; "" when it must wait. The caller keeps it with the
	// message and provider for all further attempts, as greylisting wants: a retry takes tokens
	// of the same source (TakeAll) and is not chosen again.
	Source string
	Grant  Grant // tokens charged for Source; the zero Grant where none are needed

	// Hold is what the message waits under, when Source is "": park it and then call Parked.
	// OnRoom names the key when the message may be tried again. Look at what is held now and then all
	// the same: see Recount and Surplus. "" as well when the pool has no source.
	Hold string

	lane       *lane
	recipients int64
	smallest   int64
	undecided  bool
	answered   uint64
}

// Asking says of a held message that the store is being asked for tokens: OnRoom comes when it has answered.
// Of others it comes when there are tokens, which may take until the next hour.
func (x *Choice) Asking() bool { return x.undecided }

// Choose picks a source for a message. The dedicated ones are tried in an order that depends on
// the message, so that several share the mail. What none has tokens for waits for the one that it
// leaves from soonest, by what waits there and by the plans. wants is not kept. It does no input
// or output.
func (c *Controller) Choose(pool *Pool, message uint64, wants []Want) Choice {
	var asking, refused *address
	divert := pool.Overflow == Divert && len(pool.Shared) > 0
	soonest := math.Inf(1)
	n, tried := uint64(len(pool.Dedicated)), 0
	for i := range n {
		ip := pool.Dedicated[(message+i)%n]
		if pool.Skip != nil && pool.Skip(ip) {
			continue
		}
		tried++
		g, v := c.TakeAll(ip, wants)
		switch {
		case v == Granted:
			return Choice{Source: ip, Grant: g}
		case v == Asking:
			asking = cmp.Or(asking, g.address)
		case !divert && len(wants) > 0:
			if wait := c.line(g.address, wants[0].Provider).wait; refused == nil || wait < soonest {
				refused, soonest = g.address, wait
			}
		}
	}
	if asking == nil && divert || tried == 0 && len(pool.Shared) > 0 {
		return Choice{Source: pool.Shared[message%uint64(len(pool.Shared))]}
	}
	if asking != nil {
		return c.hold(asking, wants, true)
	}
	return c.hold(refused, wants, false)
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

// Retake charges tokens for a further attempt of a message that keeps its source.
func (c *Controller) Retake(source string, wants []Want) Choice {
	g, v := c.TakeAll(source, wants)
	if v == Granted {
		return Choice{Source: source, Grant: g}
	}
	return c.hold(g.address, wants, v == Asking)
}

func (c *Controller) hold(a *address, wants []Want, undecided bool) Choice {
	if a == nil || len(wants) == 0 { // a pool without sources
		return Choice{}
	}
	var sum int64
	for _, w := range wants {
		sum += w.Recipients
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.lane(wants[0].Provider)
	return Choice{
		Hold: l.key,
		lane: l, recipients: sum, smallest: wants[0].Recipients, undecided: undecided, answered: a.answered,
	}
}

// Parked tells that a message waits under its choice's Hold, where OnRoom's callee finds it. It
// comes after the parking: were the message counted before, it could be called while it is still
// on its way.
func (c *Controller) Parked(x Choice) {
	if x.lane == nil {
		return
	}
	a := x.lane.address
	a.mu.Lock()
	x.lane.hold(x.recipients, x.smallest, x.undecided)
	// The store may have answered meanwhile, and would not call again.
	wake := x.undecided && a.answered != x.answered && !a.queued
	if wake {
		a.queued = true
	}
	a.mu.Unlock()
	if wake {
		c.wake(a)
	}
}

// Recount sets right how many recipients wait for a provider on an IP: n at most. What leaves the
// caller's queue otherwise than by OnRoom (an operator's doing, expiry, a look at all that waits) is
// told to nobody, and what then waits again counts anew; so whoever holds mail recounts it at times.
func (c *Controller) Recount(ip, provider string, n int64) {
	a := c.address(ip)
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.lane(provider)
	if held := max(0, n-l.undecided); held < l.held {
		l.release(0, l.held-held)
	}
}

// Surplus estimates how many of the recipients held for a provider on an IP would leave sooner if they
// were chosen for anew among others, IPs of the same pool: plans change, providers block one IP and not
// the next, and operators pause.
func (c *Controller) Surplus(ip, provider string, others []string) int64 {
	a := c.address(ip)
	if a == nil {
		return 0
	}
	own := c.line(a, provider)
	most := 0.
	for _, other := range others {
		b := c.address(other)
		if b == nil || b == a {
			continue
		}
		l := c.line(b, provider)
		switch {
		case l.wait >= own.wait: // both may be +Inf
		case math.IsInf(own.wait, 1):
			most = own.held
		default: // so many that both wait as long
			most = max(most, (own.wait-l.wait)/(own.each+l.each))
		}
	}
	return int64(min(most, own.held))
}

// line is what is held for a provider on an IP: how many, how long until the last has left, and what one
// more adds to that, in milliseconds.
type line struct{ held, wait, each float64 }

func (c *Controller) line(a *address, provider string) line {
	t := c.storeTime(c.cfg.Now())
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.lane(provider)
	return line{float64(l.held + l.undecided), l.wait(t), l.pace()}
}
