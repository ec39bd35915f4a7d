package request

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/emersion/go-message/textproto"
)

const (
	lineLimit  = 76  // of a header line, in octets (RFC 2047, 2)
	wordLimit  = 75  // of an encoded word (RFC 2047, 2)
	tokenLimit = 900 // a longer word can't stand in a line of 998 octets (RFC 5322, 2.1.1)
)

// wideGap can't be folded: a line must not be white space alone.
var wideGap = strings.Repeat(" ", 40)

// fields is a header section that is being written: its fields in order, folded.
type fields struct {
	b     []byte
	ends  []int  // of its fields, in b
	name  string // of the current field
	line  int    // length of the current line
	fresh bool   // no word stands in the current line
	err   error
}

func (f *fields) reset() { *f = fields{b: f.b[:0], ends: f.ends[:0]} }

// add makes a field of the value that write writes.
func (f *fields) add(name string, write func(*fields)) {
	f.name, f.line = name, 0
	f.write(name)
	f.write(":")
	f.fresh = true
	write(f)
	f.b = append(f.b, "\r\n"...)
	f.ends = append(f.ends, len(f.b))
}

func (f *fields) write(s string) {
	if strings.ContainsAny(s, "\r\n\x00") {
		f.err = fmt.Errorf("field %q: CR, LF or NUL", f.name)
	}
	f.b = append(f.b, s...)
	f.line += len(s)
	f.fresh = false
}

// word appends a space and s, which is not broken, on a new line if it doesn't fit in this one.
func (f *fields) word(s string) {
	if f.line+1+len(s) > lineLimit && !f.fresh && s != "" {
		f.fold()
	}
	f.write(" ")
	f.write(s)
}

// fold ends the line. White space must follow.
func (f *fields) fold() {
	f.b = append(f.b, "\r\n"...)
	f.line, f.fresh = 0, true
}

// header is the section as go-message's writer of parts takes it, which puts each field above the last one.
func (f *fields) header() (h textproto.Header, err error) {
	for i, end := range slices.Backward(f.ends) {
		start := 0
		if i > 0 {
			start = f.ends[i-1]
		}
		h.AddRaw(f.b[start:end:end])
	}
	return h, f.err
}

// text appends an unstructured value. What needs it becomes encoded words, together with the spaces
// between, which receivers drop between encoded words (RFC 2047, 6.2). Blanks at both ends are dropped.
func (f *fields) text(value string) {
	value = strings.TrimSpace(value)
	if strings.Contains(value, wideGap) {
		f.encoded(value)
		return
	}
	tokens := strings.Split(value, " ")
	for i := 0; i < len(tokens); {
		if !needsEncoding(tokens[i]) {
			f.word(tokens[i])
			i++
			continue
		}
		end := i + 1
		for j := end; j < len(tokens); j++ {
			if needsEncoding(tokens[j]) {
				end = j + 1
			} else if tokens[j] != "" && j > end {
				break // two plain words in a row are better read as they are
			}
		}
		f.encoded(strings.Join(tokens[i:end], " "))
		i = end
	}
}

// needsEncoding reports whether a word must be encoded to arrive as it is.
func needsEncoding(token string) bool {
	if len(token) > tokenLimit || strings.Contains(token, "=?") {
		return true
	}
	return slices.ContainsFunc([]byte(token), func(c byte) bool { return c < ' ' || c > '~' })
}

