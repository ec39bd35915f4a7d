// Package testca is a certificate authority for tests: it makes certificates that clients with its pool believe, and
// such as they must refuse. Tests alone import it.
package testca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority is a certificate authority.
type Authority struct {
	Certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// New makes an authority.
func New(t testing.TB) *Authority {
	t.Helper()
	key, template := newKey(t), newTemplate()
	Issuing(template)
	template.Subject = pkix.Name{CommonName: "test authority"}
	return &Authority{sign(t, template, template, key, key), key}
}

// Pool has the authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.Certificate)
	return pool
}

// File writes the authority's certificate to a file in PEM, as tls_ca and SSL_CERT_FILE want it.
func (a *Authority) File(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.pem")
	write(t, path, "CERTIFICATE", a.Certificate.Raw)
	return path
}

// Issue makes a certificate for names, or IP addresses, that is valid for a day. Changes are made to it before it is
// signed.
func (a *Authority) Issue(t testing.TB, names []string, changes ...func(*x509.Certificate)) *tls.Certificate {
	t.Helper()
	key, template := newKey(t), newTemplate()
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.Subject = pkix.Name{CommonName: names[0]}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	for _, change := range changes {
		change(template)
	}
	leaf := sign(t, template, a.Certificate, key, a.key)
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

// As makes an authority of a certificate, whether that may issue others or not.
func As(c *tls.Certificate) *Authority {
	return &Authority{c.Leaf, c.PrivateKey.(*ecdsa.PrivateKey)}
}

// Issuing is a change that lets a certificate issue others.
func Issuing(c *x509.Certificate) {
	c.IsCA, c.BasicConstraintsValid = true, true
	c.KeyUsage |= x509.KeyUsageCertSign
}

// Expired is a change that lets a certificate have expired an hour ago.
func Expired(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(-time.Hour)
}

// Files writes a certificate, with the rest of its chain, and its key to files in PEM.
func Files(t testing.TB, c *tls.Certificate) (certificate, key string) {
	t.Helper()
	dir := t.TempDir()
	certificate, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	secret, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	write(t, certificate, "CERTIFICATE", c.Certificate...)
	write(t, key, "PRIVATE KEY", secret)
	return certificate, key
}

func write(t testing.TB, path, kind string, blocks ...[]byte) {
	t.Helper()
	var text []byte
	for _, der := range blocks {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})...)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newTemplate() *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62)) // never fails
	return &x509.Certificate{SerialNumber: serial, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour)}
}

func sign(t testing.TB, template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}
