package top

import (
	"math"
	"strings"
)

// sparks are bars from the least to the most; the least is shown for 0.
var sparks = []rune("▁▂▃▄▅▆▇█")

// spark plots values as bars on one scale from 0, the latest at the right, in a width. Where there are more values than
// columns, a column is the mean of several. A value that is not known (NaN) is a blank.
func spark(values []float64, width int) string {
	if width < 1 {
		return ""
	}
	columns := resample(values, width)
	most := 0.0
	for _, v := range columns {
		if v > most { // not for NaN
			most = v
		}
	}
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", width-len(columns)))
	for _, v := range columns {
		switch {
		case math.IsNaN(v):
			b.WriteByte(' ')
		case most == 0 || v <= 0:
			b.WriteRune(sparks[0])
		default:
			// Something is never drawn as nothing.
			b.WriteRune(sparks[max(1, int(math.Ceil(v/most*float64(len(sparks)-1))))])
		}
	}
	return b.String()
}

// resample makes at most width values of values.
func resample(values []float64, width int) []float64 {
	if len(values) <= width {
		return values
	}
	out := make([]float64, width)
	for i := range out {
		from, to := i*len(values)/width, (i+1)*len(values)/width
		sum, n := 0.0, 0
		for _, v := range values[from:to] {
			if !math.IsNaN(v) {
				sum += v
				n++
			}
		}
		out[i] = sum / float64(n) // NaN of none
	}
	return out
}
