package tlspolicy

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"example.org/mta/internal/route"
)

// DNS is what LookupDANE asks. Records that don't exist are an DNSAnswer; an error says that nothing is
// known: no answer, SERVFAIL, or signatures that don't verify.
type DNS interface {
	// Addresses looks up a host's addresses, IPv6 ones or IPv4 ones, and follows aliases.
	Addresses(ctx context.Context, host string, ipv6 bool) (DNSAnswer, error)
	// Alias looks up the CNAME record at a name, and does not follow it.
	Alias(ctx context.Context, name string) (DNSAnswer, error)
	// TLSA looks up the TLSA records at a name such as "_25._tcp.mx.example.com".
	TLSA(ctx context.Context, name string) (DNSAnswer, error)
}

// DNSAnswer is what the DNS has at a name.
type DNSAnswer struct {
	Name    string       // where the aliases end; the name itself when there is none
	Secure  bool         // DNSSEC vouches for the answer and for all aliases
	Records []TLSARecord // of a TLSA look-up
}

// DANE finds hosts' TLSA records and verifies certificates against them (RFC 7672, RFC 6698, RFC 7671). It remembers
// nothing: the DNS caches its answers. It implements Records.
type DANE struct {
	DNS DNS
	Now func() time.Time
}

// TLSA implements Records.
func (d DANE) TLSA(ctx context.Context, h route.Host) (TLSA, error) {
	found, err := LookupDANE(ctx, d.DNS, h.Name, h.Addr)
	if err != nil {
		return TLSA{}, &Failure{Class: DNSSECInvalid, Err: err}
	}
	t := TLSA{State: found.State, Name: found.Base}
	if t.State == Usable {
		t.Text = found.Text
		t.Match = func(state *tls.ConnectionState) error {
			_, err := found.Verify(state.PeerCertificates, d.Now(), h.Name)
			return err
		}
	}
	return t, nil
}

// DANEHost is what DANE demands of the connections to a host. The zero DANEHost demands nothing.
type DANEHost struct {
	State TLSAState
	// Base is the TLSA base domain, "" when there are no records: the name that the client must send
	// as SNI (RFC 7672, 8.1), and the first one that a certificate may have.
	Base    string
	Records []TLSARecord // the usable ones, without those that a stronger digest replaces
}

// LookupDANE finds what DANE demands of a connection to one address of a host. On an error the host must
// not be used now (RFC 7672, 2.1.1): nobody knows what it demands.
func LookupDANE(ctx context.Context, dns DNS, host string, addr netip.AddrPort) (DANEHost, error) {
	if _, err := netip.ParseAddr(host); err == nil {
		return DANEHost{}, nil // an address has no name that TLSA records could be at
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	bases, err := baseDomains(ctx, dns, host, addr.Addr().Unmap().Is6())
	if err != nil || len(bases) == 0 {
		return DANEHost{}, err
	}
	for _, base := range bases {
		answer, err := dns.TLSA(ctx, "_"+strconv.Itoa(int(addr.Port()))+"._tcp."+base)
		switch {
		case err != nil:
			return DANEHost{}, fmt.Errorf("DANE: %w", err)
		case answer.Secure && len(answer.Records) > 0:
			return usableOf(base, answer.Records), nil
		}
	}
	return DANEHost{}, nil
}

// baseDomains are the names at which a host's TLSA records may be, the first that has some counts (RFC
// 7672, 2.2.2): where its aliases end, then its own. When only its own zone is signed, that name alone.
// Name servers of unsigned zones are not asked for TLSA records, which some don't answer (2.1.2).
func baseDomains(ctx context.Context, dns DNS, host string, ipv6 bool) ([]string, error) {
	answer, err := dns.Addresses(ctx, host, ipv6)
	switch {
	case err != nil:
		return nil, fmt.Errorf("DANE: %w", err)
	case answer.Name == host && answer.Secure:
		return []string{host}, nil
	case answer.Name == host:
		return nil, nil
	case answer.Secure:
		return []string{answer.Name, host}, nil
	}
	alias, err := dns.Alias(ctx, host)
	switch {
	case err != nil:
		return nil, fmt.Errorf("DANE: %w", err)
	case alias.Secure:
		return []string{host}, nil
	}
	return nil, nil
}

func usableOf(base string, records []TLSARecord) DANEHost {
	h := DANEHost{State: Unusable, Base: base, Records: usable(records)}
	if len(h.Records) > 0 {
		h.State = Usable
	}
	return h
}

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
