package sites

import (
	"context"
	"fmt"
	"time"

	"example.org/mta/delivery/tlspolicy"
	"example.org/mta/delivery/tlspolicy/sts"
	"example.org/mta/destdb"
	"example.org/mta/internal/route"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/api"
)

// addTLS adds the TLS demand on connections for mail without a demand in its envelope, and the reasons.
func (c *domainCase) addTLS(ctx context.Context, records tlspolicy.Records) {
	set := c.cfg.Traffic(c.route.Domain, c.route.Provider)
	d := tlspolicy.Decide(wiring.TLS(set), c.route, tlspolicy.Message{})
	c.TLS, c.TLSOrigin, c.Auth = d.Level.String(), set.Origin("tls"), c.route.Auth != nil
	switch {
	case d.Level == wiring.TLS(set).Level:
	case c.route.Inside():
		c.TLSOrigin = "no host: the relay answers itself"
	case d.STS.Mode == route.STSEnforce:
		c.TLSOrigin = "the MTA-STS policy of " + c.Domain
	case d.Implicit:
		c.TLSOrigin = "smtps:// in the route"
	default:
		c.TLSOrigin = "the route has a password"
	}
	if d.DANE {
		c.addDANE(ctx, records)
	}
}

// addDANE adds which hosts have TLSA records. It does not wait long for slow name servers.
func (c *domainCase) addDANE(ctx context.Context, records tlspolicy.Records) {
	ctx, done := context.WithTimeout(ctx, 5*time.Second)
	defer done()
	seen := make(map[string]bool)
	for _, tier := range c.route.Tiers {
		for _, h := range tier {
			if seen[h.Name] {
				continue
			}
			seen[h.Name] = true
			tlsa, err := records.TLSA(ctx, h)
			switch {
			case err != nil:
				c.TLSPolicies = append(c.TLSPolicies, fmt.Sprintf("%s is not used: %v", h.Name, err))
			case tlsa.State == tlspolicy.Usable:
				c.TLSPolicies = append(c.TLSPolicies,
					fmt.Sprintf("DANE: the certificate of %s must match its TLSA records", h.Name))
			case tlsa.State == tlspolicy.Unusable:
				c.TLSPolicies = append(c.TLSPolicies,
					fmt.Sprintf("DANE: %s has TLSA records, none of them usable: TLS is required", h.Name))
			}
		}
	}
}

// addSTS adds the domain's MTA-STS policy, if it has one, or may have.
func (c *domainCase) addSTS(r *Sites) {
	s, known := r.STS.Status(c.Domain)
	if known && (s.Policy != nil || s.Failure.Kind != sts.Absent) {
		p := r.describe(c.Domain, &s)
		c.MTASTS = &p
	}
}

// hostTLS puts the facts of a host's last connection into words, nil when it was in clear text.
func hostTLS(f destdb.TLS) *api.HostTLS {
	if f == (destdb.TLS{}) {
		return nil
	}
	return &api.HostTLS{Version: f.Version, Cipher: f.Cipher, VerifiedBy: f.Verified, Unverified: f.Unverified,
		Certificate: f.Certificate}
}
