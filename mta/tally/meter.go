package tally

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/mta/bounce"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/mta/accounting"
	"example.org/mta/submission/http"
)

// Meter counts what happens to mail, for Prometheus alone. Its labels are names of the configuration's blocks
// and the codes of our own replies, of which there are few: sites and addresses are the accounting
// log's.
type Meter struct {
	attempts *prometheus.CounterVec // recipients, by provider, source and result
	refused  *prometheus.CounterVec // of those, by provider and class of the reply
	delay    prometheus.Histogram
	delays   *prometheus.HistogramVec // the same by provider
	commit   prometheus.Histogram
	refusals *prometheus.CounterVec // by code
	warmups  *prometheus.CounterVec // what happened to them, by source and event

	requests        *prometheus.CounterVec   // by HTTP: by route and status
	requestRefusals *prometheus.CounterVec   // by reason
	requestTime     *prometheus.HistogramVec // by route
	requestsOpen    prometheus.Gauge
}

var delayBuckets = []float64{.01, .1, 1, 10, 60, 300, 1800, 3600, 6 * 3600, 24 * 3600}

// Above these a delay or a commit names its message, for those who look for the reason. Below, the exemplars would
// cost more than they are worth: a histogram keeps one for each bucket.
const (
	longDelay  = time.Minute
	longCommit = 100 * time.Millisecond
)

// NewMeter returns a meter that has counted nothing.
func NewMeter() *Meter {
	return &Meter{
		attempts: counters("mta_attempts_total", "Attempts at recipients, by provider (\"\" for sites without one), "+
			"source and result: delivered, deferred, bounced or expired.", "provider", "source", "result"),
		refused: counters("mta_attempts_refused_total", "Attempts at recipients that failed, for now or for good, "+
			"by provider (\"\" for sites without one) and class of the reply.", "provider", "class"),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "mta_delivery_delay_seconds",
			Buckets: delayBuckets,
			Help:    "From acceptance, or release, of a message to its delivery, for each recipient."}),
		delays: histograms("mta_provider_delivery_delay_seconds", "The same by provider (\"\" for sites without one).",
			delayBuckets, "provider"),
		commit: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "mta_commit_seconds",
			Help:    "From the end of a message's content until it is durable, and the client hears 250.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5}}),
		refusals: counters("mta_refusals_total",
			"Connections, senders, recipients and contents that were refused, by the "+
				"code of the reply.", "code"),
		warmups: counters("mta_warmup_events_total", "What happened to the warm-up of a source, as in the accounting "+
			"records of the type Warmup.", "source", "event"),
		requests: counters("mta_http_requests_total", "Requests to api listeners, by route (none: there is no such "+
			"resource or method) and status; 0: the connection ended first.", "route", "status"),
		requestRefusals: counters("mta_http_refusals_total",
			"Requests that the server refused before their handler, or "+
				"whose body did not come, by reason.", "reason"),
		requestTime: histograms("mta_http_request_seconds",
			"From the header section of a request to the end of its answer.",
			[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, 1, 5, 30}, "route"),
		requestsOpen: prometheus.NewGauge(prometheus.GaugeOpts{Name: "mta_http_requests_under_way",
			Help: "Requests to api listeners that are not answered yet."}),
	}
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

// Collectors are all that it counts.
func (m *Meter) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.attempts, m.refused, m.delay, m.delays, m.commit, m.refusals, m.warmups, m.requests,
		m.requestRefusals, m.requestTime, m.requestsOpen}
}

var resultNames = map[accounting.Type]string{
	accounting.Delivery: "delivered", accounting.TransientFailure: "deferred", accounting.Bounce: "bounced",
	accounting.Expiration: "expired",
}

// Attempted counts what became of recipients at a host. What ended without an attempt is not counted.
func (m *Meter) Attempted(o *Outcome, now time.Time) {
	if !o.Result.Attempted {
		return
	}
	n := o.Recipients
	m.attempts.WithLabelValues(o.Route.Provider, o.Result.Source, resultNames[o.Kind]).Add(float64(n))
	if o.Class != bounce.None {
		m.refused.WithLabelValues(o.Route.Provider, o.Class.String()).Add(float64(n))
	}
	if o.Kind == accounting.Delivery {
		took, ofProvider := o.delay(now), m.delays.WithLabelValues(o.Route.Provider)
		for range n {
			observe(m.delay, took, longDelay, o.Message.ID)
			observe(ofProvider, took, longDelay, o.Message.ID)
		}
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

// Committed counts a message, or those of a request, that took so long to become durable.
func (m *Meter) Committed(took time.Duration, id envelope.ID) {
	observe(m.commit, took, longCommit, id)
}

// observe counts a duration; a long one has its message as exemplar.
func observe(h prometheus.Observer, took, long time.Duration, id envelope.ID) {
	if e, ok := h.(prometheus.ExemplarObserver); ok && took > long && id != 0 {
		e.ObserveWithExemplar(took.Seconds(), prometheus.Labels{"id": id.String()})
		return
	}
	h.Observe(took.Seconds())
}

// Warmup counts an event of a source's warm-up.
func (m *Meter) Warmup(source, event string) { m.warmups.WithLabelValues(source, event).Inc() }
