package sites

import (
	"context"
	"fmt"

	"example.org/mta/delivery/tlspolicy/sts"
	"example.org/mta/operator/api"
)

func (d *Sites) STSPolicy(ctx context.Context, domain string, refresh bool) (api.STSPolicy, error) {
	if err := sts.CheckName(domain); err != nil {
		return api.STSPolicy{}, api.Invalid("", "%v", err)
	}
	status, known := d.STS.Status(domain)
	if refresh {
		var err error
		if status, err = d.STS.Refresh(ctx, domain); err != nil {
			return api.STSPolicy{}, err
		}
		known = true
	}
	if !known {
		return api.STSPolicy{},
			api.NotFound("to look it up: mta tls policy "+domain,
				"nothing is known of the MTA-STS policy of %s", domain)
	}
	return d.describe(domain, &status), nil
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
