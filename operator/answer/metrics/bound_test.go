package metrics

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// gauges and histograms of so many labels.
func manySeries(gauges, histograms int) prometheus.Gatherer {
	r := prometheus.NewRegistry()
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "gauges"}, []string{"l"})
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "histograms", Buckets: []float64{1, 2}}, []string{"l"})
	few := prometheus.NewGauge(prometheus.GaugeOpts{Name: "single"})
	r.MustRegister(g, h, few)
	for i := range gauges {
		g.WithLabelValues(fmt.Sprintf("%06d", i)).Set(1)
	}
	for i := range histograms {
		h.WithLabelValues(fmt.Sprintf("%06d", i)).Observe(1)
	}
	return r
}

// TestSeriesAreBounded: there are 10,000 at most, those that are left out are counted, and small metrics are whole.
func TestSeriesAreBounded(t *testing.T) {
	for _, test := range []struct{ gauges, histograms, shown int }{
		{0, 0, 2}, {9_998, 0, MaxSeries}, {9_999, 0, MaxSeries}, {50_000, 0, MaxSeries}, {0, 3000, 9997}, {5000, 3000, 9997}, {100, 3000, 9997}, {4000, 1000, 9002},
	} {
		families, err := Bounded(manySeries(test.gauges, test.histograms)).Gather()
		if err != nil {
			t.Fatal(err)
		}
		shown, omitted := 0, -1
		for _, f := range families {
			shown += len(f.Metric) * seriesOf(f)
			switch f.GetName() {
			case omittedName:
				omitted = int(f.Metric[0].GetGauge().GetValue())
			case "gauges":
				if len(f.Metric) < min(test.gauges, MaxSeries/3) {
					t.Errorf("%+v: %d gauges", test, len(f.Metric))
				}
			}
		}
		all := test.gauges + 5*test.histograms + 2
		if shown > MaxSeries || shown < test.shown-5 || shown > test.shown+5 || omitted != all-shown {
			t.Errorf("%+v: %d of %d series are shown, %d omitted", test, shown, all, omitted)
		}
	}
}

// TestTopSites: they are the fullest, at most so many, and each stays for an hour.
func TestTopSites(t *testing.T) {
	var top topSites
	now := time.Now()
	queued := map[string]int{"a": 5, "b": 4, "c": 3, "d": 2, "idle": 0}
	choose := func(want ...string) {
		t.Helper()
		if got := top.choose(now, 3, queued); !slices.Equal(got, want) {
			t.Errorf("top sites are %v, want %v", got, want)
		}
	}
	choose("a", "b", "c")
	queued["d"], queued["a"] = 100, 0
	now = now.Add(59 * time.Minute)
	choose("a", "b", "c")
	now = now.Add(time.Minute)
	choose("b", "c", "d")
	clear(queued)
	now = now.Add(59 * time.Minute)
	choose("d")
	now = now.Add(time.Minute)
	choose()
	queued["other"], queued["z"] = 9, 1
	if got := fullestOf(queued, 1); !slices.Equal(got, []string{"other"}) {
		t.Errorf("the fullest is %v", got)
	}
}

func BenchmarkFullestOf(b *testing.B) {
	queued := make(map[string]int)
	for i := range 100_000 {
		queued[fmt.Sprint("site", i)] = i % 1000
	}
	for b.Loop() {
		fullestOf(queued, 20)
	}
}
