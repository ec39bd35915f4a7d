package web

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"example.org/mta/internal/visible"
)

// reveal makes visible what strangers' text hides in a page that is about to be sent: control characters
// and marks that turn the direction of text become \u001b and the like, octets that are not UTF-8 \xff. The
// templates have none themselves, line ends apart, so whatever is found is data.
func reveal(html []byte) []byte {
	first := bytes.IndexFunc(html, hidden)
	if first < 0 {
		return html
	}
	out := append(make([]byte, 0, len(html)+64), html[:first]...)
	for i := first; i < len(html); {
		r, size := utf8.DecodeRune(html[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			out = fmt.Appendf(out, `\x%02x`, html[i])
		case hidden(r):
			out = visible.AppendEscaped(out, r)
		default:
			out = append(out, html[i:i+size]...)
		}
		i += size
	}
	return out
}

func hidden(r rune) bool {
	return r != '\n' && r != '\t' && r != '\r' && (r == utf8.RuneError || visible.Hidden(r))
}
