package warmup

import "time"

// Decision is what was decided about mail.
type Decision uint8

const (
	Refused Decision = iota // there is no room now
	Granted                 // there are tokens for all of it
	Asking                  // not known before the store has answered, which takes milliseconds: see OnTokens
)

// Ask is mail for one provider that looks for an IP.
type Ask struct {
	Provider   string // "" counts under Other
	Recipients int64
	Whole      bool  // all of them take the IP, or none does
	Again      bool  // it was offered before, and has waited since
	Preferred  bool  // it goes before other mail: where some is, others leave it tokens
	Behind     int64 // recipients that wait already and go before it
}

// Allowance returns how many of the recipients may set out for an IP. It charges nothing: Begin does, at
// the moment of sending. As long as they are out, their tokens are not promised to others; Begin and
// Drop end that, and so does a little time. It does no input or output and does not allocate. An IP
// without a plan is not limited.
func (c *Controller) Allowance(ip string, q Ask) (int64, Decision) {
	a := c.address(ip)
	if a == nil {
		return q.Recipients, Granted
	}
	now := c.cfg.Now()
	t := c.storeTime(now)
	a.mu.Lock()
	n, v := a.allowance(a.lane(q.Provider), &q, now, t, c.down.Load() != nil)
	wake := v == Asking && !a.queued
	if wake {
		a.queued = true
	}
	a.mu.Unlock()
	if wake {
		c.wake(a)
	}
	return n, v
}

// Answered reports whether the store has answered all that it was asked for an IP and a provider. Mail that waits for
// an answer checks that once OnTokens would find it.
func (c *Controller) Answered(ip, provider string) bool {
	a := c.address(ip)
	if a == nil {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.lane(provider).asking
}

// allowance is Allowance. Callers hold a.mu, as for begin.
func (a *address) allowance(l *lane, q *Ask, now time.Time, t Instant, down bool) (n int64, v Decision) {
	if !q.Again {
		l.delta.offered += q.Recipients
		if q.Preferred {
			l.preferred += float64(q.Recipients)
		}
	}
	if a.view.unlimited() {
		return q.Recipients, Granted
	}
	free := l.free(t) - q.Behind
	if !q.Preferred {
		free -= l.kept()
	}
	if n = max(0, min(q.Recipients, free)); n == q.Recipients {
		l.out += n
		return n, Granted
	}
	if q.Whole {
		n = 0
	}
	l.out += n
	switch {
	case down || a.problem != nil || l.backoff.After(now):
		return n, Refused
	case q.Again && !l.asking: // the step asks for what waits
		return n, Refused
	case q.Again:
		return n, Asking
	case q.Behind > 0:
		l.asking = true
		return n, Asking
	}
	if a.asked.IsZero() {
		a.asked = now
	}
	lack, least := q.Recipients-free, int64(1)
	if q.Whole {
		least = lack
	}
	l.ask(lack, least)
	l.asking = true
	return n, Asking
}

// Begin charges tokens for n recipients whose transaction is about to be opened from an IP, and
// reports whether it may be: all of them, or none. What was charged stays so, whatever becomes of
// the transaction. It does no input or output and does not allocate.
func (c *Controller) Begin(ip, provider string, n int64) bool {
	a := c.address(ip)
	if a == nil {
		return true
	}
	now := c.cfg.Now()
	t := c.storeTime(now)
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.lane(provider)
	if a.view.unlimited() {
		l.delta.counted += n
		return true
	}
	if l.available(t) < n {
		return false
	}
	l.lease -= n
	l.used = now
	l.returned(n)
	return true
}

// Drop ends the way of n recipients that were let out and did not begin.
func (c *Controller) Drop(ip, provider string, n int64) {
	a := c.address(ip)
	if a == nil || n <= 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lane(provider).returned(n)
}

// ask notes what the next step asks the store for.
func (l *lane) ask(n, least int64) {
	d := &l.delta
	d.want += n
	if d.least == 0 || least < d.least {
		d.least = least
	}
}

// Report notes what a provider made of one recipient that was sent from ip, or of one connection
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

// Left is how many recipients an IP can still take today and within a time, with what it has saved up at most: of
// a provider, and of all.
func (c *Controller) Left(ip, provider string, within time.Duration) (of, all int64) {
	a := c.address(ip)
	if a == nil {
		return 0, 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s, p := a.state, a.plan
	if !a.view.known || a.problem != nil || s.Paused {
		return 0, 0
	}
	hours := int64(within / p.Hour)
	left := func(caps Caps, n *Counter) int64 {
		pace := s.bucketDepth(p, caps.Hourly) + p.Burst*perSecond(p, caps.Hourly)*within.Seconds()
		return max(0, min(caps.Daily-n.Day, caps.Hourly-n.Hour+hours*caps.Hourly, int64(pace)))
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

// Patience is how long mail waits for tokens of warming IPs before it takes another.
type Patience struct {
	Hold  bool          // it waits for as long as it must
	Total time.Duration // otherwise so long at most
	Left  time.Duration // of that; 0 or less: it is over
	Turn  bool          // the mail waits already, and it is its turn
}

// Line is what warming IPs can take of a provider's mail, and what waits for them, without the mail in question.
type Line interface {
	// Left is what they can take within a time and today: of the provider's mail, and of all.
	Left(within time.Duration) (of, all int64)
	// Waiting is what waits: of the provider's mail, and of all.
	Waiting() (of, all int64)
}

// Fit is how many of n recipients the IPs can take within a time and today, after all that waits.
func Fit(l Line, n int64, within time.Duration) int64 {
	if within <= 0 || n <= 0 {
		return 0
	}
	of, all := l.Left(within)
	waiting, waits := l.Waiting()
	return max(0, min(n, of-waiting, all-waits))
}

// Whole reports whether all recipients of a message must get tokens at once, if any do.
func (p Patience) Whole() bool { return !p.Hold && (p.Left <= 0 || !p.Turn) }

// Join is how many of n recipients line up behind the mail that waits, and how much that is: see Ask.Behind.
func (p Patience) Join(l Line, n int64) (join, behind int64) {
	if p.Turn || !p.Hold && p.Left <= 0 {
		return 0, 0
	}
	if behind, _ = l.Waiting(); behind == 0 {
		return 0, 0
	}
	if !p.Hold {
		n = Fit(l, n, p.Left)
	}
	return n, behind
}

// Stay is how many of n recipients without tokens wait on; the others take another IP. While the warm-up's store is
// being asked for tokens, all do.
func (p Patience) Stay(l Line, n int64, asking bool) int64 {
	switch {
	case p.Hold || asking:
		return n
	case p.Turn && p.Left > 0: // what was let in stays so to the end, unless the IPs take less than they did
		return Fit(l, n, p.Total)
	}
	return Fit(l, n, p.Left)
}
