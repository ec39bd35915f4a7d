package simulate

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// The picture's measures, in pixels.
const (
	plotWidth, plotLeft, plotRight = 900, 70, 20
	panelTop, panelHeight, gap     = 40, 190, 50
)

// series is one line of a panel.
type series struct {
	name, colour string
	at           func(*Row) float64
}

var panels = []struct {
	unit  string
	least float64 // the scale reaches so far at least
	lines []series
}{
	{"a second", 10, []series{
		{"offered", "#999999", func(r *Row) float64 { return 2 * float64(r.Offered) }},
		{"served", "#1f77b4", func(r *Row) float64 { return 2 * float64(r.Served) }},
		{"timed out", "#d62728", func(r *Row) float64 { return 2 * float64(r.TimedOut) }},
	}},
	{"%", 100, []series{
		{"not taken", "#ff7f0e", func(r *Row) float64 { return 100 * r.Ratio() }},
		{"ideal", "#999999", func(r *Row) float64 { return 100 * r.ideal() }},
	}},
}

// ideal is the ratio at which exactly the capacity is served.
func (r *Row) ideal() float64 {
	offered := float64(r.Offered) / 0.5
	if offered <= r.Capacity {
		return 0
	}
	return 1 - r.Capacity/offered
}

// Plot draws rows as SVG: what was offered, served and timed out above, the ratio that was not taken
// below.
func Plot(title string, rows []Row, out io.Writer) error {
	w := bufio.NewWriter(out)
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, panelTop+len(panels)*(panelHeight+gap))
	fmt.Fprintf(w, `<rect width="100%%" height="100%%" fill="white"/><text x="%d" y="16" font-size="14">%s</text>`+"\n", plotLeft, escape(title))
	end := 1.
	if len(rows) > 0 {
		end = rows[len(rows)-1].T
	}
	for i := range panels {
		drawPanel(w, i, rows, end)
	}
	fmt.Fprintln(w, "</svg>")
	if err := w.Flush(); err != nil {
		return fmt.Errorf("writing plot: %w", err)
	}
	return nil
}

func drawPanel(w io.Writer, i int, rows []Row, end float64) {
	p, top := &panels[i], panelTop+i*(panelHeight+gap)
	most := p.least
	for k := range rows {
		for _, s := range p.lines {
			most = max(most, s.at(&rows[k]))
		}
	}
	x := func(t float64) float64 { return plotLeft + t/end*(plotWidth-plotLeft-plotRight) }
	y := func(v float64) float64 { return float64(top) + panelHeight*(1-v/most) }
	for k := range 5 {
		v := most * float64(k) / 4
		fmt.Fprintf(w, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#e5e5e5"/><text x="%d" y="%.1f" text-anchor="end">%.0f</text>`+"\n",
			plotLeft, plotWidth-plotRight, y(v), y(v), plotLeft-6, y(v)+4, v)
	}
	for k := range 7 {
		t := end * float64(k) / 6
		fmt.Fprintf(w, `<text x="%.1f" y="%d" text-anchor="middle">%.0f s</text>`+"\n", x(t), top+panelHeight+16, t)
	}
	for k, s := range p.lines {
		var points strings.Builder
		for r := range rows {
			fmt.Fprintf(&points, "%.1f,%.1f ", x(rows[r].T), y(s.at(&rows[r])))
		}
		fmt.Fprintf(w, `<polyline fill="none" stroke="%s" stroke-width="1.2" points="%s"/>`+"\n", s.colour, strings.TrimSpace(points.String()))
		fmt.Fprintf(w, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", plotLeft+10+k*100, top-6, s.colour, s.name)
	}
	fmt.Fprintf(w, `<text x="%d" y="%d" text-anchor="end" fill="#666">%s</text>`+"\n", plotWidth-plotRight, top-6, p.unit)
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}
