package controltest

import (
	"context"
	"time"

	"example.org/mta/operator/api"
)

// STSPolicy gives a policy of KnownPolicies. To refresh it makes it as good as just fetched, unless it can't be had.
func (r *Relay) STSPolicy(_ context.Context, domain string, refresh bool) (api.STSPolicy, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.KnownPolicies {
		if p.Domain != domain {
			continue
		}
		if refresh && p.Failure == "" {
			p.Expires = r.Now.Add(p.Expires.Sub(p.Fetched))
			p.Fetched, p.Next = r.Now, r.Now.Add(time.Hour)
		}
		return p, nil
	}
	if refresh {
		return api.STSPolicy{Domain: domain, Mode: "none", Absent: true, Failure: "no MTA-STS record", Failed: r.Now, Next: r.Now.Add(time.Hour)}, nil
	}
	return api.STSPolicy{}, api.NotFound("look it up: mta tls policy "+domain, "nothing is known of the MTA-STS policy of %s", domain)
}

func (r *Relay) addPolicies() {
	r.KnownPolicies = []api.STSPolicy{
		{
			Domain: "big.example", Mode: "enforce", MX: []string{"mx1.big.example", "mx2.big.example"}, ID: "20260214T120000",
			Fetched: r.Now.Add(-3 * time.Hour), Expires: r.Now.Add(7*24*time.Hour - 3*time.Hour), Next: r.Now.Add(12 * time.Minute),
		},
		{
			Domain: "grey.example", Mode: "testing", MX: []string{"mx.grey.example"}, ID: "1", Ignored: `mta_sts of domain "grey.example" (mta.conf:14)`,
			Fetched: r.Now.Add(-50 * time.Hour), Expires: r.Now.Add(22 * time.Hour), Next: r.Now.Add(40 * time.Minute),
			Failure: "fetching the policy: the web server answered 404 Not Found", Failed: r.Now.Add(-20 * time.Minute),
		},
	}
}
