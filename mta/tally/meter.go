package tally

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/mta/internal/reply"
	"example.org/mta/mta/accounting"
	"example.org/mta/submission/http"
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

	requests        *prometheus.CounterVec   // by HTTP: by route and status
	requestRefusals *prometheus.CounterVec   // by reason
	requestTime     *prometheus.HistogramVec // by route
	requestsOpen    prometheus.Gauge
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
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mta_http_requests_total",
			Help: "Requests to api listeners, by route (none: there is no such resource or method) and status; 0: the connection ended first.",
		}, []string{"route", "status"}),
		requestRefusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mta_http_refusals_total",
			Help: "Requests that the server refused before their handler, or whose body did not come, by reason.",
		}, []string{"reason"}),
		requestTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "mta_http_request_seconds",
			Help:    "From the header section of a request to the end of its answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, 1, 5, 30},
		}, []string{"route"}),
		requestsOpen: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mta_http_requests_under_way",
			Help: "Requests to api listeners that are not answered yet.",
		}),
	}
}

// Collectors are all that it counts.
func (m *Meter) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.attempts, m.delay, m.commit, m.refusals, m.warmups, m.requests, m.requestRefusals, m.requestTime, m.requestsOpen}
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

// Began counts a request by HTTP that has come.
func (m *Meter) Began() { m.requestsOpen.Inc() }

// Answered counts a request by HTTP that is done.
func (m *Meter) Answered(a http.Answered) {
	m.requestsOpen.Dec()
	m.requests.WithLabelValues(a.Route, strconv.Itoa(a.Status)).Inc()
	m.requestTime.WithLabelValues(a.Route).Observe(a.Took.Seconds())
	if a.Reason != "" {
		m.requestRefusals.WithLabelValues(a.Reason).Inc()
	}
}

// Committed counts a message that took so long to become durable.
func (m *Meter) Committed(took time.Duration) { m.commit.Observe(took.Seconds()) }

// Warmup counts an event of a source's warm-up.
func (m *Meter) Warmup(source, event string) { m.warmups.WithLabelValues(source, event).Inc() }
