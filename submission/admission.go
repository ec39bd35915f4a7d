package submission

import (
	"context"
	"net/netip"
	"sync"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

// Admission decides which messages to take while more is offered than can be kept. Its methods and
// those of Admitted are called by many goroutines.
type Admission interface {
	// Admit is asked once for each message: at MAIL, or at the end of the header section when that
	// can make the message more important than the client is.
	Admit(AdmitRequest) (Admitted, *Refused)
}

// Admitted is a message that may come in. It ends with one Commit or one Drop.
type Admitted interface {
	// Full is asked at DATA: it refuses a message whose turn to be committed would come too late.
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
	Recipient envelope.Address // the first, "" at MAIL
	User      string           // who has logged in, "" for nobody
	Tenant    string
	Tier      uint8
	Campaign  string // "" at MAIL
	Size      int64  // as declared by the client, octets; 0 when it did not
	TLS       bool
	Refused   int // how many of the session's messages Admission refused since it last took one
}

// Refused is why a message is not taken now. Another try may go well.
type Refused struct {
	Disk  bool // the disk fills up faster than it empties
	Close bool // the connection is to end: the client does not heed refusals
	// Hold keeps the client waiting for the reply, until ctx ends at most. Nil: it gets it at once.
	Hold func(ctx context.Context)
}

func (r *Refused) reply() reply.Reply {
	switch {
	case r.Close:
		return shedTooOften.reply()
	case r.Disk:
		return diskFull.reply()
	}
	return shed.reply()
}

// claim holds what Admission has given a transaction until its content comes or the transaction
// ends, which two goroutines can see at once.
type claim struct {
	mu       sync.Mutex
	admitted Admitted
}

func (c *claim) take() (a Admitted) {
	c.mu.Lock()
	a, c.admitted = c.admitted, nil
	c.mu.Unlock()
	return a
}

// dropClaim ends the admission of a transaction that ends without content.
func (c *conn) dropClaim() {
	if c.tx == nil {
		return
	}
	if a := c.tx.claim.take(); a != nil {
		a.Drop()
	}
}

// look returns what take will.
func (c *claim) look() Admitted {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.admitted
}

// admitAtData refuses a message that was admitted and would wait for too long, before its content
// comes. With BDAT, the content is already on its way.
func (c *conn) admitAtData() *reply.Reply {
	a := c.tx.claim.look()
	if a == nil {
		return nil
	}
	refused := a.Full()
	if refused == nil {
		return nil
	}
	r := c.shed(refused)
	return &r
}

// shed counts a refusal, and keeps the client waiting for the reply if it is to wait.
func (c *conn) shed(refused *Refused) reply.Reply {
	c.client.shed++
	if refused.Hold != nil && c.flush() == nil {
		refused.Hold(c.srv.patient)
	}
	return refused.reply()
}

// mayRise reports whether the header of a message can make it more important than its client is.
func (c *conn) mayRise(a *account) bool {
	return a.ceiling < a.tier || c.mayNameTenant()
}

// admitAtMail asks for a message whose importance is known before its header is. Strangers' mail is
// not asked for: none of it will come in, and it must not displace mail that can.
func (c *conn) admitAtMail(a *account, sender envelope.Address, size int64) (Admitted, *reply.Reply) {
	if c.srv.cfg.Admission == nil || !c.mayRelay() || c.mayRise(a) {
		return nil, nil
	}
	admitted, refused := c.srv.cfg.Admission.Admit(c.admitRequest(a, sender, size))
	if refused == nil {
		return admitted, nil
	}
	r := c.shed(refused)
	return nil, &r
}

// admitByHeader asks for a message whose header can make it more important. What still comes of its
// content is dropped when it is refused.
func (in *intake) admitByHeader() {
	c := in.c
	if c.srv.cfg.Admission == nil || in.refuse != nil || in.admitted != nil || in.tx.exempt || !c.mayRise(&in.tx.account) {
		return
	}
	ask := c.admitRequest(&in.behalf, in.tx.sender, in.tx.size)
	ask.Tier, ask.Campaign, ask.Recipient = in.tier(), in.header.campaign, in.tx.recipients[0].Address
	a, refused := c.srv.cfg.Admission.Admit(ask)
	if refused != nil {
		c.client.shed++
		in.reject(refused.reply())
		return
	}
	in.admitted = a
}

func (c *conn) admitRequest(a *account, sender envelope.Address, size int64) AdmitRequest {
	return AdmitRequest{
		Session: c.client.session, Peer: c.client.peer, Network: c.client.network, Sender: sender,
		User: a.user, Tenant: a.tenant, Tier: a.tier, Size: size, TLS: c.tls != nil, Refused: c.client.shed,
	}
}

// commit makes the message durable, when it is its turn.
func (in *intake) commit(m *envelope.Message) *reply.Reply {
	draft, admitted := in.draft, in.admitted
	var err error
	if admitted == nil {
		in.draft = nil
		err = draft.Commit(m)
	} else {
		in.admitted = nil
		var refused *Refused
		refused, err = admitted.Commit(in.c.srv.ctx, m.Tier, func() error { in.draft = nil; return draft.Commit(m) })
		if refused != nil {
			in.c.client.shed++
			r := refused.reply()
			return &r
		}
	}
	if err != nil {
		r := in.storeTrouble("committing message", err)
		return &r
	}
	in.c.client.shed = 0
	return nil
}
