package tlspolicy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"time"

	"mta/internal/route"
)

// Config is what a Policy is made from. Nil fields are not used.
type Config struct {
	Records  Records
	Domains  Domains
	Recorder Recorder
	// Roots reads the authorities of a file, and Certificate the certificate that a host is shown. Both
	// are called at each connection.
	Roots       func(file string) (*x509.CertPool, error)
	Certificate func(certificate, key string) (*tls.Certificate, error)
	Sessions    int              // how many are remembered for resumption: 10,000
	Now         func() time.Time // time.Now
}

// Policy gives the terms of connections. It is safe for use by many goroutines.
type Policy struct{ cfg Config }

// New makes a policy.
func New(cfg Config) *Policy {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Policy{cfg: cfg}
}

// Terms are what one connection must satisfy.
type Terms struct {
	policy *Policy
	demand Demand
	domain string
	host   route.Host
	tlsa   TLSA
}

// Terms gives the terms of a connection to a host of a route. It may have to look up the host's TLSA
// records. An error says that the host can't be used now.
func (p *Policy) Terms(ctx context.Context, d Demand, r *route.Route, h route.Host) (*Terms, error) {
	t := &Terms{policy: p, demand: d, domain: r.Domain, host: h}
	if d.DANE && p.cfg.Records != nil {
		var err error
		if t.tlsa, err = p.cfg.Records.TLSA(ctx, h); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// VerifiedBy is what vouches for a host's certificate.
type VerifiedBy string

const (
	ByNothing VerifiedBy = ""
	ByPKIX    VerifiedBy = "PKIX" // an authority, and the host's name in the certificate
	BySTS     VerifiedBy = "STS"  // the same, for a host that the domain's MTA-STS policy names
	ByDANE    VerifiedBy = "DANE" // the host's TLSA records
)

// Facts are how a connection is protected. The zero value is clear text.
type Facts struct {
	Version     string // as "TLSv1.3"
	Cipher      string // as "TLS_AES_128_GCM_SHA256"
	Verified    VerifiedBy
	Unverified  string // why nothing vouches for the certificate
	Certificate string // the name in it that fits, or else its first
	Resumed     bool
}
