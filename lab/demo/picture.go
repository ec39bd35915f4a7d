package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"example.org/mta/internal/legible"
)

// snapshot is what the picture shows: the state of the demo at one moment.
type snapshot struct {
	elapsed    time.Duration
	total      int // letters to be submitted
	submitted  int // letters
	recipients int64
	delivered  int64
	bounced    int64
	submitRate float64 // letters a second, lately
	settleRate float64 // recipients a second, lately
	late       int64   // bounces that came after the delivery
	complaints int64
	events     int64 // at the web hook
	hookDown   bool
	relay      relayStats
	rows       []row
	doing      string
	hint       string
}

// row is a provider's line.
type row struct {
	domain, does                string
	to                          int64
	delivered, bounced, waiting int64
	typical                     time.Duration // from our 250 to the provider's, median; 0 unknown
	refusal                     string        // what it refused most
}

// relayStats is what the relay says of itself.
type relayStats struct {
	accepted, delivered, bounced int64 // recipients; reports to senders included
	queued                       int64
	due, active, deferred        int64 // the queued ones, by state
}

// settled is the recipients whose fate is known.
func (s *snapshot) settled() int64 { return s.delivered + s.bounced }

// palette is the few escape sequences used; empty strings without colour.
type palette struct{ bold, dim, green, yellow, red, off string }

var (
	colour = palette{"\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[0m"}
	plain  palette
)

const (
	minWidth = 60
	maxWidth = 132
)

// draw gives the picture as lines of at most width columns.
func draw(s snapshot, width int, p palette) []string {
	width = min(max(width, minWidth), maxWidth)
	lines := []string{
		"",
		fmt.Sprintf("  %smta demo%s  %sthe relay, %d providers and a DNS server, all on loopback%s", p.bold, p.off,
			p.dim, len(s.rows), p.off),
		"",
		barLine("submitted", int64(s.submitted), int64(s.total), s.submitRate, width, p.green, p),
		barLine("settled", s.settled(), max(s.recipients, 1), s.settleRate, width, p.green, p),
		"",
		queueLine(s, p),
		eventsLine(s, p),
		"",
	}
	lines = append(lines, table(s.rows, width, p)...)
	lines = append(lines, "", fmt.Sprintf("  %s%5.1f s  %s%s", p.dim, s.elapsed.Seconds(), s.doing, p.off))
	if s.hint != "" {
		lines = append(lines, "  "+p.dim+"in another terminal:"+p.off, "  "+s.hint)
	}
	for i := range lines {
		lines[i] = clip(lines[i], width)
	}
	return lines
}

// barLine is "  submitted  ████░░░░  1,234 of 5,000   321/s".
func barLine(label string, n, of int64, perSecond float64, width int, fill string, p palette) string {
	numbers := fmt.Sprintf("%7s of %-7s %6s/s", commas(n), commas(of), commas(int64(perSecond+0.5)))
	room := max(10, width-2-11-2-utf8.RuneCountInString(numbers)-2)
	return fmt.Sprintf("  %-10s %s  %s", label, bar(n, of, room, fill, p), numbers)
}

// bar fills n of of's share of width columns, to an eighth of a column.
func bar(n, of int64, width int, fill string, p palette) string {
	done, left := legible.Bar(n, of, width)
	return fill + done + p.off + p.dim + left + p.off
}

func queueLine(s snapshot, p palette) string {
	r := s.relay
	return fmt.Sprintf("  %-10s %s%s%s recipients: %s due, %s being sent, %s to be tried again", "in queue",
		p.bold, commas(r.queued), p.off, commas(r.due), commas(r.active), commas(r.deferred))
}

func eventsLine(s snapshot, p palette) string {
	state := ""
	if s.hookDown {
		state = p.yellow + " (down)" + p.off
	}
	return fmt.Sprintf("  %-10s %s%s%s at the web hook%s; %s bounces, %s complaints came back", "events",
		p.bold, commas(s.events), p.off, state, commas(s.late), commas(s.complaints))
}

