package submission

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/submission/auth"
	"example.org/mta/submission/quota"
)

// Store is where accepted messages go.
type Store interface {
	// Begin opens a place for one message's content. size is what the client declared, in octets; 0
	// when it did not (RFC 1870).
	Begin(size int64) Draft
}

// Draft takes one message's content: header fields of this relay on top, CRLF line ends, no
// dot-stuffing. It ends with one Commit or one Abort.
type Draft interface {
	io.Writer
	// Commit returns when the message is durable, with its ID and Size set. After an error the
	// message is not accepted; an error with a method DiskFull() bool that returns true is told
	// to the client as 452 4.3.1, all others as 451 4.3.0.
	Commit(*envelope.Message) error
	Abort()
}

// Events is told what became of messages, for the accounting log. Its methods are called by many
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
	NormaliseBareNewlines                 // each becomes CRLF; the end of DATA still has to be CRLF . CRLF
)

// Config is what a Server needs to know. It must not be changed after New.
type Config struct {
	Hostname string // in the banner and the Received field, and right of the @ in an added Message-ID
	Store    Store
	// Ready is asked at MAIL whether the store would take a message of the size that the client
	// declared, 0 when it did not; its errors are told as those of Draft.Commit are, before any
	// content comes. Nil: it always would.
	Ready  func(size int64) error
	Events Events // may be nil
	// Watcher is told what is said. May be nil.
	Watcher Watcher
	// Admission refuses messages while more is offered than can be kept. Nil admits all.
	Admission Admission

	// VerifyRecipients asks Verifier at RCPT whether the recipient's domain can take mail.
	VerifyRecipients bool
	Verifier         Verifier // may be nil
	// AsksMailboxes reports whether MissingMailbox is asked about the recipients of a domain. Nil: about none.
	AsksMailboxes func(domain string) bool
	// MissingMailbox is asked at RCPT whether the host of a mailbox says that it does not exist, and gives
	// the host's words. What is not known by the time that ctx ends passes.
	MissingMailbox func(ctx context.Context, rcpt envelope.Address) (words string, missing bool)

	// TLS switches STARTTLS on. Certificates come by its GetCertificate or GetConfigForClient,
	// so that a reload acts at once. TLS 1.2 is the lowest version unless it names another.
	TLS         *tls.Config
	ImplicitTLS bool // TLS from the first byte (RFC 8314, 3.3) in place of STARTTLS; needs TLS

	RelayFrom []netip.Prefix // the networks that may relay; others have to log in, or can send nothing
	// Auth checks who clients are. Nil: AUTH is not offered, and certificates count for nothing.
	Auth *auth.Service
	// Mechanisms are those of auth.Mechanisms that clients are offered, under TLS only.
	Mechanisms      []string
	ClearOnLoopback bool // clients on this machine are offered them without TLS
	// AuthRequired lets nobody submit who has not logged in, whatever its network.
	AuthRequired bool
	// ClientCAs sign certificates whose names count. Nil: only fingerprints do.
	ClientCAs *x509.CertPool
	// TenantOf describes a tenant; false: it is not known. It is asked for each message. Nil: Tier and
	// TierCeiling hold for all.
	TenantOf func(name string) (Tenant, bool)
	// ProxyFrom are the networks that must start a connection with a PROXY header, whose client
	// address then stands in for theirs everywhere.
	ProxyFrom []netip.Prefix
	// Postmaster gets what is sent to <postmaster> without a domain (RFC 5321, 4.5.1); "" refuses it.
	Postmaster envelope.Address

	// Suppressed is asked at RCPT whether no mail is to be sent to an address, and why: then it is
	// refused. Nil: there are none.
	Suppressed func(tenant string, rcpt envelope.Address) (why string, listed bool)

	// Tenant is on whose behalf mail comes in here when nothing else says so: neither the user, nor a
	// tenantField, nor the client's network, in this order.
	Tenant string
	// TenantFieldFrom are the networks whose clients may name a message's tenant in a tenantField. That of
	// other clients is removed, too, and counted.
	TenantFieldFrom []netip.Prefix
	// TenantAt gives the tenant whose network a client is in, "" when it is none's. It is asked for each
	// message. Nil: no network is a tenant's.
	TenantAt func(netip.Addr) string
	// Quotas holds tenants to what they may submit. Nil: to nothing.
	Quotas *quota.Book
	// CheckFrom holds the addresses in From to Tenant.Senders and the user's, and not MAIL alone.
	CheckFrom bool
	// ShowUser puts the name of who has logged in into the Received field.
	ShowUser bool

	Tier        uint8 // of a message that does not ask for one; 3 is normal
	TierCeiling uint8 // the best tier that a message can ask for by an MT-Priority field; 0 is the best there is

	// Marks are the header fields that messages are looked through for.
	Marks []Mark

	// MaxHold is how long a message may ask to be held before it is released, the window included
	// over which it is spread. 0: messages that ask for it are refused.
	MaxHold time.Duration

	BareNewlines Newlines
	// NormaliseFrom are the networks whose bare newlines are normalised, whatever BareNewlines says.
	NormaliseFrom []netip.Prefix
	// EncodeHeaders makes UTF-8 of header sections that are not, in place of refusing them.
	EncodeHeaders bool
	Limits        Limits
	Timeouts      Timeouts

	Now func() time.Time // for what is written down; deadlines use time.Now. Nil: time.Now
	Log *slog.Logger     // nil: none
	IDs *envelope.IDs    // for session ids; shared by the listeners of a node. Nil: its own
	// Memory bounds what messages hold that are coming in; servers can share it. When it is used up
	// they get 452 4.3.1. Nil: no bound.
	Memory *Memory
	// Buffered is how much of a message the store keeps in memory before it uses a file, octets.
	// 0: all of it.
	Buffered int64
	// Ignored counts the tenantFields that did not count. Nil: its own.
	Ignored *atomic.Int64
	// Open counts the open connections of all servers that share it. Nil: its own.
	Open *atomic.Int64
}

