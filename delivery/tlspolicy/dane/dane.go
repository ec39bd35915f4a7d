// Package dane finds a mail host's TLSA records and verifies its certificate against them (RFC 7672,
// RFC 6698, RFC 7671).
//
// Order of use: Lookup before a connection to a host is opened; Host.Verify when its certificate is
// there. The package starts no goroutines and remembers nothing: answers are cached by whoever
// implements DNS.
package dane

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// DNS is what Lookup asks. Records that don't exist are an Answer; an error says that nothing is
// known: no answer, SERVFAIL, or signatures that don't verify.
type DNS interface {
	// Addresses looks up a host's addresses, IPv6 ones or IPv4 ones, and follows aliases.
	Addresses(ctx context.Context, host string, ipv6 bool) (Answer, error)
	// Alias looks up the CNAME record at a name, and does not follow it.
	Alias(ctx context.Context, name string) (Answer, error)
	// TLSA looks up the TLSA records at a name such as "_25._tcp.mx.example.com".
	TLSA(ctx context.Context, name string) (Answer, error)
}

// Answer is what the DNS has at a name.
type Answer struct {
	Name    string   // where the aliases end; the name itself when it is none
	Secure  bool     // DNSSEC vouches for the answer and for all aliases
	Records []Record // of a TLSA look-up
}

// Status is what the DNS says about a host's TLS.
type Status uint8

const (
	Insecure Status = iota // DNSSEC does not vouch for the host's addresses or TLSA records: DANE says nothing
	Absent                 // DNSSEC proves that there are no TLSA records: DANE says nothing
	Unusable               // there are TLSA records, but none usable: TLS is required, unverified (RFC 7672, 2.2)
	Usable                 // there are usable TLSA records: TLS is required, and the certificate must match
)

// String gives the word for logs: "usable".
func (s Status) String() string {
	return [...]string{"insecure", "absent", "unusable", "usable"}[s]
}

// Host is what DANE demands of the connections to a host. The zero Host demands nothing.
type Host struct {
	Status Status
	// Base is the TLSA base domain, "" when there are no records: the name that the client must send
	// as SNI (RFC 7672, 8.1), and the first one that a certificate may have.
	Base    string
	Records []Record // the usable ones, without those that a stronger digest replaces
}

// Lookup finds what DANE demands of a connection to one address of a host. On an error the host must
// not be used now (RFC 7672, 2.1.1): nobody knows what it demands.
func Lookup(ctx context.Context, dns DNS, host string, addr netip.AddrPort) (Host, error) {
	if _, err := netip.ParseAddr(host); err == nil {
		return Host{}, nil // an address has no name that TLSA records could be at
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	bases, err := baseDomains(ctx, dns, host, addr.Addr().Unmap().Is6())
	if err != nil || len(bases) == 0 {
		return Host{}, err
	}
	status := Absent
	for _, base := range bases {
		answer, err := dns.TLSA(ctx, "_"+strconv.Itoa(int(addr.Port()))+"._tcp."+base)
		switch {
		case err != nil:
			return Host{}, fmt.Errorf("DANE: %w", err)
		case !answer.Secure:
			status = Insecure
		case len(answer.Records) > 0:
			return demand(base, answer.Records), nil
		}
	}
	return Host{Status: status}, nil
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

func demand(base string, records []Record) Host {
	h := Host{Status: Unusable, Base: base, Records: usable(records)}
	if len(h.Records) > 0 {
		h.Status = Usable
	}
	return h
}
