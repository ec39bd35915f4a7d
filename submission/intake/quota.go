package intake

// The limits of tenants: a rate of messages, open connections, and space in the queue.
//
// The order of use: NewQuotas, Connect for each connection whose tenant is known, and Disconnect at its end; Begin for
// each message, Grow with its content, and Accepted or Drop on the claim that Begin returned.

import (
	"maps"
	"strings"
	"sync"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/gcra"
	"example.org/mta/internal/reply"
)

// QuotaLimits are the limits of one tenant. Zero means no limit.
type QuotaLimits struct {
	Rate        gcra.Rate // of messages that are accepted
	Connections int       // open at once
	Messages    int64     // in the queue
	Octets      int64     // of their contents
	// Lower accepts messages over Rate, Messages or Octets at the last tier, instead of refusing them.
	Lower bool
	// PerRelay: they are this relay's own, although others are shared.
	PerRelay bool
}

// QuotaReason is the limit that a tenant exceeds.
type QuotaReason uint8

const (
	WithinQuota QuotaReason = iota
	OverRate
	OverMessages
	OverOctets
	OverConnections
	OverShare // of the connections, which are scarce
	quotaReasons
)

// QuotaReasons is the number of reasons, WithinQuota included.
const QuotaReasons = int(quotaReasons)

// String returns the word for metrics and tables.
func (r QuotaReason) String() string {
	return [QuotaReasons]string{"", "rate", "messages", "bytes", "connections", "share"}[r]
}

// QuotaUsage is what a tenant has in the queue.
type QuotaUsage struct{ Messages, Octets int64 }

// Excess is the limit that something exceeds.
type Excess struct {
	Reason QuotaReason // WithinQuota: it is not
	Limits QuotaLimits
	Wait   time.Duration // until the rate has room again
	Part   *Part         // this relay's, of a limit that it shares; nil: the limit is its own
}

// Quotas counts what tenants use now. It is safe for use by many goroutines.
type Quotas struct {
	limits func(tenant string) (QuotaLimits, bool)
	queued func(tenant string) QuotaUsage
	now    func() time.Time
	shared SharedQuotas // nil: the limits are this relay's own

	mu    sync.Mutex // guards all below
	clock clock
	all   map[string]*quotaAccount
	// forgetAt is the number of accounts at which those without a tenant are looked for.
	forgetAt int
}

// quotaAccount is what a tenant uses, beside what is in the queue.
type quotaAccount struct {
	tenant      string
	connections int
	coming      QuotaUsage // messages that have begun and are not in the queue yet
	pace        gcra.Limiter
	refused     [QuotaReasons]int64
	lowered     [QuotaReasons]int64
	over        Excess    // of what relays share, the last
	overAt      time.Time // when that was
}

// NewQuotas makes an empty book. limits is asked at each call, so that a reload acts at once; false: there is no
// such tenant, and nothing is noted of it. queued returns what a tenant has in the queue. Neither may call
// the book.
func NewQuotas(limits func(tenant string) (QuotaLimits, bool), queued func(tenant string) QuotaUsage,
	now func() time.Time) *Quotas {
	return &Quotas{limits: limits, queued: queued, now: now, all: make(map[string]*quotaAccount)}
}

// of returns a tenant's quotaAccount, nil for one that is not known. mu is held.
func (b *Quotas) of(tenant string) (*quotaAccount, QuotaLimits) {
	l, known := b.limits(tenant)
	if !known {
		return nil, QuotaLimits{}
	}
	a := b.all[tenant]
	if a == nil {
		if len(b.all) >= b.forgetAt {
			b.forgetOthers()
			b.forgetAt = 2 * len(b.all) // each is looked at a few times, not once for each newcomer
		}
		a = &quotaAccount{tenant: tenant}
		b.all[tenant] = a
	}
	return a, l
}

// forgetOthers drops the accounts of tenants that a reload has taken away. mu is held.
func (b *Quotas) forgetOthers() {
	for name, a := range b.all {
		if _, known := b.limits(name); !known && a.connections == 0 && a.coming.Messages == 0 {
			delete(b.all, name)
		}
	}
}

