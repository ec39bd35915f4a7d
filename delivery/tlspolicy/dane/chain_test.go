package dane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"
	"time"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// issuer is a certificate with its key.
type issuer struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// issue makes a certificate that holds for a day around noon, signed by parent, or by itself when
// parent is nil.
func issue(t testing.TB, parent *issuer, ca bool, names ...string) *issuer {
	t.Helper()
	return issueAt(t, noon, parent, ca, names...)
}

func issueAt(t testing.TB, at time.Time, parent *issuer, ca bool, names ...string) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<60))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: serial.String()}, DNSNames: names,
		NotBefore: at.Add(-12 * time.Hour), NotAfter: at.Add(12 * time.Hour),
		BasicConstraintsValid: true, IsCA: ca, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ca {
		template.KeyUsage |= x509.KeyUsageCertSign
	}
	by, signer := template, crypto.Signer(key)
	if parent != nil {
		by, signer = parent.cert, parent.key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, by, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{cert, key}
}

// record makes the TLSA record of a certificate.
func record(usage, selector, matching uint8, of *issuer) Record {
	data := of.cert.Raw
	if selector == publicKey {
		data = of.cert.RawSubjectPublicKeyInfo
	}
	switch matching {
	case digest256:
		sum := sha256.Sum256(data)
		data = sum[:]
	case digest512:
		sum := sha512.Sum512(data)
		data = sum[:]
	}
	return Record{usage, selector, matching, data}
}

func chain(of ...*issuer) []*x509.Certificate {
	var certs []*x509.Certificate
	for _, i := range of {
		certs = append(certs, i.cert)
	}
	return certs
}
