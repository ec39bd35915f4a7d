package warmup

import "time"

// Verdict is what was decided about a message.
type Verdict uint8

const (
	Refused Verdict = iota // there is no room now
	Granted                // tokens are charged: send
	Asking                 // not known before the store was asked, which takes milliseconds: see OnRoom
)

// Grant is a message's authorisation. It is a value to be kept with the job.
type Grant struct {
	address *address
	receipt Receipt
	until   Instant // 0: not bound to a window
	retry   time.Time
}

// Want is what a message wants of one provider.
type Want struct {
	Provider   string // "" counts under Other
	Recipients int64
}

// TakeAll charges all that a message needs on an IP, or nothing. It does no input or output and
// does not allocate. An IP without a plan is not limited.
func (c *Controller) TakeAll(ip string, wants []Want) (Grant, Verdict) {
	a := c.address(ip)
	if a == nil {
		return Grant{}, Granted
	}
	now := c.cfg.Now()
	t := c.storeTime(now)
	a.mu.Lock()
	for _, w := range wants {
		a.lane(w.Provider).delta.offered += w.Recipients
	}
	idle := now.Sub(a.active) >= activeFor // it was computed seldom
	a.active = now
	g, v := a.take(wants, now, t, c.down.Load())
	wake := (v == Asking || idle) && !a.queued
	if wake {
		a.queued = true
	}
	a.mu.Unlock()
	if wake {
		c.wake(a)
	}
	return g, v
}

// Take is TakeAll for the recipients of one provider.
func (c *Controller) Take(ip, provider string, n int64) (Grant, Verdict) {
	wants := [1]Want{{provider, n}}
	return c.TakeAll(ip, wants[:])
}

// TakeSome charges as many of n messages of one recipient as it can, and says what is with the
// others. again is for those that were offered before and held.
func (c *Controller) TakeSome(ip, provider string, n int64, again bool) (granted int64, rest Verdict) {
	a := c.address(ip)
	if a == nil {
		return n, Granted
	}
	now := c.cfg.Now()
	t := c.storeTime(now)
	a.mu.Lock()
	l := a.lane(provider)
	if !again {
		l.delta.offered += n
	}
	idle := now.Sub(a.active) >= activeFor
	a.active = now
	granted, rest = a.takeSome(l, n, now, t, c.down.Load())
	wake := (rest == Asking || idle) && !a.queued
	if wake {
		a.queued = true
	}
	a.mu.Unlock()
	if wake {
		c.wake(a)
	}
	return granted, rest
}

// take decides about one message. Callers hold a.mu.
func (a *address) take(wants []Want, now time.Time, t Instant, down bool) (Grant, Verdict) {
	g := Grant{address: a}
	if a.view.unlimited() {
		g.receipt = a.view.receipt
		for _, w := range wants {
			a.lane(w.Provider).delta.counted += w.Recipients
		}
		return g, Granted
	}
	enough, wait := true, down || a.problem != nil
	for _, w := range wants {
		l := a.lane(w.Provider)
		if l.available(t) >= w.Recipients {
			continue
		}
		enough = false
		if l.backoff.After(now) {
			wait = true
			if l.backoff.After(g.retry) {
				g.retry = l.backoff
			}
		}
	}
	switch {
	case enough:
		g.until = a.view.closes
		for _, w := range wants {
			g.receipt = a.lane(w.Provider).use(w.Recipients, now)
		}
		return g, Granted
	case wait:
		return g, Refused
	}
	a.ask(wants, now, t)
	return g, Asking
}

// ask puts down what the next step is to ask for. The wants of messages for one provider add up;
// of those for several, one at a time can ask, since it must get all or nothing.
func (a *address) ask(wants []Want, now time.Time, t Instant) {
	if a.asked.IsZero() {
		a.asked = now
	}
	if len(wants) == 1 {
		l := a.lane(wants[0].Provider)
		lack := wants[0].Recipients - l.available(t)
		l.ask(lack, lack)
		return
	}
	if a.bundle == nil {
		for _, w := range wants {
			a.bundle = append(a.bundle, laneNeed{a.lane(w.Provider), w.Recipients})
		}
	}
}

func (l *lane) ask(n, least int64) {
	d := &l.delta
	d.want += n
	if d.least == 0 || least < d.least {
		d.least = least
	}
}

func (a *address) takeSome(l *lane, n int64, now time.Time, t Instant, down bool) (granted int64, rest Verdict) {
	if a.view.unlimited() {
		l.delta.counted += n
		return n, Granted
	}
	granted = min(n, l.available(t))
	if granted > 0 {
		l.use(granted, now)
	}
	switch {
	case granted == n:
		return n, Granted
	case down || l.backoff.After(now) || a.problem != nil:
		return granted, Refused
	}
	if a.asked.IsZero() {
		a.asked = now
	}
	l.ask(n-granted, 1)
	return granted, Asking
}

// Valid says whether a grant's window is still open. A job that waited longer than that must
// take anew before it opens its transaction, or the next hour would have mail that was counted
// in this one.
func (c *Controller) Valid(g Grant) bool {
	return g.until == 0 || c.storeTime(c.cfg.Now()) < g.until
}

// Refund gives tokens of a grant back. It is only for recipients of whom the provider has seen
// nothing: there was no connection that took them. What was refused was seen, and is spent. Out of
// its window it changes nothing.
func (c *Controller) Refund(g Grant, provider string, n int64) {
	a := g.address
	if a == nil || n <= 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lane(provider).delta.refund(n, g.receipt)
}

// Report tells what a provider made of one recipient that was sent from ip, or of one connection
// when it turned that away.
func (c *Controller) Report(ip, provider string, x Outcome) {
	c.ReportSome(ip, provider, x, 1)
}

// ReportSome is Report for n recipients.
func (c *Controller) ReportSome(ip, provider string, x Outcome, n int64) {
	a := c.address(ip)
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	o := &a.lane(provider).delta.outcomes
	for range n {
		o.Add(x)
	}
}

// Held counts n messages of one recipient as waiting under their lane's key until there are
// tokens and OnRoom takes them. With Choose, use Parked.
func (c *Controller) Held(ip, provider string, n int64) (key string) {
	a := c.address(ip)
	if a == nil {
		return ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.lane(provider)
	l.hold(n, 1, false)
	return l.key
}

// hold counts n recipients, in messages of at least message, as waiting. Those that are undecided
// are called when the store has answered, the others when there are tokens.
func (l *lane) hold(n, message int64, undecided bool) {
	if undecided {
		l.undecided += n
		return
	}
	l.held += n
	l.delta.heldDelta += n
	if l.smallest == 0 || message < l.smallest {
		l.smallest = message
	}
}

// release takes recipients out of what waits.
func (l *lane) release(undecided, held int64) {
	l.undecided -= undecided
	l.held -= held
	l.delta.heldDelta -= held
	if l.held == 0 {
		l.smallest = 0
	}
}
