package legible

// JSON leaves C1 controls, marks that turn the direction of text and the like as they are; a terminal that shows such a
// line obeys them. They can be escaped without changing the value.

import (
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/clipperhouse/displaywidth"
)

// Hidden reports whether r is shown as something other than itself: a control, a format character
// (category Cf, bidirectional marks among them), a separator other than space, or unassigned.
func Hidden(r rune) bool { return !unicode.IsPrint(r) }

// Line returns at most the first n octets of s as one line: what is hidden in it, and what is not UTF-8, becomes a
// question mark. No character is cut in two.
func Line(s string, n int) string {
	if len(s) > n {
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n]
	}
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || Hidden(r) {
			return '?'
		}
		return r
	}, s)
}

// Escaped returns all of s as one line: a line end is " / ", a tab a space, and what is hidden is
// escaped as JSON does it. What begins beyond the first n octets of the line is cut, with "…" in its place. Bytes
// that are not UTF-8 become U+FFFD.
func Escaped(s string, n int) string {
	plain := len(s) <= n
	for i := 0; plain && i < len(s); i++ {
		plain = s[i] >= ' ' && s[i] < 0x7f
	}
	if plain {
		return s
	}
	s = strings.TrimRight(s, "\r\n")
	b := make([]byte, 0, min(len(s), n)+8)
	for i, r := range s {
		if len(b) >= n {
			return string(b) + "…"
		}
		switch {
		case r == '\n':
			b = append(b, " / "...)
		case r == '\r' && i+1 < len(s) && s[i+1] == '\n':
		case r == '\t':
			b = append(b, ' ')
		case Hidden(r):
			b = AppendEscaped(b, r)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return string(b)
}

// AppendEscaped adds r to b as JSON writes it in ASCII (RFC 8259, 7): \u2028, or a surrogate pair.
func AppendEscaped(b []byte, r rune) []byte {
	if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
		return appendUnit(appendUnit(b, high), low)
	}
	return appendUnit(b, r)
}

func appendUnit(b []byte, u rune) []byte {
	const hex = "0123456789abcdef"
	return append(b, '\\', 'u', hex[u>>12&15], hex[u>>8&15], hex[u>>4&15], hex[u&15])
}

// AppendJSON adds the JSON text to b with what is hidden in its strings escaped. Controls below
// U+0080 are left alone: between values they are white space, and in strings JSON has none.
func AppendJSON(b, text []byte) []byte {
	start := 0 // of what is not yet added
	for i := 0; i < len(text); {
		if text[i] < utf8.RuneSelf && text[i] != 0x7f {
			i++
			continue
		}
		r, size := utf8.DecodeRune(text[i:])
		if Hidden(r) {
			b = AppendEscaped(append(b, text[start:i]...), r)
			start = i + size
		}
		i += size
	}
	return append(b, text[start:]...)
}

// Writer gives a writer for JSON that escapes what is hidden before it gets to w. A character must
// not be divided between two calls of Write.
func Writer(w io.Writer) io.Writer { return &writer{w: w} }

type writer struct {
	w io.Writer
	b []byte
}

func (w *writer) Write(p []byte) (int, error) {
	w.b = AppendJSON(w.b[:0], p)
	if _, err := w.w.Write(w.b); err != nil {
		return 0, err
	}
	return len(p), nil
}

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
