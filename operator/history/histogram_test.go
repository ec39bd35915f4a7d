package history

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"
)

func TestBucketsHaveNoGaps(t *testing.T) {
	last := time.Duration(0)
	for i := range buckets {
		from, to := bounds(i)
		if from != last || to <= from {
			t.Fatalf("bucket %d is from %v to %v, and the one before ends at %v", i, from, to, last)
		}
		for _, d := range []time.Duration{from, from + (to-from)/2, to - time.Microsecond} {
			if got := bucket(d); got != i {
				t.Errorf("%v is in bucket %d, want %d", d, got, i)
			}
		}
		last = to
	}
	for d, want := range map[time.Duration]int{-time.Second: 0, math.MaxInt64: buckets - 1} {
		if got := bucket(d); got != want {
			t.Errorf("%v is in bucket %d, want %d", d, got, want)
		}
	}
	if n := unsafe.Sizeof(Histogram{}); n > 520 {
		t.Errorf("a histogram has %d octets", n)
	}
}

// TestQuantilesAreRight compares with the durations themselves.
func TestQuantilesAreRight(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, spread := range []float64{.1, 1, 3} {
		var h Histogram
		all := make([]time.Duration, 20_000)
		for i := range all {
			all[i] = time.Duration(float64(time.Second) * math.Exp(spread*r.NormFloat64()))
			h.Add(all[i], 1)
		}
		slices.Sort(all)
		for _, share := range []float64{.01, .5, .9, .99} {
			got, ok := h.Quantile(share)
			want := all[int(share*float64(len(all)))]
			if off := math.Abs(float64(got)/float64(want) - 1); !ok || off > .125 {
				t.Errorf("spread %v: %v of all take up to %v, want %v", spread, share, got, want)
			}
		}
	}
	var none Histogram
	if d, ok := none.Quantile(.5); ok {
		t.Errorf("the median of nothing is %v", d)
	}
}

func TestDifferencesSurviveAnOverflow(t *testing.T) {
	var h, sum Histogram
	h.counts[bucket(time.Second)] = math.MaxUint32 - 1
	before := h
	for range 5 {
		h.Add(time.Second, 1)
	}
	d := h.Since(&before)
	sum.Merge(&d)
	sum.Merge(&d)
	if d.Len() != 5 || sum.Len() != 10 {
		t.Errorf("%d since, %d in the sum of two, want 5 and 10", d.Len(), sum.Len())
	}
}

func BenchmarkAdd(b *testing.B) {
	var h Histogram
	for i := range b.N {
		h.Add(time.Duration(i)*time.Millisecond, 1)
	}
}
