package tlspolicy

import (
	"context"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
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

// Usages, selectors and matching types (RFC 7218, 2). The usages 0 (PKIX-TA) and 1 (PKIX-EE) can't
// be used for SMTP (RFC 7672, 3.1.3).
const (
	trustAnchor uint8 = 2 // DANE-TA
	endEntity   uint8 = 3 // DANE-EE

	wholeCertificate uint8 = 0 // Cert
	publicKey        uint8 = 1 // SPKI

	full      uint8 = 0
	digest256 uint8 = 1
	digest512 uint8 = 2
)

// TLSARecord is a TLSA record as it stands in the DNS (RFC 6698, 2.1). Its values may be any.
type TLSARecord struct {
	Usage, Selector, Matching uint8
	Data                      []byte // the certificate association data
}

// String gives the record as a zone file has it, with the beginning of its data: "3 1 1 0b9fa5a59eed715c...".
func (r TLSARecord) String() string {
	const few = 16
	data := hex.EncodeToString(r.Data[:min(few, len(r.Data))])
	if len(r.Data) > few {
		data += "..."
	}
	return fmt.Sprintf("%d %d %d %s", r.Usage, r.Selector, r.Matching, data)
}

// usable gives the records that a certificate can be verified against. Of those with the same usage and
// selector, only the ones with the strongest digest count (RFC 7671, 9), and those that have no digest.
func usable(records []TLSARecord) []TLSARecord {
	type kind struct{ usage, selector uint8 }
	strongest := make(map[kind]uint8)
	var well []TLSARecord
	for _, r := range records {
		if r.wellFormed() {
			well = append(well, r)
			k := kind{r.Usage, r.Selector}
			strongest[k] = max(strongest[k], r.Matching) // SHA-512 has the higher number
		}
	}
	return slices.DeleteFunc(well, func(r TLSARecord) bool {
		return r.Matching != full && r.Matching != strongest[kind{r.Usage, r.Selector}]
	})
}

func (r TLSARecord) wellFormed() bool {
	if r.Usage != trustAnchor && r.Usage != endEntity {
		return false
	}
	switch {
	case r.Selector > publicKey:
		return false
	case r.Matching == digest256:
		return len(r.Data) == sha256.Size
	case r.Matching == digest512:
		return len(r.Data) == sha512.Size
	case r.Matching != full:
		return false
	case r.Selector == wholeCertificate:
		cert, err := x509.ParseCertificate(r.Data)
		return err == nil && checkable(cert.PublicKey)
	}
	key, err := x509.ParsePKIXPublicKey(r.Data)
	return err == nil && checkable(key)
}

// maxRSA is the longest RSA key that crypto/tls takes, in bits. To check one signature with the longest
// that fits into a TLSA record takes seconds.
const maxRSA = 8192

func checkable(key any) bool {
	k, ok := key.(*rsa.PublicKey)
	return !ok || k.N.BitLen() <= maxRSA
}

// matches reports whether a certificate is the one that the record is about (RFC 6698, 2.1.4).
func (r TLSARecord) matches(cert *x509.Certificate) bool {
	selected := cert.Raw
	if r.Selector == publicKey {
		selected = cert.RawSubjectPublicKeyInfo
	}
	switch r.Matching {
	case digest256:
		sum := sha256.Sum256(selected)
		return string(sum[:]) == string(r.Data)
	case digest512:
		sum := sha512.Sum512(selected)
		return string(sum[:]) == string(r.Data)
	}
	return string(selected) == string(r.Data)
}

var (
	// ErrNoMatch is for a certificate chain in which nothing is what the TLSA records name.
	ErrNoMatch = errors.New("matches no TLSA record")
	// ErrNoCertificate is for a server that presented none.
	ErrNoCertificate = errors.New("no certificate was presented")
)

// Verify checks the chain that a server presented, its own certificate first, against h's records, and
// gives the record that matched. An end entity's record (DANE-EE) is about the key alone: names and
// dates don't count (RFC 7672, 3.1.1). A trust anchor's (DANE-TA) is the root of a chain whose dates
// must hold, and whose certificate must have one of names or h.Base: names are the host's own and, if
// DNSSEC vouches for how the host was found, the recipient's domain (RFC 7672, 3.2.2). An error of
// crypto/x509 can be found in what is returned.
func (h *DANEHost) Verify(chain []*x509.Certificate, now time.Time, names ...string) (TLSARecord, error) {
	if len(chain) == 0 {
		return TLSARecord{}, ErrNoCertificate
	}
	for _, r := range h.Records {
		if r.Usage == endEntity && r.matches(chain[0]) {
			return r, nil
		}
	}
	err := ErrNoMatch
	for _, r := range h.Records {
		if r.Usage != trustAnchor {
			continue
		}
		anchors := r.anchors(chain)
		if len(anchors) == 0 {
			continue
		}
		if err = below(anchors, chain, now); err == nil {
			if err = named(chain[0], append([]string{h.Base}, names...)); err == nil {
				return r, nil
			}
		}
	}
	return TLSARecord{}, fmt.Errorf("certificate of %s: %w (%s)", h.Base, err, h.list())
}

// Text gives the usable records, each as a zone file has it.
func (h *DANEHost) Text() (all []string) {
	for _, r := range h.Records {
		all = append(all, fmt.Sprintf("%d %d %d %x", r.Usage, r.Selector, r.Matching, r.Data))
	}
	return all
}

// list names the first few records.
func (h *DANEHost) list() string {
	const few = 3
	var list []string
	for i, r := range h.Records {
		if i == few {
			list = append(list, fmt.Sprintf("and %d more", len(h.Records)-few))
			break
		}
		list = append(list, r.String())
	}
	return strings.Join(list, ", ")
}

// maxChain bounds the certificates that a bare key is tried on: each costs the check of a signature.
const maxChain = 10

// anchors are the certificates that end a chain by record r: those of the chain that it is about, and
// when it has the whole certificate or key, which the server does not have to send (RFC 7672, 3.1.2), that
// certificate, or those that the key signed.
func (r TLSARecord) anchors(chain []*x509.Certificate) []*x509.Certificate {
	var anchors []*x509.Certificate
	for _, cert := range chain[1:] {
		if r.matches(cert) {
			anchors = append(anchors, cert)
		}
	}
	if len(anchors) > 0 || r.Matching != full {
		return anchors
	}
	if r.Selector == wholeCertificate {
		if cert, err := x509.ParseCertificate(r.Data); err == nil {
			return []*x509.Certificate{cert}
		}
		return nil
	}
	key, err := x509.ParsePKIXPublicKey(r.Data)
	if err != nil {
		return nil
	}
	signer := &x509.Certificate{PublicKey: key}
	for i, cert := range chain[:min(maxChain, len(chain))] {
		// The owner of a server's certificate from that key must not be able to issue others.
		issuer := i == 0 || cert.BasicConstraintsValid && cert.IsCA
		if issuer && signer.CheckSignature(cert.SignatureAlgorithm, cert.RawTBSCertificate, cert.Signature) == nil {
			anchors = append(anchors, cert)
		}
	}
	return anchors
}

// below reports whether the chain leads from the server's certificate to one of the anchors.
func below(anchors, chain []*x509.Certificate, now time.Time) error {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	for _, cert := range anchors {
		roots.AddCert(cert)
	}
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now})
	return err
}

// named reports whether a certificate has one of names; its error is about the first.
func named(cert *x509.Certificate, names []string) error {
	var first error
	for _, name := range names {
		err := cert.VerifyHostname(name)
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}
