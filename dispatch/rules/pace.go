package rules

import (
	"cmp"
	"sync"
	"time"

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
	rate   gcra.Rate
	why    string // where it was set
}

// IsZero reports whether there is no pace.
func (p *Pace) IsZero() bool { return p.rate.Unlimited() }

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
	r := p.rate
	r.Burst = n
	return r
}

// toHand is the rate at which mail is handed to delivery: evenly.
func (p *Pace) toHand() gcra.Rate { return p.burst(max(1, int(handedAhead/p.rate.Interval()))) }

// toSend is the rate at which it leaves. A recipient more than a second's worth may, since hosts differ in how quickly
// they answer.
func (p *Pace) toSend() gcra.Rate { return p.burst(p.rate.Depth() + 1) }

// Pace returns that of a message: that of an operator's rule for its campaign, or else the slower one of what the
// configuration has and what the message asks for.
func (r *Rules) Pace(m *envelope.Message) (p Pace) {
	if r == nil || m.Generated() {
		return p
	}
	set := func(rate settings.Rate, why string) {
		p.rate, p.why = gcra.Rate{Events: rate.Count, Per: rate.Per}, why
	}
	if x := r.slows(m); x != nil {
		var rate settings.Rate
		_ = rate.UnmarshalText([]byte(x.Rate)) // it was checked when it was added
		set(rate, x.InWords())
	} else {
		if block := r.policy().Pace(m); block != nil {
			set(block.Pace, block.Origin("pace"))
		}
		var asked settings.Rate
		if text := m.Asked(envelope.PaceField); text != "" {
			_ = asked.UnmarshalText([]byte(text)) // it was checked when the message came
		}
		own := gcra.Rate{Events: asked.Count, Per: asked.Per}
		if !own.Unlimited() && (p.IsZero() || own.Interval() > p.rate.Interval()) {
			set(asked, "as the message asks")
		}
	}
	if !p.IsZero() {
		p.tenant, p.Key = m.Tenant, r.paces.key(m)
	}
	return p
}

// slows returns the newest rule that slows the campaign of a message, nil without one.
func (r *Rules) slows(m *envelope.Message) *api.Rule {
	if r.Current() == nil || m.Campaign == "" {
		return nil
	}
	for _, x := range r.For(Mail{Tenant: m.Tenant, Campaign: m.Campaign}, api.RuleSlow) {
		if x.Campaign != "" {
			return x
		}
	}
	return nil
}

// key is that of the campaign's pace, or that of those of its tenant that have none of their own.
func (p *paces) key(m *envelope.Message) parking.Key {
	of := func(campaign string) parking.Key {
		name := api.Selection{Tenant: m.Tenant, Campaign: campaign}.String()
		return parking.Key{Kind: parking.Pace, Name: cmp.Or(name, "no tenant")}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := of(m.Campaign)
	if p.by[key] == nil && (p.ofTenant[m.Tenant] >= mostOfTenant || len(p.by) >= mostPaces) {
		return of("")
	}
	return key
}

// pace returns what is known of a campaign. A slower pace from before leaves nothing behind when the configuration or
// the rules have changed. As far as the relay knows, a second's worth had just left when it started. The caller has
// r.paces.mu.
func (r *Rules) pace(p *Pace, now time.Time) *pace {
	b, by := r.paces.by[p.Key], basis{r.policy(), r.Current()}
	if b == nil {
		b = &pace{basis: by}
		b.handed.Take(r.started, p.rate, p.rate.Depth())
		b.sent.Take(r.started, p.rate, p.toSend().Depth())
		r.paces.by[p.Key] = b
		r.paces.ofTenant[p.tenant]++
	}
	if b.Pace = *p; b.basis != by {
		b.basis = by
		b.handed.Forgive(now, p.rate)
		b.sent.Forgive(now, p.rate)
	}
	return b
}

// Left returns how many recipients of a campaign may be handed to delivery.
func (r *Rules) Left(p *Pace) int {
	now := r.now()
	r.paces.mu.Lock()
	defer r.paces.mu.Unlock()
	return r.pace(p, now).handed.Left(now, p.toHand())
}

// Hand charges recipients that are handed to delivery.
func (r *Rules) Hand(p *Pace, recipients int) {
	now := r.now()
	r.paces.mu.Lock()
	defer r.paces.mu.Unlock()
	r.pace(p, now).handed.Take(now, p.rate, recipients)
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
	r.paces.mu.Lock()
	b := r.pace(&p, now)
	may := !b.sent.Next(now, p.toSend(), recipients).After(now)
	if may {
		b.sent.Take(now, p.rate, recipients)
	}
	r.paces.mu.Unlock()
	if !may || then == nil || then(recipients) {
		return may
	}
	r.paces.mu.Lock()
	defer r.paces.mu.Unlock()
	b.sent.GiveBack(p.rate, recipients)
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
	return b.handed.Next(now, b.toHand(), 1)
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

// paced is Why for a campaign.
func (r *Rules) paced(key parking.Key) (why string, until time.Time, ok bool) {
	r.paces.mu.Lock()
	defer r.paces.mu.Unlock()
	if b := r.paces.by[key]; b != nil {
		return "the pace of " + key.Name + " is " + b.rate.String() + ": " + b.why, until, true
	}
	return "it is taken up now", until, true
}
