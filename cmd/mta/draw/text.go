package draw

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// Wrap breaks s into lines of at most n columns, between words where it can; those after the first
// begin with some blanks. With n below 1 there is no limit, and a very small one cuts.
func Wrap(s string, n, indent int) string {
	switch {
	case n < 1 || Width(s) <= n:
		return s
	case n < leastWrap:
		return Cut(s, n)
	}
	var b strings.Builder
	for begin := 0; Width(s) > n-begin; begin = indent {
		at := breakAt(s, n-begin)
		b.WriteString(strings.TrimRight(s[:at], " ") + "\n" + strings.Repeat(" ", indent))
		s = strings.TrimLeft(s[at:], " ")
	}
	return b.String() + s
}

// breakAt is where a line of n columns ends: behind the last word that fits, or within a word that is
// longer than half a line.
func breakAt(s string, n int) int {
	used, space := 0, 0
	for i, r := range s {
		if used += runeColumns(r); used > n {
			if r == ' ' {
				return i
			}
			if Width(s[:space]) > n/2 {
				return space
			}
			return i
		}
		if r == ' ' {
			space = i + 1
		}
	}
	return len(s)
}

// indentBelow puts blanks before all lines but the first.
func indentBelow(s string, n int) string {
	return strings.ReplaceAll(s, "\n", "\n"+strings.Repeat(" ", n))
}

// Width is how many columns of a terminal s takes.
func Width(s string) int {
	n := 0
	for _, r := range s {
		n += runeColumns(r)
	}
	return n
}

func runeColumns(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// Cut shortens s to n columns, with a sign that something is missing. n below 1 cuts nothing.
func Cut(s string, n int) string {
	if n < 1 || Width(s) <= n {
		return s
	}
	used := 0
	for i, r := range s {
		if used += runeColumns(r); used > n-1 {
			return s[:i] + "…"
		}
	}
	return s
}

// Clean takes from s what would make a terminal do something else than show it: much of what we
// print was written by strangers. Line ends stay.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', unicode.IsPrint(r): // not Cf: what turns the direction of text can make it say something else
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return '?'
	}, s)
}
