package config

import (
	"fmt"
	"net/url"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/settings"
)

// ACME is which certificates are had from a certificate authority (RFC 8555).
//
// Obtains and renews certificates from an authority (RFC 8555) such as Let's Encrypt, for listeners with `tls { acme =
// true }`. By setting `names` you accept the authority's terms of service.
type ACME struct {
	block
	// Host names; each gets a certificate, which nodes of a [cluster](cluster.md#certificates-by-acme) share. They must
	// resolve to this machine in the DNS. STARTTLS is offered as soon as there is one.
	Names []string `conf:"names" check:"hostname" node:"own"`
	// The contact address for the authority.
	Email string `conf:"email"`
	// The URL of the authority.
	Directory string `conf:"directory" default:"https://acme-v02.api.letsencrypt.org/directory"`
	// `":80"`: the address for HTTP-01 challenges. The authority connects to port 80 of the names; another port here
	// needs port forwarding.
	HTTP string `conf:"http_address" check:"listen or off" node:"own"`
	// `":443"`: the address for TLS-ALPN-01 challenges (RFC 8737), likewise. One of the two is required; with
	// `http_address` only, each order begins with a failing challenge at port 443.
	TLS  string `conf:"tls_address" check:"listen or off" node:"own"`
	Path string // the directory of the account's key, the certificates and their keys
}

func (k checker) acme(taken *claims) {
	a := &k.ACME
	if len(a.Names) == 0 {
		return
	}
	for _, name := range a.Names {
		if ascii, err := envelope.ToASCII(name); err == nil && ascii != name {
			k.problem(&a.block, "names", "write it as "+settings.Quoted(ascii),
				"names: %s is not in the form that the DNS uses", settings.Quoted(name))
		}
	}
	if a.HTTP == "" && a.TLS == "" {
		k.problem(&a.block, "tls_address",
			`write tls_address = ":443" or http_address = ":80", for the authority's challenges`,
			"acme has no address for the authority to verify the names")
	}
	for setting, address := range map[string]string{"http_address": a.HTTP, "tls_address": a.TLS} {
		if address != "" {
			k.claim(taken, address, "acme, "+setting, &a.block)
		}
	}
	if u, err := url.Parse(a.Directory); err != nil || u.Scheme != "https" || u.Host == "" {
		k.problem(&a.block, "directory", `write it as "https://acme-v02.api.letsencrypt.org/directory"`,
			"directory: %s is not the URL of an ACME directory", settings.Quoted(a.Directory))
	}
	if m, err := envelope.ParseAddress(a.Email); a.Email != "" && (err != nil || m.Null()) {
		k.problem(&a.block, "email", "", "email: %s is not a mail address", settings.Quoted(a.Email))
	}
}

// PEMKind is what is in a PEM file.
type PEMKind int

// The kinds of PEM files.
const (
	ShownCertificate PEMKind = iota // that the relay shows, first, with its chain
	PrivateKey
	Authorities // those that the relay believes
)

// PEMFile is a file of certificates or a key that the configuration names. The keys of DKIM are not among them.
type PEMFile struct {
	Path   string
	Kind   PEMKind
	Title  string // of the block that names it, such as `listener "smtp"`
	Origin string // as Block.Origin gives it
	Live   bool   // the relay reads it again by itself
}

// PEMFiles lists the files that TLS needs, in the order of their blocks.
func (c *Config) PEMFiles() (all []PEMFile) {
	add := func(title string, origin func(string) string, setting string, kind PEMKind, paths ...string) {
		live := kind != Authorities || setting == "tls_ca" || title == "cluster"
		for _, path := range paths {
			if path != "" {
				all = append(all, PEMFile{path, kind, title, origin(setting), live})
			}
		}
	}
	shown := func(title string, origin func(string) string, of Certificates) {
		add(title, origin, "tls.certificate", ShownCertificate, of.Certificate...)
		add(title, origin, "tls.key", PrivateKey, of.Key...)
	}
	for _, l := range c.Listeners {
		title := fmt.Sprintf("listener %q", l.Name)
		shown(title, l.Origin, l.TLS.Certificates)
		add(title, l.Origin, "tls.client_ca", Authorities, l.TLS.ClientCA)
	}
	for _, a := range c.APIs {
		shown(fmt.Sprintf("api %q", a.Name), a.Origin, a.TLS)
	}
	if c.Console.Address != "" {
		shown("console", c.Console.Origin, c.Console.TLS)
	}
	if k := &c.Cluster; k.On() {
		add("cluster", k.Origin, "certificate", ShownCertificate, k.Certificate)
		add("cluster", k.Origin, "key", PrivateKey, k.Key)
		add("cluster", k.Origin, "ca", Authorities, k.CA)
	}
	for d := range c.destinations() {
		title := d.Title()
		add(title, d.block.Origin, "tls_certificate", ShownCertificate, d.traffic.TLSCertificate)
		add(title, d.block.Origin, "tls_key", PrivateKey, d.traffic.TLSKey)
		add(title, d.block.Origin, "tls_ca", Authorities, d.traffic.TLSCA)
	}
	for _, s := range c.Streams {
		add(fmt.Sprintf("stream %q", s.Name), s.Origin, "ca", Authorities, s.CA)
	}
	return all
}
