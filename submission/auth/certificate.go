package auth

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"strings"
)

// Certificate gives the login of a client that has shown a user's certificate, nil when it has not. No
// AUTH command is needed for it.
func (s *Service) Certificate(ctx context.Context, c Client) *Login {
	u := s.byCertificate(c)
	if u == nil {
		return nil
	}
	a := &attempt{s: s, ctx: ctx, client: c, mechanism: ByCertificate, began: s.cfg.Now(), name: u.Name, user: u}
	_ = a.end(nil, nil) // which is no failure
	return a.login()
}

// byCertificate finds the user of a client's certificate: by its fingerprint, or by a name in it when a CA
// of the client's listener has signed it.
func (s *Service) byCertificate(c Client) *User {
	if c.TLS == nil || len(c.TLS.PeerCertificates) == 0 {
		return nil
	}
	cert := c.TLS.PeerCertificates[0]
	now := s.cfg.Now()
	t := s.users(0)
	if t == nil || now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
		return nil
	}
	sum := sha256.Sum256(cert.Raw)
	if u := t.ByCertificate("sha256:" + hex.EncodeToString(sum[:])); u != nil {
		return u
	}
	if c.CAs == nil || !s.signed(c) {
		return nil
	}
	names := append([]string{}, cert.DNSNames...)
	names = append(append(names, cert.EmailAddresses...), cert.Subject.CommonName)
	for _, name := range names {
		if strings.HasPrefix(name, "sha256:") {
			continue
		}
		if u := t.ByCertificate(strings.ToLower(name)); u != nil {
			return u
		}
	}
	return nil
}

func (s *Service) signed(c Client) bool {
	between := x509.NewCertPool()
	for _, cert := range c.TLS.PeerCertificates[1:] {
		between.AddCert(cert)
	}
	_, err := c.TLS.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: c.CAs, Intermediates: between, CurrentTime: s.cfg.Now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err == nil
}
