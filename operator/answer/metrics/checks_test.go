package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/mta/internal/dnscheck"
)

// Findings that fail the same check of the same source and domain are one series; before the first check
// there is none.
func TestMetricsOfChecks(t *testing.T) {
	failed := dnscheck.Finding{Check: dnscheck.CheckSPF, Domain: "acme.example", Source: "out1", Result: dnscheck.Failed}
	another := failed
	another.Text = "of another address"
	for _, x := range []struct {
		at   time.Time
		want int
	}{{time.Now(), 1 + 4 + 1}, {time.Time{}, 0}} {
		ch := make(chan prometheus.Metric, 100)
		p := Parts{Checks: func() ([]dnscheck.Finding, time.Time) { return []dnscheck.Finding{failed, another}, x.at }}
		if p.checks(new(collector))(ch); len(ch) != x.want {
			t.Errorf("%d series, want %d", len(ch), x.want)
		}
	}
}
