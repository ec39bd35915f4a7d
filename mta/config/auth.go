package config

import (
	"crypto/x509"
	"path/filepath"
	"slices"

	"example.org/mta/internal/certificates"
	"example.org/mta/submission/auth"
)

// Users is who may log in at listeners.
//
// The users who may log in at the listeners. [`mta user`](cli.md#mta-user) changes the file, with immediate effect.
type Users struct {
	block
	// The users file. The relay's user must be able to read it, and to write it and its directory if the relay should
	// upgrade hashes.
	File string `conf:"file" node:"own"`
	// The password hash: `"argon2id"`, or `"scram-sha-256"` for [SCRAM](submission.md#scram). A password with
	// another hash is rehashed at its user's next login.
	Scheme auth.Scheme `conf:"scheme" default:"argon2id" oneof:"argon2id scram-sha-256"`
}

// Keys is who may submit by HTTP.
//
// The API keys of tenants. [`mta key`](cli.md#mta-key) changes the file, with immediate effect.
type Keys struct {
	block
	// The keys file. The relay's user must be able to read it, and to write it and its directory for changes through
	// the control API.
	File string `conf:"file" node:"own"`
}

// Templates is where the stored templates of tenants are.
//
// The stored templates of tenants, which [requests by HTTP](http.md#templates) name. They are read at start and at each
// reload; a template with a fault refuses both. The nodes of a [cluster](cluster.md#templates) share them.
type Templates struct {
	block
	// A folder with a folder for each tenant, and in it, for a template NAME, one or more of `NAME.subject`,
	// `NAME.text`, `NAME.html`.
	Path string `conf:"path" node:"own"`
}

// KeysUsed is the file in which the relay keeps when each API key was used last.
func (c *Config) KeysUsed() string { return filepath.Join(c.DataDir, "keys-used.json") }

// Auth is how clients log in at a listener.
//
// Within a listener. With `mechanisms` clients can log in [as users](submission.md#logins), and an authenticated
// user may relay from anywhere.
type Auth struct {
	// The mechanisms offered under TLS: `"PLAIN"` and `"LOGIN"`, which all clients support; `"SCRAM-SHA-256"` and
	// `"SCRAM-SHA-256-PLUS"`, which hide the password from the relay, for users [hashed for
	// it](submission.md#scram); `"EXTERNAL"`, by the client's certificate.
	Mechanisms []string `conf:"mechanisms" oneof:"PLAIN LOGIN SCRAM-SHA-256 SCRAM-SHA-256-PLUS EXTERNAL"`
	// Every client needs a login to submit, even those in `relay_from`.
	Required bool `conf:"required"`
	// Programs on this machine, connected by 127.0.0.1 or ::1, may log in without TLS.
	ClearOnLoopback bool `conf:"clear_on_loopback"`
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
		k.problem(&l.block, at, `write users { file = "/etc/mta/users" }, and add users with 'mta user add'`,
			"listener %q has logins, but there is no users file", l.Name)
	}
	switch {
	case len(a.Mechanisms) > 0 && !l.TLS.Enabled() && !a.ClearOnLoopback:
		k.problem(&l.block, "auth.mechanisms",
			"give the listener a certificate; "+
				"clear_on_loopback = true lets programs on this machine log in without TLS",
			"listener %q has no TLS, which logins require", l.Name)
	case slices.Contains(a.Mechanisms, "EXTERNAL") && !l.TLS.ClientCertificates:
		k.problem(&l.block, "auth.mechanisms", "write client_certificates = true in tls",
			"EXTERNAL: listener %q requests no client certificates", l.Name)
	case a.Required && !l.Logins():
		k.problem(&l.block, "auth.required", `write mechanisms, such as mechanisms = ["PLAIN", "LOGIN"]`,
			"listener %q requires a login but offers no mechanism", l.Name)
	}
	if l.TLS.ClientCA != "" && !l.TLS.ClientCertificates {
		k.problem(&l.block, "tls.client_ca", "also write client_certificates = true",
			"listener %q requests no client certificates", l.Name)
	}
	if l.TLS.ClientCertificates && !l.TLS.Enabled() {
		k.problem(&l.block, "tls.client_certificates", "also write certificate and key",
			"tls of listener %q has no certificate", l.Name)
	}
}

// ClientCAs reads the certificates of those who sign clients' certificates, nil when there are none.
func (t TLS) ClientCAs() (*x509.CertPool, error) {
	if t.ClientCA == "" {
		return nil, nil
	}
	return certificates.ReadAuthorities(t.ClientCA)
}
