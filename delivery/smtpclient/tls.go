package smtpclient

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"

	"example.org/mta/internal/reply"
)

// TLS is how a connection is to be protected.
type TLS struct {
	// Config has versions, client certificates and the sessions to resume. Its ServerName is taken from
	// Config.Host where it is empty.
	Config *tls.Config
	// Verify decides on the connection that a handshake gives, a resumed one too, in place of the
	// library's own verification of the certificate. Nil: any will do.
	Verify func(*tls.ConnectionState) error
	// Required sends nothing in clear text. Without it, a host that does not offer STARTTLS, or refuses
	// it, is talked to as it is (RFC 7435). Implicit is TLS from the first octet (RFC 8314).
	Required, Implicit bool
	// REQUIRETLS demands that the host offers it (RFC 8689). What it lacks is then a permanent refusal.
	REQUIRETLS bool
}

// refusal is what stands for a reply when the host has not what TLS needs. Mail that has asked for
// REQUIRETLS is reported to its sender then (RFC 8689, 4.2.1); other mail waits.
func (t *TLS) refusal(temporary reply.Enhanced, format string, args ...any) reply.Reply {
	if t.REQUIRETLS {
		return reply.Local(550, reply.Enhanced{5, 7, 10}, "STARTTLS", format, args...)
	}
	return reply.Local(454, temporary, "STARTTLS", format, args...)
}

// unverified is the result of TLS.Verify.
type unverified struct{ error }

func (u unverified) Unwrap() error { return u.error }

// startTLS does the TLS handshake. After it everything goes through TLS.
func (h *handshake) startTLS() error {
	secured := tls.Client(h.raw, h.tlsConfig())
	ctx, cancel := context.WithTimeout(h.ctx, h.cfg.Timeouts.Hello)
	defer cancel()
	if err := secured.HandshakeContext(ctx); err != nil {
		// it may quote the certificate
		r := reply.Local(454, reply.Enhanced{4, 7, 5}, "STARTTLS", "the TLS handshake failed: %.500v", err)
		if failed := (unverified{}); errors.As(err, &failed) {
			r = h.cfg.TLS.refusal(reply.Enhanced{4, 7, 5}, "the host's certificate is not accepted: %v", failed.error)
		}
		return &Error{Reply: r, TLS: true, Err: err}
	}
	state := secured.ConnectionState()
	h.conn, h.tls = secured, &state
	h.in.src = secured
	h.answered()
	return nil
}

func (h *handshake) tlsConfig() *tls.Config {
	cfg := &tls.Config{}
	if h.cfg.TLS.Config != nil {
		cfg = h.cfg.TLS.Config.Clone()
	}
	if cfg.ServerName == "" {
		cfg.ServerName = strings.TrimSuffix(h.cfg.Host.Name, ".")
	}
	verify := h.cfg.TLS.Verify
	cfg.InsecureSkipVerify = true // Verify does it
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		if verify == nil {
			return nil
		}
		if err := verify(&state); err != nil {
			return unverified{err}
		}
		return nil
	}
	return cfg
}
