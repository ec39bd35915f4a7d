// Package plot draws panels of lines over one axis as an SVG picture, and reads the traces of events that simulators
// draw.
package plot

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// Picture is what Draw draws.
type Picture struct {
	Title  string
	Note   string  // below, "" for none
	End    float64 // of the axis, which begins at 0
	Ticks  []Tick
	Panels []Panel
	Words  []Word // upright below the panels
	Label  string // of these
}

// Tick is a place on the axis.
type Tick struct {
	At   float64
	Text string
	Line bool // it has a line from top to bottom, and its text begins there
}

// Panel is some lines on one scale, which begins at 0.
type Panel struct {
	Unit  string
	Least float64 // the scale reaches so far at least
	Log   bool    // it is logarithmic
	Lines []Line
}

// Line is one of a panel.
type Line struct {
	Name, Colour string
	Points       []Point
}

// Point is a value somewhere on the axis.
type Point struct{ At, Value float64 }

// Word is written below the panels.
type Word struct {
	At, Size     float64
	Text, Colour string
}

// The measures, in pixels.
const (
	width, left, right       = 900, 70, 20
	panelTop, height, gap    = 40, 190, 50
	wordsHeight, footerSpace = 190, 10
)

// Wide is how many pixels of the picture a part of the axis has.
func (p *Picture) Wide(part float64) float64 { return part / p.End * (width - left - right) }

func (p *Picture) x(at float64) float64 { return left + p.Wide(at) }

// Draw writes a picture as SVG.
func Draw(p *Picture, out io.Writer) error {
	w := bufio.NewWriter(out)
	bottom := panelTop + len(p.Panels)*(height+gap)
	whole := bottom - footerSpace
	if len(p.Words) > 0 {
		whole += wordsHeight
	}
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" `+
		`font-size="12">`+"\n", width, whole)
	fmt.Fprintf(w, `<rect width="100%%" height="100%%" fill="white"/><text x="%d" y="20" font-size="14">%s</text>`+"\n",
		left, html.EscapeString(p.Title))
	for i := range p.Panels {
		p.panel(w, &p.Panels[i], panelTop+i*(height+gap))
	}
	for _, x := range p.Words {
		fmt.Fprintf(w, `<text transform="translate(%.1f %d) rotate(-90)" text-anchor="end" font-size="%.1f" `+
			`fill="%s">%s</text>`+"\n",
			p.x(x.At)+x.Size/3, bottom-gap+30, x.Size, x.Colour, html.EscapeString(x.Text))
	}
	if p.Label != "" {
		fmt.Fprintf(w, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", left-6, bottom-gap+40, p.Label)
	}
	if p.Note != "" {
		fmt.Fprintf(w, `<text x="%d" y="%d" text-anchor="end" fill="#666">%s</text>`+"\n", width-right, whole-6, p.Note)
	}
	fmt.Fprintln(w, "</svg>")
	if err := w.Flush(); err != nil {
		return fmt.Errorf("writing plot: %w", err)
	}
	return nil
}

func (p *Picture) panel(w io.Writer, n *Panel, top int) {
	most := n.Least
	for _, l := range n.Lines {
		for _, at := range l.Points {
			most = max(most, at.Value)
		}
	}
	y := func(v float64) float64 { return float64(top) + height*(1-v/(most*1.05)) }
	if n.Log {
		y = func(v float64) float64 { return float64(top) + height*(1-math.Log1p(v)/math.Log1p(most*1.5)) }
	}
	for _, v := range n.values(most) {
		fmt.Fprintf(w, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#e5e5e5"/>`+
			`<text x="%d" y="%.1f" text-anchor="end">%.0f</text>`+"\n",
			left, width-right, y(v), y(v), left-6, y(v)+4, v)
	}
	for _, t := range p.Ticks {
		anchor := "middle"
		if t.Line {
			anchor = "start"
			fmt.Fprintf(w, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#f0f0f0"/>`, p.x(t.At), p.x(t.At),
				top, top+height)
		}
		fmt.Fprintf(w, `<text x="%.1f" y="%d" text-anchor="%s">%s</text>`+"\n", p.x(t.At),
			top+height+16, anchor, t.Text)
	}
	for i, l := range n.Lines {
		var points strings.Builder
		for _, at := range l.Points {
			fmt.Fprintf(&points, "%.1f,%.1f ", p.x(at.At), y(at.Value))
		}
		fmt.Fprintf(w, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="%s"/>`+"\n", l.Colour,
			strings.TrimSpace(points.String()))
		fmt.Fprintf(w, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", left+10+i*100, top-6, l.Colour, l.Name)
	}
	fmt.Fprintf(w, `<text x="%d" y="%d" text-anchor="end" fill="#666">%s</text>`+"\n", width-right, top-6, n.Unit)
}

// values are those of the scale that have a line.
func (n *Panel) values(most float64) (all []float64) {
	if !n.Log {
		return []float64{0, most / 4, most / 2, most * 3 / 4, most}
	}
	all = append(all, 0)
	for v := 1.; v <= most*1.5; v *= 10 {
		all = append(all, v)
	}
	return all
}
