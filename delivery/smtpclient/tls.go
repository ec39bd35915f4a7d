package smtpclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"

	"mta/internal/reply"
	"mta/internal/route"
)

// TLSState is TLS as it was negotiated.
type TLSState struct {
	tls.ConnectionState
	// Verified says that the certificate is the host's, by the rules of Config.TLSConfig. With
	// TLSOpportunistic it may be false.
	Verified bool
}

// VersionName gives the protocol version as logs write it: "TLSv1.3".
func (s *TLSState) VersionName() string {
	return strings.Replace(tls.VersionName(s.Version), "TLS ", "TLSv", 1)
}

// CipherName gives the cipher suite by its IANA name: "TLS_AES_128_GCM_SHA256".
func (s *TLSState) CipherName() string { return tls.CipherSuiteName(s.CipherSuite) }

// startTLS does the TLS handshake. After it everything goes through TLS.
func (h *handshake) startTLS() error {
	cfg := tlsConfig(&h.cfg)
	secured := tls.Client(h.raw, cfg)
	ctx, cancel := context.WithTimeout(h.ctx, h.cfg.Timeouts.Hello)
	defer cancel()
	if err := secured.HandshakeContext(ctx); err != nil {
		return &Error{
			Reply: reply.Local(454, reply.Enhanced{4, 7, 5}, "STARTTLS", "the TLS handshake failed: %v", err),
			TLS:   true, Err: err,
		}
	}
	state := &TLSState{ConnectionState: secured.ConnectionState()}
	checked := !cfg.InsecureSkipVerify || cfg.VerifyConnection != nil || cfg.VerifyPeerCertificate != nil
	state.Verified = checked || verifies(cfg, state.ConnectionState)
	h.conn, h.tls = secured, state
	h.in.src = secured
	return nil
}

// tlsConfig is the configuration for one connection. Opportunistic TLS takes any certificate:
// the alternative is no protection at all (RFC 7435, 3).
func tlsConfig(cfg *Config) *tls.Config {
	t := &tls.Config{}
	if cfg.TLSConfig != nil {
		t = cfg.TLSConfig.Clone()
	}
	if t.ServerName == "" {
		t.ServerName = strings.TrimSuffix(cfg.Host.Name, ".")
	}
	if cfg.TLS == route.TLSOpportunistic {
		t.InsecureSkipVerify = true
		t.VerifyConnection, t.VerifyPeerCertificate = nil, nil
	}
	return t
}

// verifies reports whether the certificate would have satisfied a verifying client.
func verifies(cfg *tls.Config, state tls.ConnectionState) bool {
	if len(state.PeerCertificates) == 0 {
		return false
	}
	between := x509.NewCertPool()
	for _, cert := range state.PeerCertificates[1:] {
		between.AddCert(cert)
	}
	options := x509.VerifyOptions{Roots: cfg.RootCAs, Intermediates: between, DNSName: verifiedName(cfg.ServerName)}
	if cfg.Time != nil {
		options.CurrentTime = cfg.Time()
	}
	_, err := state.PeerCertificates[0].Verify(options)
	return err == nil
}

// verifiedName puts an address into the form that crypto/x509 takes for one.
func verifiedName(name string) string {
	if ip := net.ParseIP(name); ip != nil {
		return "[" + name + "]"
	}
	return name
}
