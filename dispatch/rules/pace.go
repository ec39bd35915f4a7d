package rules

import (
	"cmp"
	"iter"
	"math"
	"sync"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/gcra"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/settings"
	"example.org/mta/operator/api"
)

// Pace is how fast a message's campaign may leave, over all sites and sources of this relay, in recipients. The zero
// Pace is as fast as can be.
type Pace struct {
	Key    parking.Key // what mail beyond the pace waits for
	tenant string
	Rate   gcra.Rate
	Why    string // where it was set
	within *Pace  // its campaign's, of a message that asks for a slower one; nil: none
	waited bool   // the message was in the queue when the relay started
	shared bool   // with other relays
}

// SharedPaces gives this relay its part of paces that all nodes of a cluster have together, by name.
type SharedPaces interface {
	// Left is how many recipients may leave now, and which part of the pace this relay has, from 0 to 1.
	Left(name string, r gcra.Rate) (recipients int, part float64)
	// Wait notes that recipients wait, and returns how long the next does, below 0 while this relay has no part.
	Wait(name string, r gcra.Rate) time.Duration
	// Spend takes recipients that leave now, all or none; Return gives back those that did not.
	Spend(name string, r gcra.Rate, recipients int) bool
	Return(name string, r gcra.Rate, recipients int)
}

// IsZero reports whether there is no pace.
func (p *Pace) IsZero() bool { return p.Rate.Unlimited() }

// paces has how much of each campaign has left. A campaign is charged twice: when its mail is handed to delivery, so
// that no more is there than may leave, and when a transaction begins, so that what has waited in delivery does not
// leave at once.
type paces struct {
	mu       sync.Mutex // guards what follows
	by       map[parking.Key]*pace
	ofTenant map[string]int // how many of by
}

type pace struct {
	Pace
	basis        basis
	handed, sent gcra.Limiter
}

// basis is what paces follow from.
type basis struct {
	policy any
	rules  *Set
}

// The most campaigns with a pace of which each has its own, of a tenant and of all: the further ones of a tenant share
// one. A campaign is forgotten when nothing of it waits and it is not ahead of its pace.
const mostOfTenant, mostPaces = 1000, 10_000

// handedAhead is for how long mail is handed to delivery at once.
const handedAhead = 100 * time.Millisecond

func (p *Pace) burst(n int) gcra.Rate {
	r := p.Rate
	r.Burst = n
	return r
}

// noPart is when a campaign of which this relay has no part looks for one again.
const noPart = 200 * time.Millisecond

// name is that of a shared pace.
func (p *Pace) name() string { return "pace of " + p.Key.Name }

// toHand is the rate at which mail is handed to delivery: evenly, by this relay's part. left is how many recipients may
// leave now.
func (r *Rules) toHand(p *Pace) (rate gcra.Rate, left int) {
	rate, left = p.Rate, math.MaxInt
	if p.shared {
		var part float64
		if left, part = r.Paces.Left(p.name(), p.toSend()); part > 0 {
			rate.Per = time.Duration(float64(cmp.Or(rate.Per, time.Second)) / part)
		}
	}
	rate.Burst = max(1, int(handedAhead/rate.Interval()))
	return rate, left
}

// toSend is the rate at which it leaves. A recipient more than a second's worth may, since hosts differ in how quickly
// they answer.
func (p *Pace) toSend() gcra.Rate { return p.burst(p.Rate.Depth() + 1) }

// send charges recipients that leave, if they may. The caller has r.paces.mu.
func (r *Rules) send(p *Pace, b *pace, now time.Time, recipients int) bool {
	switch {
	case p.shared:
		return r.Paces.Spend(p.name(), p.toSend(), recipients)
	case b.sent.Next(now, p.toSend(), recipients).After(now):
		return false
	}
	b.sent.Take(now, p.Rate, recipients)
	return true
}

// unsend undoes send. The caller has r.paces.mu.
func (r *Rules) unsend(p *Pace, b *pace, recipients int) {
	if p.shared {
		r.Paces.Return(p.name(), p.toSend(), recipients)
	} else {
		b.sent.GiveBack(p.Rate, recipients)
	}
}

