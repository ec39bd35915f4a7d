package tally

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/mta/internal/reply"
	"example.org/mta/mta/accounting"
)

// Meter counts what happens to mail, for Prometheus alone. Its labels are names of the configuration's blocks
// and the codes of our own replies, of which there are few: sites and addresses are the accounting
// log's.
type Meter struct {
	attempts *prometheus.CounterVec // recipients, by provider, source and result
	delay    prometheus.Histogram
	commit   prometheus.Histogram
	refusals *prometheus.CounterVec // by code
	warmups  *prometheus.CounterVec // what happened to them, by source and event
}

// NewMeter returns a meter that has counted nothing.
func NewMeter() *Meter {
	return &Meter{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mta_attempts_total",
			Help: "Attempts at recipients, by provider (\"\" for sites that are none's), source and result: delivered, deferred, bounced or expired.",
		}, []string{"provider", "source", "result"}),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "mta_delivery_delay_seconds",
			Help:    "From acceptance, or release, of a message to its delivery, for each recipient.",
			Buckets: []float64{.01, .1, 1, 10, 60, 300, 1800, 3600, 6 * 3600, 24 * 3600},
		}),
		commit: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "mta_commit_seconds",
			Help:    "From the end of a message's content until it is durable, and the client hears 250.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5},
		}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mta_refusals_total",
			Help: "Connections, senders, recipients and contents that were refused, by the code of the reply.",
		}, []string{"code"}),
		warmups: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mta_warmup_events_total",
			Help: "What happened to the warm-up of a source, as in the accounting records of the type Warmup.",
		}, []string{"source", "event"}),
	}
}

// Collectors are all that it counts.
func (m *Meter) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.attempts, m.delay, m.commit, m.refusals, m.warmups}
}

var resultNames = map[accounting.Type]string{
	accounting.Delivery: "delivered", accounting.TransientFailure: "deferred", accounting.Bounce: "bounced", accounting.Expiration: "expired",
}

// Attempted counts what became of a recipient at a host. What ended without an attempt is not counted.
func (m *Meter) Attempted(o *Outcome, now time.Time) {
	if !o.Result.Attempted {
		return
	}
	m.attempts.WithLabelValues(o.Route.Provider, o.Result.Source, resultNames[o.Kind]).Inc()
	if o.Kind == accounting.Delivery {
		m.delay.Observe(max(now.Sub(o.Message.Start()), 0).Seconds())
	}
}

// Refused counts n refusals with a reply.
func (m *Meter) Refused(r reply.Reply, n int64) {
	m.refusals.WithLabelValues(strconv.Itoa(r.Code)).Add(float64(n))
}

// Committed counts a message that took so long to become durable.
func (m *Meter) Committed(took time.Duration) { m.commit.Observe(took.Seconds()) }

// Warmup counts an event of a source's warm-up.
func (m *Meter) Warmup(source, event string) { m.warmups.WithLabelValues(source, event).Inc() }
