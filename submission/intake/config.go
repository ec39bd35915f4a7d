package intake

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

// Store is where accepted messages go.
type Store interface {
	// Begin opens a place for one message's content. size is what the client declared, in octets; 0
	// when it did not (RFC 1870). Owners share the room for those that are unfinished.
	Begin(owner Owner, size int64) Draft
}

// Draft takes one message's content: header fields of this relay on top, CRLF line ends, no
// dot-stuffing. It ends with one Commit or one Abort.
type Draft interface {
	io.Writer
	// Grow says that at least n octets more are about to be written.
	Grow(n int)
	// Commit returns when the message is durable, with its ID and Size set. After an error the
	// message is not accepted; an error with a method DiskFull() bool that returns true is
	// answered 452 4.3.1, all others 451 4.3.0.
	Commit(*envelope.Message) error
	Abort()
}

// Events hears what became of messages, for the accounting log. Its methods are called by many
// goroutines and must not block.
type Events interface {
	// Received is given the fields that the message came without.
	Received(m *envelope.Message, missing Fields)
	Rejected(Rejection)
}

// Rejection is a refused connection, sender, recipient or content. Those that repeat come as one,
// once a minute, with their Count and what the last of them had.
type Rejection struct {
	Time      time.Time
	Session   string
	Peer      netip.AddrPort // zero when unknown
	HeloName  string
	User      string // who has logged in, "" for nobody
	Tenant    string
	Sender    envelope.Address
	Recipient envelope.Address // when Reply.Command is RCPT
	// Recipients are those that were accepted before the content was refused.
	Recipients []envelope.Recipient
	Count      int64       // how many of a kind this stands for; 0 and 1 are one
	Reply      reply.Reply // Command is connect, MAIL, RCPT, DATA, or content
}

// Newlines is what to do with a CR or LF that stands alone in a message.
type Newlines uint8

const (
	RefuseBareNewlines    Newlines = iota // 550 5.6.11
	NormaliseBareNewlines                 // each becomes CRLF
)

// Config is what a Desk needs to know. It must not be changed after New.
type Config struct {
	Hostname string // in the Received field, and right of the @ in an added Message-ID
	Store    Store
	// Batches takes several messages at once. Nil where nobody calls Desk.CommitAll.
	Batches Batches
	// Repeats recognises messages that are sent again, by a keyField. It needs Batches. Nil: that field is removed,
	// and doesn't count.
	Repeats *Repeats
	// Ready is asked before any content comes whether the store would take a message of the size that the
	// client declared, 0 when it did not; its errors are answered as those of Draft.Commit. Nil: it always
	// would.
	Ready  func(owner Owner, size int64) error
	Events Events // may be nil
	// Admission refuses messages while more is offered than can be kept. Nil admits all.
	Admission Admission

	Recipients Recipients

	// Unsubscribe gives the link by which a recipient unsubscribes from a tenant's mail (RFC 8058), "" for none. It
	// is asked for messages to one recipient without a List-Unsubscribe field. Nil: there are none.
	Unsubscribe func(tenant, campaign string, rcpt envelope.Address) string

	// Tenant is on whose behalf mail comes in here when nothing else says so: neither the client's login, nor
	// a tenantField, nor the client's network, in this order.
	Tenant string
	// TenantOf describes a tenant; false: it is not known. It is asked for each message. Nil: Tier and
	// TierCeiling hold for all.
	TenantOf func(name string) (Tenant, bool)
	// TenantFieldFrom are the networks whose clients may name a message's tenant in a tenantField. That of
	// other clients is removed, too, and counted.
	TenantFieldFrom []netip.Prefix
	// Foreign are header fields of another mail server that are understood.
	Foreign ForeignFields
	// Remove are fields that are removed from what clients send.
	Remove FieldPatterns
	Filtering
	// TenantAt gives the tenant whose network a client is in, "" when it is none's. It is asked for each
	// message. Nil: no network is a tenant's.
	TenantAt func(netip.Addr) string
	// Quotas holds tenants to what they may submit. Nil: to nothing.
	Quotas *Quotas
	// CheckFrom holds the addresses in From to Tenant.Senders and the user's, and not the sender alone.
	CheckFrom bool
	// Unsignable returns why a message of a tenant with a header section must be signed and can't be, nil when that
	// isn't so. Nil: no mail is signed.
	Unsignable func(tenant string, header []byte) error

	Tier        uint8 // of a message that does not ask for one; 3 is normal
	TierCeiling uint8 // the best tier that a message can ask for; 0 is the best there is

	// Marks are the header fields that messages are looked through for.
	Marks []Mark
	// Copies are the header fields that messages keep for the records of what becomes of them.
	Copies []string

	// MaxHold is how long a message may ask to be held before it is released, the window included
	// over which it is spread. 0: messages that ask for it are refused.
	MaxHold time.Duration

	Limits Limits

	Now func() time.Time // for what is written down; patience uses time.Now. Nil: time.Now
	Log *slog.Logger     // nil: none
	// Memory bounds what messages hold that are coming in; desks can share it. When it is used up
	// they are refused with 452 4.3.1. Nil: no bound.
	Memory *Memory
	// Buffered is how much of a message the store keeps in memory before it uses a file, octets.
	// 0: all of it.
	Buffered int64
	// Ignored counts the tenantFields, and the fields of Foreign, that did not count. Nil: the desk's own.
	Ignored *atomic.Int64
}

// Recipients are asked about before each is accepted.
type Recipients struct {
	// Verify asks Verifier whether each recipient's domain can take mail.
	Verify   bool
	Verifier Verifier // may be nil
	// AsksMailboxes reports whether MissingMailbox is asked about the recipients of a domain. Nil: about none.
	AsksMailboxes func(domain string) bool
	// MissingMailbox is asked whether the host of a mailbox says that it does not exist, and gives the
	// host's words. What is not known by the time that ctx ends passes.
	MissingMailbox func(ctx context.Context, rcpt envelope.Address) (words string, missing bool)
	// Suppressed is asked whether no mail is to be sent to a recipient, and why: then it is refused. Nil:
	// there are none.
	Suppressed func(tenant string, rcpt envelope.Address) (why string, listed bool)
}

// Limits bound a message. Zero stands for the default in brackets.
type Limits struct {
	Recipients int   // [1000]
	Size       int64 // octets [50 MiB]
	LineLength int   // of a line, octets without CRLF [64 KiB]
	HeaderSize int   // of the header section, octets [512 KiB]
	Hops       int   // Received fields (RFC 5321, 6.3) [100]
}

// WithDefaults returns cfg with everything filled in.
func (cfg Config) WithDefaults() Config {
	l := &cfg.Limits
	l.Recipients = cmp.Or(l.Recipients, 1000)
	l.Size = cmp.Or(l.Size, 50<<20)
	l.LineLength = cmp.Or(l.LineLength, 64<<10)
	l.HeaderSize = cmp.Or(l.HeaderSize, 512<<10)
	l.Hops = cmp.Or(l.Hops, 100)
	cfg.Hostname = cmp.Or(cfg.Hostname, "localhost")
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.Ignored = cmp.Or(cfg.Ignored, new(atomic.Int64))
	if cfg.Events == nil {
		cfg.Events = noEvents{}
	}
	return cfg
}

type noEvents struct{}

func (noEvents) Received(*envelope.Message, Fields) {}
func (noEvents) Rejected(Rejection)                 {}