// Limits bound what clients can use. Zero stands for the default in brackets.
type Limits struct {
	Connections          int   // open at once [10000]
	ConnectionsPerClient int   // open at once from one IPv4 address or IPv6 /64 [1000]
	MessagesPerSession   int   // told to clients as MAILMAX (RFC 9422) [0: no limit]
	ErrorsPerSession     int   // 5xx replies since the last accepted message [20]
	IdleCommands         int   // NOOP, RSET, VRFY, EHLO and the like since the last accepted message [100]
	Recipients           int   // per message [1000]
	Size                 int64 // of a message, octets [50 MiB]
	LineLength           int   // of a line in a message, octets without CRLF [64 KiB]
	HeaderSize           int   // of a message's header section, octets [512 KiB]
	Hops                 int   // Received fields (RFC 5321, 6.3) [100]
}

// Timeouts bound how long clients can take. Zero stands for the default in brackets.
type Timeouts struct {
	Command time.Duration // for a whole command line to arrive (RFC 5321, 4.5.3.2.7) [5m]
	// Block is how long content may pause, and the head start that MinRate gives [3m].
	Block   time.Duration
	MinRate int64         // bytes/s that content must keep up over its whole length; negative: none [512]
	Content time.Duration // for a message's whole content [1h]
	Write   time.Duration // for the client to take our replies [1m]
	TLS     time.Duration // for the handshake [30s]
	Proxy   time.Duration // for the PROXY header [5s]
	// GreetDelay is how long a client has to keep silent before the banner; who talks earlier
	// gets 554 and is cut off [0: not looked at].
	GreetDelay time.Duration
}

// withDefaults gives cfg with everything filled in.
func (cfg Config) withDefaults() Config {
	l, t := &cfg.Limits, &cfg.Timeouts
	fill(&l.Connections, 10_000)
	fill(&l.ConnectionsPerClient, 1000)
	fill(&l.ErrorsPerSession, 20)
	fill(&l.IdleCommands, 100)
	fill(&l.Recipients, 1000)
	fill(&l.Size, 50<<20)
	fill(&l.LineLength, 64<<10)
	fill(&l.HeaderSize, 512<<10)
	fill(&l.Hops, 100)
	fill(&t.Command, 5*time.Minute)
	fill(&t.Block, 3*time.Minute)
	fill(&t.MinRate, 512)
	fill(&t.Content, time.Hour)
	fill(&t.Write, time.Minute)
	fill(&t.TLS, 30*time.Second)
	fill(&t.Proxy, 5*time.Second)
	fill(&cfg.Hostname, "localhost")
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	fill(&cfg.IDs, new(envelope.IDs))
	fill(&cfg.Open, new(atomic.Int64))
	fill(&cfg.Ignored, new(atomic.Int64))
	if cfg.Events == nil {
		cfg.Events = noEvents{}
	}
	if cfg.TLS != nil {
		cfg.TLS = cfg.TLS.Clone()
		fill(&cfg.TLS.MinVersion, tls.VersionTLS12)
	}
	return cfg
}

func fill[T comparable](v *T, byDefault T) {
	if *v == *new(T) {
		*v = byDefault
	}
}

type noEvents struct{}

func (noEvents) Received(*envelope.Message, Fields) {}
func (noEvents) Rejected(Rejection)                 {}
