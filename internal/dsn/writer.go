package dsn

import (
	"bytes"
	"fmt"
	"mime/quotedprintable"
	"strings"
	"unicode"
	"unicode/utf8"

	"example.org/mta/internal/envelope"
)

// writer writes lines that are safe whatever a remote host has said: no control characters, no
// UTF-8 where none may be, no line that is too long.
type writer struct {
	bytes.Buffer
	utf8     bool
	boundary string
}

const (
	foldAt  = 76
	maxLine = 900 // RFC 5322, 2.1.1: 998 is the end
)

// line writes a line of the relay's own, cleaned and cut.
func (w *writer) line(s string) {
	s = w.clean(s)
	for len(s) > maxLine {
		n := cut(s, maxLine)
		w.WriteString(s[:n])
		w.WriteString("\r\n ")
		s = s[n:]
	}
	w.WriteString(s)
	w.WriteString("\r\n")
}

// field writes a header field, folded (RFC 5322, 2.2.3).
func (w *writer) field(name, value string) { w.fold(name+": "+w.clean(value), " ") }

// paragraph writes text in lines, each with the indent of the first.
func (w *writer) paragraph(text string) {
	body := strings.TrimLeft(text, " ")
	indent := text[:len(text)-len(body)]
	w.fold(indent+w.clean(body), indent)
}

// fold breaks s at spaces; lines after the first begin with next. A word that is longer than a
// line may be is cut.
func (w *writer) fold(s, next string) {
	for first := true; ; first = false {
		if !first {
			s = next + s
		}
		if len(s) <= foldAt {
			break
		}
		lead := len(s) - len(strings.TrimLeft(s, " "))
		n := strings.LastIndexByte(s[lead:foldAt], ' ')
		if n <= 0 {
			if n = strings.IndexByte(s[lead:], ' '); n <= 0 || n > maxLine-lead {
				if len(s) <= maxLine {
					break
				}
				n = cut(s, maxLine) - lead
			}
		}
		w.WriteString(strings.TrimRight(s[:lead+n], " "))
		w.WriteString("\r\n")
		if s = strings.TrimLeft(s[lead+n:], " "); s == "" {
			return
		}
	}
	w.WriteString(s)
	w.WriteString("\r\n")
}

// cut gives the last place up to n where a character begins.
func cut(s string, n int) int {
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return n
}

// part begins a part of the report. No encoding is 7bit.
func (w *writer) part(contentType, encoding string) {
	w.line("")
	w.line("--" + w.boundary)
	w.field("Content-Type", contentType)
	if encoding != "" {
		w.field("Content-Transfer-Encoding", encoding)
	}
	w.line("")
}

// quotedPrintable writes text whose lines end in CRLF (RFC 2045, 6.7).
func (w *writer) quotedPrintable(text []byte) {
	q := quotedprintable.NewWriter(&w.Buffer)
	_, _ = q.Write(text) // to memory: can't fail
	_ = q.Close()
}

// clean leaves what can be printed, and of that only ASCII in a report that isn't UTF-8.
func (w *writer) clean(s string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c == '\n' || c == '\r' || c == '\t':
			return ' '
		case c == utf8.RuneError || !unicode.IsPrint(c), c >= utf8.RuneSelf && !w.utf8:
			return '?'
		}
		return c
	}, s)
}

// address writes an address in a status field: as it is, or with what is not ASCII encoded
// (RFC 6533, 3, utf-8-addr-xtext).
func (w *writer) address(a string) string {
	if w.utf8 || envelope.Address(a).ASCII() {
		return a
	}
	var b strings.Builder
	for _, c := range a {
		if c < utf8.RuneSelf {
			b.WriteRune(c)
			continue
		}
		fmt.Fprintf(&b, `\x{%X}`, c)
	}
	return b.String()
}
