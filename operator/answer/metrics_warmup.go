package answer

import (
	"github.com/prometheus/client_golang/prometheus"

	"example.org/mta/warmup"
)

// warmupMetrics are of one warming source each.
var warmupMetrics = []struct {
	desc *prometheus.Desc
	of   func(*warmup.Status) float64
}{
	{warmupDesc("stage", "Stage of the plan that a source is on, counted from 1."), func(s *warmup.Status) float64 { return float64(s.Stage) }},
	{warmupDesc("sent_this_hour", "Recipients charged to the hour that is under way."), func(s *warmup.Status) float64 { return float64(s.SentHour) }},
	{warmupDesc("hourly_limit", "The hour's cap in force."), func(s *warmup.Status) float64 { return float64(s.HourlyLimit) }},
	{warmupDesc("sent_today", "Recipients charged to the plan's day that is under way."), func(s *warmup.Status) float64 { return float64(s.SentDay) }},
	{warmupDesc("stage_limit", "The day's cap in force."), func(s *warmup.Status) float64 { return float64(s.StageLimit) }},
	{warmupDesc("throttle", "Share of the demand that takes the source, 0 to 1."), func(s *warmup.Status) float64 { return s.Throttle }},
	{warmupDesc("waiting", "Recipients that wait for the source."), func(s *warmup.Status) (n float64) {
		for i := range s.Providers {
			n += float64(s.Providers[i].Waiting)
		}
		return n
	}},
	{warmupDesc("paused", "1 while nothing may take the source: an operator's pause, its plan has not begun, or its ledger can't be reached."), func(s *warmup.Status) float64 {
		if s.State == "normal" || s.State == "warm" {
			return 0
		}
		return 1
	}},
}

func warmupDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("mta_warmup_"+name, help, []string{"source"}, nil)
}

// providerMetrics are of one warming source and a provider that mail from it goes to.
var providerMetrics = []struct {
	desc *prometheus.Desc
	of   func(*warmup.ProviderStatus) float64
}{
	{providerDesc("sent_this_hour", "Recipients at a provider charged to the hour that is under way."), func(p *warmup.ProviderStatus) float64 { return float64(p.SentHour) }},
	{providerDesc("hourly_limit", "The hour's cap in force for a provider."), func(p *warmup.ProviderStatus) float64 { return float64(p.HourlyLimit) }},
	{providerDesc("sent_today", "Recipients at a provider charged to the plan's day that is under way."), func(p *warmup.ProviderStatus) float64 { return float64(p.SentDay) }},
	{providerDesc("daily_limit", "The day's cap in force for a provider."), func(p *warmup.ProviderStatus) float64 { return float64(p.DailyLimit) }},
	{providerDesc("waiting", "Recipients at a provider that wait for the source."), func(p *warmup.ProviderStatus) float64 { return float64(p.Waiting) }},
	{providerDesc("paused", "1 while mail to a provider does not take the source: the provider refused it by policy, or is being probed."), func(p *warmup.ProviderStatus) float64 {
		return float64(oneIf(p.State != "normal"))
	}},
}

// outcomesDesc is of today's mail from a source to a provider.
var outcomesDesc = prometheus.NewDesc("mta_warmup_provider_outcomes_today", "Recipients at a provider today, by result: delivered, deferred, hard_bounces, policy_refusals, complaints.", []string{"source", "provider", "result"}, nil)

func providerDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("mta_warmup_provider_"+name, help, []string{"source", "provider"}, nil)
}

func warmupDescs() (all []*prometheus.Desc) {
	for _, m := range warmupMetrics {
		all = append(all, m.desc)
	}
	for _, m := range providerMetrics {
		all = append(all, m.desc)
	}
	return append(all, outcomesDesc)
}

// warmups sends them.
func (m Metrics) warmups(ch chan<- prometheus.Metric) {
	for _, key := range m.Warmups.IPs() {
		s, ok := m.Warmups.Status(key)
		if !ok { // a reload may have ended it
			continue
		}
		source := m.Policy().WarmupSource(key)
		for _, w := range warmupMetrics {
			ch <- prometheus.MustNewConstMetric(w.desc, prometheus.GaugeValue, w.of(&s), source)
		}
		for i := range s.Providers {
			sendProvider(ch, source, &s.Providers[i])
		}
	}
}

// sendProvider sends what a provider makes of a warming source.
func sendProvider(ch chan<- prometheus.Metric, source string, p *warmup.ProviderStatus) {
	for _, w := range providerMetrics {
		ch <- prometheus.MustNewConstMetric(w.desc, prometheus.GaugeValue, w.of(p), source, p.Provider)
	}
	for result, n := range map[string]int64{
		"delivered": p.Delivered, "deferred": p.Deferred, "hard_bounces": p.HardBounces, "policy_refusals": p.Refused, "complaints": p.Complaints,
	} {
		send(ch, outcomesDesc, prometheus.GaugeValue, n, source, p.Provider, result)
	}
}
