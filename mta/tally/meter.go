package tally

import (
	"cmp"
	"slices"
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
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mta_attempts_total",
			Help: "Attempts at recipients, by provider (\"\" for sites that are none's), source and result: delivered, deferred, bounced or expired.",
		}, []string{"provider", "source", "result"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mta_attempts_refused_total",
			Help: "Attempts at recipients that failed, for now or for good, by provider (\"\" for sites that are none's) and class of the reply.",
		}, []string{"provider", "class"}),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "mta_delivery_delay_seconds",
			Help:    "From acceptance, or release, of a message to its delivery, for each recipient.",
			Buckets: delayBuckets,
		}),
		delays: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "mta_provider_delivery_delay_seconds",
			Help:    "The same by provider (\"\" for sites that are none's).",
			Buckets: delayBuckets,
		}, []string{"provider"}),
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
	return []prometheus.Collector{m.attempts, m.refused, m.delay, m.delays, m.commit, m.refusals, m.warmups, m.requests, m.requestRefusals, m.requestTime, m.requestsOpen}
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
	if o.Class != bounce.None {
		m.refused.WithLabelValues(o.Route.Provider, o.Class.String()).Inc()
	}
	if o.Kind == accounting.Delivery {
		took := o.delay(now)
		observe(m.delay, took, longDelay, o.Message.ID)
		observe(m.delays.WithLabelValues(o.Route.Provider), took, longDelay, o.Message.ID)
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

// Attempts counts the attempts of a source at a provider by what became of the recipient.
type Attempts struct {
	Source, Provider                      string
	Delivered, Deferred, Bounced, Expired int64
}

// BySourceAndProvider returns what was counted of attempts, by source and then by provider.
func (m *Meter) BySourceAndProvider() []Attempts {
	r := prometheus.NewRegistry()
	r.MustRegister(m.attempts)
	families, err := r.Gather()
	if err != nil { // its own metric is sound
		return nil
	}
	by := make(map[[2]string]*Attempts)
	for _, family := range families {
		for _, x := range family.Metric {
			labels := make(map[string]string, len(x.Label))
			for _, l := range x.Label {
				labels[l.GetName()] = l.GetValue()
			}
			key := [2]string{labels["source"], labels["provider"]}
			if by[key] == nil {
				by[key] = &Attempts{Source: key[0], Provider: key[1]}
			}
			*by[key].of(labels["result"]) += int64(x.Counter.GetValue())
		}
	}
	list := make([]Attempts, 0, len(by))
	for _, a := range by {
		list = append(list, *a)
	}
	slices.SortFunc(list, func(a, b Attempts) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Provider, b.Provider))
	})
	return list
}

// of gives the count of a result.
func (a *Attempts) of(result string) *int64 {
	switch result {
	case resultNames[accounting.Delivery]:
		return &a.Delivered
	case resultNames[accounting.TransientFailure]:
		return &a.Deferred
	case resultNames[accounting.Expiration]:
		return &a.Expired
	}
	return &a.Bounced
}
