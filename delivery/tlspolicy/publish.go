package tlspolicy

import (
	"context"
	"crypto/tls"

	"example.org/mta/internal/route"
)

// TLSA is what a host's TLSA records say (RFC 7672, 2.2).
type TLSA struct {
	State TLSAState
	// Name is where the records are: the client must send it as SNI (RFC 7672, 8.1). "": the host's name.
	Name string
	// Match checks a connection against the records. It is set where State is Usable.
	Match func(*tls.ConnectionState) error
	// Text gives the records as the domain publishes them, for reports: "3 1 1 0b9f...". It is set where State is
	// Usable.
	Text func() []string
}

// TLSAState is of what use a host's TLSA records are.
type TLSAState uint8

const (
	// Absent: there are none, or nobody vouches for the answer. The other policies decide.
	Absent TLSAState = iota
	// Unusable: there are some, and none that SMTP can use. TLS is needed, with any certificate.
	Unusable
	// Usable: the host must match one of them.
	Usable
)

// Records finds the TLSA records of hosts; DANE does. It answers from its memory where it can,
// bounds its own work, and is called by many goroutines at once, each of which opens a connection.
type Records interface {
	// TLSA gives the records of a host of a route whose MX records are secure. An error says that
	// nobody knows whether there are records (a name server fails, a signature is bogus): the host can't
	// be used then. It is best a *Failure.
	TLSA(ctx context.Context, h route.Host) (TLSA, error)
}

// Domains knows the MTA-STS policies of domains, which routes bring along; package sts does.
type Domains interface {
	// Failed says that a host did not satisfy the policy with which the domain's mail was sent: it is
	// time to look for a newer one (RFC 8461, 5). It must not block.
	Failed(domain string)
}
