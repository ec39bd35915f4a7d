package tlspolicy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"strings"
	"testing"
	"unicode"

	"example.org/mta/internal/route"
)

// What strangers write into their certificates neither breaks lines nor fills the queue.
func TestNamesInCertificates(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	evil := "mx\r\nInjected: \x1b[31m"
	for _, c := range []*x509.Certificate{
		{Subject: pkix.Name{CommonName: evil}},
		{Subject: pkix.Name{CommonName: strings.Repeat("x", 10_000)}},
		{DNSNames: []string{evil, strings.Repeat("x", 10_000), strings.Repeat("y", 10_000)}},
	} {
		c.SerialNumber = big.NewInt(1)
		der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		if c, err = x509.ParseCertificate(der); err != nil {
			t.Fatal(err)
		}
		for _, tlsa := range []TLSA{{}, {State: Usable, Match: func(*tls.ConnectionState) error {
			return errors.New(strings.Join(append(c.DNSNames, c.Subject.CommonName), " "))
		}}} {
			terms := &Terms{policy: New(Config{}), host: route.Host{Name: "mx.example"}, tlsa: tlsa}
			_ = terms.Verify(&tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}})
			for _, said := range []string{terms.Facts().Certificate, terms.Facts().Unverified} {
				if len(said) > 2*maxText || said == "" || strings.ContainsFunc(said, func(r rune) bool { return !unicode.IsPrint(r) }) {
					t.Errorf("%d octets: %.60q", len(said), said)
				}
			}
			if tlsa.State == Usable && classOf(terms.problem) != TLSAInvalid {
				t.Errorf("class %q", classOf(terms.problem))
			}
		}
	}
}
