package overload

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"example.org/mta/admission"
	"example.org/mta/internal/plot"
)

// Counts is what became of submissions in one period.
type Counts struct{ Offered, Admitted, Served, Rejected, TimedOut int }

// Row is one period of all nodes together.
type Row struct {
	T float64 // seconds, of its end
	Counts
	Tiers     [admission.Tiers]Counts
	Threshold float64 // levels that are admitted, 0 to admission.Levels: the average of the nodes
	Limit     float64 // slots of a node
	Capacity  float64 // a second
}

func (r *Row) count(p admission.Priority, add func(*Counts)) {
	add(&r.Counts)
	add(&r.Tiers[p.Tier()])
}

// Ratio returns the share of what was offered that was not taken.
func (c Counts) Ratio() float64 {
	if c.Offered == 0 {
		return 0
	}
	return float64(c.Rejected+c.TimedOut) / float64(c.Offered)
}

// Goodput returns what was served as a share of what could have been: the capacity, or what was
// offered where that is less.
func (r *Row) Goodput() float64 {
	could := min(r.Capacity*admission.Period.Seconds(), float64(r.Offered))
	if could == 0 {
		return 1
	}
	return min(float64(r.Served)/could, 1)
}

// Run simulates a trace, and hands each period's row to emit. It ends with emit's error.
func Run(trace []Event, opts Options, emit func(*Row) error) error {
	w := newWorld(opts)
	w.row = new(Row)
	next := epoch.Add(admission.Period)
	for _, e := range trace {
		at := epoch.Add(seconds(e.T))
		for ; !next.After(at); next = next.Add(admission.Period) {
			if err := w.period(next, emit); err != nil {
				return err
			}
		}
		w.runUntil(at)
		w.apply(e)
	}
	return nil
}

// period lets everything happen until t, calibrates all nodes, and hands over the row.
func (w *world) period(t time.Time, emit func(*Row) error) error {
	w.runUntil(t)
	r := w.row
	r.T, r.Capacity = t.Sub(epoch).Seconds(), w.capacity
	for _, n := range w.nodes {
		n.Calibrate()
		s := n.Status()
		r.Threshold += (float64(s.Level) + s.Part) / float64(len(w.nodes))
		r.Limit += s.Limit / float64(len(w.nodes))
	}
	w.row = new(Row)
	return emit(r)
}

func (w *world) apply(e Event) {
	switch e.Kind {
	case RPS:
		w.setRate(e.Value)
	case Capacity:
		w.capacity = e.Value
	case Slots:
		w.slots = int(e.Value)
		n := len(w.nodes)
		w.nodes = nil // they begin anew
		w.resize(n)
	case Nodes:
		w.resize(int(e.Value))
	case Mix:
		w.mix = e.Mix
	case Tenants:
		w.tenants = int(e.Value)
	}
}

// CSV writes rows.
type CSV struct {
	out    *bufio.Writer
	byTier bool
}

// NewCSV writes the header. byTier adds a column with the ratio of each tier.
func NewCSV(out io.Writer, byTier bool) *CSV {
	c := &CSV{bufio.NewWriter(out), byTier}
	fmt.Fprint(c.out, "t,offered,admitted,served,rejected,timed_out,ratio,threshold,goodput")
	if byTier {
		for tier := range admission.Tiers {
			fmt.Fprintf(c.out, ",tier%d", tier)
		}
	}
	fmt.Fprintln(c.out)
	return c
}

// Write writes one row.
func (c *CSV) Write(r *Row) error {
	fmt.Fprintf(c.out, "%g,%d,%d,%d,%d,%d,%.4f,%.2f,%.4f", r.T, r.Offered, r.Admitted, r.Served, r.Rejected, r.TimedOut,
		r.Ratio(), r.Threshold, r.Goodput())
	if c.byTier {
		for _, t := range r.Tiers {
			fmt.Fprintf(c.out, ",%.4f", t.Ratio())
		}
	}
	_, err := fmt.Fprintln(c.out)
	return err
}

// Close writes what is left.
func (c *CSV) Close() error {
	if err := c.out.Flush(); err != nil {
		return fmt.Errorf("writing rows: %w", err)
	}
	return nil
}

// Modes are the names of the laws.
var Modes = []string{"utilisation", "pid", "codel", "none"}

// LawOf returns what makes the law of a mode.
func LawOf(mode string) (func() admission.Law, error) {
	switch mode {
	case "utilisation":
		return func() admission.Law { return new(admission.Utilisation) }, nil
	case "pid":
		return func() admission.Law { return admission.Published() }, nil
	case "codel":
		return func() admission.Law { return new(codel) }, nil
	case "none":
		return func() admission.Law { return admission.None{} }, nil
	}
	last := len(Modes) - 1
	return nil, plot.Wrong("options", "mode %s is not known; there are %s and %s", mode,
		strings.Join(Modes[:last], ", "), Modes[last])
}

// codel refuses as CoDel drops (RFC 8289): while the line stays too long, more with the square root
// of the time for which it has been; nothing as soon as it is short. It is here to be compared with.
type codel struct{ long int }

func (c *codel) Share(l admission.Load) float64 {
	if float64(l.Waiting) <= max(1, l.Limit/10) {
		c.long = 0
		return 0
	}
	c.long++
	return min(.1*math.Sqrt(float64(c.long)), .98)
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
