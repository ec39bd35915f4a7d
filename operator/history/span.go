package history

import (
	"math"
	"slices"
	"time"
)

// Span is how far back values go, and how far apart they are.
type Span uint8

// The spans.
const (
	Minutes  Span = iota // a value for each 2 s of 15 min
	Hours                // each 30 s of 12 h
	Days                 // each 10 min of 14 d
	numSpans int  = iota
)

var spans = [numSpans]struct {
	step   time.Duration
	values int
}{
	Minutes: {2 * time.Second, 450},
	Hours:   {30 * time.Second, 1440},
	Days:    {10 * time.Minute, 2016},
}

// Step is the time from a value to the next.
func (s Span) Step() time.Duration { return spans[s].step }

// Values is how many there are of each figure.
func (s Span) Values() int { return spans[s].values }

// ringParts divides the values of each span.
const ringParts = 18

// span is the values of a subject's figures: a ring of steps, with the figures of a step side by side. A part of the
// ring takes memory once it has a value: most subjects are younger than two weeks.
type span struct {
	parts [ringParts][]half
	steps int   // of a part
	now   *mean // nil for the shortest span, of which each step has one sample
}

// mean is the step that is under way.
type mean struct {
	step   int64
	sums   []float64
	counts []int32
	delays Histogram
}

func newSpan(s Span, figures int) span {
	out := span{steps: s.Values() / ringParts}
	if s != Minutes {
		out.now = &mean{sums: make([]float64, figures), counts: make([]int32, figures)}
	}
	return out
}

// at returns the figures of a step, to be read; nil: nothing is known.
func (s *span) at(step int64, figures int) []half {
	i := int(step % int64(s.steps*ringParts))
	if part := s.parts[i/s.steps]; part != nil {
		return part[i%s.steps*figures:][:figures]
	}
	return nil
}

// value returns the i-th of the figures of a step.
func (s *span) value(step int64, figures, i int) half {
	if at := s.at(step, figures); at != nil {
		return at[i]
	}
	return unknown
}

// place returns the figures of a step, to be written.
func (s *span) place(step int64, figures int) []half {
	if part := &s.parts[int(step%int64(s.steps*ringParts))/s.steps]; *part == nil {
		*part = slices.Repeat([]half{unknown}, s.steps*figures)
	}
	return s.at(step, figures)
}

// stepOf gives the step of a span that ends with a sample, whatever the sample's delay by less than half of the time
// between two of them.
func stepOf(s Span, now time.Time) int64 {
	least := Minutes.Step()
	return now.Add(least/2).Truncate(least).Add(-least).UnixNano() / int64(s.Step())
}

// advance begins the step of a time: nothing is known of those that were left out, nor of those after it, of which
// there are some when the clock was set back.
func (h *History) advance(now time.Time) {
	for i := range spans {
		step, head := stepOf(Span(i), now), h.heads[i]
		h.heads[i] = step
		if head == 0 || step == head {
			continue
		}
		from, to := head+1, step
		if step < head {
			from, to = step, head
		}
		from = max(from, to-int64(spans[i].values)+1)
		for k := range h.rings {
			for _, s := range h.rings[k] {
				s.forget(Span(i), from, to)
			}
		}
	}
}

// forget makes steps unknown, both ends included.
func (s *subject) forget(sp Span, from, to int64) {
	n := len(figuresOf[s.kind])
	for step := from; step <= to; step++ {
		at := s.spans[sp].at(step, n)
		for i := range at {
			at[i] = unknown
		}
	}
}

// write adds a sample.
func (h *History) write(s *subject, d *delta) {
	list := figuresOf[s.kind]
	var values [numFigures]float64
	for i, f := range list {
		values[i] = d.value(f)
	}
	for i := range s.spans {
		sp := &s.spans[i]
		at := sp.place(h.heads[i], len(list))
		if sp.now == nil {
			for j := range list {
				at[j] = halfOf(values[j])
			}
			continue
		}
		sp.now.add(h.heads[i], values[:len(list)], &d.delays)
		for j, f := range list {
			at[j] = halfOf(sp.now.value(j, f))
		}
	}
}

// add takes a sample into account; the first one of a step begins it.
func (m *mean) add(step int64, values []float64, delays *Histogram) {
	if m.step != step {
		m.step, m.delays = step, Histogram{}
		clear(m.sums)
		clear(m.counts)
	}
	for i, v := range values {
		if !math.IsNaN(v) {
			m.sums[i] += v
			m.counts[i]++
		}
	}
	m.delays.Merge(delays)
}

// value gives the i-th figure: the mean of the samples, of delays the quantile of all deliveries.
func (m *mean) value(i int, f Figure) float64 {
	if f >= DelayP50 {
		return quantile(&m.delays, f)
	}
	return m.sums[i] / float64(m.counts[i]) // NaN without samples
}

// half is a number from 0 to 10^14 to three digits: 6 bits of exponent, 10 of mantissa. IEEE 754 has 5 bits of
// exponent in the same space, which ends at 65,504.
type half uint16

const (
	unknown = half(math.MaxUint16)

	exponentBias = 127 - 16 // the least exponent is 2^-16
	mantissaBits = 10
	dropped      = 23 - mantissaBits // bits of a float32's mantissa
)

// halfOf rounds a number; what isn't known, or negative, stays unknown.
func halfOf(v float64) half {
	if !(v >= 0) {
		return unknown
	}
	bits := int64(math.Float32bits(float32(min(v, math.MaxFloat32)))) + 1<<(dropped-1) - exponentBias<<23
	return half(min(max(bits>>dropped, 0), int64(unknown)-1))
}

// float gives the number; NaN when it isn't known.
func (h half) float() float64 {
	switch h {
	case 0:
		return 0
	case unknown:
		return math.NaN()
	}
	return float64(math.Float32frombits(uint32(h)<<dropped + exponentBias<<23))
}
