package tlspolicy

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"
)

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
