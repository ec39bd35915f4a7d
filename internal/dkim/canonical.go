package dkim

import (
	"bytes"
	"io"
)

// relaxedField adds the relaxed form of a header field to out, without its CRLF (RFC 6376, 3.4.2):
// the name in lower case, the value unfolded, each run of white space one space, none at its ends.
func relaxedField(out, raw []byte) []byte {
	name, value, _ := bytes.Cut(raw, []byte(":"))
	for _, c := range bytes.TrimRight(name, " \t") {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		out = append(out, c)
	}
	out = append(out, ':')
	start, space := len(out), false
	for _, c := range value {
		switch c {
		case ' ', '\t':
			space = true
			continue
		case '\r', '\n':
			continue
		}
		if space && len(out) > start {
			out = append(out, ' ')
		}
		out, space = append(out, c), false
	}
	return out
}

// relaxedBody writes the relaxed form of a body to out (RFC 6376, 3.4.4): each run of white space in
// a line one space, none at its end; empty lines at the end of the body left out, and its last line
// ended. The body comes in pieces of any size. A CR or LF by itself is a character like any other.
type relaxedBody struct {
	out     io.Writer
	ends    int  // line ends that are written when anything follows
	space   bool // so is one space
	cr      bool // the last octet was a CR
	written bool
}

var (
	crlf   = []byte("\r\n")
	single = []byte(" ")
)

func (b *relaxedBody) add(p []byte) {
	for i := 0; i < len(p); {
		switch c := p[i]; {
		case b.cr && c == '\n':
			b.cr, b.space = false, false
			b.ends++
			i++
		case b.cr:
			b.cr = false
			b.write([]byte("\r"))
		case c == '\r':
			b.cr = true
			i++
		case c == ' ' || c == '\t':
			b.space = true
			i++
		default:
			n := plain(p[i:])
			b.write(p[i : i+n])
			i += n
		}
	}
}

// plain is how many octets of p, at least one, are their own relaxed form whatever follows. Most
// text is, so that it is hashed where it lies.
func plain(p []byte) int {
	i := 1
	for n := len(p); i < n; {
		switch c := p[i]; {
		case c > ' ':
			i++
		case c == ' ' && i+1 < n && p[i+1] > ' ':
			i += 2
		case c == '\r' && i+2 < n && p[i+1] == '\n' && p[i+2] > ' ':
			i += 3
		default:
			return i
		}
	}
	return i
}

// write writes what can't be left out any longer, and p.
func (b *relaxedBody) write(p []byte) {
	for ; b.ends > 0; b.ends-- {
		b.out.Write(crlf)
	}
	if b.space {
		b.out.Write(single)
		b.space = false
	}
	b.out.Write(p)
	b.written = true
}

func (b *relaxedBody) close() {
	if b.cr {
		b.cr = false
		b.write([]byte("\r"))
	}
	if b.written {
		b.out.Write(crlf)
	}
}
