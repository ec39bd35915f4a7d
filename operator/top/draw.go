package top

import (
	"fmt"
	"strings"
	"time"

	"example.org/mta/internal/legible"
	"example.org/mta/operator/listing"
)

// span is some text of one look.
type span struct {
	text  string
	style style
}

// line is a line of the screen.
type line []span

// layout is where things are on a screen with tables.
type layout struct {
	head []line
	note []string // of the chosen row
	rows int      // lines for rows of the table
}

const (
	leastRows  = 4 // of the table, before the head is cut
	mostAlarms = 3
	mostWaits  = 3
	mostNote   = 2
	// besides head, rows and note: the names of the tables, the titles of the columns, and the last line
	otherLines = 3
)

// layout divides the screen.
func (m *Model) layout() layout {
	l := layout{head: m.head(true)}
	if r := m.chosen(); r != nil && r.note != "" && !m.bare {
		l.note = wrap(r.note, m.width)
		if len(l.note) > mostNote {
			l.note = append(l.note[:mostNote-1], fit(strings.Join(l.note[mostNote-1:], " "), m.width))
		}
	}
	room := m.height - otherLines - mostNote
	if m.bare {
		room = m.height - otherLines + 1
	}
	if most := max(1, room-leastRows); len(l.head) > most {
		l.head = m.head(false)
		l.head = l.head[:min(len(l.head), most)]
	}
	if l.rows = room - len(l.head); l.rows < 1 {
		l.rows, l.note = max(0, l.rows+mostNote), nil
	}
	return l
}

// pageLines is how many lines of a page are shown.
func (m *Model) pageLines() int { return max(1, m.height-2) }

// draw shows the model on a canvas of its size.
func (m *Model) draw() *canvas {
	c := newCanvas(max(1, m.width), max(1, m.height))
	switch {
	case m.page != nil:
		m.drawPage(c)
	case m.data == nil:
		m.drawStart(c)
	default:
		m.drawTables(c)
	}
	if m.dialog != nil {
		m.drawDialog(c)
	}
	return c
}

func (c *canvas) line(y int, l line) {
	x := 0
	for _, s := range l {
		x = c.put(x, y, c.width-x, s.text, s.style)
	}
}

func (m *Model) drawStart(c *canvas) {
	text := "asking the relay..."
	if m.lost != "" {
		text = "NO RELAY: " + m.lost
	}
	for y, l := range wrap(text, c.width) {
		c.put(0, y, c.width, l, plain)
	}
	c.put(0, c.height-1, c.width, fmt.Sprintf("asked again every %s; Ctrl-C to quit", spacing(m.every)), faint)
}

// head is what is above the tables: all of it, or what matters most.
func (m *Model) head(all bool) (lines []line) {
	if m.data == nil {
		return nil
	}
	s := &m.data.Status
	lines = append(lines, m.title())
	if m.lost != "" {
		text := fmt.Sprintf("NO RELAY: what is shown is %s old. %s", legible.Age(m.now.Sub(m.data.Time)), m.lost)
		for _, l := range wrap(text, m.width) {
			lines = append(lines, line{{l, bad}})
		}
	}
	why := wrap(s.Waiting.Line(m.data.Time), m.width)
	for _, l := range why[:min(len(why), mostWaits)] {
		lines = append(lines, line{{l, strong}})
	}
	if all {
		lines = append(lines, m.rates()...)
		if m.data.NoHistory != "" {
			lines = append(lines, line{{"no history: " + m.data.NoHistory, waiting}})
		}
	}
	lines = append(lines, m.queue()...)
	lines = append(lines, m.troubles()...)
	if !all {
		return lines
	}
	x := s.Connections
	text := fmt.Sprintf("conns      %d in, %d out, %d running, %d ready; memory %s, disk %s free",
		x.In, x.Out, x.Running, x.Waiting, legible.Size(s.Memory.Process), legible.Size(s.Disk.Free))
	return append(lines, line{{text, plain}})
}

// title is the first line: whose screen this is, and how current.
func (m *Model) title() line {
	s := &m.data.Status
	state, st := s.State+" since "+legible.Age(m.now.Sub(s.Started)), good
	if s.State != "running" {
		state, st = strings.ToUpper(s.State), bad
	}
	left := line{{"mta top  ", strong}, {s.Hostname + " " + s.Version + "  ", plain}, {state, st}}
	right := m.data.Time.Local().Format(time.TimeOnly)
	switch {
	case m.bare:
	case m.stopped:
		right += "  STOPPED"
	default:
		right += "  every " + spacing(m.apart)
	}
	used := 0
	for _, s := range left {
		used += columns(s.text)
	}
	if gap := m.width - used - columns(right); gap > 0 {
		left = append(left, span{strings.Repeat(" ", gap) + right, faint})
	}
	return left
}

// spacing is a time between refreshes.
func spacing(d time.Duration) string {
	if d < time.Second {
		return d.String()
	}
	return legible.Age(d)
}

