package answer

import (
	"github.com/prometheus/client_golang/prometheus"

	"example.org/mta/internal/dnscheck"
)

var (
	checkFindings  = prometheus.NewDesc("mta_check_findings", "What the last daily check of the DNS found, by result: ok, warning, failed, unknown.", []string{"result"}, nil)
	checkFailed    = prometheus.NewDesc("mta_check_failed", "1 for each check that failed, as 'mta check --dns' names it.", []string{"check", "source", "domain"}, nil)
	checkTimestamp = prometheus.NewDesc("mta_check_timestamp_seconds", "When the last daily check of the DNS was made, in seconds since 1970.", nil, nil)
)

func (m Metrics) checks(ch chan<- prometheus.Metric) {
	found, at := m.Checks()
	if at.IsZero() {
		return
	}
	send(ch, checkTimestamp, prometheus.GaugeValue, at.Unix())
	for _, r := range []dnscheck.Result{dnscheck.OK, dnscheck.Warning, dnscheck.Failed, dnscheck.Unknown} {
		send(ch, checkFindings, prometheus.GaugeValue, int64(dnscheck.Count(found, r)), string(r))
	}
	seen := make(map[[3]string]bool) // several keys, lists or addresses can fail the same check
	for _, f := range found {
		if labels := [3]string{f.Check, f.Source, f.Domain}; f.Result == dnscheck.Failed && !seen[labels] {
			seen[labels] = true
			send(ch, checkFailed, prometheus.GaugeValue, 1, labels[:]...)
		}
	}
}
