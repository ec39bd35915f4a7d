package answer

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/mta/mta/admit"
)

var admissionMetrics = []metric[admit.Status]{
	newMetric(prometheus.GaugeValue, "mta_admission_refused_share", "The share of offered messages that admission control refuses now, 0 to 1.",
		func(s *admit.Status) float64 { return s.Now.Share }),
	newMetric(prometheus.GaugeValue, "mta_admission_threshold", "How many of the 768 priority levels, the most important first, are admitted now.",
		func(s *admit.Status) float64 { return float64(s.Now.Level) + s.Now.Part }),
	newMetric(prometheus.GaugeValue, "mta_admission_slots", "How many messages may be made durable at a time.",
		func(s *admit.Status) float64 { return s.Now.Limit }),
	newMetric(prometheus.GaugeValue, "mta_admission_slots_used", "How many were made durable at a time, on average over the last half second.",
		func(s *admit.Status) float64 { return s.Now.Load.Busy }),
	newMetric(prometheus.GaugeValue, "mta_admission_waiting", "Messages that wait for a slot.",
		func(s *admit.Status) float64 { return float64(s.Now.Load.Waiting) }),
	newMetric(prometheus.GaugeValue, "mta_admission_held", "Sessions that wait for a refusal, since their client came back at once.",
		func(s *admit.Status) float64 { return float64(s.Held) }),
}

var (
	pressureDesc = prometheus.NewDesc("mta_admission_pressure", "The share of offered messages that one kind of shortage alone would have refused, 0 to 1.", []string{"kind"}, nil)
	offeredDesc  = prometheus.NewDesc("mta_admission_offered_total", "Messages that were offered, by tier.", []string{"tier"}, nil)
	shedDesc     = prometheus.NewDesc("mta_admission_refused_total", "Messages that admission control refused, by tenant, tier and reason.", []string{"tenant", "tier", "reason"}, nil)
)

func (m Metrics) admission(ch chan<- prometheus.Metric) {
	s := m.Admission()
	for _, p := range s.Now.Pressures {
		ch <- prometheus.MustNewConstMetric(pressureDesc, prometheus.GaugeValue, p.Share, p.Name)
	}
	for tier, n := range s.Totals {
		send(ch, offeredDesc, prometheus.CounterValue, n.Asked, strconv.Itoa(tier))
	}
	for _, k := range s.Refusals {
		send(ch, shedDesc, prometheus.CounterValue, k.Count, k.Tenant, strconv.Itoa(k.Tier), k.Reason)
	}
}