// rates are four figures with their last minutes, two on a line.
func (m *Model) rates() []line {
	r := &m.data.Status.Rates
	cell := func(name string, v float64, series ...string) line {
		text := fmt.Sprintf("%-9s  %6s/s ", name, legible.Rate(v))
		return line{{text, plain}, {spark(m.past(series...), max(0, m.width/2-columns(text)-2)), faint}, {"  ", plain}}
	}
	return []line{
		append(cell("accepted", r.Accepted, "accepted"), cell("deferred", r.Deferred, "deferred")...),
		append(cell("delivered", r.Delivered, "delivered"), cell("bounced", r.Bounced, "bounced")...),
	}
}

// past are the values of a figure of the relay over the last minutes.
func (m *Model) past(series ...string) []float64 {
	var values []float64
	if m.data.Rates != nil {
		for _, name := range series {
			for _, v := range m.data.Rates.Series[name].Values {
				values = append(values, float64(v))
			}
		}
	}
	return values
}

// queue counts the queued recipients by state.
func (m *Model) queue() (lines []line) {
	s := &m.data.Status
	text := fmt.Sprintf("queued     %d%s", s.Queue.Queued, listing.States(s.States))
	for _, l := range wrap(text, m.width) {
		lines = append(lines, line{{l, plain}})
	}
	return lines
}

// troubles are the first alarms and rules, a line each.
func (m *Model) troubles() (lines []line) {
	s := &m.data.Status
	for _, silent := range m.data.Failed {
		lines = append(lines, line{{silent.Error(), bad}})
	}
	if s.State != "running" && s.Reason != "" {
		lines = append(lines, line{{strings.ToUpper(s.State) + ": " + s.Reason, bad}})
	}
	for _, a := range s.Alarms {
		lines = append(lines,
			line{{fmt.Sprintf("ALARM %s since %s: %s", a.Name, legible.Age(m.now.Sub(a.Since)), a.Reason), bad}})
	}
	for i := range s.Rules {
		lines = append(lines, line{{ruleLine(&s.Rules[i], m.now), waiting}})
	}
	if s.Pending != "" {
		lines = append(lines, line{{s.Pending, waiting}})
	}
	if n := len(lines) - mostAlarms; n > 0 {
		lines = append(lines[:mostAlarms-1:mostAlarms-1],
			line{{fmt.Sprintf("... and %d more alarms and rules: a", n+1), bad}})
	}
	return lines
}

func (m *Model) drawTables(c *canvas) {
	l := m.layout()
	y := 0
	for _, head := range l.head {
		c.line(y, head)
		y++
	}
	c.line(y, m.tabs())
	m.drawTable(c, y+1, l.rows)
	for i, text := range l.note {
		c.put(0, c.height-1-len(l.note)+i, c.width, text, plain)
	}
	if !m.bare {
		m.drawLast(c)
	}
}

// tabs are the names of the tables, the one that is shown in brackets. On a narrow screen the others are numbers.
func (m *Model) tabs() line {
	l := m.namedTabs(true)
	used := 0
	for _, s := range l {
		used += columns(s.text)
	}
	if used > m.width {
		l = m.namedTabs(false)
	}
	if m.data.More && m.data.table == m.table {
		l = append(l, span{fmt.Sprintf(" the first %d", m.data.rows()), faint})
	}
	return l
}

func (m *Model) namedTabs(all bool) (l line) {
	for t := range tables {
		switch name := fmt.Sprintf("%d %s", t+1, kinds[t].name); {
		case t == m.table:
			l = append(l, span{"[" + name + "]", strong})
		case all:
			l = append(l, span{" " + name + " ", plain})
		default:
			l = append(l, span{fmt.Sprintf(" %d ", t+1), plain})
		}
	}
	return l
}

// drawLast writes the last line: what is typed, what has happened, or the main keys.
func (m *Model) drawLast(c *canvas) {
	st := &m.states[m.table]
	var filters []string
	if st.of != "" {
		filters = append(filters, "of "+st.of)
	}
	if st.filter != "" {
		filters = append(filters, "with "+st.filter)
	}
	switch {
	case m.typing:
		c.put(0, c.height-1, c.width, "rows with: "+st.filter+"_", strong)
	case m.note != "":
		c.put(0, c.height-1, c.width, m.note, strong)
	case len(filters) > 0:
		c.put(0, c.height-1, c.width, "only rows "+strings.Join(filters, ", ")+"; Esc: all", strong)
	default:
		c.put(0, c.height-1, c.width, "?help q:quit 1-6:table /filter o:order e:explain t:trace s:suspend r:resume",
			faint)
	}
}

