package intake

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

// Message is one message on its way in: Recipient for each recipient, Write for the content, Commit, and Drop
// in any case. It is used by one goroutine at a time; messages of one client can get their recipients, and wait for
// Filters, at the same time.
type Message struct {
	Envelope
	desk       *Desk
	client     *Client
	id         string // unique, for the Received field and the log
	recipients []envelope.Recipient
	turnedAway []envelope.Address // recipients that were refused by Suppressed or the Verifier, where keys matter
	helo       string             // as at Begin
	protocol   string
	account    account
	within     *QuotaClaim   // on its tenant's limits; nil while the tenant is not known
	exempt     bool          // from them, and from Admission
	mayRise    bool          // its header can make it more important than its client is
	admitted   Admitted      // nil when nobody was asked, or it has been used up
	extras     *Extras       // nil: none
	verifying  time.Duration // that the client was kept waiting for answers about its recipients

	size    int64        // octets of content so far
	refused *reply.Reply // why the content can't be accepted
	content *content     // nil before the first octet, and after the end
}

// Recipients are those that were accepted so far.
func (m *Message) Recipients() []envelope.Recipient { return m.recipients }

// Size is how many octets of content have come so far, refused ones included.
func (m *Message) Size() int64 { return m.size }

// Full returns the reply that refuses one recipient more, nil when there can be more.
func (m *Message) Full() *reply.Reply {
	if most := m.desk.cfg.Limits.Recipients; len(m.recipients) >= most {
		return tooManyRcpts.Refusal(most)
	}
	return nil
}

// Recipient adds a recipient, or returns the reply that refuses it. It can wait a few seconds for answers about
// the recipient, and no longer than ctx.
func (m *Message) Recipient(ctx context.Context, r envelope.Recipient) *reply.Reply {
	switch {
	case !m.client.MayRelay:
		return relayDenied.Refusal(m.client.Peer.Addr())
	case !r.Address.ASCII() && !m.UTF8:
		return rcptNotASCII.Refusal()
	}
	if refused := m.Full(); refused != nil {
		return refused
	}
	refused := m.suppressed(r.Address)
	if refused == nil {
		refused = m.verify(ctx, r.Address)
	}
	if refused != nil {
		if m.desk.cfg.Repeats != nil {
			m.turnedAway = append(m.turnedAway, r.Address)
		}
		return refused
	}
	m.recipients = append(m.recipients, r)
	return nil
}

// Commit makes the message durable when it is its turn, and returns it, or the reply that refuses it. Of a message
// that was accepted before with its key, only the ID counts.
func (m *Message) Commit(ctx context.Context) (*envelope.Message, *reply.Reply) {
	if r := m.End(ctx); r != nil {
		return nil, r
	}
	out := m.message()
	if m.content.key != "" {
		again, r := m.commitOnce(ctx, out)
		switch {
		case r != nil:
			return nil, r
		case again:
			return out, nil
		}
	} else if r := m.commit(ctx, out); r != nil {
		return nil, r
	}
	m.accepted(out)
	return out, nil
}

// accepted notes that the message is durable.
func (m *Message) accepted(out *envelope.Message) {
	m.within.Accepted()
	m.client.shed = 0
	m.desk.cfg.Events.Received(out, everyField&^m.content.header.fields)
	if m.content.discarded {
		m.desk.cfg.Discard(out.ID)
	}
	m.log(out)
}

// Drop lets go of everything that the message holds. One that was not committed is gone. It does nothing the
// second time.
func (m *Message) Drop() {
	if m.admitted != nil {
		m.admitted.Drop()
		m.admitted = nil
	}
	m.within.Drop()
	m.release()
}

// log notes the acceptance for who looks for trouble. It is on the way of every message, so nothing is
// put into words when nobody reads them.
func (m *Message) log(out *envelope.Message) {
	ctx, log := context.Background(), m.desk.cfg.Log
	if !log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	log.LogAttrs(ctx, slog.LevelDebug, "accepted",
		slog.String("session", out.Session), slog.String("transaction", m.id), slog.String("id", out.ID.String()),
		slog.String("sender", string(out.Sender)), slog.Int("recipients", len(out.Recipients)),
		slog.Int64("size", out.Size))
}

// message is what is handed to the store.
func (m *Message) message() *envelope.Message {
	c, x, h := m.client, m.content, &m.content.header
	tier, priority, asked := m.tier()
	out := &envelope.Message{
		Sender: m.Sender, Recipients: m.recipients,
		UTF8: m.UTF8, Ret: m.Ret, EnvID: cmp.Or(m.EnvID, h.foreign[foreignEnvID].envID()),
		Pool: h.foreign[foreignPool].value, RequireTLS: m.RequireTLS, TLSOptional: h.tlsOptional,
		User: m.account.user, Tenant: m.account.tenant, Tier: tier, Release: x.releaseAt, Spread: x.spread,
		Expires: x.expires, Received: m.desk.cfg.Now(), Peer: c.Peer, HeloName: m.helo, Session: c.Session,
		Protocol: m.protocol,
	}
	// Clients often declare 8BITMIME wrongly, in both directions, and it decides whether a host without it
	// can get the message: the content counts.
	if x.check.eightBit {
		out.Body = envelope.Body8BitMIME
	}
	out.Campaign, out.Meta, out.Marks, out.APIKey = m.campaign(), x.meta, append(h.marks, x.asked...), c.APIKey
	if asked {
		out.Marks = append(slices.Clip(out.Marks), envelope.PriorityMark(priority))
	}
	if m.By != (envelope.By{}) {
		out.Marks = append(slices.Clip(out.Marks), m.By.Mark())
	}
	if names := m.desk.cfg.Copies; len(names) > 0 {
		out.Headers = h.copies(names)
	}
	m.extras.apply(out)
	return out
}