// encoded appends s as encoded words of the encoding that is shorter.
func (f *fields) encoded(s string) {
	if strings.ContainsAny(s, "\r\n\x00") {
		f.err = fmt.Errorf("field %q: CR, LF or NUL", f.name)
		return
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	kind := byte('q')
	if base64.StdEncoding.EncodedLen(len(s)) < qLength(s) {
		kind = 'b'
	}
	overhead := len("=?utf-8?q??=")
	for first := true; s != "" || first; first = false {
		room := min(wordLimit, lineLimit-f.line-1) - overhead
		n := fitting(s, kind, room)
		if n < len(s) && room < 20 || n == 0 && s != "" {
			f.fold()
			n = fitting(s, kind, wordLimit-overhead)
		}
		f.write(" =?utf-8?" + string(kind) + "?" + encodeWord(s[:n], kind) + "?=")
		s = s[n:]
	}
}

// fitting is the length of the prefix of s, in whole characters (RFC 2047, 5), that room octets encode.
func fitting(s string, kind byte, room int) int {
	used := 0
	for i := 0; i < len(s); {
		_, size := utf8.DecodeRuneInString(s[i:])
		used += qLength(s[i : i+size])
		if kind == 'b' {
			used = base64.StdEncoding.EncodedLen(i + size)
		}
		if used > room {
			return i
		}
		i += size
	}
	return len(s)
}

// encodeWord is the encoded text of an encoded word.
func encodeWord(s string, kind byte) string {
	if kind == 'b' {
		return base64.StdEncoding.EncodeToString([]byte(s))
	}
	b := make([]byte, 0, 3*len(s))
	for _, c := range []byte(s) {
		switch {
		case qPlain(c):
			b = append(b, c)
		case c == ' ':
			b = append(b, '_')
		default:
			b = append(b, '=', upperHex[c>>4], upperHex[c&15])
		}
	}
	return string(b)
}

const upperHex = "0123456789ABCDEF"

// qPlain reports whether c stands for itself in every place where an encoded word can be (RFC 2047, 5 (3)).
func qPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!*+-/", c) >= 0
}

func qLength(s string) int {
	n := len(s)
	for _, c := range []byte(s) {
		if !qPlain(c) && c != ' ' {
			n += 2
		}
	}
	return n
}

// mailboxes appends a list of mailboxes.
func (f *fields) mailboxes(list []Mailbox) {
	for i, m := range list {
		comma := ","
		if i == len(list)-1 {
			comma = ""
		}
		address := string(headerAddress(m.Address))
		if name := strings.TrimSpace(m.Name); name != "" {
			f.phrase(name)
			address = "<" + address + ">"
		}
		f.word(address + comma)
	}
}

// phrase appends a display name (RFC 5322, 3.2.5).
func (f *fields) phrase(name string) {
	switch {
	case needsEncoding(strings.ReplaceAll(name, " ", "")) || strings.Contains(name, wideGap):
		f.encoded(name)
	case isPhrase(name):
		f.words(name)
	default:
		f.words(quoted(name))
	}
}

// words appends words between which the line can be folded, inside of a quoted string as well (RFC 5322, 3.2.4).
func (f *fields) words(s string) {
	for w := range strings.SplitSeq(s, " ") {
		f.word(w)
	}
}

var quotes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func quoted(s string) string { return `"` + quotes.Replace(s) + `"` }

// isPhrase reports whether name is words of letters and digits with a space between them.
func isPhrase(name string) bool {
	for i, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '\'':
		case c == ' ' && name[i-1] != ' ':
		default:
			return false
		}
	}
	return true
}

// quotedLimit is the length, in octets, up to which a parameter stands in one piece.
const quotedLimit = 60

// param appends a parameter of Content-Type or Content-Disposition: a token or a quoted string, or in
// numbered pieces (RFC 2231, 3 and 4) if it is long or has more than printable ASCII.
func (f *fields) param(name, value string) {
	if strings.ContainsAny(value, "\r\n\x00") {
		f.err = fmt.Errorf("field %q: CR, LF or NUL", f.name)
		return
	}
	value = strings.ToValidUTF8(value, "\uFFFD")
	f.write(";")
	if len(value) <= quotedLimit && !needsEncoding(strings.ReplaceAll(value, " ", "")) {
		f.word(name + "=" + quoted(value))
		return
	}
	rest := "utf-8''" + percent(value)
	if len(rest) <= lineLimit-len(name)-4 {
		f.word(name + "*=" + rest)
		return
	}
	for i := 0; rest != ""; i++ {
		piece := fmt.Sprintf("%s*%d*=", name, i)
		n := min(len(rest), lineLimit-2-len(piece))
		for n < len(rest) && (rest[n-1] == '%' || rest[n-2] == '%') {
			n--
		}
		f.word(piece + rest[:n])
		if rest = rest[n:]; rest != "" {
			f.write(";")
		}
	}
}

// percent encodes the octets that are not attribute-char (RFC 2231, 7).
func percent(s string) string {
	b := make([]byte, 0, 3*len(s))
	for _, c := range []byte(s) {
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			strings.IndexByte("!#$&+-.^_`{|}~", c) >= 0 {
			b = append(b, c)
		} else {
			b = append(b, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return string(b)
}
