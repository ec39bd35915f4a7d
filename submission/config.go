package submission

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"sync/atomic"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/submission/auth"
	"example.org/mta/submission/intake"
)

// Config is what a Server needs to know. It must not be changed after New.
type Config struct {
	// Intake is what messages are held to once they are here, and where they go. Its Hostname is in the banner,
	// too.
	Intake intake.Config
	// Watcher is given what is said. May be nil.
	Watcher Watcher
	// Refused is given clients that may not relay and are refused for what attackers do, and all whose login
	// fails. It must not block. Nil: nobody needs them.
	Refused func(netip.Addr, intake.Intrusion)

	// TLS switches STARTTLS on. Certificates come by its GetCertificate or GetConfigForClient,
	// so that a reload acts at once. TLS 1.2 is the lowest version unless it names another.
	TLS *tls.Config
	// Certified reports whether TLS has a certificate by now. Without one STARTTLS is not offered. Nil: it always has.
	Certified   func() bool
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
	// ProxyFrom are the networks that must start a connection with a PROXY header, whose client
	// address then stands in for theirs everywhere.
	ProxyFrom []netip.Prefix
	// Postmaster gets what is sent to <postmaster> without a domain (RFC 5321, 4.5.1); "" refuses it.
	Postmaster envelope.Address

	// Inbound takes mail that is addressed to the relay itself, from anybody. Nil: there is none.
	Inbound Inbound
	// InboundMemory bounds the content of such mail on its way in; servers can share it. Nil: no bound.
	InboundMemory *intake.Memory

	BareNewlines intake.Newlines // the end of DATA has to be CRLF . CRLF all the same
	// NormaliseFrom are the networks whose bare newlines are normalised, whatever BareNewlines says.
	NormaliseFrom []netip.Prefix
	Limits        Limits
	Timeouts      Timeouts

	// Draining reports that the relay takes no new mail for now. Nil: it always does.
	Draining func() bool

	IDs *envelope.IDs // for session ids; shared by the listeners of a node. Nil: its own
	// Open counts the open connections of all servers that share it. Nil: its own.
	Open *atomic.Int64
}

// Limits bound what clients can use. Zero stands for the default in brackets.
type Limits struct {
	Connections          int // open at once [10000]
	ConnectionsPerClient int // open at once from one IPv4 address or IPv6 /64 [1000]
	ErrorsPerSession     int // 5xx replies since the last accepted message [20]
	IdleCommands         int // NOOP, RSET, VRFY, EHLO and the like since the last accepted message [100]
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
	fill(&t.Command, 5*time.Minute)
	fill(&t.Block, 3*time.Minute)
	fill(&t.MinRate, 512)
	fill(&t.Content, time.Hour)
	fill(&t.Write, time.Minute)
	fill(&t.TLS, 30*time.Second)
	fill(&t.Proxy, 5*time.Second)
	fill(&cfg.IDs, new(envelope.IDs))
	fill(&cfg.Open, new(atomic.Int64))
	if cfg.Draining == nil {
		cfg.Draining = func() bool { return false }
	}
	if cfg.Refused == nil {
		cfg.Refused = func(netip.Addr, intake.Intrusion) {}
	}
	cfg.Intake = cfg.Intake.WithDefaults()
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
