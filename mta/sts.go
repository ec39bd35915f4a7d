package mta

import (
	"context"
	"strings"

	"example.org/mta/delivery/tlspolicy"
	"example.org/mta/delivery/tlspolicy/sts"
	"example.org/mta/destdb"
	"example.org/mta/internal/httpclient"
	"example.org/mta/internal/route"
	"example.org/mta/mta/config"
	"example.org/mta/router/resolver"
)

// openSTS begins with the MTA-STS policies that were cached before.
func (r *mailOut) openSTS(_ *config.Config, undo *undoer) error {
	transport := r.opts.policyTransport
	if transport == nil {
		transport = httpclient.New(httpclient.Config{Addresses: r.router.Addresses})
	}
	r.sts = sts.New(sts.Config{
		Resolver: textResolver{r.resolver}, Transport: transport, Store: r.destinations.Values(destdb.STSPolicies),
		Changed: r.router.Forget, Failed: r.reportSTS, Log: r.log, Now: r.now,
	})
	undo.add(r.sts.Close)
	return nil
}

// stsClasses are the failures to get a policy that TLS reports have (RFC 8460, 4.3.2.2). Without a record
// that can be read, a domain has no policy.
var stsClasses = map[sts.Kind]tlspolicy.Class{
	sts.Fetch: tlspolicy.STSFetchError, sts.Certificate: tlspolicy.STSWebPKI, sts.Invalid: tlspolicy.STSInvalid,
}

// reportSTS counts for TLS reports that a domain's policy could not be fetched.
func (r *mailOut) reportSTS(domain string, f *sts.Failure) {
	if class := stsClasses[f.Kind]; class != "" && r.tlsReports != nil {
		r.tlsReports.Record(tlspolicy.Result{Time: f.At, Domain: domain, Policy: tlspolicy.STSPolicy, Class: class, Reason: f.Error()})
	}
}

func (r *mailOut) closeSTS() error {
	r.sts.Close()
	return nil
}

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

// routePolicies is what the router knows of MTA-STS.
type routePolicies struct{ r *mailOut }

var stsModes = map[sts.Mode]route.STSMode{sts.None: route.STSNone, sts.Testing: route.STSTesting, sts.Enforce: route.STSEnforce}

func (p routePolicies) STS(ctx context.Context, rt *route.Route) (route.STS, error) {
	if !p.r.policy.Load().Traffic(rt.Domain, rt).MTASTS {
		return route.STS{}, nil
	}
	found, err := p.r.sts.Lookup(ctx, rt.Domain)
	if err != nil || found.Mode == sts.None {
		return route.STS{}, err
	}
	return route.STS{Mode: stsModes[found.Mode], MX: strings.Join(found.MX, ",")}, nil
}

// doubts passes on that mail could not be sent by a policy.
type doubts struct{ r *mailOut }

func (d doubts) Failed(domain string) { d.r.sts.Doubt(domain) }
