package draw

import (
	"fmt"
	"strings"
)

// Day is a column of a curve.
type Day struct {
	Desired, Sent float64
	Future        bool
}

const (
	curveHeight = 10  // lines
	curveWidth  = 100 // columns, for a screen without a width
	widestDay   = 4   // columns
)

// eighths are bars from none to a whole character.
var eighths = []rune(" ▁▂▃▄▅▆▇█")

// Curve draws days: bars for what was sent, lines for what was desired.
func Curve(days []Day, s Screen) string {
	var most float64
	for _, d := range days {
		most = max(most, d.Desired, d.Sent)
	}
	if most == 0 {
		return ""
	}
	title := fmt.Sprintf("%.0f", most)
	room := curveWidth
	if s.Width > 0 {
		room = s.Width
	}
	room -= len(title) + 2
	if len(days) > room {
		days = days[len(days)-max(room, 1):]
	}
	each := min(widestDay, max(1, room/len(days)))
	var b strings.Builder
	for line := curveHeight - 1; line >= 0; line-- {
		label := ""
		switch line {
		case curveHeight - 1:
			label = title
		case 0:
			label = "0"
		}
		var l strings.Builder
		for _, d := range days {
			l.WriteString(d.cell(line, most, each))
		}
		b.WriteString(strings.TrimRight(fmt.Sprintf("%*s │%s", len(title), label, l.String()), " ") + "\n")
	}
	fmt.Fprintf(&b, "%*s └%s\n", len(title), "", strings.Repeat("─", each*len(days)))
	return b.String()
}

// cell is what of a day is on one of the lines.
func (d Day) cell(line int, most float64, width int) string {
	level := func(v float64) int { return int(v/most*8*curveHeight + .5) } // in eighths of a line
	bar := min(8, max(0, level(d.Sent)-8*line))
	mark := eighths[bar]
	if top := max(1, level(d.Desired)); bar < 8 && (top-1)/8 == line && level(d.Sent) < top-4 {
		mark = '─'
		if d.Future {
			mark = '╌'
		}
	}
	if width == 1 {
		return string(mark)
	}
	return strings.Repeat(string(mark), width-1) + " "
}

// Spark plots shares as a line of bars; what has none is a dot.
func Spark(shares []float64) string {
	bars := []rune("▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, s := range shares {
		switch {
		case s < 0:
			b.WriteRune('·')
		default:
			b.WriteRune(bars[min(int(s*float64(len(bars))), len(bars)-1)])
		}
	}
	return b.String()
}
