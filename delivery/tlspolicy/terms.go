package tlspolicy

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"example.org/mta/delivery/tlspolicy/sts"
	"example.org/mta/internal/route"
)

// Config is what a Policy is made from. Nil fields are not used.
type Config struct {
	Records  Records
	Domains  Domains
	Recorder Recorder
	// Roots gives the authorities of a file, and Certificate the certificate that a host is shown. Both
	// are called at each connection that has such files.
	Roots       func(file string) (*x509.CertPool, error)
	Certificate func(certificate, key string) (*tls.Certificate, error)
	Sessions    int              // how many are kept for resumption: 5,000
	Now         func() time.Time // time.Now
}

// Policy gives the terms of connections. It is safe for use by many goroutines.
type Policy struct {
	cfg      Config
	sessions tls.ClientSessionCache
}

// New makes a policy.
func New(cfg Config) *Policy {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Sessions <= 0 {
		cfg.Sessions = 5000
	}
	return &Policy{cfg: cfg, sessions: tls.NewLRUClientSessionCache(cfg.Sessions)}
}

// Terms are what one connection must satisfy, and afterwards what is known of it. They are for one
// goroutine.
type Terms struct {
	policy *Policy
	demand Demand
	domain string // for whose mail the connection is opened
	host   route.Host
	tlsa   TLSA
	roots  *x509.CertPool // nil: the system's

	facts   Facts
	problem error // why nothing vouches for the certificate
	refused bool  // Verify said no
}

// Terms gives the terms of a connection to a host of a route. It may have to look up the host's TLSA
// records. An error says that the host can't be used now.
func (p *Policy) Terms(ctx context.Context, d Demand, r *route.Route, h route.Host) (*Terms, error) {
	t := &Terms{policy: p, demand: d, domain: r.Domain, host: h}
	err := t.prepare(ctx, r)
	if err != nil {
		t.record(netip.Addr{}, err)
		return nil, err
	}
	return t, nil
}

func (t *Terms) prepare(ctx context.Context, r *route.Route) (err error) {
	d, cfg := &t.demand, &t.policy.cfg
	if d.DANE && cfg.Records != nil {
		if t.tlsa, err = cfg.Records.TLSA(ctx, t.host); err != nil {
			return err
		}
	}
	if d.CA != "" && cfg.Roots != nil {
		if t.roots, err = cfg.Roots(d.CA); err != nil {
			return err
		}
	}
	if t.tlsa.State == Usable {
		return nil
	}
	if d.STS.Mode == route.STSEnforce {
		if err := t.named(); err != nil {
			return err
		}
	}
	// Mode testing lets other mail go to hosts that the policy does not name. It does not vouch for them.
	if d.Doubtful && (d.STS.Mode == route.STSNone || t.named() != nil) {
		return &Refusal{
			fmt.Errorf("the message requires REQUIRETLS (RFC 8689), and neither DNSSEC nor MTA-STS vouches for the "+
				"hosts of %s", r.Domain)}
	}
	return nil
}

// Refusal is why a host will not do for mail that has asked for REQUIRETLS: that is permanent.
type Refusal struct{ Err error }

func (r *Refusal) Error() string { return r.Err.Error() }
func (r *Refusal) Unwrap() error { return r.Err }

// named checks that the domain's MTA-STS policy names the host.
func (t *Terms) named() error {
	for pattern := range strings.SplitSeq(t.demand.STS.MX, ",") {
		if sts.Match(pattern, t.host.Name) {
			return nil
		}
	}
	return &Failure{ValidationFailed,
		fmt.Errorf("the MTA-STS policy of %s does not name the host: it has %s", t.domain, t.demand.STS.MX)}
}

// Wanted reports whether the connection uses TLS at all.
func (t *Terms) Wanted() bool { return t.demand.Level != Off }

// Implicit reports whether TLS comes before the first octet of SMTP.
func (t *Terms) Implicit() bool { return t.demand.Implicit && t.Wanted() }

// Required reports whether nothing may be sent in clear text.
func (t *Terms) Required() bool {
	switch t.demand.Level {
	case Off:
		return false
	case Opportunistic:
		return t.tlsa.State != Absent
	}
	return true
}

// REQUIRETLS reports whether the host must offer it.
func (t *Terms) REQUIRETLS() bool { return t.demand.RequireTLS }

// Config gives the settings of a handshake; Verify must be its verification. What an earlier handshake
// showed is forgotten.
func (t *Terms) Config() *tls.Config {
	t.facts, t.problem, t.refused = Facts{}, nil, false
	d, name := &t.demand, cmp.Or(t.tlsa.Name, strings.TrimSuffix(t.host.Name, "."))
	cfg := &tls.Config{
		ServerName: name, MinVersion: t.minVersion(), InsecureSkipVerify: true,
		ClientSessionCache: sessionsOf{t.policy.sessions,
			fmt.Sprintf("%s\x00%s\x00%s\x00%s\x00%d", name, t.host.Addr, d.Certificate, d.Key, t.minVersion())},
	}
	if load := t.policy.cfg.Certificate; d.Certificate != "" && load != nil {
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return load(d.Certificate, d.Key)
		}
	}
	return cfg
}

// minVersion is the lowest version that the connection may have. An old version of TLS is better than
// clear text, and not good enough where TLS is needed.
func (t *Terms) minVersion() uint16 {
	switch {
	case t.demand.MinVersion != 0:
		return t.demand.MinVersion
	case !t.Required():
		return tls.VersionTLS10
	}
	return tls.VersionTLS12
}

// sessionsOf is what is kept for one host under one demand. Two addresses of a name are two hosts.
type sessionsOf struct {
	all tls.ClientSessionCache
	key string
}

func (s sessionsOf) Get(string) (*tls.ClientSessionState, bool) { return s.all.Get(s.key) }

func (s sessionsOf) Put(_ string, state *tls.ClientSessionState) { s.all.Put(s.key, state) }
