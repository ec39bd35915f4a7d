package intake

import (
	"bytes"
	"slices"
	"strings"

	"example.org/mta/internal/envelope"
)

// FieldPatterns are names of header fields, or beginnings of names with a "*" after them. Case doesn't matter.
type FieldPatterns []string

func (p FieldPatterns) match(name []byte) bool {
	return slices.ContainsFunc(p, func(pattern string) bool {
		begin, wide := strings.CutSuffix(pattern, "*")
		n := len(begin)
		return len(name) >= n && (wide || len(name) == n) && bytes.EqualFold(name[:n], []byte(begin))
	})
}

// removeFields removes the fields of Config.Remove from the complete header section, whole. Date and Message-ID count
// as missing from then on. The Received fields of this relay stay, since they end mail loops; all have been counted.
func (m *Message) removeFields() {
	h, remove := &m.content.header, m.desk.cfg.Remove
	if len(remove) == 0 {
		return
	}
	kept := h.text[:0]
	for field := range EachField(h.text) {
		name, _, _ := envelope.CutField(field)
		if !remove.match(name) || bytes.EqualFold(name, []byte("Received")) && m.writtenHere(field) {
			kept = append(kept, field...)
			continue
		}
		h.removed = append(h.removed, field...)
		h.fields &^= fieldsNamed(name)
	}
	h.text = kept
}

// writtenHere reports whether this relay wrote a Received field.
func (m *Message) writtenHere(field []byte) bool {
	by := " by " + m.desk.cfg.Hostname + " "
	return bytes.Contains(bytes.Join(bytes.Fields(field), []byte(" ")), []byte(by))
}

// EachField gives the fields of a header section with their continuation lines, and the blank line at its end.
func EachField(text []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		begin, at := 0, 0
		for line := range bytes.Lines(text) {
			if folded := line[0] == ' ' || line[0] == '\t'; !folded && at > begin {
				if !yield(text[begin:at:at]) {
					return
				}
				begin = at
			}
			at += len(line)
		}
		if at > begin {
			yield(text[begin:at:at])
		}
	}
}
