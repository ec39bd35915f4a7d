package metrics

import (
	"math"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// MaxSeries is how many series the relay shows to Prometheus, whatever the configuration has.
const MaxSeries = 10_000

// omittedName is that of the only metric without a collector.
const omittedName = "mta_metrics_omitted_series"

// bounded shows at most so many series of what another gathers.
type bounded struct {
	all  prometheus.Gatherer
	most int
}

// Bounded returns a gatherer with at most MaxSeries of another's series. The metrics with the most series lose those
// that come last by label; how many these are is a separate metric.
func Bounded(all prometheus.Gatherer) prometheus.Gatherer { return bounded{all, MaxSeries} }

// Gather implements prometheus.Gatherer.
func (b bounded) Gather() ([]*dto.MetricFamily, error) {
	families, err := b.all.Gather()
	omitted := 0
	if share := b.share(families); share < math.MaxInt {
		for _, f := range families {
			omitted += trim(f, share)
		}
	}
	i, _ := slices.BinarySearchFunc(families, omittedName, func(f *dto.MetricFamily, name string) int {
		return strings.Compare(f.GetName(), name)
	})
	return slices.Insert(families, i, omittedFamily(omitted)), err
}

// share is how many series each metric may have, so that all together have no more than there may be.
func (b bounded) share(families []*dto.MetricFamily) int {
	sizes, total := make([]int, len(families)), 0
	for i, f := range families {
		sizes[i] = len(f.GetMetric()) * seriesOf(f)
		total += sizes[i]
	}
	left := b.most - 1 // for the number of the omitted
	if total <= left {
		return math.MaxInt
	}
	slices.Sort(sizes)
	for i, n := range sizes { // the small ones have all of theirs, the others share what is left
		if n*(len(sizes)-i) > left {
			return left / (len(sizes) - i)
		}
		left -= n
	}
	return math.MaxInt
}

// seriesOf is how many series a label set of a metric has: a histogram has one for each bucket.
func seriesOf(f *dto.MetricFamily) int {
	if len(f.GetMetric()) == 0 {
		return 0
	}
	switch m := f.GetMetric()[0]; {
	case m.GetHistogram() != nil:
		return len(m.GetHistogram().GetBucket()) + 3 // with that of infinity, the sum and the count
	case m.GetSummary() != nil:
		return len(m.GetSummary().GetQuantile()) + 2
	}
	return 1
}

// trim leaves so many series of a metric, and returns how many it took away.
func trim(f *dto.MetricFamily, most int) (omitted int) {
	each := seriesOf(f)
	if each == 0 || len(f.Metric)*each <= most {
		return 0
	}
	kept := most / each
	omitted = (len(f.Metric) - kept) * each
	f.Metric = f.Metric[:kept]
	return omitted
}

func omittedFamily(n int) *dto.MetricFamily {
	name, help, kind, v := omittedName, "Series that are not shown, since there are more than 10,000.",
		dto.MetricType_GAUGE, float64(n)
	return &dto.MetricFamily{Name: &name, Help: &help, Type: &kind,
		Metric: []*dto.Metric{{Gauge: &dto.Gauge{Value: &v}}}}
}
