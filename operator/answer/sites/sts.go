package sites

import (
	"context"
	"fmt"

	"example.org/mta/delivery/tlspolicy/sts"
	"example.org/mta/internal/envelope"
	"example.org/mta/operator/api"
)

func (d *Sites) STSPolicy(_ context.Context, name string) (api.STSPolicy, error) {
	domain, err := policyDomain(name)
	if err != nil {
		return api.STSPolicy{}, err
	}
	status, known := d.STS.Status(domain)
	if !known {
		hint := "to look it up: mta tls policy " + domain
		return api.STSPolicy{}, api.NotFound(hint, "nothing is known of the MTA-STS policy of %s", domain)
	}
	return d.describe(domain, &status), nil
}

func (d *Sites) RefreshSTSPolicy(ctx context.Context, name string, in api.Intent) (done api.STSRefreshed, err error) {
	if in.DryRun {
		if done.STSPolicy, err = d.STSPolicy(ctx, name); api.IsNotFound(err) { // nothing is known of it yet
			done.Domain, err = name, nil
		}
		done.Count = 1
		return done, err
	}
	domain, err := policyDomain(name)
	if err != nil {
		return done, err
	}
	status, err := d.STS.Refresh(ctx, domain)
	if err == nil {
		done.Count, done.STSPolicy = 1, d.describe(domain, &status)
	}
	return done, err
}

// policyDomain gives the domain of a policy in A-label form.
func policyDomain(name string) (string, error) {
	domain, err := envelope.ToASCII(name)
	if err != nil || domain == "" {
		return "", api.Invalid("", "%q is not a domain name", name)
	}
	if err := sts.CheckName(domain); err != nil {
		return "", api.Invalid("", "%v", err)
	}
	return domain, nil
}

// describe puts what is known of a domain's policy into the words of the API.
func (d *Sites) describe(domain string, s *sts.Status) api.STSPolicy {
	c := api.STSPolicy{Domain: domain, Mode: sts.None.String(), Next: s.Next}
	if s.Policy != nil {
		c.Mode, c.MX, c.ID, c.Fetched, c.Expires = s.Policy.Mode.String(), s.Policy.MX, s.ID, s.Fetched, s.Expires
	}
	if f := s.Failure; f != nil {
		c.Failure, c.Failed, c.Absent = f.Error(), f.At, f.Kind == sts.Absent
	}
	pol := d.Policy()
	rt, _, _ := d.Router.Known(domain)
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
