package simulate

import (
	"fmt"
	"io"
	"strings"
	"time"

	"example.org/mta/internal/plot"
)

const (
	plotBins  = 300
	plotDays  = 2 // a simulation of so many, or more, is drawn by dates
	mostDates = 10
)

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
	upper, lower, width, end := p.lines()
	byDate := end >= plotDays*daySeconds
	g := &plot.Picture{Title: p.Title, Note: "each point is " + span(width), End: float64(end), Panels: []plot.Panel{
		{Unit: "an hour", Least: 1, Log: byDate, Lines: upper},
		{Unit: "diverted an hour, waiting", Least: 1, Log: byDate, Lines: lower},
	}}
	if byDate {
		g.Ticks, g.Words, g.Label = p.dates(end), p.reasons(g.Wide(daySeconds)), "stage"
		return plot.Draw(g, out)
	}
	for i := range int64(7) {
		g.Ticks = append(g.Ticks, plot.Tick{At: float64(end*i) / 6, Text: span(end * i / 6)})
	}
	return plot.Draw(g, out)
}

// lines sums rows over equal times of whole intervals, lest one have more of them than another, and makes them
// rates an hour.
func (p *Picture) lines() (upper, lower []plot.Line, width, end int64) {
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
		held[k] += float64(r.Waiting) // as at the end of the bin
		if before := last[r.Provider]; before != nil && before.T/width == r.T/width {
			held[k] -= float64(before.Waiting)
		}
		last[r.Provider] = r
	}
	for k := 1; k < n; k++ { // a cap stays where no row repeats it
		if desired[k] == 0 {
			desired[k] = desired[k-1]
		}
	}
	line := func(name, colour string, values []float64) plot.Line {
		l := plot.Line{Name: name, Colour: colour}
		for k, v := range values {
			l.Points = append(l.Points, plot.Point{At: float64(k) / float64(max(1, n-1)) * float64(end), Value: v})
		}
		return l
	}
	return []plot.Line{line("desired", "#999999", desired), line("sent", "#1f77b4", sent)},
		[]plot.Line{line("diverted", "#ff7f0e", diverted), line("waiting", "#d62728", held)}, width, end
}

// dates are a tick for each day, a few of them with words.
func (p *Picture) dates(end int64) (all []plot.Tick) {
	every := max(1, (end/daySeconds+mostDates-1)/mostDates)
	for day := int64(0); day*daySeconds < end; day++ {
		t := plot.Tick{At: float64(day * daySeconds), Line: true}
		if day%every == 0 {
			t.Text = p.Begin.AddDate(0, 0, int(day)).Format("Mon 2 Jan")
		}
		all = append(all, t)
	}
	return all
}

// reasons are what each day, which is so wide, did to the stage.
func (p *Picture) reasons(width float64) (all []plot.Word) {
	for i, d := range p.Days {
		why, colour := d.Why.String(), "#666"
		switch {
		case strings.HasPrefix(why, "stayed"):
			colour = "#ff7f0e"
		case strings.HasPrefix(why, "went back"):
			colour = "#d62728"
		}
		if d.Provider != "" {
			why += " (" + d.Provider + ")"
		}
		all = append(all, plot.Word{At: float64(p.Before+i)*daySeconds + daySeconds/2, Size: min(11, 0.8*width),
			Text: fmt.Sprintf("%d: %s", d.Stage+1, why), Colour: colour})
	}
	return all
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
