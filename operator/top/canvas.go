package top

import (
	"math"
	"strings"

	"github.com/clipperhouse/displaywidth"

	"example.org/mta/internal/legible"
)

// style is how text looks. It only stresses what the text says.
type style uint8

const (
	plain  style = iota
	strong       // titles
	faint        // hints
	chosen       // the row of the cursor
	good
	waiting
	bad
)

// canvas is a screen of character cells.
type canvas struct {
	width, height int
	cells         []cell
}

// cell is a place of the screen. The one to the right of a wide character is empty.
type cell struct {
	text  string
	style style
}

func newCanvas(width, height int) *canvas {
	c := &canvas{width: width, height: height, cells: make([]cell, width*height)}
	for i := range c.cells {
		c.cells[i].text = " "
	}
	return c
}

// longestText bounds text from strangers, in octets.
const longestText = 4096

// put writes s at (x, y), on at most width columns, and returns the column behind it. What is too long ends in cut.
func (c *canvas) put(x, y, width int, s string, st style) int {
	width = min(width, c.width-x)
	if y < 0 || y >= c.height || width <= 0 {
		return x
	}
	s = fit(s, width)
	for g := displaywidth.StringGraphemes(s); g.Next(); {
		text, wide := g.Value(), g.Width()
		switch {
		case wide == 0: // marks without a letter would go onto the cell before
			text, wide = " ", 1
		case len(text) > legible.LongestCluster:
			text, wide = "\ufffd", 1
		}
		if x+wide > c.width {
			break
		}
		c.cells[y*c.width+x] = cell{text, st}
		for i := 1; i < wide; i++ {
			c.cells[y*c.width+x+i] = cell{"", st}
		}
		x += wide
	}
	return x
}

// fill gives the rest of a line a style.
func (c *canvas) fill(x, y int, st style) {
	if y < 0 || y >= c.height {
		return
	}
	for ; x < c.width; x++ {
		c.cells[y*c.width+x] = cell{" ", st}
	}
}

// text is what the canvas shows, without blanks at the ends of lines and without empty lines at the end.
func (c *canvas) text() string {
	var b strings.Builder
	for y := range c.height {
		var line strings.Builder
		for _, cell := range c.cells[y*c.width : (y+1)*c.width] {
			line.WriteString(cell.text)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// clean makes what is hidden in text visible, on one line.
func clean(s string) string { return legible.Escaped(s, longestText) }

// columns is how many columns of a terminal s takes once it is on a canvas.
func columns(s string) int { return legible.Columns(clean(s)) }

// fit makes s visible and cuts it to a width.
func fit(s string, width int) string { return legible.Cut(clean(s), width) }

// wrap breaks s into lines of a width, between words where it can.
func wrap(s string, width int) []string {
	if width < 1 {
		return nil
	}
	return legible.Wrap(clean(s), width, 0)
}

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
