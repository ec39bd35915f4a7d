package submission

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/fair"
	"example.org/mta/internal/network"
	"example.org/mta/internal/reply"
	"example.org/mta/submission/intake"
)

// Inbound takes mail that is addressed to the relay itself: reports about mail that it has sent. Anybody may bring
// it, and none of it is relayed. Its methods are called by many goroutines.
type Inbound interface {
	// Recipient reports what the relay has at an address.
	Recipient(envelope.Address) Verdict
	// Postmaster is the address that <postmaster> without a domain stands for.
	Postmaster() envelope.Address
	// Take returns nil when all that follows from the mail is durable. ErrTooLarge and ErrLoop refuse it for good,
	// other errors are answered as those of intake.Draft.Commit.
	Take(context.Context, *Arrival) error
}

// Verdict is what a relay has at an address.
type Verdict uint8

const (
	Foreign Verdict = iota // the domain is not an inbound one
	Taken                  // mail for the address is taken
	Unknown                // there is no such address
	Expired                // there was, and is no longer
)

// What keeps mail from being taken by an Inbound.
var (
	ErrTooLarge = errors.New("the mail has to be kept whole, and is too large for that")
	ErrLoop     = errors.New("the mail was here before")
)

// Arrival is mail for an Inbound.
type Arrival struct {
	Session    string
	Peer       netip.AddrPort
	Helo       string
	Protocol   string // "with" in the Received field
	Sender     envelope.Address
	Recipients []envelope.Address
	// Content has the first ArrivalContent octets, as they came: with bare newlines, NUL and whatever else.
	Content []byte
	Size    int64 // octets of the whole content
	Time    time.Time
}

// Whole reports whether all of the content is there.
func (a *Arrival) Whole() bool { return a.Size == int64(len(a.Content)) }

const (
	// ArrivalContent is how much of an arrival's content is kept. A report has what matters at its beginning, and
	// the message that it is about at its end.
	ArrivalContent = 1 << 20
	// arrivalRecipients is how many one transaction can have (RFC 5321, 4.5.3.1.8).
	arrivalRecipients = 100
	arrivalFirst      = 8 << 10 // octets of the first buffer; most reports fit
)

// transaction is one message on its way in: an *intake.Message, to be relayed, or an *arrival.
type transaction interface {
	Full() *reply.Reply
	Recipient(context.Context, envelope.Recipient) *reply.Reply
	Recipients() []envelope.Recipient
	Waits(context.Context) *reply.Reply
	Write([]byte) (int, error)
	Size() int64
	End(context.Context) *reply.Reply
	// Commit returns no message where nothing was queued.
	Commit(context.Context) (*envelope.Message, *reply.Reply)
	Drop()
}

// arrival is a transaction whose mail is for the relay itself.
type arrival struct {
	mail       Arrival
	conn       *conn
	relayed    *intake.Message // what MAIL began: it refuses recipients elsewhere
	recipients []envelope.Recipient
	held       int64 // octets of Config.Memory
	refused    *reply.Reply
}

// receive adds a recipient that the relay has itself. It reports whether the recipient is one.
func (c *conn) receive(r envelope.Recipient) (refused *reply.Reply, mine bool) {
	in := c.srv.cfg.Inbound
	if in == nil {
		return nil, false
	}
	switch in.Recipient(r.Address) {
	case Foreign:
		return nil, false
	case Unknown:
		return noSuchAddress.Refusal(), true
	case Expired:
		return expiredAddress.Refusal(), true
	}
	a, ok := c.tx.(*arrival)
	switch {
	case !ok && len(c.tx.Recipients()) > 0, ok && len(a.recipients) >= arrivalRecipients:
		return apart.Refusal(), true
	case !ok:
		cl := &c.client.Client
		a = &arrival{conn: c, relayed: c.tx.(*intake.Message), mail: Arrival{
			Session: cl.Session, Peer: cl.Peer, Helo: cl.Helo, Protocol: cl.Protocol, Sender: c.envelope.Sender,
		}}
		c.tx = a
	}
	a.recipients = append(a.recipients, r)
	a.mail.Recipients = append(a.mail.Recipients, r.Address)
	return nil, true
}

// Full never refuses: receive does, for it knows the recipient.
func (a *arrival) Full() *reply.Reply { return nil }

// Recipient refuses a recipient elsewhere. Whoever may relay to it can do so in another transaction.
func (a *arrival) Recipient(ctx context.Context, r envelope.Recipient) *reply.Reply {
	if a.conn.mayRelay() {
		return apart.Refusal()
	}
	return a.relayed.Recipient(ctx, r)
}

func (a *arrival) Recipients() []envelope.Recipient   { return a.recipients }
func (a *arrival) Waits(context.Context) *reply.Reply { return nil }
func (a *arrival) Size() int64                        { return a.mail.Size }
func (a *arrival) End(context.Context) *reply.Reply   { return a.refused }

// Write takes content, whatever it has: what a report is written in can't be mended by refusing it.
func (a *arrival) Write(p []byte) (int, error) {
	a.mail.Size += int64(len(p))
	if a.refused != nil {
		return len(p), a.refused
	}
	if a.refused = a.conn.srv.desk.Fits(a.mail.Size); a.refused != nil {
		return len(p), a.refused
	}
	keep := p[:min(len(p), ArrivalContent-len(a.mail.Content))]
	if !a.grow(len(a.mail.Content) + len(keep)) {
		return len(p), a.refused
	}
	a.mail.Content = append(a.mail.Content, keep...)
	return len(p), nil
}

// parts is for whom the content counts: the client, and its neighbourhood.
func (a *arrival) parts() []fair.Part[intake.Owner] {
	cl := &a.conn.client.Client
	return []fair.Part[intake.Owner]{
		{Key: intake.Owner{Network: cl.Network}, Times: sameClient},
		{Key: intake.Owner{Network: network.Around(cl.Peer.Addr())}, Times: sameNeighbourhood},
	}
}

// grow makes room for so many octets, within the memory that arrivals may have together.
func (a *arrival) grow(n int) bool {
	size := max(cap(a.mail.Content), arrivalFirst)
	for size < n {
		size *= 2
	}
	if size == cap(a.mail.Content) {
		return true
	}
	if more := int64(size) - a.held; !a.conn.srv.cfg.InboundMemory.Take(more, a.parts()...) {
		a.refused = intake.MemoryFull.Refusal()
		return false
	}
	a.held = int64(size)
	a.mail.Content = append(make([]byte, 0, size), a.mail.Content...)
	return true
}

// Commit hands the mail over.
func (a *arrival) Commit(ctx context.Context) (*envelope.Message, *reply.Reply) {
	if a.refused != nil {
		return nil, a.refused
	}
	cfg := &a.conn.srv.cfg
	a.mail.Time = cfg.Intake.Now()
	err := cfg.Inbound.Take(ctx, &a.mail)
	switch {
	case err == nil:
		return nil, nil
	case errors.Is(err, ErrTooLarge):
		return nil, mailTooLarge.Refusal(ArrivalContent)
	case errors.Is(err, ErrLoop):
		return nil, mailLoop.Refusal()
	}
	cfg.Intake.Log.Debug("taking inbound mail", "session", a.mail.Session, "err", err)
	return nil, intake.StoreReply(err)
}

// Drop lets go of the content. It does nothing the second time.
func (a *arrival) Drop() {
	a.conn.srv.cfg.InboundMemory.Give(a.held, a.parts()...)
	a.held, a.mail.Content = 0, nil
	a.relayed.Drop()
}
