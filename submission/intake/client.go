package intake

import (
	"crypto/tls"
	"net/netip"
	"strings"

	"example.org/mta/submission/auth"
)

// Client is the sender of messages: a connection's or a request's. It is used by one goroutine at a time.
type Client struct {
	Session  string
	Peer     netip.AddrPort // zero when unknown
	Network  netip.Prefix   // what counts as one client
	Helo     string         // what the client calls itself, "" for nothing
	Protocol string         // "with" in the Received field: ESMTPSA (RFC 3848) or HTTPS
	TLS      *tls.ConnectionState

	// MayRelay is whether the client may send to anybody. All recipients of others are refused.
	MayRelay bool
	User     string       // who has logged in, "" for nobody
	Tenant   string       // whose login or key it has, "" when that names none
	APIKey   string       // the name of the key that it has shown, "" for none
	Senders  auth.Senders // whom it may send as, beside what its tenant may; empty: anybody
	Newlines Newlines

	// MayHold is asked before the client is kept waiting for a refusal by Admission. Nil: it gets that at once.
	MayHold func() bool

	over     string // of TLS, as overTLS gives it; "" before that
	account  account
	messages int // begun
	shed     int // messages that Admission refused since it last took one

	whole    bool     // Admit was called
	admitted Admitted // by it; nil when it has been used up
}

// overTLS names the version and the cipher suite, "" without TLS. It is made once: the library makes its whole table of
// suites anew for each question about one.
func (c *Client) overTLS() string {
	if c.over == "" && c.TLS != nil {
		version := strings.ReplaceAll(tls.VersionName(c.TLS.Version), " ", "")
		c.over = version + " " + tls.CipherSuiteName(c.TLS.CipherSuite)
	}
	return c.over
}

// Admit gives the client an admission for all the messages that it brings: Admission is not asked for each of them
// any more. Its turn is that of the next Message.Commit or Desk.CommitAll. Leave ends it. a is nil where
// Admission takes anything.
func (c *Client) Admit(a Admitted) { c.whole, c.admitted = true, a }

// Leave lets go of an admission that no commit has used up.
func (c *Client) Leave() {
	if a := c.admitted; a != nil {
		c.admitted = nil
		a.Drop()
	}
}

// OnBehalfOf returns the tenant whose mail the client submits, as Settle found out, "" when there is none.
func (c *Client) OnBehalfOf() string { return c.account.tenant }

// Messages is how many messages the client has begun.
func (c *Client) Messages() int { return c.messages }
