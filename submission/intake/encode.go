package intake

import (
	"bytes"
	"mime"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
)

// encodeHeader gives a header section whose octets are UTF-8 for one that has others. Old programs
// write Latin-1 there, and what they mean is guessed: octets that are no UTF-8 are taken for
// Windows-1252, of which Latin-1 is a part. Free text and names become encoded-words (RFC 2047);
// where none may stand, as in addresses and parameters, the characters become UTF-8. Line ends stay
// where they are, and fields that are valid stay as they came.
func encodeHeader(section []byte) []byte {
	out := make([]byte, 0, len(section)+len(section)/2)
	for len(section) > 0 {
		n := fieldEnd(section)
		field := section[:n]
		section = section[n:]
		if utf8.Valid(field) {
			out = append(out, field...)
			continue
		}
		out = append(out, encodeField(field)...)
	}
	return out
}

// fieldEnd is the length of the first field, continuation lines included.
func fieldEnd(b []byte) int {
	for i := 0; ; {
		j := bytes.IndexByte(b[i:], '\n')
		if j < 0 {
			return len(b)
		}
		if i += j + 1; i >= len(b) || b[i] != ' ' && b[i] != '\t' {
			return i
		}
	}
}

// fieldKind is where encoded-words may stand in a field (RFC 2047, 5).
type fieldKind uint8

const (
	freeText fieldKind = iota // anywhere
	mailboxes
	noWords
)

var fieldKinds = map[string]fieldKind{
	"from": mailboxes, "sender": mailboxes, "reply-to": mailboxes, "to": mailboxes, "cc": mailboxes, "bcc": mailboxes,
	"resent-from": mailboxes, "resent-sender": mailboxes, "resent-to": mailboxes, "resent-cc": mailboxes,
	"resent-bcc":                  mailboxes,
	"disposition-notification-to": mailboxes, "errors-to": mailboxes,
	"date": noWords, "message-id": noWords, "in-reply-to": noWords, "references": noWords, "received": noWords,
	"return-path":  noWords,
	"mime-version": noWords, "content-type": noWords, "content-disposition": noWords,
	"content-transfer-encoding": noWords, "content-id": noWords,
	"dkim-signature": noWords, "authentication-results": noWords, "list-unsubscribe": noWords, "list-id": noWords,
}

func encodeField(field []byte) string {
	text := decodeGuessed(field)
	colon := strings.IndexByte(text, ':')
	if colon < 0 {
		return text
	}
	name, value := text[:colon+1], text[colon+1:]
	switch fieldKinds[strings.ToLower(strings.TrimRight(text[:colon], " \t"))] {
	case freeText:
		return name + encodeText(value)
	case mailboxes:
		return name + encodeNames(value)
	}
	return text
}

// decodeGuessed reads octets that are no UTF-8 as Windows-1252. What that leaves undefined, and
// controls, become U+FFFD.
func decodeGuessed(b []byte) string {
	var out strings.Builder
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size == 1 {
			r = charmap.Windows1252.DecodeByte(b[0])
			if r < 0xa0 { // C1 controls do their work on terminals
				r = utf8.RuneError
			}
		}
		out.WriteRune(r)
		b = b[size:]
	}
	return out.String()
}

// encodeText makes encoded-words of the words of free text that need it, line by line.
func encodeText(value string) string {
	var out strings.Builder
	open := false // the line before ended in an encoded-word
	for line := range strings.Lines(value) {
		text := strings.TrimRight(line, "\r\n")
		end := line[len(text):]
		words := strings.TrimLeft(text, " \t")
		lead := text[:len(text)-len(words)]
		first, last := needyRun(words)
		if first < 0 {
			out.WriteString(line)
			open = false
			continue
		}
		run := words[first:last]
		if open && first == 0 {
			run = " " + run // white space between encoded-words is not shown (RFC 2047, 6.2)
		}
		out.WriteString(lead + words[:first] + folded(mime.QEncoding, run) + words[last:] + end)
		open = last == len(words)
	}
	return out.String()
}

// needyRun gives the words from the first that isn't ASCII to the last; -1 when there is none.
func needyRun(s string) (first, last int) {
	i := strings.IndexFunc(s, notASCII)
	if i < 0 {
		return -1, -1
	}
	first = strings.LastIndexAny(s[:i], " \t") + 1
	j := strings.LastIndexFunc(s, notASCII)
	last = len(s)
	if k := strings.IndexAny(s[j:], " \t"); k >= 0 {
		last = j + k
	}
	return first, last
}

func notASCII(r rune) bool { return r >= utf8.RuneSelf }

// maxEncodedLine is how long a line with encoded-words should be (RFC 2047, 2), in octets.
const maxEncodedLine = 76

// encodeNames makes encoded-words of the names and comments in a list of mailboxes. Addresses stay. A
// line that grows too long by it is folded where there is white space.
func encodeNames(value string) string {
	var out strings.Builder
	column := 0
	add := func(part string) {
		out.WriteString(part)
		if i := strings.LastIndexByte(part, '\n'); i >= 0 {
			column, part = 0, part[i+1:]
		}
		column += len(part)
	}
	lastAngle := strings.LastIndexByte(value, '>')
	for at := 0; at < len(value); {
		if value[at] == '<' && at < lastAngle {
			n := strings.IndexByte(value[at:], '>') + 1
			add(value[at : at+n])
			at += n
			continue
		}
		n := max(UnquotedEnd(value[at:], "<>(),:;"), 1)
		part := value[at : at+n]
		at += n
		if !strings.ContainsFunc(part, notASCII) {
			add(part)
			continue
		}
		part = encodeName(part)
		first, _, _ := strings.Cut(part, "\r\n")
		if column > 0 && column+len(first) > maxEncodedLine && strings.HasPrefix(part, " ") {
			add("\r\n")
		}
		add(part)
	}
	return out.String()
}

// UnquotedEnd is the place of the first of the stop characters that is not in a quoted string; without one, the length.
func UnquotedEnd(s, stop string) int {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && strings.IndexByte(stop, c) >= 0:
			return i
		}
	}
	return len(s)
}

// encodeName encodes a name whole, without its quotes. Base64 has no character that means
// something in a list of mailboxes.
func encodeName(s string) string {
	name := strings.Trim(s, " \t\r\n")
	at := strings.Index(s, name)
	lead, trail := s[:at], s[at+len(name):]
	if strings.Contains(name, "@") && !strings.HasPrefix(name, `"`) || strings.Count(name, `"`) == 1 {
		return s // an address, or what nobody can read
	}
	var text strings.Builder
	for i := 0; i < len(name); i++ {
		switch c := name[i]; c {
		case '"', '\r', '\n':
		case '\\':
			if i++; i < len(name) && name[i] != '\r' && name[i] != '\n' {
				text.WriteByte(name[i])
			}
		default:
			text.WriteByte(c)
		}
	}
	return lead + folded(mime.BEncoding, text.String()) + trail
}

// folded gives encoded-words on a line each, since they add up.
func folded(e mime.WordEncoder, s string) string {
	return strings.ReplaceAll(e.Encode("utf-8", s), "?= =?", "?=\r\n =?")
}