// Pace returns that of a message: that of an operator's rule for its campaign, or else what the configuration has. If
// the message asks for a slower one, that holds for those of its campaign that ask for the same, and within the
// campaign's.
func (r *Rules) Pace(m *envelope.Message) (p Pace) {
	if r == nil || m.Generated() {
		return p
	}
	set := func(rate gcra.Rate, why, asked string) {
		p.Key, p.tenant, p.Why = r.paces.key(m, asked), m.Tenant, why
		p.Rate, p.waited, p.shared = rate, m.Start().Add(-m.Spread).Before(r.started), r.Paces != nil
	}
	if x, rate := r.slows(m); x != nil {
		set(rate, x.InWords(), "")
		return p
	}
	if block := r.policy().Pace(m); block != nil && block.Pace.Count > 0 {
		set(gcra.Rate{Events: block.Pace.Count, Per: block.Pace.Per}, block.Origin("pace"), "")
	}
	text := m.Asked(envelope.PaceField)
	if text == "" {
		return p
	}
	var asked settings.Rate
	_ = asked.UnmarshalText([]byte(text)) // it was checked when the message came
	own := gcra.Rate{Events: asked.Count, Per: asked.Per}
	if own.Unlimited() || !p.IsZero() && own.Interval() <= p.Rate.Interval() {
		return p
	}
	campaign := p
	if set(own, "as the message asks", own.String()); !campaign.IsZero() && campaign.Key != p.Key {
		p.within = &campaign
	}
	return p
}

// String describes the pace.
func (p *Pace) String() string {
	rate := p.Rate.String()
	if p.shared {
		rate += delivery.OfAllRelays
	}
	return "the pace of " + p.Key.Name + " is " + rate + ": " + p.Why
}

// slows returns the strictest rule that slows the campaign of a message, and its rate; nil without one.
func (r *Rules) slows(m *envelope.Message) (strictest *api.Rule, least gcra.Rate) {
	if r.Current() == nil || m.Campaign == "" {
		return nil, least
	}
	for _, x := range r.For(Mail{Tenant: m.Tenant, Campaign: m.Campaign}, api.RuleSlow) {
		if x.Campaign == "" {
			continue
		}
		var rate settings.Rate
		_ = rate.UnmarshalText([]byte(x.Rate)) // it was checked when it was added
		if r := (gcra.Rate{Events: rate.Count, Per: rate.Per}); strictest == nil || r.Interval() > least.Interval() {
			strictest, least = x, r
		}
	}
	return strictest, least
}

