package answer

import (
	"github.com/prometheus/client_golang/prometheus"

	"example.org/mta/mta/events"
)

var streamMetrics = []metric[events.Status]{
	streamMetric(prometheus.CounterValue, "mta_stream_events_total", "Events that the receiver of a stream has taken.", func(s *events.Status) float64 { return float64(s.Delivered) }),
	streamMetric(prometheus.CounterValue, "mta_stream_failures_total", "Requests of a stream that failed.", func(s *events.Status) float64 { return float64(s.Failures) }),
	streamMetric(prometheus.CounterValue, "mta_stream_refused_total", "Events that the receiver of a stream has refused, and that were set aside.", func(s *events.Status) float64 { return float64(s.Refused) }),
	streamMetric(prometheus.CounterValue, "mta_stream_gaps_total", "Gaps of a stream.", func(s *events.Status) float64 { return float64(s.Gaps) }),
	streamMetric(prometheus.CounterValue, "mta_stream_uncounted_gaps_total", "Gaps of a stream with an unknown number of events: accounting files were deleted or damaged.", func(s *events.Status) float64 { return float64(s.Uncounted) }),
	streamMetric(prometheus.CounterValue, "mta_stream_lost_total", "Events of a stream that were lost in gaps, as far as they could be counted.", func(s *events.Status) float64 { return float64(s.Lost) }),
	streamMetric(prometheus.GaugeValue, "mta_stream_lag_events", "About how many events wait for the receiver of a stream.", func(s *events.Status) float64 { return float64(s.LagEvents) }),
	streamMetric(prometheus.GaugeValue, "mta_stream_lag_bytes", "Octets of the accounting log that a stream has yet to read.", func(s *events.Status) float64 { return float64(s.LagBytes) }),
	streamMetric(prometheus.GaugeValue, "mta_stream_lag_seconds", "How long the oldest event has waited for the receiver of a stream.", func(s *events.Status) float64 { return s.Lag.Seconds() }),
}

func streamMetric(kind prometheus.ValueType, name, help string, of func(*events.Status) float64) metric[events.Status] {
	return metric[events.Status]{prometheus.NewDesc(name, help, []string{"stream"}, nil), kind, of}
}

func streamDescs() (all []*prometheus.Desc) {
	for _, m := range streamMetrics {
		all = append(all, m.desc)
	}
	return all
}

// streams gives the figures of each stream.
func (m Metrics) streams(ch chan<- prometheus.Metric) {
	if m.Streams == nil {
		return
	}
	for _, s := range m.Streams.List() {
		for _, row := range streamMetrics {
			ch <- prometheus.MustNewConstMetric(row.desc, row.kind, row.of(&s), s.Name)
		}
	}
}
