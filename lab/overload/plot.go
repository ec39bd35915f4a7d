package overload

import (
	"fmt"
	"io"

	"example.org/mta/internal/plot"
)

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
	line := func(name, colour string, at func(*Row) float64) plot.Line {
		l := plot.Line{Name: name, Colour: colour}
		for i := range rows {
			l.Points = append(l.Points, plot.Point{At: rows[i].T, Value: at(&rows[i])})
		}
		return l
	}
	p := &plot.Picture{Title: title, End: 1, Panels: []plot.Panel{
		{Unit: "a second", Least: 10, Lines: []plot.Line{
			line("offered", "#999999", func(r *Row) float64 { return 2 * float64(r.Offered) }),
			line("served", "#1f77b4", func(r *Row) float64 { return 2 * float64(r.Served) }),
			line("timed out", "#d62728", func(r *Row) float64 { return 2 * float64(r.TimedOut) }),
		}},
		{Unit: "%", Least: 100, Lines: []plot.Line{
			line("not taken", "#ff7f0e", func(r *Row) float64 { return 100 * r.Ratio() }),
			line("ideal", "#999999", func(r *Row) float64 { return 100 * r.ideal() }),
		}},
	}}
	if len(rows) > 0 {
		p.End = rows[len(rows)-1].T
	}
	for i := range 7 {
		at := p.End * float64(i) / 6
		p.Ticks = append(p.Ticks, plot.Tick{At: at, Text: fmt.Sprintf("%.0f s", at)})
	}
	return plot.Draw(p, out)
}
