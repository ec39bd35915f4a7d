package mta

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"example.org/mta/delivery/tlspolicy"
	"example.org/mta/delivery/tlspolicy/sts"
	"example.org/mta/destdb/file"
	"example.org/mta/internal/route"
	"example.org/mta/mta/config"
	"example.org/mta/mta/control"
	"example.org/mta/router/resolver"
)

// openSTS begins with the MTA-STS policies that were cached before.
func (r *Relay) openSTS(_ *config.Config, undo *undoer) error {
	transport := r.opts.policyTransport
	if transport == nil {
		transport = sts.NewTransport(sts.TransportConfig{Addresses: r.router.Addresses})
	}
	r.sts = sts.New(sts.Config{
		Resolver: textResolver{r.resolver}, Transport: transport, Store: r.destinations.Values(file.STSPolicies),
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
func (r *Relay) reportSTS(domain string, f *sts.Failure) {
	if class := stsClasses[f.Kind]; class != "" && r.tlsReports != nil {
		r.tlsReports.Record(tlspolicy.Result{Time: f.At, Domain: domain, Policy: tlspolicy.STSPolicy, Class: class, Reason: f.Error()})
	}
}

func (r *Relay) closeSTS() error {
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
type routePolicies struct{ r *Relay }

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
type doubts struct{ r *Relay }

func (d doubts) Failed(domain string) { d.r.sts.Doubt(domain) }

// tlsPolicies answers operators.
type tlsPolicies struct{ r *Relay }

func (p tlsPolicies) STSPolicy(ctx context.Context, domain string, refresh bool) (control.STSPolicy, error) {
	status, known := p.r.sts.Status(domain)
	if refresh {
		var err error
		switch status, err = p.r.sts.Refresh(ctx, domain); {
		case errors.Is(err, sts.ErrName):
			return control.STSPolicy{}, control.Invalid("", "%v", err)
		case err != nil:
			return control.STSPolicy{}, err
		}
		known = true
	}
	if !known {
		return control.STSPolicy{}, control.NotFound("to look it up: mta tls policy "+domain, "nothing is known of the MTA-STS policy of %s", domain)
	}
	return p.r.describe(domain, &status), nil
}

// describe puts what is known of a domain's policy into the words of the API.
func (r *Relay) describe(domain string, s *sts.Status) control.STSPolicy {
	c := control.STSPolicy{Domain: domain, Mode: sts.None.String(), Next: s.Next}
	if s.Policy != nil {
		c.Mode, c.MX, c.ID, c.Fetched, c.Expires = s.Policy.Mode.String(), s.Policy.MX, s.ID, s.Fetched, s.Expires
	}
	if f := s.Failure; f != nil {
		c.Failure, c.Failed, c.Absent = f.Error(), f.At, f.Kind == sts.Absent
	}
	pol := r.policy.Load()
	rt, _, _ := r.router.Known(domain)
	switch t := pol.Traffic(domain, rt); {
	case rt != nil && rt.Configured:
		c.Ignored = "route"
	case !t.MTASTS:
		c.Ignored = fmt.Sprintf("mta_sts of %s", t.Origin("mta_sts"))
	case t.TLS == "off":
		c.Ignored = fmt.Sprintf("tls of %s", t.Origin("tls"))
	}
	return c
}
