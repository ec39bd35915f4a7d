// Package tlsout is what the relay knows of TLS towards hosts: the policies of domains by MTA-STS, hosts' TLSA records
// by its resolver, the terms of connections made from both, and the reports about all of it.
package tlsout

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"example.org/mta/delivery/tlspolicy"
	"example.org/mta/delivery/tlspolicy/sts"
	"example.org/mta/delivery/tlspolicy/tlsrpt"
	"example.org/mta/destdb"
	"example.org/mta/internal/certificates"
	"example.org/mta/internal/httpclient"
	"example.org/mta/internal/route"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/router"
	"example.org/mta/router/resolver"
)

// Config is what it is made of.
type Config struct {
	Resolver     *resolver.Resolver
	Kept         *destdb.File // keeps policies and counts over restarts
	Certificates *certificates.Store
	Policy       func() *wiring.Policy // in force
	Mail         func(tlsrpt.Mail) error
	Transport    http.RoundTripper // gets MTA-STS policies; nil: HTTPS
	Now          func() time.Time
	Log          *slog.Logger
}

// TLS is open once Open has returned. The router has it before, since routes come with policies, and asks nothing until
// mail is taken.
type TLS struct {
	Config
	Policies *sts.Policies
	Reports  *tlsrpt.Reporter // nil when none are sent
	Terms    *tlspolicy.Policy
}

// Open begins with the MTA-STS policies that were cached before, and to count for TLS reports when the configuration
// has them sent.
func (t *TLS) Open(cfg *config.Config, r *router.Router) (err error) {
	if t.Transport == nil {
		t.Transport = httpclient.New(httpclient.Config{Addresses: r.Addresses})
	}
	texts := textResolver{t.Resolver}
	if c := cfg.TLSReports; c.On() {
		_, domain, _ := strings.Cut(c.From, "@")
		t.Reports, err = tlsrpt.New(tlsrpt.Config{
			Organization: domain, Contact: c.From, Submitter: cfg.Hostname, From: c.From,
			Resolver: texts, Store: t.Kept.Values(destdb.TLSReports), Mail: t.Mail, MaxAge: t.maxAge,
			Transport: tlsrpt.NewTransport(cfg.Router.AllowLoopback, r.Addresses), Now: t.Now, Log: t.Log,
		})
		if err != nil {
			return err
		}
	}
	t.Policies = sts.New(sts.Config{
		Resolver: texts, Transport: t.Transport, Store: t.Kept.Values(destdb.STSPolicies),
		Changed: r.Forget, Failed: t.report, Log: t.Log, Now: t.Now,
	})
	terms := tlspolicy.Config{
		Records: t.Records(), Roots: t.Certificates.Authorities, Domains: t, Now: t.Now,
		Certificate: func(certificate, key string) (*tls.Certificate, error) {
			return t.Certificates.Client(certificates.Pair{Certificate: certificate, Key: key})
		},
	}
	if t.Reports != nil {
		terms.Recorder = t.Reports
	}
	t.Terms = tlspolicy.New(terms)
	return nil
}

// Close writes policies down.
func (t *TLS) Close() error {
	t.Policies.Close()
	return nil
}

// maxAge is that of the domain's MTA-STS policy, 0 without one.
func (t *TLS) maxAge(domain string) time.Duration {
	if s, _ := t.Policies.Status(domain); s.Policy != nil {
		return s.Policy.MaxAge
	}
	return 0
}

// classes are the failures to get a policy that TLS reports have (RFC 8460, 4.3.2.2). Without a record that can be
// read, a domain has no policy.
var classes = map[sts.Kind]tlspolicy.Class{
	sts.Fetch: tlspolicy.STSFetchError, sts.Certificate: tlspolicy.STSWebPKI, sts.Invalid: tlspolicy.STSInvalid,
}

// report counts for TLS reports that a domain's policy could not be fetched.
func (t *TLS) report(domain string, f *sts.Failure) {
	if class := classes[f.Kind]; class != "" && t.Reports != nil {
		t.Reports.Record(tlspolicy.Result{
			Time: f.At, Domain: domain, Policy: tlspolicy.STSPolicy, Class: class, Reason: f.Error(),
		})
	}
}

var modes = map[sts.Mode]route.STSMode{
	sts.None: route.STSNone, sts.Testing: route.STSTesting, sts.Enforce: route.STSEnforce,
}

// STS implements router.Policies: it gives the policy that comes with a route.
func (t *TLS) STS(ctx context.Context, rt *route.Route) (route.STS, error) {
	if !t.Policy().Traffic(rt.Domain, rt).MTASTS {
		return route.STS{}, nil
	}
	found, err := t.Policies.Lookup(ctx, rt.Domain)
	if err != nil || found.Mode == sts.None {
		return route.STS{}, err
	}
	return route.STS{Mode: modes[found.Mode], MX: strings.Join(found.MX, ",")}, nil
}

// Records finds hosts' TLSA records.
func (t *TLS) Records() tlspolicy.DANE { return tlspolicy.DANE{DNS: validated{t.Resolver}, Now: t.Now} }

// Failed notes that mail could not be sent by a domain's policy.
func (t *TLS) Failed(domain string) { t.Policies.Doubt(domain) }

// textResolver looks up TXT records for those who take their absence for no error.
type textResolver struct{ resolver *resolver.Resolver }

func (t textResolver) TXT(ctx context.Context, name string) ([]string, error) {
	answer, err := t.resolver.TXT(ctx, name)
	switch {
	case err == nil:
		return answer.Texts, nil
	case resolver.KindOf(err) == resolver.Temporary:
		return nil, err
	}
	return nil, nil
}
