package postfix

import (
	"strings"

	"example.org/mta/importer"
)

// mainLevel is the level of TLS that a transport has by itself.
func (im *importing) mainLevel(t *transport) (string, importer.Origin) {
	level, at, _ := t.text("smtp_tls_security_level")
	if level != "" {
		return level, at
	}
	enforce, atEnforce := t.flag("smtp_enforce_tls")
	name, _ := t.flag("smtp_tls_enforce_peername")
	use, atUse := t.flag("smtp_use_tls")
	switch {
	case enforce && name:
		return "verify", atEnforce
	case enforce:
		return "encrypt", atEnforce
	case use:
		return "may", atUse
	}
	return "none", at
}

// protection writes the settings of a level with its attributes, which stand in policy tables, into out.
func (im *importing) protection(t *transport, level string, attributes []string, at importer.Origin,
	out map[string]setting) {
	for _, name := range []string{"tls", "tls_min_version", "tls_ca"} {
		delete(out, name)
	}
	protocols := "smtp_tls_mandatory_protocols"
	switch level {
	case "none":
		out["tls"] = setting{"off", at}
		return
	case "may":
		out["tls"], protocols = setting{"opportunistic", at}, "smtp_tls_protocols"
	case "encrypt":
		out["tls"] = setting{"required", at}
	case "dane":
		out["tls"], protocols = setting{"opportunistic", at}, "smtp_tls_protocols"
		im.top.Noted(at, "DANE needs a resolver that validates and is trusted: see resolver in the manual")
	case "dane-only":
		out["tls"] = setting{"required", at}
		im.top.Lost(at, "mail for hosts without TLSA records goes over TLS with any certificate", true)
	case "verify", "secure":
		out["tls"] = setting{"verified", at}
		im.top.Noted(at, "the certificate must have the name of the host that the MX record or the route names")
	case "fingerprint":
		out["tls"] = setting{"verified", at}
		im.top.Lost(at, "certificates are not known by fingerprint: they must be signed by an authority (tls_ca) and "+
			"have the host's name", true)
	default:
		im.fail(at, "%q is not a security level: write none, may, encrypt, dane, dane-only, fingerprint, verify or "+
			"secure", importer.Short(level))
		return
	}
	if v, at, set := t.text(protocols); set {
		im.minVersion(v, at, out)
	}
	for _, name := range []string{"smtp_tls_CAfile", "smtp_tls_trust_anchor_file"} {
		if v, at, _ := t.text(name); v != "" {
			out["tls_ca"] = setting{v, at}
		}
	}
	if v, at, _ := t.text("smtp_tls_cert_file"); v != "" {
		key, atKey, _ := t.text("smtp_tls_key_file")
		out["tls_certificate"], out["tls_key"] = setting{v, at}, setting{key, atKey}
	}
	for _, a := range attributes {
		switch name, value, _ := strings.Cut(a, "="); name {
		case "protocols":
			im.minVersion(strings.ReplaceAll(value, ":", ","), at, out)
		case "tafile":
			out["tls_ca"] = setting{value, at}
		case "match":
			if level == "verify" || level == "secure" {
				im.top.Lost(at, "the names in match= are not carried: the host's own name must be in the certificate",
					true)
			}
		case "connection_reuse", "ciphers", "exclude", "servername", "enable_rpk":
			im.top.Noted(at, "the relay has no "+name+
				" by destination: Go's choice of ciphers applies, and the host's name")
		}
	}
}

// versions of TLS, oldest first.
var versions = []struct{ name, text string }{{"sslv2", ""}, {"sslv3", ""}, {"tlsv1", "1.0"}, {"tlsv1.1", "1.1"},
	{"tlsv1.2", "1.2"}, {"tlsv1.3", "1.3"}}

// minVersion finds the lowest version that a list of protocols allows.
func (im *importing) minVersion(value string, at importer.Origin, out map[string]setting) {
	if lowest := lowestVersion(value); lowest != "" {
		out["tls_min_version"] = setting{lowest, at}
	} else {
		im.fail(at, "%q allows no version of TLS: write one such as >=TLSv1.2", importer.Short(value))
	}
}

func lowestVersion(value string) string {
	items := list(strings.ToLower(strings.ReplaceAll(value, ":", ",")))
	named, excluded := make(map[string]bool), make(map[string]bool)
	from := ""
	for _, item := range items {
		switch {
		case strings.HasPrefix(item, ">="):
			from = strings.TrimSpace(item[2:])
		case strings.HasPrefix(item, "!"):
			excluded[item[1:]] = true
		case !strings.HasPrefix(item, "<="):
			named[item] = true
		}
	}
	reached := from == ""
	for _, v := range versions {
		reached = reached || v.name == from || v.text == from && from != ""
		if reached && !excluded[v.name] && (len(named) == 0 || named[v.name]) && v.text != "" {
			return v.text
		}
	}
	return ""
}
