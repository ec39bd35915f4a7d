package draw

import (
	"strings"
	"unicode"

	"example.org/mta/internal/legible"
)

// Wrap breaks s into lines of at most n columns, between words where it can; those after the first
// begin with some blanks. With n below 1 there is no limit, and a very small one cuts.
func Wrap(s string, n, indent int) string {
	switch {
	case n < 1:
		return s
	case n < leastWrap:
		return Cut(s, n)
	}
	return strings.Join(legible.Wrap(s, n, indent), "\n"+strings.Repeat(" ", indent))
}

// indentBelow puts blanks before all lines but the first.
func indentBelow(s string, n int) string {
	return strings.ReplaceAll(s, "\n", "\n"+strings.Repeat(" ", n))
}

// Cut shortens s to n columns, with a sign that something is missing. n below 1 cuts nothing.
func Cut(s string, n int) string {
	if n < 1 {
		return s
	}
	return legible.Cut(s, n)
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