// key is that of the campaign's pace, or of those of its messages that ask for one; or that of the mail of its tenant
// without a campaign, if there are too many.
func (p *paces) key(m *envelope.Message, asked string) parking.Key {
	of := func(s api.Selection, asked string) parking.Key {
		name := s.String()
		if s.Campaign == "" {
			name = "mail of " + cmp.Or(name, "no tenant") + " without a campaign"
		}
		if asked != "" {
			name += " that asks for " + asked
		}
		return parking.Key{Kind: parking.Pace, Name: name}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := of(api.Selection{Tenant: m.Tenant, Campaign: m.Campaign}, asked)
	if p.by[key] == nil && (p.ofTenant[m.Tenant] >= mostOfTenant || len(p.by) >= mostPaces) {
		return of(api.Selection{Tenant: m.Tenant}, "")
	}
	return key
}

// pace returns what is known of a campaign. A slower pace from before leaves nothing behind when the configuration or
// the rules have changed. Nothing of it outlives a restart: mail that was in the queue at the start leaves from then on
// at whole multiples of its interval, by the clock, so that however many starts there are, none gives a recipient more
// and none takes one. Of a campaign without such mail nobody knows that any has left. The caller has r.paces.mu.
func (r *Rules) pace(p *Pace, now time.Time) *pace {
	b, by := r.paces.by[p.Key], basis{r.policy(), r.Current()}
	if b == nil {
		b = &pace{basis: by}
		if p.waited {
			last := r.started.Truncate(p.Rate.Interval())
			b.handed.Take(last, p.Rate, p.Rate.Depth())
			b.sent.Take(last, p.Rate, p.toSend().Depth())
		}
		r.paces.by[p.Key] = b
		r.paces.ofTenant[p.tenant]++
	}
	if b.Pace = *p; b.basis != by {
		b.basis = by
		b.handed.Forgive(now, p.Rate)
		b.sent.Forgive(now, p.Rate)
	}
	return b
}

// each gives what is known of a pace, and of that within which it is. The caller has r.paces.mu.
func (r *Rules) each(p *Pace, now time.Time) iter.Seq2[*Pace, *pace] {
	return func(yield func(*Pace, *pace) bool) {
		for ; p != nil && yield(p, r.pace(p, now)); p = p.within {
		}
	}
}

// Take charges those of a campaign's recipients that may be handed to delivery now, and returns how many. What is not
// handed over must be given back by Untake.
func (r *Rules) Take(p *Pace, recipients int) int {
	now, n := r.now(), recipients
	r.paces.mu.Lock()
	defer r.paces.mu.Unlock()
	for p, b := range r.each(p, now) {
		rate, left := r.toHand(p)
		n = min(n, left, b.handed.Left(now, rate))
	}
	r.hand(p, now, n)
	return n
}

// Untake undoes Take for recipients.
func (r *Rules) Untake(p *Pace, recipients int) {
	now := r.now()
	r.paces.mu.Lock()
	defer r.paces.mu.Unlock()
	r.hand(p, now, -recipients)
}

// hand charges recipients, below 0 gives them back. The caller has r.paces.mu.
func (r *Rules) hand(p *Pace, now time.Time, recipients int) {
	for p, b := range r.each(p, now) {
		if rate, _ := r.toHand(p); recipients < 0 {
			b.handed.GiveBack(rate, -recipients)
		} else {
			b.handed.Take(now, rate, recipients)
		}
	}
}

// May reports whether a transaction for recipients of a message may begin: its window is open, the pace allows it, and
// then, which is nil or asked last, agrees.
func (r *Rules) May(m *envelope.Message, recipients int, then func(int) bool) bool {
	if r.Shut(m) != (parking.Key{}) {
		return false
	}
	p, now := r.Pace(m), r.now()
	if p.IsZero() {
		return then == nil || then(recipients)
	}
	own := p // p stays on the stack
	all, charged := &own, 0
	may := true
	r.paces.mu.Lock()
	for p, b := range r.each(all, now) {
		if may = r.send(p, b, now, recipients); !may {
			break
		}
		charged++
	}
	r.paces.mu.Unlock()
	if may && (then == nil || then(recipients)) {
		return true
	}
	r.paces.mu.Lock()
	defer r.paces.mu.Unlock()
	for p, b := range r.each(all, now) {
		if charged--; charged < 0 {
			break
		}
		r.unsend(p, b, recipients)
	}
	return false
}

// Ready returns when some of the mail that waits under a key may be handed to delivery: now, if its pace may have
// changed.
func (r *Rules) Ready(key parking.Key) time.Time {
	now := r.now()
	r.paces.mu.Lock()
	defer r.paces.mu.Unlock()
	b := r.paces.by[key]
	if b == nil || b.basis != (basis{r.policy(), r.Current()}) {
		return now
	}
	at := now
	for p, b := range r.each(&b.Pace, now) {
		rate, left := r.toHand(p)
		next := b.handed.Next(now, rate, 1)
		if p.shared {
			switch wait := r.Paces.Wait(p.name(), p.toSend()); {
			case wait < 0:
				next = now.Add(noPart)
			case left == 0 && now.Add(wait).After(next):
				next = now.Add(wait)
			}
		}
		if next.After(at) {
			at = next
		}
	}
	return at
}

// Forget drops what is known of campaigns of which nothing waits.
func (r *Rules) Forget(waits func(parking.Key) bool) {
	now := r.now()
	r.paces.mu.Lock()
	defer r.paces.mu.Unlock()
	for key, b := range r.paces.by {
		if b.handed.Paid(now) && b.sent.Paid(now) && !waits(key) {
			delete(r.paces.by, key)
			if r.paces.ofTenant[b.tenant]--; r.paces.ofTenant[b.tenant] == 0 {
				delete(r.paces.ofTenant, b.tenant)
			}
		}
	}
}

// paced is Why for a campaign, until its next recipient may leave.
func (r *Rules) paced(key parking.Key) (why string, until time.Time, ok bool) {
	until = r.Ready(key)
	r.paces.mu.Lock()
	defer r.paces.mu.Unlock()
	if b := r.paces.by[key]; b != nil {
		return b.String(), until, true
	}
	return "it is taken up now", time.Time{}, true
}
