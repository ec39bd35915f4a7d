package intake

import (
	"bytes"
	"io"
	"mime"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/htmlindex"

	"example.org/mta/internal/envelope"
)

const (
	// maxCopy bounds the value of a copied field, in octets; longer ones are cut.
	maxCopy = 1 << 10
	// maxCopies bounds all of them.
	maxCopies = 4 << 10
)

// copies gives the fields with these names as a JSON object, decoded, "" if there is none. Of a name that is there
// several times the first counts. The header section must be complete.
func (h *header) copies(names []string) string {
	var out []byte
	left := maxCopies
	for _, name := range names {
		value, ok := fieldValue(h.text, name)
		if !ok {
			value, ok = fieldValue(h.removed, name)
		}
		if !ok {
			continue
		}
		text := decoded(value)
		if len(text) > min(maxCopy, left) {
			text = strings.ToValidUTF8(text[:min(maxCopy, left)], "")
		}
		left -= len(text)
		out = append(appendText(append(out, ','), name), ':')
		out = appendText(out, text)
	}
	if len(out) == 0 {
		return ""
	}
	out[0] = '{'
	return string(append(out, '}'))
}

// fieldValue returns the value of the first field with a name, on one line.
func fieldValue(section []byte, name string) (string, bool) {
	var value []byte
	found := false
	for line := range bytes.Lines(section) {
		folded := line[0] == ' ' || line[0] == '\t'
		switch {
		case folded && found:
			value = append(value, bytes.TrimRight(line, "\r\n")...)
		case found:
			return string(bytes.TrimSpace(value)), true
		case !folded:
			if n, v, ok := envelope.CutField(line); ok && strings.EqualFold(string(n), name) {
				found, value = true, append(value, bytes.TrimRight(v, "\r\n")...)
			}
		}
		if len(value) > 4*maxCopy { // encoded words are longer than what they mean
			break
		}
	}
	return string(bytes.TrimSpace(value)), found
}

// decoded is a field's value as readers see it (RFC 2047), or as it came where that can't be made out.
func decoded(value string) string {
	d := mime.WordDecoder{CharsetReader: func(charset string, in io.Reader) (io.Reader, error) {
		e, err := htmlindex.Get(charset)
		if err != nil {
			return nil, err
		}
		return e.NewDecoder().Reader(in), nil
	}}
	text, err := d.DecodeHeader(value)
	if err != nil {
		text = value
	}
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\ufffd")
	}
	return text
}
