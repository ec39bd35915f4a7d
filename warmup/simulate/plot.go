package simulate

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// The picture's measures, in pixels.
const (
	plotWidth, plotLeft, plotRight  = 900, 70, 20
	panelTop, panelHeight, panelGap = 40, 190, 50
	plotBins                        = 300
	reasonsHeight                   = 190
)

const (
	plotDays  = 2 // a simulation of so many, or more, is drawn by dates
	mostDates = 10
)

// series is one line of a plot: a value for each point.
type series struct {
	name, colour string
	values       []float64
}

// Picture is what Plot draws.
type Picture struct {
	Title    string
	Rows     []Row
	Interval int64     // seconds that a row covers
	Begin    time.Time // of the simulation, in the zone in which its days have their dates
	History
}

// Plot writes a simulation as an SVG picture: sent against desired in the upper panel, diverted and held in the
// lower one. One of days has dates, a logarithmic scale, on which the first days can be seen beside the
// last, and below what each day did to the stage.
func Plot(p *Picture, out io.Writer) error {
	w := bufio.NewWriter(out)
	upper, lower, width, end := p.series()
	g := &graph{w: w, end: end, begin: p.Begin, log: end >= plotDays*daySeconds}
	const second = panelTop + panelHeight + panelGap // the top of the lower panel
	height := second + panelHeight + 40
	if g.log {
		height += reasonsHeight
	}
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, height)
	fmt.Fprintf(w, `<rect width="100%%" height="100%%" fill="white"/><text x="%d" y="20" font-size="14">%s</text>`+"\n", plotLeft, html.EscapeString(p.Title))
	g.panel(panelTop, "an hour", upper)
	g.panel(second, "diverted an hour, held", lower)
	if g.log {
		g.reasons(second+panelHeight+30, &p.History)
	}
	fmt.Fprintf(w, `<text x="%d" y="%d" text-anchor="end" fill="#666">each point is %s</text>`+"\n</svg>\n", plotWidth-plotRight, height-6, span(width))
	if err := w.Flush(); err != nil {
		return fmt.Errorf("writing plot: %w", err)
	}
	return nil
}

// series sums rows over equal times of whole intervals, lest one have more of them than another, and makes them
// rates an hour.
func (p *Picture) series() (upper, lower []series, width, end int64) {
	for i := range p.Rows {
		end = max(end, p.Rows[i].T+1)
	}
	interval := max(1, p.Interval)
	width = max(60, (end+plotBins-1)/plotBins)
	width = (width + interval - 1) / interval * interval
	n := int(end/width) + 1
	desired, sent, diverted, held := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	perHour := 3600 / float64(width)
	last := make(map[string]*Row) // of each provider
	for i := range p.Rows {
		r := &p.Rows[i]
		k := int(r.T / width)
		sent[k] += float64(r.Sent) * perHour
		diverted[k] += float64(r.Diverted) * perHour
		desired[k] = max(desired[k], float64(r.CapHour))
		held[k] += float64(r.Held) // as at the end of the bin
		if before := last[r.Provider]; before != nil && before.T/width == r.T/width {
			held[k] -= float64(before.Held)
		}
		last[r.Provider] = r
	}
	for k := 1; k < n; k++ { // a cap stays where no row repeats it
		if desired[k] == 0 {
			desired[k] = desired[k-1]
		}
	}
	return []series{{"desired", "#999999", desired}, {"sent", "#1f77b4", sent}},
		[]series{{"diverted", "#ff7f0e", diverted}, {"held", "#d62728", held}}, width, end
}

// graph is what the panels of a picture have in common.
type graph struct {
	w     io.Writer
	end   int64     // of the simulation, in seconds
	log   bool      // the scale of volumes is logarithmic, and that of time has dates
	begin time.Time // of the simulation
}

// at is where a second of the simulation is.
func (g *graph) at(second int64) float64 {
	return plotLeft + float64(second)/float64(g.end)*(plotWidth-plotLeft-plotRight)
}

