package dsn

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"mime"
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

func readOriginal(r Report) (original, error) {
	var o original
	if r.Content == nil {
		return o, nil
	}
	in := bufio.NewReaderSize(r.Content, maxHeader) // a line that does not fit is not returned
	header, complete, err := readHeader(in)
	if err != nil {
		return o, err
	}
	o.messageID, o.subject = fieldsOf(header)
	o.content = header
	if complete && r.returnsWhole() {
		body, err := io.ReadAll(io.LimitReader(in, r.ReturnLimit))
		if err != nil {
			return o, err
		}
		o.content, o.whole = append(header, body...), true
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

// readHeader reads to the empty line, which it includes. Of a header over maxHeader it gives the
// lines that fit, and says that it is not complete.
func readHeader(in *bufio.Reader) (header []byte, complete bool, err error) {
	for {
		line, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull) || len(header)+len(line) > maxHeader:
			return append(header, "\r\n"...), false, nil
		case err != nil && !errors.Is(err, io.EOF):
			return nil, false, err
		}
		header = append(header, line...)
		if err != nil || len(bytes.TrimRight(line, "\r\n")) == 0 {
			return header, true, nil
		}
	}
}

// fieldsOf finds what a report repeats of a header.
func fieldsOf(header []byte) (messageID, subject string) {
	unfolded := strings.NewReplacer("\r\n ", " ", "\r\n\t", " ").Replace(string(header))
	for line := range strings.Lines(unfolded) {
		name, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); {
		case strings.EqualFold(name, "Message-ID") && messageID == "" && isMessageID(value):
			messageID = value
		case strings.EqualFold(name, "Subject") && subject == "":
			subject = value
			if decoded, err := new(mime.WordDecoder).DecodeHeader(value); err == nil {
				subject = decoded
			}
		}
	}
	return messageID, subject
}

func isMessageID(s string) bool {
	if len(s) < 5 || len(s) > 500 || s[0] != '<' || s[len(s)-1] != '>' {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 127 {
			return false
		}
	}
	return true
}

func hasEightBit(b []byte) bool {
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return true
		}
	}
	return false
}
