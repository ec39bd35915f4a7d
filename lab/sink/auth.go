package sink

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"math/big"
	"net"
	"strings"
	"time"
)

// auth does AUTH PLAIN (RFC 4616) and LOGIN, with or without an initial response (RFC 4954).
func (x *session) auth(arg string) bool {
	mechanism, initial, _ := strings.Cut(arg, " ")
	switch {
	case x.srv.cfg.Auth == nil:
		return x.reply(Auth, "502 5.5.1 AUTH is not offered")
	case x.authenticated:
		return x.reply(Auth, "503 5.5.1 already authenticated")
	}
	var username, password string
	var ok bool
	switch strings.ToUpper(mechanism) {
	case "PLAIN":
		username, password, ok = x.authPlain(initial)
	case "LOGIN":
		username, password, ok = x.authLogin(initial)
	default:
		return x.reply(Auth, "504 5.5.4 mechanism is not offered")
	}
	switch {
	case !ok:
		return x.reply(Auth, "501 5.5.2 cannot decode the response")
	case !x.srv.cfg.Auth(username, password):
		return x.reply(Auth, "535 5.7.8 authentication credentials invalid")
	}
	x.authenticated = true
	return x.reply(Auth, "235 2.7.0 authentication successful")
}

func (x *session) authPlain(initial string) (username, password string, ok bool) {
	if initial == "" {
		if initial, ok = x.challenge(""); !ok {
			return "", "", false
		}
	}
	b, err := base64.StdEncoding.DecodeString(initial)
	parts := strings.Split(string(b), "\x00")
	if err != nil || len(parts) != 3 {
		return "", "", false
	}
	return parts[1], parts[2], true
}

func (x *session) authLogin(initial string) (username, password string, ok bool) {
	if initial == "" {
		if initial, ok = x.challenge("Username:"); !ok {
			return "", "", false
		}
	}
	u, err := base64.StdEncoding.DecodeString(initial)
	if err != nil {
		return "", "", false
	}
	second, ok := x.challenge("Password:")
	if !ok {
		return "", "", false
	}
	p, err := base64.StdEncoding.DecodeString(second)
	return string(u), string(p), err == nil
}

// challenge asks with a 334 and reads the response.
func (x *session) challenge(prompt string) (string, bool) {
	x.say("334 " + base64.StdEncoding.EncodeToString([]byte(prompt)))
	line, err := x.readLine()
	if err != nil {
		return "", false
	}
	return string(line), true
}

// SelfSigned makes a TLS configuration with a new certificate for names (host names or
// addresses), valid for a day. The pool trusts that certificate and nothing else.
func SelfSigned(names ...string) (*tls.Config, *x509.CertPool, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(now.UnixNano()),
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(24 * time.Hour),
		IsCA:                  true, // so that a pool with it alone is enough
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	if len(names) > 0 {
		template.Subject = pkix.Name{CommonName: names[0]}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, nil, fmt.Errorf("making a certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the new certificate: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	cfg := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}}}
	return cfg, pool, nil
}
