package config

import "fmt"

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
		live := kind != Authorities || setting == "tls_ca"
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
