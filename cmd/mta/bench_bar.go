package main

import (
	"fmt"
	"io"
	"time"

	"example.org/mta/internal/short"
	"example.org/mta/lab/bench"
)

// benchBar shows on a terminal how far a measurement is, in one line that is drawn again and again.
type benchBar struct {
	out   io.Writer
	width int // 0: no terminal, nothing is shown
	drawn bool
	last  bench.Progress // that was shown
}

// barEvery is how often it is drawn: drawing takes processor time from what is measured.
const barEvery = 200 * time.Millisecond

func (b *benchBar) show(p bench.Progress) {
	since := p.Elapsed - b.last.Elapsed
	if b.width == 0 || b.drawn && since < barEvery {
		return
	}
	rate := float64(p.Delivered-b.last.Delivered) / max(since.Seconds(), barEvery.Seconds())
	numbers := fmt.Sprintf(" %d of %d accepted, %d of %d delivered, %.0f/s, %.0fs", p.Accepted, p.Messages, p.Delivered, p.Expected, rate, p.Elapsed.Seconds())
	b.last, b.drawn = p, true
	done, left := short.Bar(p.Delivered, p.Expected, max(4, b.width-len(numbers)-1))
	fmt.Fprintf(b.out, "\r%s%s%s\x1b[K", done, left, numbers)
}

// clear takes the line away.
func (b *benchBar) clear() {
	if b.drawn {
		fmt.Fprint(b.out, "\r\x1b[K")
	}
}
