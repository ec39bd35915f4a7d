package demo

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

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
