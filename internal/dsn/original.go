package dsn

import (
	"bytes"
	"io"
	"mime"
	"slices"
	"strings"
	"unicode/utf8"

	"example.org/mta/internal/envelope"
)

// original is what goes back of the message that is reported about.
type original struct {
	content   []byte // nothing when it could not be read
	whole     bool   // content has the body too
	eightBit  bool
	utf8      bool   // its header has UTF-8 (RFC 6532)
	messageID string // as in its header, "" when there is none that is fit to be repeated
	subject   string // decoded, for people
}

// maxHeader bounds the header that is returned.
const maxHeader = 64 << 10

// readOriginal reads what goes back into one buffer, of the size that the message has.
func readOriginal(r Report) (original, error) {
	var o original
	if r.Content == nil {
		return o, nil
	}
	most := int64(maxHeader)
	if o.whole = r.returnsWhole(); o.whole {
		most += r.ReturnLimit
	}
	var read bytes.Buffer
	read.Grow(int(min(r.Message.Size, most)) + bytes.MinRead)
	_, err := read.ReadFrom(io.LimitReader(r.Content, most+1))
	all := read.Bytes()
	header, complete := headerOf(all)
	if err != nil && (o.whole || !complete) {
		return original{}, err
	}
	o.messageID, o.subject = fieldsOf(header)
	switch {
	case !complete:
		o.content, o.whole = append(header, "\r\n"...), false
	case o.whole:
		o.content = all[:min(len(all), len(header)+int(r.ReturnLimit))]
	default:
		o.content = header
	}
	o.eightBit = hasEightBit(o.content)
	o.utf8 = r.Message.UTF8 && hasEightBit(header)
	return o, nil
}

// returnsWhole reports whether the body goes back too. RET is about failures only (RFC 3461, 4.3),
// and binary content doesn't fit into a report that goes by DATA.
func (r *Report) returnsWhole() bool {
	if r.Message.RequireTLS { // a report may have to travel without: RFC 8689, 5
		return false
	}
	return r.Kind == Failed && r.Message.Ret != envelope.RetHeaders &&
		r.Message.Size <= r.ReturnLimit && r.Message.Body != envelope.BodyBinaryMIME
}

// headerOf returns the header section of a message, with the empty line. Of one over maxHeader it returns the lines
// that fit, and false.
func headerOf(message []byte) (header []byte, complete bool) {
	for n := 0; ; {
		line, _, ended := bytes.Cut(message[n:], []byte("\n"))
		end := n + len(line) + 1
		switch {
		case !ended && len(message) <= maxHeader:
			return message, true // there is no body
		case !ended, end > maxHeader:
			return message[:n], false
		case len(bytes.TrimRight(line, "\r")) == 0:
			return message[:end], true
		}
		n = end
	}
}

// fieldsOf finds what a report repeats of a header.
func fieldsOf(header []byte) (messageID, subject string) {
	for len(header) > 0 {
		var field []byte
		field, header = cutField(header)
		name, value, _ := bytes.Cut(field, []byte(":"))
		switch {
		case messageID == "" && bytes.EqualFold(name, []byte("Message-ID")):
			if id := unfold(value); isMessageID(id) {
				messageID = id
			}
		case subject == "" && bytes.EqualFold(name, []byte("Subject")):
			subject = unfold(value)
			if decoded, err := new(mime.WordDecoder).DecodeHeader(subject); err == nil {
				subject = decoded
			}
		}
	}
	return messageID, subject
}

// cutField takes the first field off a header, with the lines that go on with it.
func cutField(header []byte) (field, rest []byte) {
	n := 0
	for {
		i := bytes.IndexByte(header[n:], '\n')
		if n += i + 1; i < 0 {
			return header, nil
		}
		if n == len(header) || header[n] != ' ' && header[n] != '\t' {
			return header[:n], header[n:]
		}
	}
}

// unfold returns a field's value on one line (RFC 5322, 2.2.3).
func unfold(value []byte) string {
	return strings.TrimSpace(strings.ReplaceAll(strings.ReplaceAll(string(value), "\r\n ", " "), "\r\n\t", " "))
}

func isMessageID(s string) bool {
	if len(s) < 5 || len(s) > 500 || s[0] != '<' || s[len(s)-1] != '>' {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 127 })
}

func hasEightBit(b []byte) bool {
	return slices.ContainsFunc(b, func(c byte) bool { return c >= utf8.RuneSelf })
}
