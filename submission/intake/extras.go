package intake

import (
	"cmp"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

// Extras are what a client can ask for a message beside its envelope. SMTP has some of them in header fields, which
// are read as well: an extra that is set counts in place of its field.
type Extras struct {
	// Release is when the message is released, over the window Spread from then on. If either is set, the
	// X-Hold fields don't count.
	Release  time.Time
	Spread   time.Duration
	Expires  time.Time // in place of X-MTA-Expires-At: when it is given up; zero: after its max_age
	Timezone string    // in place of X-MTA-Timezone
	Pace     string    // in place of X-MTA-Pace
	Campaign string    // in place of X-MTA-Campaign
	Priority *int      // in place of MT-Priority, -9 to 9 (RFC 6758); nil: not set
	Tags     []string
	Meta     string // a JSON object, in place of the X-MTA-Meta fields; "" for none
	TraceID  string // 32 hex digits; "" for none
	Pool     string // of sources, which the caller has checked that the tenant may use; "": its tenant's
}

// Set gives the message its extras. It comes before the content.
func (m *Message) Set(x Extras) { m.extras = &x }

// schedule works out when the message is released, by its extras where they are set, else by its header, and checks
// that it does not expire before that.
func (m *Message) schedule() *reply.Reply {
	now, longest, x := m.desk.cfg.Now(), m.desk.cfg.MaxHold, m.content
	var refused *reply.Reply
	if e := m.extras; e != nil && (!e.Release.IsZero() || e.Spread != 0) {
		x.releaseAt, x.spread, refused = within(now, longest, e.Release, e.Spread)
	} else {
		x.releaseAt, x.spread, refused = x.header.own.plan(now, longest)
	}
	if refused == nil {
		x.expires, refused = m.expiry()
	}
	if refused == nil {
		x.asked, refused = m.asked()
	}
	released := now
	if x.releaseAt.After(now) {
		released = x.releaseAt
	}
	if refused == nil && m.By.Notifies() && !x.releaseAt.IsZero() && m.By.At.Before(released.Add(x.spread)) {
		return badHold.Refusal("the time of BY comes before its release")
	}
	if refused != nil || x.expires.IsZero() {
		return refused
	}
	if !x.expires.After(now) {
		return badHold.Refusal("its time of expiry has passed")
	}
	if !x.expires.After(released.Add(x.spread)) {
		return badHold.Refusal("it would expire before it is released")
	}
	return nil
}

// apply writes into a message what its header has no field for.
func (x *Extras) apply(out *envelope.Message) {
	if x != nil {
		out.Tags, out.Pool, out.TraceID = x.Tags, cmp.Or(x.Pool, out.Pool), x.TraceID
	}
}

// campaign is the message's: as set, else as its header has it.
func (m *Message) campaign() string {
	if x := m.extras; x != nil && x.Campaign != "" {
		return x.Campaign
	}
	h := &m.content.header
	return cmp.Or(h.own[ownCampaign].campaign(), h.foreign[foreignCampaign].campaign())
}

// readMeta reads the message's metadata: as set, else as its header has it.
func (m *Message) readMeta() (refused *reply.Reply) {
	if x := m.extras; x != nil && x.Meta != "" {
		m.content.meta = x.Meta
		return nil
	}
	m.content.meta, refused = m.content.header.meta.object()
	return refused
}

// tier is how important the message is, and the priority for the next host if one was asked for: both up to the
// ceiling.
func (m *Message) tier() (tier uint8, priority int, asked bool) {
	priority, asked = m.content.header.asksPriority()
	if m.Priority != nil {
		priority, asked = *m.Priority, true
	}
	if x := m.extras; x != nil && x.Priority != nil {
		priority, asked = *x.Priority, true
	}
	if !asked {
		return m.account.tier, 0, false
	}
	if tier = tierOf(priority); tier < m.account.ceiling {
		tier, priority = m.account.ceiling, 6-2*int(m.account.ceiling)
	}
	return tier, priority, true
}
