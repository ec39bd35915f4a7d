package mta

import (
	"mta/delivery/tlspolicy"
	"mta/delivery/tlspolicy/sts"
	"mta/destdb"
	"mta/internal/route"
	"mta/mta/control"
)

// addTLS says what mail demands of its connections that asks for nothing itself, and why.
func (c *domainCase) addTLS() {
	set := c.cfg.Traffic(c.route.Domain, c.route.Provider)
	d := tlspolicy.Decide(tlsSettings(set), c.route, tlspolicy.Message{})
	c.TLS, c.TLSOrigin, c.Auth = d.Level.String(), set.Origin("tls"), c.route.Auth != nil
	switch {
	case d.Level == tlsLevels[set.TLS]:
	case d.STS.Mode == route.STSEnforce:
		c.TLSOrigin = "the MTA-STS policy of " + c.Domain
	case d.Implicit:
		c.TLSOrigin = "smtps:// in the route"
	default:
		c.TLSOrigin = "the route has a password"
	}
	if d.DANE {
		c.TLSPolicies = append(c.TLSPolicies, "DANE: the MX records are secure, the TLSA records of each host count")
	}
}

// addSTS adds the domain's MTA-STS policy, if it has one, or may have.
func (c *domainCase) addSTS(r *Relay) {
	s, known := r.sts.Status(c.Domain)
	if known && (s.Policy != nil || s.Failure.Kind != sts.Absent) {
		p := r.describe(c.Domain, &s)
		c.MTASTS = &p
	}
}

// hostTLS puts the facts of a host's last connection into words, nil when it was in clear text.
func hostTLS(f destdb.TLS) *control.HostTLS {
	if f == (destdb.TLS{}) {
		return nil
	}
	return &control.HostTLS{Version: f.Version, Cipher: f.Cipher, VerifiedBy: f.Verified, Unverified: f.Unverified, Certificate: f.Certificate}
}