// Connect counts an open connection. counted is false after an Excess, and when there is no such tenant; Disconnect is
// for what was counted.
func (b *Quotas) Connect(tenant string) (counted bool, _ Excess) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a, l := b.of(tenant)
	if a == nil {
		return false, Excess{}
	}
	if l.Connections > 0 && a.connections >= l.Connections {
		a.refused[OverConnections]++
		return false, Excess{Reason: OverConnections, Limits: l}
	}
	a.connections++
	return true, Excess{}
}

// Crowded notes that a connection was refused since the tenant has its share of them.
func (b *Quotas) Crowded(tenant string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a, _ := b.of(tenant); a != nil {
		a.refused[OverShare]++
	}
}

// Disconnect ends the count of a connection that Connect has counted.
func (b *Quotas) Disconnect(tenant string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.all[tenant]; a != nil && a.connections > 0 {
		a.connections--
	}
}

// QuotaClaim is a message's hold on its tenant's limits while it comes in. A nil claim holds nothing.
type QuotaClaim struct {
	b       *Quotas
	shared  SharedQuotas  // of the limits when it began
	account *quotaAccount // nil: it is over
	octets  int64
	rate    gcra.Rate
	exempt  bool
	lowered bool
	bounded bool // by octets
}

// Begin claims a place for one message of a tenant, of the given octets, 0 if not known. An exempt one is beside the
// rate, and may fill twice the space in the queue. lower is to put it in the last tier; after another Excess it must be
// refused, and there is no claim. Where relays share the limits it waits up to three seconds for a larger part.
func (b *Quotas) Begin(tenant string, octets int64, exempt bool) (_ *QuotaClaim, lower bool, _ Excess) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var a *quotaAccount
	var l, its QuotaLimits
	var now, until time.Time
	var over Excess
	for again := true; again; again, until = b.patient(over, until) {
		if a, l = b.of(tenant); a == nil {
			return nil, false, Excess{}
		}
		now, its = b.clock.at(b.now()), l.of(exempt)
		over = b.find(a, l, octets, now, exempt)
	}
	over.Limits = l
	lower = a.judge(over, b.now)
	if over.Reason != WithinQuota && !lower {
		return nil, false, over
	}
	a.coming.Messages++
	a.coming.Octets += octets
	c := &QuotaClaim{b: b, shared: b.sharing(l), account: a, octets: octets, exempt: exempt,
		lowered: lower, bounded: l.Octets > 0}
	switch {
	case c.shared != nil:
		if b.hold(tenant, l, a.coming); over.Reason == WithinQuota {
			c.rate = its.Rate
		}
	case over.Reason != OverRate: // mail beside the rate must not push it off for ever
		c.rate = its.Rate
		a.pace.Take(now, its.Rate, 1)
	}
	return c, lower, over
}

// Grow has the claim cover so many octets: content comes that was not declared. The results are those of Begin; the
// claim stays as it was when the message must be refused.
func (c *QuotaClaim) Grow(octets int64) (lower bool, over Excess) {
	if c == nil || !c.bounded || octets <= c.octets {
		return false, Excess{}
	}
	b, a, more := c.b, c.account, octets-c.octets
	b.mu.Lock()
	defer b.mu.Unlock()
	l, _ := b.limits(a.tenant)
	if !c.lowered {
		var until time.Time
		for again := true; again; again, until = b.patient(over, until) {
			l, _ = b.limits(a.tenant)
			over = b.find(a, QuotaLimits{Octets: l.Octets, PerRelay: l.PerRelay}, more, time.Time{}, c.exempt)
		}
		over.Limits = l
		c.lowered = a.judge(over, b.now)
		if lower = c.lowered; over.Reason != WithinQuota && !lower {
			return false, over
		}
	}
	c.octets = octets
	a.coming.Octets += more
	b.hold(a.tenant, l, a.coming)
	return lower, over
}

// of are the limits of a message.
func (l QuotaLimits) of(exempt bool) QuotaLimits {
	if exempt {
		l.Rate, l.Messages, l.Octets = gcra.Rate{}, 2*l.Messages, 2*l.Octets
	}
	return l
}