// drawTable writes titles and rows from line y on.
func (m *Model) drawTable(c *canvas, y, height int) {
	k, st := &kinds[m.table], &m.states[m.table]
	rows := m.rows()
	if len(rows) == 0 {
		text := k.empty
		switch {
		case m.data.table != m.table:
			text = "asking the relay..."
		case st.filter != "" || st.of != "":
			text = "no row fits the filter"
		}
		c.put(0, y, c.width, text, plain)
		return
	}
	at, first := st.at(rows), min(st.first, len(rows)-1)
	shown := rows[first:min(len(rows), first+height)]
	titles, begin := "  ", 2
	if m.data.Nodes != nil {
		titles += fmt.Sprintf(nodeColumn, "NODE")
		begin = len(titles)
	}
	widths := k.widths(shown, st, c.width-begin)
	c.row(y, widths, titles, strong, func(i int) string { return k.columns[i].title }, k)
	k.markOrder(c, begin, y, widths, st)
	for i, r := range shown {
		mark, style := "  ", r.style
		if first+i == at && !m.bare {
			mark, style = "> ", chosen
		}
		if r.node != 0 {
			mark += fmt.Sprintf(nodeColumn, fmt.Sprint(r.node))
		}
		c.row(y+1+i, widths, mark, style, func(i int) string { return r.cells[i].Text }, k)
	}
}

// markOrder puts a mark behind the title of the column that is sorted by.
func (k *kind) markOrder(c *canvas, x, y int, widths []int, st *tableState) {
	for i, w := range widths[:st.sort] {
		if w > 0 {
			x += widths[i] + columnGap
		}
	}
	if k.columns[st.sort].right {
		x += widths[st.sort]
	} else {
		x += min(widths[st.sort], columns(k.columns[st.sort].title))
	}
	mark := "▼"
	if st.up {
		mark = "▲"
	}
	c.put(x, y, 1, mark, strong)
}

// nodeColumn stands before the columns of a cluster's tables.
const nodeColumn = "%4s  "

const (
	columnGap = 2
	leastName = 14 // of the first column
)

// widths are those of the columns; 0 for those that do not fit.
func (k *kind) widths(rows []row, st *tableState, width int) []int {
	widths := make([]int, len(k.columns))
	whole := 0
	for i := range k.columns {
		widths[i] = columns(k.columns[i].title)
		for j := range rows {
			widths[i] = max(widths[i], min(columns(rows[j].cells[i].Text), width/2))
		}
		whole += widths[i] + columnGap
	}
	whole -= columnGap
	for whole > width {
		spare := -1
		for i := range k.columns {
			if widths[i] > 0 && k.columns[i].spare > 0 && i != st.sort &&
				(spare < 0 || k.columns[i].spare > k.columns[spare].spare) {
				spare = i
			}
		}
		if first := widths[0] - (whole - width); first >= leastName || spare < 0 {
			widths[0] = max(1, first)
			break
		}
		whole -= widths[spare] + columnGap
		widths[spare] = 0
	}
	return widths
}

// row writes the cells of a line.
func (c *canvas) row(y int, widths []int, mark string, st style, text func(int) string, k *kind) {
	c.fill(0, y, st)
	x := c.put(0, y, c.width, mark, st)
	for i, w := range widths {
		if w == 0 {
			continue
		}
		s := fit(text(i), w)
		pad := w - columns(s)
		if k.columns[i].right {
			c.put(x+pad, y, w, s, st)
		} else {
			c.put(x, y, w, s, st)
		}
		x += w + columnGap
	}
}

func (m *Model) drawPage(c *canvas) {
	p, height := m.page, m.pageLines()
	title := p.title
	if p.busy && !p.live {
		title += ": asking the relay..."
	}
	c.put(0, 0, c.width, title, strong)
	end := min(len(p.lines), p.first+height)
	for i, l := range p.lines[min(p.first, end):end] {
		c.put(0, 1+i, c.width, l, plain)
	}
	hint := "q:back  Up Down PgUp PgDn Home End"
	if len(p.lines) > height {
		hint += fmt.Sprintf("  lines %d to %d of %d", p.first+1, end, len(p.lines))
	}
	if p.live && p.busy {
		hint += "  (watching)"
	}
	c.put(0, c.height-1, c.width, hint, faint)
}

// drawDialog puts the dialog over the last lines.
func (m *Model) drawDialog(c *canvas) {
	d := m.dialog
	lines := []line{{{strings.Repeat("-", c.width), faint}},
		{{strings.TrimSuffix(fmt.Sprintf("%s %s: %s", d.action.does(), d.action.subject(), d.found.what), ": "),
			strong}}}
	for i := range d.fields {
		f := &d.fields[i]
		text := fmt.Sprintf("  %-13s %s", f.label+":", f.text)
		if i == d.at {
			text = "> " + text[2:] + "_"
			if f.text == "" {
				text += "  (" + f.hint + ")"
			}
		}
		lines = append(lines, line{{text, plain}})
	}
	if d.trouble != "" {
		lines = append(lines, line{{"  " + d.trouble, bad}})
	}
	switch {
	case d.busy:
		lines = append(lines, line{{"asking the relay...", plain}})
	case d.at == len(d.fields):
		lines = append(lines, line{{"> " + d.question() + "  y: yes  n: no", strong}})
	default:
		lines = append(lines, line{{"Enter: go on  Esc: change nothing", faint}})
	}
	y := max(0, c.height-len(lines))
	for i, l := range lines {
		c.fill(0, y+i, plain)
		c.line(y+i, l)
	}
}
