package intake

import (
	"context"
	"strconv"
	"sync"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

// Desk takes in the messages of one listener, whatever protocol brings them. It is safe for use by many
// goroutines.
type Desk struct {
	cfg      Config
	contents sync.Pool // *content
	exempted exemptions
	refusals tally
}

// New makes a desk. Config.Store must be set.
func New(cfg Config) *Desk {
	d := &Desk{cfg: cfg.WithDefaults()}
	d.contents.New = func() any { return new(content) }
	d.refusals.report = d.recordRefusal
	return d
}

// Envelope is what is known of a message before its recipients are.
type Envelope struct {
	Sender     envelope.Address
	UTF8       bool // addresses or header fields can have UTF-8 (RFC 6531)
	Ret        envelope.Ret
	EnvID      string
	RequireTLS bool  // REQUIRETLS (RFC 8689)
	Size       int64 // as declared by the client, octets; 0 when it did not
	By         envelope.By
	Priority   *int // MT-PRIORITY, -9 to 9 (RFC 6710), in place of the header field; nil: not set
}

// Begin opens a message, or returns the reply that refuses it. It ends with Message.Drop.
func (d *Desk) Begin(ctx context.Context, c *Client, e Envelope) (*Message, *reply.Reply) {
	if !e.Sender.ASCII() && !e.UTF8 {
		return nil, senderNotASCII.Refusal()
	}
	d.Settle(c)
	if !d.maySend(c, e.Sender) {
		return nil, notSender.Refusal(reply.Printable(string(e.Sender)))
	}
	if r := d.room(c, e.Size); r != nil {
		return nil, r
	}
	m := &Message{desk: d, client: c, Envelope: e, helo: c.Helo, protocol: c.Protocol, account: c.account}
	if r := m.claim(ctx); r != nil {
		m.Drop()
		return nil, r
	}
	c.messages++
	m.id = c.Session + "." + strconv.Itoa(c.messages)
	return m, nil
}

// Fits returns the reply that refuses a message of so many octets, nil when it is not too large.
func (d *Desk) Fits(size int64) *reply.Reply {
	if most := d.cfg.Limits.Size; size > most {
		return tooBig.Refusal(most)
	}
	return nil
}

// room returns the reply that refuses any message of a client, of so many octets, just now.
func (d *Desk) room(c *Client, size int64) *reply.Reply {
	if r := d.Fits(size); r != nil {
		return r
	}
	owner := d.ownerOf(c)
	if !d.cfg.Memory.Fits(leastMessage, usual(owner)) {
		return MemoryFull.Refusal()
	}
	if d.cfg.Ready != nil {
		if err := d.cfg.Ready(owner, size); err != nil {
			return StoreReply(err)
		}
	}
	return nil
}

// claim takes the message's place within its tenant's limits and those of Admission, as far as its tenant is
// known by now.
func (m *Message) claim(ctx context.Context) (refused *reply.Reply) {
	named := m.desk.MayNameTenant(m.client)
	if !named && m.client.MayRelay {
		if refused = m.claimQuota(); refused != nil {
			return refused
		}
	}
	m.mayRise = named || m.account.ceiling < m.account.tier
	return m.admitAtOnce(ctx)
}
