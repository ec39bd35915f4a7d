package inbox

import (
	"bytes"
	"mime"
	"net/mail"
	"strings"
	"time"

	"example.org/mta/internal/legible"
)

// maxField is how long a field of the header is shown, in octets.
const maxField = 500

// field returns a field of a header section for people: unfolded, decoded and printable. "" when there is none.
func field(head []byte, name string) string {
	var value []byte
	found := false
	for line := range bytes.Lines(head) {
		line = bytes.TrimRight(line, "\r\n")
		if len(line) > 0 && (line[0] == ' ' || line[0] == '\t') {
			if found && len(value) < maxField {
				value = append(value, line...)
			}
			continue
		}
		if found {
			break
		}
		n, v, ok := bytes.Cut(line, []byte(":"))
		if found = ok && strings.EqualFold(strings.TrimSpace(string(n)), name); found {
			value = append(value, bytes.TrimSpace(v)...)
		}
	}
	text := string(value[:min(len(value), maxField)])
	if decoded, err := new(mime.WordDecoder).DecodeHeader(text); err == nil {
		text = decoded
	}
	return legible.Line(text, maxField)
}

// count counts the fields of a name in a header section, and reports whether one of them has a value.
func count(head []byte, name, value string) (n int, has bool) {
	for line := range bytes.Lines(head) {
		field, v, ok := bytes.Cut(line, []byte(":"))
		if !ok || !strings.EqualFold(string(bytes.TrimSpace(field)), name) || line[0] == ' ' || line[0] == '\t' {
			continue
		}
		n++
		has = has || strings.EqualFold(string(bytes.TrimSpace(v)), value)
	}
	return n, has
}

func parseDate(text string) (time.Time, error) {
	t, err := mail.ParseDate(text)
	return t.UTC(), err
}