// judge counts what becomes of a message that is over a limit, and reports whether it is lowered.
func (a *quotaAccount) judge(over Excess, now func() time.Time) bool {
	if over.Part != nil {
		a.over, a.overAt = over, now()
	}
	switch {
	case over.Reason == WithinQuota:
	case over.Limits.Lower:
		a.lowered[over.Reason]++
		return true
	default:
		a.refused[over.Reason]++
	}
	return false
}

// find returns which limit one message more is over. mu is held.
func (b *Quotas) find(a *quotaAccount, l QuotaLimits, octets int64, now time.Time, exempt bool) Excess {
	if b.sharing(l) == nil {
		return b.excess(a, l.of(exempt), octets, now)
	}
	return b.excessOfPart(a, l, octets, exempt)
}

// excess is find by what this relay has alone. mu is held.
func (b *Quotas) excess(a *quotaAccount, l QuotaLimits, octets int64, now time.Time) Excess {
	a.pace.Forgive(now, l.Rate) // it may have been slower
	if wait := a.pace.Next(now, l.Rate, 1).Sub(now); wait > 0 {
		return Excess{Reason: OverRate, Limits: l, Wait: wait}
	}
	if l.Messages == 0 && l.Octets == 0 {
		return Excess{}
	}
	queued := b.queued(a.tenant)
	switch {
	case l.Messages > 0 && queued.Messages+a.coming.Messages >= l.Messages:
		return Excess{Reason: OverMessages, Limits: l}
	case l.Octets > 0 && queued.Octets+a.coming.Octets+max(octets, 1) > l.Octets:
		return Excess{Reason: OverOctets, Limits: l}
	}
	return Excess{}
}

// Accepted ends the claim: the message is in the queue.
func (c *QuotaClaim) Accepted() { c.end(false) }

// Drop ends the claim of a message that was not accepted, and gives its turn at the rate back. It does
// nothing after Accepted.
func (c *QuotaClaim) Drop() { c.end(true) }

func (c *QuotaClaim) end(giveBack bool) {
	if c == nil {
		return
	}
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	a := c.account
	if a == nil {
		return
	}
	c.account = nil
	a.coming.Messages--
	a.coming.Octets -= c.octets
	switch {
	case giveBack && c.shared == nil:
		a.pace.GiveBack(c.rate, 1)
	case giveBack && !c.rate.Unlimited():
		c.shared.Unsubmit(a.tenant, c.rate)
	}
}

// clock is a time that never falls: a clock that is set back would stop tenants for as long as it was.
type clock struct {
	read time.Time     // the last reading
	back time.Duration // by how much it was set back in all
}

func (c *clock) at(now time.Time) time.Time {
	if d := c.read.Sub(now); d > 0 {
		c.back += d
	}
	c.read = now
	return now.Add(c.back)
}

// QuotaState is what a tenant uses at an instant.
type QuotaState struct {
	Limits      QuotaLimits
	Connections int
	Coming      QuotaUsage
	Queued      QuotaUsage
	Refused     [QuotaReasons]int64 // since the start
	Lowered     [QuotaReasons]int64
	// Now is what a message without a declared size would meet, or of shared limits has met lately.
	Now Excess
}

// State returns what a tenant uses; false: there is no such tenant.
func (b *Quotas) State(tenant string) (QuotaState, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a, l := b.of(tenant)
	if a == nil {
		return QuotaState{}, false
	}
	s := QuotaState{l, a.connections, a.coming, b.queued(tenant), a.refused, a.lowered, a.over}
	if b.sharing(l) == nil {
		s.Now = b.excess(a, l, 0, b.clock.at(b.now()))
	} else if since := b.now().Sub(a.overAt); since < 0 || since > lately {
		s.Now = Excess{}
	}
	return s, true
}

// claimQuota takes room for the message within the limits of its tenant, and returns the reply that refuses it. The
// tier of a message that is over them can become the last.
func (m *Message) claimQuota() *reply.Reply {
	a, quotas := &m.account, m.desk.cfg.Quotas
	m.exempt = m.mayBeExempt()
	if quotas == nil || a.tenant == "" {
		return nil
	}
	claim, lower, over := quotas.Begin(a.tenant, max(m.size, m.Envelope.Size), m.exempt)
	m.within = claim
	return m.withinQuota(lower, over)
}

