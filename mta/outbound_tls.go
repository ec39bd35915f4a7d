package mta

import (
	"crypto/tls"

	"example.org/mta/delivery/tlspolicy"
	"example.org/mta/internal/certificates"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/route"
	"example.org/mta/mta/config"
)

var tlsLevels = map[string]tlspolicy.Level{
	"opportunistic": tlspolicy.Opportunistic, "required": tlspolicy.Required, "verified": tlspolicy.Verified, "off": tlspolicy.Off,
}

// tlsSettings puts what the configuration says of a destination's TLS into the words of tlspolicy.
func tlsSettings(t *config.Traffic) tlspolicy.Settings {
	return tlspolicy.Settings{
		Level: tlsLevels[t.TLS], MinVersion: tlsVersions[t.TLSMinVersion], CA: t.TLSCA,
		Certificate: t.TLSCertificate, Key: t.TLSKey, STS: t.MTASTS, DANE: t.DANE,
	}
}

// demand is what a message demands of connections along a route.
func (p *policy) demand(m *envelope.Message, rt *route.Route) tlspolicy.Demand {
	wish := tlspolicy.Message{RequireTLS: m.RequireTLS, NotNeeded: m.TLSOptional, Report: m.Sender == ""}
	return tlspolicy.Decide(tlsSettings(p.traffic(rt.Domain, rt)), rt, wish)
}

// newTLSPolicy makes what gives outgoing connections their terms.
func (r *Relay) newTLSPolicy() *tlspolicy.Policy {
	cfg := tlspolicy.Config{
		Records: tlsaRecords{r.resolver, r.now},
		Roots:   r.certs.Authorities,
		Certificate: func(certificate, key string) (*tls.Certificate, error) {
			return r.certs.Client(certificates.Pair{Certificate: certificate, Key: key})
		},
		Domains: doubts{r},
		Now:     r.now,
	}
	if r.tlsReports != nil {
		cfg.Recorder = r.tlsReports
	}
	return tlspolicy.New(cfg)
}
