// Package legible makes text legible: durations, sizes and rates in few characters, with the two digits that matter;
// text that strangers wrote, so that a terminal only shows it; the known name that a misspelled one most likely stands
// for.
package legible

import (
	"fmt"
	"strings"
	"time"
)

// Age is a duration in at most two units: 4s, 7m, 2h5m, 3d4h. One below 0 is 0s.
func Age(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Second:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < day && d%time.Hour < time.Minute:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d < day:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
}

// Left is Age for a time that is yet to pass. The last 5 s of a minute count as a whole one, as does a begun second, or
// what has just been set to 2h, in a cluster whose nodes have to know, would be shown as 1h59m.
func Left(d time.Duration) string {
	if up := (d + 5*time.Second).Truncate(time.Minute); up > d {
		return Age(up)
	}
	return Age((d + time.Second - 1).Truncate(time.Second))
}

// Size is a number of octets: 611, 2.3K, 47K, 1.1M.
func Size(n int64) string {
	if n < 1024 {
		return fmt.Sprint(n)
	}
	v := float64(n)
	for _, unit := range []string{"K", "M", "G"} {
		v /= 1024
		if v < 9.95 {
			return fmt.Sprintf("%.1f%s", v, unit)
		}
		if v < 1023.5 {
			return fmt.Sprintf("%.0f%s", v, unit)
		}
	}
	return fmt.Sprintf("%.0fT", v/1024)
}

// Rate is a number a second, with three digits; what is too small for them is <0.001.
func Rate(r float64) string {
	switch {
	case r == 0:
		return "0"
	case r < 0.001:
		return "<0.001"
	case r >= 100:
		return fmt.Sprintf("%.0f", r)
	}
	return fmt.Sprintf("%.3g", r)
}

// Count counts in words: 1 entry, 2 addresses.
func Count(n int, noun string) string { return fmt.Sprint(n) + " " + Plural(n, noun) }

// Plural is a noun for n of what it names.
func Plural(n int, noun string) string {
	stem, y := strings.CutSuffix(noun, "y")
	switch {
	case n == 1:
		return noun
	case strings.HasSuffix(noun, "ss"):
		return noun + "es"
	case y && !strings.ContainsAny(stem[max(0, len(stem)-1):], "aeou"):
		return stem + "ies"
	}
	return noun + "s"
}

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

// Nearest gives the one of the candidates that given most likely means, "" when none is close. Words
// of one or two letters are like too many others.
func Nearest(given string, candidates []string) string {
	best, bound := "", 1+len(given)/3
	if len(given) < 3 {
		bound = 0
	}
	for _, c := range candidates {
		if max(len(given)-len(c), len(c)-len(given)) > bound {
			continue // given can have any length
		}
		if d := distance(given, c); d <= bound {
			best, bound = c, d-1
		}
	}
	return best
}

// distance counts the insertions, deletions, replacements and swaps of neighbours that turn a
// into b (restricted Damerau-Levenshtein distance, by octets).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
