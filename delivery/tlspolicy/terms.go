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

// Level is how much protection mail for a destination needs.
type Level uint8

const (
	// Opportunistic uses STARTTLS where the host offers it, with any certificate, and clear text
	// elsewhere (RFC 7435).
	Opportunistic Level = iota
	// Off never uses TLS.
	Off
	// Required uses TLS with any certificate, or sends nothing.
	Required
	// Verified uses TLS with a certificate that is the host's, or sends nothing.
	Verified
)

// String gives the word of the configuration.
func (l Level) String() string {
	return [...]string{"opportunistic", "off", "required", "verified"}[l]
}

// Settings are what the configuration says of a destination.
type Settings struct {
	Level Level
	// MinVersion is the lowest version of TLS. 0: 1.2, and 1.0 where clear text would do as well.
	MinVersion uint16
	// CA names a file of the only authorities that may have signed the host's certificate. "": those
	// of the system.
	CA string
	// Certificate and Key name the files of the certificate that a host is shown when it asks for one.
	Certificate, Key string
	// STS and DANE say whether the policies of recipients' domains, and the TLSA records of hosts, count.
	STS, DANE bool
}

// Message is what a message asks for itself (RFC 8689).
type Message struct {
	RequireTLS bool // MAIL had REQUIRETLS
	NotNeeded  bool // its header has "TLS-Required: No"
	Report     bool // this relay made it, about another message
}

// Demand is what mail demands of a connection. It is comparable: mail with equal demands for a site
// can share connections. The zero value is opportunistic TLS.
type Demand struct {
	Level            Level
	Implicit         bool // TLS from the first octet (RFC 8314), and not by STARTTLS
	MinVersion       uint16
	CA               string
	Certificate, Key string
	DANE             bool      // the host's TLSA records count
	STS              route.STS // the policy that the host must satisfy, or is measured by
	RequireTLS       bool      // the host must offer REQUIRETLS
	Doubtful         bool      // then: only STS, if anything, vouches for the names of the hosts
	Unreported       bool      // the result says nothing of the domain's policies, and isn't recorded
}

// Decide returns what mail along a route demands. What a message asks for overrules the policies that the
// recipient's domain publishes, REQUIRETLS before "TLS-Required: No" (RFC 8689, 4.1), which does not
// overrule the operator's own settings.
func Decide(s Settings, r *route.Route, m Message) Demand {
	if r.Inside() && !m.RequireTLS {
		return Demand{Level: Off, Unreported: true}
	}
	d := Demand{Level: s.Level, MinVersion: s.MinVersion, CA: s.CA, Certificate: s.Certificate, Key: s.Key,
		Implicit: r.Implicit}
	d.Unreported = r.Configured // its hosts are ours, and not the domain's
	if r.Auth != nil || r.Implicit && s.Level != Required {
		d.Level = Verified // a password goes only to the host that it is for
	}
	// a report of ours is not lost for want of it: it has no content of the message (RFC 8689, 5)
	require := m.RequireTLS && !m.Report
	switch {
	case require:
	case d.Level == Off, m.NotNeeded:
		d.Unreported = true
		return d
	}
	d.DANE = s.DANE && (r.Secure || r.Configured)
	if s.STS {
		d.STS = r.STS
	}
	if d.STS.Mode == route.STSEnforce || require {
		d.Level = Verified
	}
	d.RequireTLS = require
	// RFC 8689, 4.2.1: a name that anybody could have put into the DNS proves nothing.
	d.Doubtful = require && !r.Configured && !r.Secure && d.STS.Mode != route.STSEnforce
	return d
}
