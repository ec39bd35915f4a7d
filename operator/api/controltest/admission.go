package controltest

import (
	"context"
	"time"

	"example.org/mta/operator/api"
)

// Admission is that of a relay with three times what it can store.
func (r *Relay) Admission() api.Admission {
	a := api.Admission{
		Mode: "utilisation", Share: .42, Reason: "overload", Since: r.Now.Add(-90 * time.Second), Threshold: 445.4, Held: 3, Remembered: 812,
		Slots: api.AdmissionSlots{Limit: 64, Why: "stays: the latency is good, and most slots are free", Used: 63.2, Waiting: 1},
		Pressures: []api.AdmissionPressure{
			{Kind: "sync", Value: .0423, From: 1, To: 5},
			{Kind: "disk", Value: .1, To: 1, Share: .1},
			{Kind: "memory", Value: .5, From: .8, To: .95},
		},
		Refusals:  []api.AdmissionCount{{Tenant: "acme", Tier: 4, Reason: "overload", Count: 12345}, {Tier: 3, Reason: "line", Count: 7}},
		OverQuota: []api.AdmissionQuota{{Tenant: "acme", Limit: "messages"}},
		Tiers:     []api.AdmissionTier{},
	}
	for tier := range 6 {
		a.Tiers = append(a.Tiers, api.AdmissionTier{Tier: tier, Admitted: 1, History: []float64{-1, -1, -1}})
	}
	a.Tiers[3] = api.AdmissionTier{Tier: 3, Offered: 20_000, Refused: 10_000, Admitted: .48, History: []float64{0, .1, .52}}
	a.Tiers[4] = api.AdmissionTier{Tier: 4, Offered: 12_345, Refused: 12_345, Admitted: 0, History: []float64{.4, 1, 1}}
	return a
}

// WhyRefused knows the tenant acme and its client.
func (r *Relay) WhyRefused(_ context.Context, who string) (api.AdmissionVerdict, error) {
	switch who {
	case "acme", "192.0.2.7":
		return api.AdmissionVerdict{
			Tenant: "acme", Tier: 4, Share: .42, Reason: "overload", Refused: 2,
			Last: []api.AdmissionRefusal{
				{Time: r.Now, Client: "192.0.2.7", Sender: "news@acme.example", Tenant: "acme", Tier: 4, Cohort: 17, Reason: "overload", Held: 1.25},
				{Time: r.Now.Add(-time.Second), Client: "192.0.2.7", Sender: "news@acme.example", Tenant: "acme", Tier: 4, Cohort: 17, Reason: "overload"},
			},
		}, nil
	case "198.51.100.1":
		return api.AdmissionVerdict{Tier: 3, Admitted: 1, Last: []api.AdmissionRefusal{}}, nil
	}
	return api.AdmissionVerdict{}, api.NotFound("name an IP address, a sender's address, or a tenant of the configuration", "there is no tenant %q", who)
}
