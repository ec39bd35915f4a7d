package intake

import (
	"context"
	"net/netip"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

// Admission decides which messages to take while more is offered than can be kept. Its methods and
// those of Admitted are called by many goroutines.
type Admission interface {
	// Admit is asked once for each message: when it begins, or at the end of the header section when that
	// can make the message more important than the client is.
	Admit(AdmitRequest) (Admitted, *Refused)
}

// Admitted is a message that may come in. It ends with one Commit or one Drop.
type Admitted interface {
	// Full is asked before the content comes: it refuses a message whose turn to be committed would come too late.
	Full() *Refused
	// Commit calls commit once it is the message's turn. It gives up after a bounded wait, or when
	// ctx ends; commit has not been called then. tier is that of the message, as it is known by now.
	Commit(ctx context.Context, tier uint8, commit func() error) (*Refused, error)
	// Drop says that the message will not be committed.
	Drop()
}

// AdmitRequest is what is known of a message.
type AdmitRequest struct {
	Session   string
	Peer      netip.AddrPort
	Network   netip.Prefix // of the client, as its connections are counted
	Sender    envelope.Address
	Recipient envelope.Address // the first, "" at the beginning
	User      string           // who has logged in, "" for nobody
	Tenant    string
	Tier      uint8
	Campaign  string // "" at the beginning
	Size      int64  // as declared by the client, octets; 0 when it did not
	TLS       bool
	// First is the time of the first attempt of a message whose client can prove it. Zero: it can't.
	First   time.Time
	Refused int // how many of the session's messages Admission refused since it last took one
}

// Refused is why a message is not taken now. Another try may go well.
type Refused struct {
	Disk  bool // the disk fills up faster than it empties
	Close bool // the connection is to end: the client does not heed refusals
	// Hold keeps the client waiting for the reply, until ctx ends at most. Nil: it gets it at once.
	Hold func(ctx context.Context)
}

func (r *Refused) reply() *reply.Reply {
	switch {
	case r.Close:
		return shedTooOften.Refusal()
	case r.Disk:
		return diskFull.Refusal()
	}
	return shed.Refusal()
}

// Waits refuses a message that was admitted and would wait for too long, before its content comes. Nil: it
// would not.
func (m *Message) Waits(ctx context.Context) *reply.Reply {
	if m.admitted == nil {
		return nil
	}
	if refused := m.admitted.Full(); refused != nil {
		return m.client.refuse(ctx, refused)
	}
	return nil
}

// refuse counts a refusal, and keeps the client waiting for the reply if it is to wait.
func (c *Client) refuse(ctx context.Context, r *Refused) *reply.Reply {
	c.shed++
	if r.Hold != nil && c.MayHold != nil && c.MayHold() {
		r.Hold(ctx)
	}
	return r.reply()
}

// admitAtOnce asks for a message whose importance is known before its header is. Strangers' mail is
// not asked for: none of it will come in, and it must not displace mail that can.
func (m *Message) admitAtOnce(ctx context.Context) *reply.Reply {
	c, admission := m.client, m.desk.cfg.Admission
	if admission == nil || !c.MayRelay || m.exempt || m.mayRise || c.whole {
		return nil
	}
	admitted, refused := admission.Admit(m.admitRequest())
	if refused != nil {
		return c.refuse(ctx, refused)
	}
	m.admitted = admitted
	return nil
}

// admitByHeader asks for a message whose header can make it more important. What still comes of its
// content is dropped when it is refused.
func (m *Message) admitByHeader() {
	if m.mayRise {
		m.admitLate()
	}
}

// admitLate asks for a message whose content has begun.
func (m *Message) admitLate() {
	admission := m.desk.cfg.Admission
	if admission == nil || m.refused != nil || m.admitted != nil || m.exempt || m.client.whole {
		return
	}
	ask := m.admitRequest()
	ask.Tier, _, _ = m.tier()
	ask.Campaign, ask.Recipient = m.campaign(), m.recipients[0].Address
	a, refused := admission.Admit(ask)
	if refused != nil {
		m.client.shed++
		m.reject(refused.reply())
		return
	}
	m.admitted = a
}

func (m *Message) admitRequest() AdmitRequest {
	ask := m.client.admitRequest(&m.account)
	ask.Sender, ask.Size = m.Sender, m.Envelope.Size
	return ask
}

func (c *Client) admitRequest(a *account) AdmitRequest {
	return AdmitRequest{
		Session: c.Session, Peer: c.Peer, Network: c.Network,
		User: a.user, Tenant: a.tenant, Tier: a.tier, TLS: c.TLS != nil, Refused: c.shed,
	}
}

// AdmitRequest is what is known of all the messages that a client will bring. Whoever asks Admission with it
// passes the admission to Client.Admit.
func (d *Desk) AdmitRequest(c *Client) AdmitRequest {
	d.Settle(c)
	return c.admitRequest(&c.account)
}

// turn returns what the message has been admitted by, for its commit; nil: it can be committed at once.
func (m *Message) turn() (a Admitted) {
	if a = m.admitted; a != nil {
		m.admitted = nil
		return a
	}
	a, m.client.admitted = m.client.admitted, nil
	return a
}

// commit makes the message durable, when it is its turn.
func (m *Message) commit(ctx context.Context, out *envelope.Message) *reply.Reply {
	var refused *Refused
	var err error
	if a := m.turn(); a == nil {
		err = m.commitDraft(out)
	} else {
		refused, err = a.Commit(ctx, out.Tier, func() error { return m.commitDraft(out) })
	}
	switch {
	case refused != nil:
		m.client.shed++
		return refused.reply()
	case err != nil:
		return m.storeTrouble("committing message", err)
	}
	return nil
}

func (m *Message) commitDraft(out *envelope.Message) error {
	draft := m.content.draft
	m.content.draft = nil
	return draft.Commit(out)
}
