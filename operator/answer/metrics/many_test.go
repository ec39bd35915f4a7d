package metrics

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/mta/delivery"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/route"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
	"example.org/mta/mta/tally"
	"example.org/mta/queue/schedule"
)

// TestManySites: whatever the number of sites, there are 10,000 series at most.
func TestManySites(t *testing.T) {
	families, err := Bounded(ofSites(t, 120_000)).Gather() // more than are remembered
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range families {
		n += len(f.Metric) * seriesOf(f)
	}
	if n > MaxSeries || n < 20 {
		t.Errorf("%d series", n)
	}
}

func BenchmarkMetricsOfAMillionSites(b *testing.B) {
	all := Bounded(ofSites(b, 1_000_000))
	for b.Loop() {
		all.Gather()
	}
}

// ofSites has the figures of the mail to many sites, each with a line in the queue.
func ofSites(tb testing.TB, n int) prometheus.Gatherer {
	cfg, err := config.Parse(nil, "test.conf", nil)
	if err != nil {
		tb.Fatal(err)
	}
	inForce := func() *config.Config { return cfg }
	now, tallies, meter := time.Now(), tally.New(inForce), tally.NewMeter()
	m, r := &envelope.Message{Received: now}, &delivery.Result{Source: "out"}
	for i := range n {
		site := fmt.Sprintf("mx%d.example", i)
		o := &tally.Outcome{Kind: accounting.Delivery, Message: m, Route: &route.Route{Site: site}, Site: site, Result: r, Recipients: 1}
		tallies.Attempted(o, now)
		meter.Attempted(o, now)
	}
	p := Parts{
		Config: inForce, Now: time.Now, Tally: tallies, Clients: func(string) int64 { return 0 },
		ProviderOf: func(parking.Key) (string, bool) { return "", false },
		EachLine: func(each func(parking.Line, *schedule.Count)) {
			for i := range n {
				each(parking.Line{Key: parking.Key{Name: fmt.Sprintf("mx%d.example", i)}}, &schedule.Count{Total: 1})
			}
		},
	}
	all := prometheus.NewRegistry()
	all.MustRegister(meter.Collectors()...)
	for _, of := range []func(*collector) collect{p.build, p.listeners, p.tenants, p.queued} {
		c := new(collector)
		c.collect = of(c)
		all.MustRegister(c)
	}
	return all
}