func (g *graph) panel(top int, unit string, lines []series) {
	most := 1.
	for _, s := range lines {
		most = max(most, slices.Max(s.values))
	}
	y := func(v float64) float64 { return float64(top) + panelHeight*(1-v/(most*1.05)) }
	if g.log {
		y = func(v float64) float64 { return float64(top) + panelHeight*(1-math.Log1p(v)/math.Log1p(most*1.5)) }
	}
	for _, v := range g.ticks(most) {
		fmt.Fprintf(g.w, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#e5e5e5"/><text x="%d" y="%.1f" text-anchor="end">%.0f</text>`+"\n",
			plotLeft, plotWidth-plotRight, y(v), y(v), plotLeft-6, y(v)+4, v)
	}
	g.times(top)
	for i, s := range lines {
		var points strings.Builder
		for k, v := range s.values {
			x := plotLeft + float64(k)/float64(max(1, len(s.values)-1))*(plotWidth-plotLeft-plotRight)
			fmt.Fprintf(&points, "%.1f,%.1f ", x, y(v))
		}
		fmt.Fprintf(g.w, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="%s"/>`+"\n", s.colour, strings.TrimSpace(points.String()))
		fmt.Fprintf(g.w, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", plotLeft+10+i*100, top-6, s.colour, s.name)
	}
	fmt.Fprintf(g.w, `<text x="%d" y="%d" text-anchor="end" fill="#666">%s</text>`+"\n", plotWidth-plotRight, top-6, unit)
}

// ticks are the volumes that have a line.
func (g *graph) ticks(most float64) (all []float64) {
	if !g.log {
		for i := range 5 {
			all = append(all, most*float64(i)/4)
		}
		return all
	}
	all = append(all, 0)
	for v := 1.; v <= most*1.5; v *= 10 {
		all = append(all, v)
	}
	return all
}

// times writes times, or dates, below a panel.
func (g *graph) times(top int) {
	if !g.log {
		for i := range int64(7) {
			x := plotLeft + float64(i)/6*(plotWidth-plotLeft-plotRight)
			fmt.Fprintf(g.w, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x, top+panelHeight+16, span(g.end*i/6))
		}
		return
	}
	every := max(1, (g.end/daySeconds+mostDates-1)/mostDates)
	for day := int64(0); day*daySeconds < g.end; day++ {
		fmt.Fprintf(g.w, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#f0f0f0"/>`, g.at(day*daySeconds), g.at(day*daySeconds), top, top+panelHeight)
		if day%every == 0 {
			fmt.Fprintf(g.w, `<text x="%.1f" y="%d">%s</text>`, g.at(day*daySeconds), top+panelHeight+16, g.begin.AddDate(0, 0, int(day)).Format("Mon 2 Jan"))
		}
		fmt.Fprintln(g.w)
	}
}

// reasons writes what each day did to the stage, upright below it.
func (g *graph) reasons(top int, h *History) {
	size := min(11, 0.8*(g.at(daySeconds)-plotLeft))
	for i, d := range h.Days {
		why := d.Why.String()
		colour := "#666"
		switch {
		case strings.HasPrefix(why, "held"):
			colour = "#ff7f0e"
		case strings.HasPrefix(why, "went back"):
			colour = "#d62728"
		}
		if d.Provider != "" {
			why += " (" + d.Provider + ")"
		}
		x := g.at(int64(h.Before+i)*daySeconds + daySeconds/2)
		fmt.Fprintf(g.w, `<text transform="translate(%.1f %d) rotate(-90)" text-anchor="end" font-size="%.1f" fill="%s">%d: %s</text>`+"\n",
			x+size/3, top, size, colour, d.Stage+1, html.EscapeString(why))
	}
	fmt.Fprintf(g.w, `<text x="%d" y="%d" text-anchor="end">stage</text>`+"\n", plotLeft-6, top+10)
}

// span words a number of seconds.
func span(s int64) string {
	switch {
	case s >= 2*daySeconds:
		return fmt.Sprintf("%.1f d", float64(s)/daySeconds)
	case s >= 2*3600:
		return fmt.Sprintf("%.1f h", float64(s)/3600)
	case s >= 120:
		return fmt.Sprintf("%d min", s/60)
	}
	return fmt.Sprintf("%d s", s)
}
