package overload

import (
	"bufio"
	"fmt"
	"io"
	"time"

	"example.org/mta/admission"
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
