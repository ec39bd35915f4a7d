package wiring

import (
	"crypto/tls"

	"example.org/mta/delivery/tlspolicy"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/route"
	"example.org/mta/mta/config"
)

var tlsLevels = map[string]tlspolicy.Level{
	"opportunistic": tlspolicy.Opportunistic, "required": tlspolicy.Required, "verified": tlspolicy.Verified,
	"off": tlspolicy.Off,
}

// TLSVersions are the versions of TLS that the configuration can name.
var TLSVersions = map[string]uint16{"1.0": tls.VersionTLS10, "1.1": tls.VersionTLS11, "1.2": tls.VersionTLS12,
	"1.3": tls.VersionTLS13}

// TLS makes the TLS settings of a destination.
func TLS(t *config.Traffic) tlspolicy.Settings {
	return tlspolicy.Settings{
		Level: tlsLevels[t.TLS], MinVersion: TLSVersions[t.TLSMinVersion], CA: t.TLSCA,
		Certificate: t.TLSCertificate, Key: t.TLSKey, STS: t.MTASTS, DANE: t.DANE,
	}
}

// Demand returns what a message demands of connections along a route.
func (p *Policy) Demand(m *envelope.Message, rt *route.Route) tlspolicy.Demand {
	wish := tlspolicy.Message{RequireTLS: m.RequireTLS, NotNeeded: m.TLSOptional, Report: m.Generated()}
	return tlspolicy.Decide(TLS(p.Traffic(rt.Domain, rt)), rt, wish)
}