// withinQuota has what is over a limit refused, or lowered.
func (m *Message) withinQuota(lower bool, over Excess) *reply.Reply {
	a := &m.account
	switch {
	case lower:
		m.exempt = false
		a.tier, a.ceiling = envelope.TierCount-1, envelope.TierCount-1
	case over.Reason != WithinQuota:
		return overReply(a.tenant, over)
	}
	return nil
}

// growClaim claims what comes beyond the declared size.
func (m *Message) growClaim() {
	if refused := m.withinQuota(m.within.Grow(m.size)); refused != nil {
		m.within.Drop() // before the client has sent the rest
		m.within = nil
		m.reject(refused)
	}
}

func overReply(tenant string, over Excess) *reply.Reply {
	tenant = reply.Printable(tenant)
	if over.Part != nil {
		return overPart(tenant, over)
	}
	switch over.Reason {
	case OverRate:
		return overRate.Refusal(tenant, over.Limits.Rate, int64((over.Wait+time.Second-1)/time.Second))
	case OverMessages:
		return overMessages.Refusal(tenant, over.Limits.Messages)
	}
	return overOctets.Refusal(tenant, over.Limits.Octets)
}

// exemptRate is how many reports and postmasters' messages of a tenant a desk exempts from
// admission and from the tenant's rate. The client chooses the sender, so that without a bound
// everything could be sent past them. Beyond it, such mail is treated as all of the tenant's is.
var exemptRate = gcra.Rate{Events: 1, Per: time.Second, Burst: 100}

// How large an exempt message can be: reports are smaller, and have one recipient.
const (
	exemptOctets     = 1 << 20
	exemptRecipients = 10
)

// exemptions paces exempt mail by tenant. The zero value is ready for use.
type exemptions struct {
	mu    sync.Mutex
	paces map[string]*gcra.Limiter
}

// maxPaces is how many tenants are kept before those that have sent no exempt mail lately are forgotten.
const maxPaces = 1000

// take uses one of a tenant's exemptions, if there is one left.
func (e *exemptions) take(now time.Time, tenant string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	pace := e.paces[tenant]
	if pace == nil {
		if len(e.paces) >= maxPaces { // those whose exemptions are all there again can go
			maps.DeleteFunc(e.paces, func(_ string, pace *gcra.Limiter) bool { return pace.Paid(now) })
		}
		if e.paces == nil {
			e.paces = make(map[string]*gcra.Limiter)
		}
		pace = new(gcra.Limiter)
		e.paces[tenant] = pace
	}
	if longest := time.Duration(exemptRate.Burst) * exemptRate.Interval(); pace.Next(now, exemptRate,
		1).Sub(now) > longest {
		*pace = gcra.Limiter{} // the clock was set back
	}
	if pace.Next(now, exemptRate, 1).After(now) {
		return false
	}
	pace.Take(now, exemptRate, 1)
	return true
}

// protected reports whether a sender's mail is to be exempt: reports, which have the null sender,
// and a postmaster's.
func protected(sender envelope.Address) bool {
	return sender.Null() || strings.EqualFold(sender.Local(), "postmaster")
}

// mayBeExempt reports whether a message is neither refused for load nor held to its tenant's rate. It
// is asked when its tenant is known, and again once it is too large. Strangers use up nothing.
func (m *Message) mayBeExempt() bool {
	return protected(m.Sender) && m.client.MayRelay && m.small() &&
		m.desk.exempted.take(m.desk.cfg.Now(), m.account.tenant)
}

func (m *Message) small() bool {
	return max(m.size, m.Envelope.Size) <= exemptOctets && len(m.recipients) <= exemptRecipients
}

// outgrow has an exempt message that is not small treated as any other from now on.
func (m *Message) outgrow() {
	if !m.exempt || m.refused != nil || m.small() {
		return
	}
	m.within.Drop()
	if refused := m.claimQuota(); refused != nil {
		m.reject(refused)
	} else if !m.mayRise || m.content.header.done {
		m.admitLate()
	}
}
