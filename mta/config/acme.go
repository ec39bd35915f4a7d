package config

import (
	"net/url"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/settings"
)

// ACME is which certificates are had from a certificate authority (RFC 8555). Without names: none.
type ACME struct {
	block
	Names     []string `conf:"names" check:"hostname"` // each gets a certificate
	Email     string   `conf:"email"`                  // for the authority to write to
	Directory string   `conf:"directory"`              // URL of the authority
	// HTTP and TLS are "ip:port" at which the authority's questions arrive: HTTP-01 and TLS-ALPN-01.
	HTTP string `conf:"http_address" check:"listen or off"`
	TLS  string `conf:"tls_address" check:"listen or off"`
	Path string `conf:"path"` // a directory; default: acme in DataDir
}

func (k checker) acme(taken *claims) {
	a := &k.ACME
	if len(a.Names) == 0 {
		return
	}
	for _, name := range a.Names {
		if ascii, err := envelope.ToASCII(name); err == nil && ascii != name {
			k.problem(&a.block, "names", "write it as "+settings.Quoted(ascii), "names: %s is not in the form that the DNS uses", settings.Quoted(name))
		}
	}
	if a.HTTP == "" && a.TLS == "" {
		k.problem(&a.block, "tls_address", `write tls_address = ":443" or http_address = ":80", for the authority's challenges`, "acme has no address for the authority to verify the names")
	}
	for setting, address := range map[string]string{"http_address": a.HTTP, "tls_address": a.TLS} {
		if address != "" {
			k.claim(taken, address, "acme, "+setting, &a.block)
		}
	}
	if u, err := url.Parse(a.Directory); err != nil || u.Scheme != "https" || u.Host == "" {
		k.problem(&a.block, "directory", `write it as "https://acme-v02.api.letsencrypt.org/directory"`, "directory: %s is not the URL of an ACME directory", settings.Quoted(a.Directory))
	}
	if m, err := envelope.ParseAddress(a.Email); a.Email != "" && (err != nil || m.Null()) {
		k.problem(&a.block, "email", "", "email: %s is not a mail address", settings.Quoted(a.Email))
	}
}