// table has a line for each provider. What doesn't fit into width is left out, the least
// important first.
func table(rows []row, width int, p palette) []string {
	does, typical, refusal := width >= 79, width >= 88, width >= 105
	head := fmt.Sprintf("  %-21s", "provider")
	if does {
		head += fmt.Sprintf("%-23s", "")
	}
	head += fmt.Sprintf("%7s%10s%8s%8s", "to", "delivered", "bounced", "waiting")
	if typical {
		head += fmt.Sprintf("%9s", "typical")
	}
	if refusal {
		head += "  refuses most"
	}
	lines := []string{p.dim + head + p.off}
	for _, r := range rows {
		l := fmt.Sprintf("  %-21s", r.domain)
		if does {
			l += p.dim + fmt.Sprintf("%-23s", r.does) + p.off
		}
		l += fmt.Sprintf("%7s", commas(r.to)) + number(r.delivered, 10, p.green, p) + number(r.bounced, 8, p.red, p) +
			number(r.waiting, 8, p.yellow, p)
		if typical {
			l += fmt.Sprintf("%9s", brief(r.typical))
		}
		if refusal {
			l += "  " + p.dim + r.refusal + p.off
		}
		lines = append(lines, l)
	}
	return lines
}

// number is n in its column, coloured unless it is 0.
func number(n int64, width int, c string, p palette) string {
	if n == 0 {
		return p.dim + fmt.Sprintf("%*s", width, "0") + p.off
	}
	return c + fmt.Sprintf("%*s", width, commas(n)) + p.off
}

// brief is a duration in at most seven columns, "" for 0.
func brief(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// commas is n with its thousands parted.
func commas(n int64) string {
	if n < 0 {
		return "-" + commas(-n)
	}
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// clip cuts a line to width columns, escape sequences not counted.
func clip(line string, width int) string {
	var b strings.Builder
	columns, escaped := 0, false
	for _, c := range line {
		switch {
		case c == '\x1b':
			escaped = true
		case escaped:
			escaped = c != 'm'
		default:
			if columns++; columns > width {
				continue
			}
		}
		b.WriteRune(c)
	}
	return b.String()
}

// screen shows snapshots: redrawn in place on a terminal, a line each second otherwise.
type screen struct {
	out   io.Writer
	tty   bool
	drawn int // lines of the last picture, on a terminal
}

const (
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
)

func newScreen(out io.Writer, tty bool) *screen {
	s := &screen{out: out, tty: tty}
	if tty {
		fmt.Fprint(out, hideCursor)
	}
	return s
}

// show draws the snapshot over the last one.
func (s *screen) show(snap snapshot) {
	if !s.tty {
		fmt.Fprintf(s.out,
			"%5.1fs  submitted %s of %s (%s/s)  delivered %s  bounced %s  in queue %s (%s to be tried again)\n",
			snap.elapsed.Seconds(), commas(int64(snap.submitted)), commas(int64(snap.total)),
			commas(int64(snap.submitRate+0.5)),
			commas(snap.delivered), commas(snap.bounced), commas(snap.relay.queued), commas(snap.relay.deferred))
		return
	}
	width, height := s.size()
	lines := draw(snap, width-1, colour)
	if len(lines) > height-1 {
		lines = lines[:height-1]
	}
	var b strings.Builder
	if s.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.drawn)
	}
	for _, l := range lines {
		b.WriteString("\r" + l + "\x1b[K\n")
	}
	b.WriteString("\x1b[J") // what is left of a taller picture
	s.drawn = len(lines)
	io.WriteString(s.out, b.String())
}

// size is the terminal's, or the classic one when it won't say.
func (s *screen) size() (width, height int) {
	if f, ok := s.out.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			return w, h
		}
	}
	return 80, 24
}

// palette is for what is printed below the picture.
func (s *screen) palette() palette {
	if s.tty {
		return colour
	}
	return plain
}

// close gives the terminal back.
func (s *screen) close() {
	if s.tty {
		fmt.Fprint(s.out, showCursor)
	}
}
