package intake

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

// header collects a message's header section as it streams by, and notes what this relay has to
// know of it.
type header struct {
	text []byte // the section as it came, with the blank line when there is one
	// body is what has been collected beyond the section: the line that showed that it is over
	// without a blank line. A blank line has to be put between (as sendmail and Postfix do).
	body    []byte
	removed []byte // the fields of Config.Remove, once the section is complete
	done    bool

	lineAt int // where the line that is being collected starts in text

	hops        int      // Received fields
	fields      Fields   // that are there
	priority    string   // value of the first MT-Priority field (RFC 6758)
	asked       []Mark   // fields to look for
	marks       []string // of these, those that are there
	own         ownFields
	names       *ForeignFields // of the listener; nil: none
	foreign     foreignFields
	meta        metaFields
	tlsOptional bool      // there is "TLS-Required: No" (RFC 8689, 5)
	removing    *ownField // the one that a continuation line adds to; nil: another field
	nonUTF8     bool
	encoded     bool // it was not UTF-8
}

// add takes content and gives back what of it belongs to the body.
func (h *header) add(b []byte) []byte {
	for !h.done && len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			h.text = append(h.text, b...)
			return nil
		}
		h.text = append(h.text, b[:i+1]...)
		b = b[i+1:]
		h.line()
	}
	return b
}

// end is called when the content ends before the header section does.
func (h *header) end() {
	if !h.done && h.lineAt < len(h.text) {
		h.line()
	}
	if !h.done {
		h.finish(len(h.text))
	}
}

// line takes note of the line that has just become complete.
func (h *header) line() {
	line := h.text[h.lineAt:]
	name, value, isField := envelope.CutField(line)
	folded := line[0] == ' ' || line[0] == '\t'
	if !folded {
		h.removing = nil
	}
	if isField && !folded {
		h.mark(name, value)
		h.removing = h.own.take(name, value)
		if h.removing == nil && bytes.EqualFold(name, []byte(metaField)) {
			h.removing = h.meta.take(value)
		}
		if h.removing == nil {
			h.removing = h.foreign.take(h.names, name, value)
		}
	}
	switch {
	case len(bytes.TrimRight(line, "\r\n")) == 0:
		h.finish(len(h.text))
	case h.removing != nil:
		if folded {
			h.removing.add(line)
		}
		h.text = h.text[:h.lineAt]
	case folded:
		if h.lineAt == 0 {
			h.finish(0) // nothing that it could continue
		}
	case isField:
		h.field(name, value)
	default:
		h.finish(h.lineAt)
	}
	h.lineAt = len(h.text)
}

func (h *header) finish(end int) {
	h.text, h.body = h.text[:end], h.text[end:]
	h.done = true
	h.nonUTF8 = !utf8.Valid(h.text)
}

// mark notes a field that is looked for.
func (h *header) mark(name, value []byte) {
	for i := range h.asked {
		if m := &h.asked[i]; m.is(name, value) && !slices.Contains(h.marks, m.Text) {
			h.marks = append(h.marks, m.Text)
		}
	}
}

func (h *header) field(name, value []byte) {
	h.fields |= fieldsNamed(name)
	switch len(name) {
	case len("Received"):
		if bytes.EqualFold(name, []byte("Received")) {
			h.hops++
		}
	case len("TLS-Required"):
		if bytes.EqualFold(name, []byte("TLS-Required")) {
			h.tlsOptional = bytes.EqualFold(bytes.TrimSpace(value), []byte("No"))
		}
	case len("MT-Priority"):
		if h.priority == "" && bytes.EqualFold(name, []byte("MT-Priority")) {
			h.priority = string(bytes.TrimSpace(value))
		}
	}
}

// Mark is a header field that a message is looked through for.
type Mark struct {
	Text        string // what a message that has it keeps, in envelope.Message.Marks
	Name, Value string // neither minds its case; the value "" is any
}

func (m *Mark) is(name, value []byte) bool {
	return len(name) == len(m.Name) && bytes.EqualFold(name, []byte(m.Name)) &&
		(m.Value == "" || bytes.EqualFold(bytes.TrimSpace(value), []byte(m.Value)))
}

// limits are what a header section may have.
type headerLimits struct{ size, hops int }

// verdict gives the reply that refuses the header section, nil when there is nothing wrong with it so far.
func (h *header) verdict(l headerLimits) *reply.Reply {
	switch {
	case len(h.text) > l.size:
		return headerTooBig.Refusal(l.size)
	case h.hops > l.hops:
		return tooManyHops.Refusal(l.hops)
	}
	return nil
}

// asksPriority returns the priority that the MT-Priority field asks for, from -9 to 9. The field's value is an integer,
// perhaps with a comment (RFC 6758).
func (h *header) asksPriority() (priority int, ok bool) {
	if h.priority == "" {
		return 0, false // as in most messages: the error would cost memory
	}
	value, _, _ := strings.Cut(h.priority, "(")
	priority, err := strconv.Atoi(strings.TrimSpace(value))
	return priority, err == nil && -9 <= priority && priority <= 9
}

// tierOf gives the tier of a priority from -9 to 9: the six levels of the STANAG 4406 profile (RFC 6710,
// appendix A) are the tiers, 6 (override) being 0 and -4 (deferred) being 5.
func tierOf(priority int) uint8 {
	level := priority >> 1 // rounds down, so that -1 is below normal as -2 is
	return uint8(min(max(3-level, 0), 5))
}
