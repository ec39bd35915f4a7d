package legible

import (
	"strings"

	"github.com/clipperhouse/displaywidth"
)

// LongestCluster bounds a letter with its marks, in octets: no language needs more. A longer one takes a column.
const LongestCluster = 32

// clusterColumns is how many columns a letter with its marks takes; marks alone take one.
func clusterColumns(g *displaywidth.Graphemes[string]) int {
	if len(g.Value()) > LongestCluster {
		return 1
	}
	return max(1, g.Width())
}

// Columns is how many columns of a terminal s takes.
func Columns(s string) (n int) {
	for g := displaywidth.StringGraphemes(s); g.Next(); {
		n += clusterColumns(&g)
	}
	return n
}

// Cut shortens s to n columns, one or more, with a sign that something is missing.
func Cut(s string, n int) string {
	used, at, end := 0, 0, 0 // end is where there is still a place for the sign
	for g := displaywidth.StringGraphemes(s); g.Next(); {
		if used += clusterColumns(&g); used > n {
			return s[:end] + "…"
		}
		if at += len(g.Value()); used < n {
			end = at
		}
	}
	return s
}

// Wrap breaks s into lines of n columns, one or more, between words where it can. Those after the first are shorter by
// indent, which is less than n.
func Wrap(s string, n, indent int) (lines []string) {
	for ; Columns(s) > n; s = strings.TrimLeft(s, " ") {
		at := breakAt(s, n)
		lines = append(lines, strings.TrimRight(s[:at], " "))
		if s = s[at:]; len(lines) == 1 {
			n -= indent
		}
	}
	return append(lines, s)
}

// breakAt is where a line of n columns ends: behind the last word that fits, or within one that is longer than half a
// line. It is never at the start.
func breakAt(s string, n int) int {
	used, at, word, wordUsed := 0, 0, 0, 0
	for g := displaywidth.StringGraphemes(s); g.Next(); {
		if used += clusterColumns(&g); used > n && at > 0 {
			if g.Value() != " " && wordUsed > n/2 {
				return word
			}
			return at
		}
		if at += len(g.Value()); g.Value() == " " {
			word, wordUsed = at, used
		}
	}
	return len(s)
}
