package report

import (
	"bytes"
	"io"
	"mime"
	"strings"
)

// Field is a field of a header. Its value is unfolded, and as it stands: encoded words are not decoded.
type Field struct{ Name, Value string }

// Header is the fields of a header in their order.
type Header []Field

// Get returns the value of the first field of a name, in any case; "" when there is none.
func (h Header) Get(name string) string {
	for i := range h {
		if len(h[i].Name) == len(name) && strings.EqualFold(h[i].Name, name) {
			return h[i].Value
		}
	}
	return ""
}

// All returns the values of all fields of a name.
func (h Header) All(name string) (values []string) {
	for i := range h {
		if len(h[i].Name) == len(name) && strings.EqualFold(h[i].Name, name) {
			values = append(values, h[i].Value)
		}
	}
	return values
}

// Has reports whether there is a field of a name.
func (h Header) Has(name string) bool {
	for i := range h {
		if len(h[i].Name) == len(name) && strings.EqualFold(h[i].Name, name) {
			return true
		}
	}
	return false
}

// Decoded returns the value of the first field of a name with its encoded words decoded (RFC 2047).
func (h Header) Decoded(name string) string { return Words(h.Get(name)) }

// Words decodes the encoded words of a value. Those that can't be decoded stay as they are.
func Words(value string) string {
	if !strings.Contains(value, "=?") {
		return toUTF8([]byte(value), "")
	}
	decoder := mime.WordDecoder{CharsetReader: func(charset string, input io.Reader) (io.Reader, error) {
		raw, err := io.ReadAll(input)
		return strings.NewReader(toUTF8(raw, charset)), err
	}}
	if decoded, err := decoder.DecodeHeader(value); err == nil {
		return toUTF8([]byte(decoded), "")
	}
	return toUTF8([]byte(value), "")
}

// ReadHeader reads a header as far as it goes, and returns the number of octets it takes with the empty line that
// ends it.
func ReadHeader(b []byte) (Header, int) { return readHeader(plain(b)) }

// readHeader takes lines that are not fields for junk, as long as a field follows; otherwise the body begins
// with them.
func readHeader(b []byte) (Header, int) {
	var h Header
	at := 0
	for at < len(b) {
		line := nextLine(b[at:])
		text := bytes.TrimRight(line, "\r\n")
		switch {
		case len(bytes.TrimRight(text, " \t")) == 0:
			return h, at + len(line)
		case text[0] == ' ' || text[0] == '\t':
			if len(h) == 0 && !continues(b[at+len(line):]) {
				return h, at
			}
			at += len(line)
			continue
		}
		name, value, ok := cutField(text)
		if !ok {
			if !continues(b[at+len(line):]) {
				return h, at
			}
			at += len(line)
			continue
		}
		folded := foldedLength(b[at+len(line):])
		if len(h) < MaxFields {
			h = append(h, Field{string(name), unfold(value, b[at+len(line):at+len(line)+folded])})
		}
		at += len(line) + folded
	}
	return h, at
}

// continues reports whether a header goes on: with a field, or with its end after one.
func continues(b []byte) bool {
	_, _, ok := cutField(bytes.TrimRight(nextLine(b), "\r\n"))
	return ok
}

// maxName bounds the name of a field: longer ones are sentences.
const maxName = 76

// cutField divides a line at the colon of a field.
func cutField(line []byte) (name, value []byte, ok bool) {
	i := bytes.IndexByte(line, ':')
	if i <= 0 || i > maxName {
		return nil, nil, false
	}
	name = bytes.TrimRight(line[:i], " \t")
	for _, c := range name {
		if c <= ' ' || c >= 0x7f || c == '<' || c == '@' || c == '(' {
			return nil, nil, false
		}
	}
	return name, bytes.Trim(line[i+1:], " \t"), len(name) > 0
}

// foldedLength returns the length, in octets, of the lines that continue a field.
func foldedLength(b []byte) int {
	at := 0
	for at < len(b) && (b[at] == ' ' || b[at] == '\t') {
		line := nextLine(b[at:])
		if len(bytes.TrimSpace(line)) == 0 {
			break
		}
		at += len(line)
	}
	return at
}

func unfold(value, rest []byte) string {
	if len(rest) == 0 {
		return string(value)
	}
	joined := make([]byte, 0, len(value)+len(rest))
	joined = append(joined, value...)
	for len(rest) > 0 {
		line := nextLine(rest)
		rest = rest[len(line):]
		if len(joined) > 0 {
			joined = append(joined, ' ')
		}
		joined = append(joined, bytes.TrimSpace(line)...)
	}
	return string(joined)
}

// mediaType returns the media type of a Content-Type field.
func mediaType(value string) string {
	t, _, _ := strings.Cut(value, ";")
	t, _, _ = strings.Cut(strings.TrimSpace(t), " ")
	if kind, sub, ok := strings.Cut(t, "/"); !ok || kind == "" || sub == "" {
		return "text/plain"
	}
	return strings.ToLower(t)
}

// Param returns a parameter of a field, in the simple form or in that of RFC 2231 in one piece; "" when there
// is none.
func (h Header) Param(field, name string) string {
	_, rest, _ := strings.Cut(h.Get(field), ";")
	for rest != "" {
		var param string
		param, rest = cutParam(rest)
		key, value, _ := strings.Cut(param, "=")
		key = strings.TrimSpace(key)
		switch {
		case strings.EqualFold(key, name):
			return unquote(strings.TrimSpace(value))
		case strings.EqualFold(key, name+"*"), strings.EqualFold(key, name+"*0"), strings.EqualFold(key, name+"*0*"):
			value = unquote(strings.TrimSpace(value))
			if parts := strings.SplitN(value, "'", 3); len(parts) == 3 {
				value = parts[2]
			}
			return value
		}
	}
	return ""
}

// cutParam cuts at the next semicolon, or at the space after a quoted value where the semicolon is missing.
func cutParam(s string) (param, rest string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			quoted = !quoted
			if !quoted && i+1 < len(s) && s[i+1] == ' ' {
				return s[:i+1], strings.TrimLeft(s[i+1:], " ;")
			}
		case s[i] == ';' && !quoted:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// unquote takes off the quotes, or what follows the first word of a value without them.
func unquote(s string) string {
	if !strings.HasPrefix(s, `"`) {
		if i := strings.IndexAny(s, " \t"); i >= 0 {
			s = s[:i]
		}
		return s
	}
	s = strings.TrimPrefix(s, `"`)
	if i := strings.LastIndexByte(s, '"'); i >= 0 {
		s = s[:i]
	}
	return strings.TrimRight(strings.ReplaceAll(s, `\`, ""), " ")
}
