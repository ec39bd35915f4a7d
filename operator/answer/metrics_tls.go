package answer

import (
	"github.com/prometheus/client_golang/prometheus"

	"example.org/mta/delivery/tlspolicy/sts"
	"example.org/mta/delivery/tlspolicy/tlsrpt"
)

var stsMetrics = []metric[sts.Stats]{
	newMetric(prometheus.GaugeValue, "mta_sts_policies", "MTA-STS policies that are cached.",
		func(s *sts.Stats) float64 { return float64(s.Policies) }),
	newMetric(prometheus.GaugeValue, "mta_sts_domains_without_policy", "Domains that are known to have no MTA-STS policy.",
		func(s *sts.Stats) float64 { return float64(s.Absent) }),
	newMetric(prometheus.GaugeValue, "mta_sts_lookups_running", "Look-ups of MTA-STS policies that are under way, or wait for their turn.",
		func(s *sts.Stats) float64 { return float64(s.Looking) }),
}

var stsLookupsDesc = prometheus.NewDesc("mta_sts_lookups_total", "Look-ups of MTA-STS policies that needed more than the cache, by result.", []string{"result"}, nil)

func (m Metrics) stsLookups(ch chan<- prometheus.Metric) {
	s := m.STS.Stats()
	send(ch, stsLookupsDesc, prometheus.CounterValue, int64(s.Fetched), "fetched")
	send(ch, stsLookupsDesc, prometheus.CounterValue, int64(s.Unchanged), "unchanged")
	for kind, n := range s.Failed {
		send(ch, stsLookupsDesc, prometheus.CounterValue, int64(n), sts.Kind(kind).String())
	}
}

var tlsReportMetrics = []metric[tlsrpt.Stats]{
	newMetric(prometheus.CounterValue, "mta_tls_report_results_total", "Connection attempts, and look-ups of policies that failed, that were counted for TLS reports.",
		func(s *tlsrpt.Stats) float64 { return float64(s.Results) }),
	newMetric(prometheus.CounterValue, "mta_tls_reports_sent_total", "TLS reports that were queued, or that a web server took.",
		func(s *tlsrpt.Stats) float64 { return float64(s.Sent) }),
	newMetric(prometheus.CounterValue, "mta_tls_report_failures_total", "Tries to send a TLS report that failed.",
		func(s *tlsrpt.Stats) float64 { return float64(s.Failed) }),
}

func (m Metrics) tlsReports() (s tlsrpt.Stats, on bool) {
	if m.TLSReports == nil {
		return s, false
	}
	return m.TLSReports.Stats(), true
}

var certificateExpiry = prometheus.NewDesc("mta_certificate_expiry_timestamp_seconds", "When a listener's certificate expires, in Unix time.", []string{"file"}, nil)

func (m Metrics) certificates(ch chan<- prometheus.Metric) {
	for _, e := range m.Certificates() {
		send(ch, certificateExpiry, prometheus.GaugeValue, e.At.Unix(), e.File)
	}
}
