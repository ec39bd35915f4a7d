package simulate

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// The picture's measures, in pixels.
const (
	plotWidth, plotLeft, plotRight  = 900, 70, 20
	panelTop, panelHeight, panelGap = 40, 190, 50
	plotBins                        = 300
)

// series is one line of a plot.
type series struct {
	name, colour string
	values       []float64
}

// Plot writes rows as an SVG picture: sent against desired in the upper panel, diverted and held
// in the lower one.
func Plot(rows []Row, title string, out io.Writer) error {
	w := bufio.NewWriter(out)
	bins, width, end := binRows(rows)
	height := panelTop + 2*panelHeight + panelGap + 40
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, height)
	fmt.Fprintf(w, `<rect width="100%%" height="100%%" fill="white"/><text x="%d" y="20" font-size="14">%s</text>`+"\n", plotLeft, escape(title))
	panel(w, panelTop, end, "an hour", []series{{"desired", "#999999", bins.desired}, {"sent", "#1f77b4", bins.sent}})
	panel(w, panelTop+panelHeight+panelGap, end, "diverted an hour, held", []series{{"diverted", "#ff7f0e", bins.diverted}, {"held", "#d62728", bins.held}})
	fmt.Fprintf(w, `<text x="%d" y="%d" text-anchor="end" fill="#666">each point is %s</text>`+"\n</svg>\n", plotWidth-plotRight, height-6, span(width))
	if err := w.Flush(); err != nil {
		return fmt.Errorf("writing plot: %w", err)
	}
	return nil
}

type binned struct{ desired, sent, diverted, held []float64 }

// binRows sums rows over equal times and makes them rates an hour.
func binRows(rows []Row) (b binned, width, end int64) {
	interval := int64(0) // that all begin at multiples of
	for i := range rows {
		end = max(end, rows[i].T+1)
		interval = divisor(interval, rows[i].T)
	}
	interval = max(1, interval)
	width = max(60, (end+plotBins-1)/plotBins)
	width = (width + interval - 1) / interval * interval // of whole intervals, lest one have more than another
	n := int(end/width) + 1
	b = binned{make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)}
	perHour := 3600 / float64(width)
	heldAt := make(map[[2]int64]float64)
	names := make(map[string]int64)
	for i := range rows {
		r := &rows[i]
		k := int(r.T / width)
		b.sent[k] += float64(r.Sent) * perHour
		b.diverted[k] += float64(r.Diverted) * perHour
		b.desired[k] = max(b.desired[k], float64(r.CapHour))
		if _, ok := names[r.Provider]; !ok {
			names[r.Provider] = int64(len(names))
		}
		heldAt[[2]int64{int64(k), names[r.Provider]}] = float64(r.Held) // the last of the bin
	}
	for key, v := range heldAt {
		b.held[key[0]] += v
	}
	for k := 1; k < n; k++ { // a cap stays where no row repeats it
		if b.desired[k] == 0 {
			b.desired[k] = b.desired[k-1]
		}
	}
	return b, width, end
}

// divisor is the greatest that a and b have in common.
func divisor(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func panel(w io.Writer, top int, end int64, unit string, lines []series) {
	most := 1.
	for _, s := range lines {
		for _, v := range s.values {
			most = max(most, v)
		}
	}
	most *= 1.05
	x := func(i, n int) float64 {
		return plotLeft + float64(i)/float64(max(1, n-1))*(plotWidth-plotLeft-plotRight)
	}
	y := func(v float64) float64 { return float64(top) + panelHeight*(1-v/most) }
	for i := range 5 {
		v := most / 1.05 * float64(i) / 4
		fmt.Fprintf(w, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#e5e5e5"/><text x="%d" y="%.1f" text-anchor="end">%.0f</text>`+"\n",
			plotLeft, plotWidth-plotRight, y(v), y(v), plotLeft-6, y(v)+4, v)
	}
	for i := range 7 {
		at := end * int64(i) / 6
		fmt.Fprintf(w, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x(i, 7), top+panelHeight+16, span(at))
	}
	for i, s := range lines {
		var points strings.Builder
		for k, v := range s.values {
			fmt.Fprintf(&points, "%.1f,%.1f ", x(k, len(s.values)), y(v))
		}
		fmt.Fprintf(w, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="%s"/>`+"\n", s.colour, strings.TrimSpace(points.String()))
		fmt.Fprintf(w, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", plotLeft+10+i*100, top-6, s.colour, s.name)
	}
	fmt.Fprintf(w, `<text x="%d" y="%d" text-anchor="end" fill="#666">%s</text>`+"\n", plotWidth-plotRight, top-6, unit)
}

// span words a number of seconds.
func span(s int64) string {
	switch {
	case s >= 2*86_400:
		return fmt.Sprintf("%.1f d", float64(s)/86_400)
	case s >= 2*3600:
		return fmt.Sprintf("%.1f h", float64(s)/3600)
	case s >= 120:
		return fmt.Sprintf("%d min", s/60)
	}
	return fmt.Sprintf("%d s", s)
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}
