package legible

import "strings"

var eighths = []rune(" ▏▎▍▌▋▊▉")

// Bar gives n of of's share of width columns, to an eighth of a column, and what is left of them. Both
// have width columns together.
func Bar(n, of int64, width int) (done, left string) {
	parts := 0
	if of > 0 {
		parts = int(min(n, of) * int64(width) * 8 / of)
	}
	full, rest := parts/8, parts%8
	done = strings.Repeat("█", full)
	if rest > 0 {
		done += string(eighths[rest])
		full++
	}
	return done, strings.Repeat("·", width-full)
}
