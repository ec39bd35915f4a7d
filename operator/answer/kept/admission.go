package kept

import (
	"context"
	"net/netip"
	"strings"

	"example.org/mta/admission"
	"example.org/mta/internal/envelope"
	"example.org/mta/mta/admit"
	"example.org/mta/mta/config"
	"example.org/mta/operator/api"
	"example.org/mta/submission/auth"
	"example.org/mta/submission/intake"
)

// Admissions answers about admission; it implements api.Admissions.
type Admissions struct {
	Config func() *config.Config // in force
	Gate   *admit.Gate
	Quotas *intake.Quotas // of tenants
}

func (a Admissions) Admission(context.Context) (api.Admission, error) {
	s := a.Gate.Status()
	out := api.Admission{
		Mode: s.Settings.Mode, Since: s.Since, Threshold: admission.Levels,
		Pressures: []api.AdmissionPressure{}, Tiers: []api.AdmissionTier{}, Refusals: []api.AdmissionCount{},
		OverQuota: a.overQuota(),
		Held:      s.Held, Remembered: s.Remembered, MemoryLimit: s.MemoryLimit,
	}
	if s.On {
		n := &s.Now
		out.Share, out.Reason, out.Threshold = n.Share, reason(n), float64(n.Level)+n.Part
		out.Slots = api.AdmissionSlots{Limit: n.Limit, Why: n.Why, Used: n.Load.Busy, Waiting: n.Load.Waiting}
		for _, p := range n.Pressures {
			out.Pressures = append(out.Pressures,
				api.AdmissionPressure{Kind: p.Name, Value: p.Value, From: p.From, To: p.To, Share: p.Share})
		}
	}
	for tier, c := range s.Totals {
		t := api.AdmissionTier{Tier: tier, Offered: c.Asked, Refused: c.Refused, Admitted: 1, History: []float64{}}
		if s.On {
			t.Admitted = s.Now.Admitted[tier]
		}
		for _, slice := range s.Slices {
			share := -1.
			if c := slice.Tiers[tier]; c.Asked > 0 {
				share = float64(c.Refused) / float64(c.Asked)
			}
			t.History = append(t.History, share)
		}
		out.Tiers = append(out.Tiers, t)
	}
	for _, k := range s.Refusals {
		out.Refusals = append(out.Refusals,
			api.AdmissionCount{Tenant: k.Tenant, Tier: k.Tier, Reason: k.Reason, Count: k.Count})
	}
	return out, nil
}

// overQuota lists the tenants whose next message would be over a limit of theirs.
func (a Admissions) overQuota() []api.AdmissionQuota {
	over := []api.AdmissionQuota{}
	for _, t := range a.Config().Tenants {
		if s, known := a.Quotas.State(t.Name); known && s.Now.Reason.String() != "" {
			over = append(over, api.AdmissionQuota{Tenant: t.Name, Limit: s.Now.Reason.String()})
		}
	}
	return over
}

// reason is why mail is refused now, "" when none is.
func reason(s *admission.Status) string {
	if s.Share == 0 {
		return ""
	}
	return s.Reason
}

// mostShown is how many refusals are shown one by one.
const mostShown = 20

func (a Admissions) WhyRefused(_ context.Context, q api.WhyQuery) (api.AdmissionVerdict, error) {
	ask, match, err := a.who(q.Who)
	if err != nil {
		return api.AdmissionVerdict{}, err
	}
	s, last := a.Gate.Status(), a.Gate.Last(match)
	if len(last) > 0 && ask.Tenant == "" {
		ask.Tenant = last[0].Tenant
	}
	ask.Tier = uint8(a.tier(ask.Tenant))
	if len(last) > 0 && last[0].Tenant == ask.Tenant {
		ask.Tier = uint8(last[0].Tier)
	}
	v := api.AdmissionVerdict{Tenant: ask.Tenant, Tier: int(ask.Tier), Admitted: 1, Refused: len(last),
		Last: []api.AdmissionRefusal{}}
	if s.On {
		v.Share, v.Reason, v.Admitted = s.Now.Share, reason(&s.Now), a.Gate.Passes(v.Tier, v.Tenant)
	}
	for _, r := range last[:min(len(last), mostShown)] {
		v.Last = append(v.Last, api.AdmissionRefusal{
			Time: r.Time, Client: r.Client.String(), Sender: string(r.Sender), Tenant: r.Tenant, Tier: r.Tier,
			Cohort: r.Cohort, Reason: r.Reason, Held: r.Held.Seconds(),
		})
	}
	return v, nil
}

// who finds out what an operator asks about: a client's address, a sender's, or a tenant.
func (a Admissions) who(who string) (ask intake.AdmitRequest, match func(*admit.Refusal) bool, err error) {
	cfg := a.Config()
	if addr, err := netip.ParseAddr(who); err == nil {
		addr = addr.Unmap()
		ask.Tenant = cfg.TenantAt(addr)
		return ask, func(r *admit.Refusal) bool { return r.Client == addr }, nil
	}
	if strings.Contains(who, "@") {
		sender, err := envelope.ParseAddress(who)
		if err != nil {
			return ask, nil, api.Invalid("", "%q is not a valid address: %v", who, err)
		}
		ask.Sender = sender
		for _, t := range cfg.Tenants {
			if len(t.Senders) > 0 && auth.Senders(t.Senders).Allow(sender) {
				ask.Tenant = t.Name
				break
			}
		}
		return ask, func(r *admit.Refusal) bool { return strings.EqualFold(string(r.Sender), string(sender)) }, nil
	}
	if cfg.Tenant(who) == nil {
		return ask, nil, api.NotFound("name an IP address, a sender's address, or a tenant of the configuration",
			"there is no tenant %q", who)
	}
	ask.Tenant = who
	return ask, func(r *admit.Refusal) bool { return r.Tenant == who }, nil
}

// tier is that of a tenant's mail, or of the first listener's.
func (a Admissions) tier(tenant string) int {
	cfg := a.Config()
	if t := cfg.Tenant(tenant); t != nil {
		return t.Tier
	}
	return cfg.Listeners[0].Tier
}
