package config

import (
	"crypto/x509"
	"path/filepath"
	"slices"

	"example.org/mta/internal/certificates"
	"example.org/mta/internal/users"
)

// Users is who may log in at listeners.
type Users struct {
	block
	File string `conf:"file"` // as package users reads it; "": nobody
	// Scheme is how passwords are hashed, those anew that were hashed otherwise.
	Scheme users.Scheme `conf:"scheme" oneof:"argon2id scram-sha-256"`
}

// Keys is who may submit by HTTP.
type Keys struct {
	block
	File string `conf:"file"` // as package submission/keys reads it; "": nobody
}

// Templates is where the stored templates of tenants are.
type Templates struct {
	block
	Path string `conf:"path"` // a folder as package submission/template reads it; "": there are none
}

// KeysUsed is the file in which the relay keeps when each API key was used last.
func (c *Config) KeysUsed() string { return filepath.Join(c.DataDir, "keys-used.json") }

// Auth is how clients log in at a listener.
type Auth struct {
	// Mechanisms are those that clients are offered. None: there is no AUTH.
	Mechanisms []string `conf:"mechanisms" oneof:"PLAIN LOGIN SCRAM-SHA-256 SCRAM-SHA-256-PLUS EXTERNAL"`
	// Required refuses mail of clients that have not logged in, RelayFrom or not.
	Required bool `conf:"required"`
	// ClearOnLoopback lets clients on this machine log in without TLS.
	ClearOnLoopback bool `conf:"clear_on_loopback"`
	// UserInReceived puts the user's name into the Received field.
	UserInReceived bool `conf:"user_in_received"`
}

// Logins reports whether clients can log in at the listener.
func (l *Listener) Logins() bool { return len(l.Auth.Mechanisms) > 0 || l.TLS.ClientCertificates }

func (k checker) auth(l *Listener) {
	a := l.Auth
	if l.Logins() && k.Users.File == "" {
		at := "auth.mechanisms"
		if len(a.Mechanisms) == 0 {
			at = "tls.client_certificates"
		}
		k.problem(&l.block, at, `write users { file = "/etc/mta/users" }, and add users with 'mta user add'`, "listener %q has logins, but there is no users file", l.Name)
	}
	switch {
	case len(a.Mechanisms) > 0 && !l.TLS.Enabled() && !a.ClearOnLoopback:
		k.problem(&l.block, "auth.mechanisms", "give the listener a certificate; clear_on_loopback = true lets programs on this machine log in without TLS",
			"listener %q has no TLS, which logins require", l.Name)
	case slices.Contains(a.Mechanisms, "EXTERNAL") && !l.TLS.ClientCertificates:
		k.problem(&l.block, "auth.mechanisms", "write client_certificates = true in tls", "EXTERNAL: listener %q requests no client certificates", l.Name)
	case a.Required && !l.Logins():
		k.problem(&l.block, "auth.required", `write mechanisms, such as mechanisms = ["PLAIN", "LOGIN"]`, "listener %q requires a login but offers no mechanism", l.Name)
	}
	if l.TLS.ClientCA != "" && !l.TLS.ClientCertificates {
		k.problem(&l.block, "tls.client_ca", "also write client_certificates = true", "listener %q requests no client certificates", l.Name)
	}
	if l.TLS.ClientCertificates && !l.TLS.Enabled() {
		k.problem(&l.block, "tls.client_certificates", "also write certificate and key", "tls of listener %q has no certificate", l.Name)
	}
}

// ClientCAs reads the certificates of those who sign clients' certificates, nil when there are none.
func (t TLS) ClientCAs() (*x509.CertPool, error) {
	if t.ClientCA == "" {
		return nil, nil
	}
	return certificates.ReadAuthorities(t.ClientCA)
}
