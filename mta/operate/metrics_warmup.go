package operate

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

func warmupDescs() (all []*prometheus.Desc) {
	for _, m := range warmupMetrics {
		all = append(all, m.desc)
	}
	return all
}

// warmups sends them.
func (m Metrics) warmups(ch chan<- prometheus.Metric) {
	for _, key := range m.Warmups.IPs() {
		s, ok := m.Warmups.Status(key)
		for _, w := range warmupMetrics {
			if ok { // a reload may have ended it
				ch <- prometheus.MustNewConstMetric(w.desc, prometheus.GaugeValue, w.of(&s), m.Policy().WarmupSource(key))
			}
		}
	}
}
