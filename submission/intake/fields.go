package intake

import (
	"bytes"
	"iter"
	"slices"
	"strings"

	"example.org/mta/internal/envelope"
)

// Field is a header field that receivers ask for.
type Field uint8

// The fields. Large providers ask the last two of mail to subscribers (RFC 8058).
const (
	FieldDate Field = iota
	FieldMessageID
	FieldListUnsubscribe
	FieldListUnsubscribePost
	NumFields = iota
)

var fieldNames = [NumFields]string{"Date", "Message-ID", "List-Unsubscribe", "List-Unsubscribe-Post"}

// String gives the name of the field.
func (f Field) String() string { return fieldNames[f] }

// Fields is a set of fields.
type Fields uint8

const everyField = Fields(1<<NumFields - 1)

func (s Fields) has(f Field) bool { return s&(1<<f) != 0 }

// All gives the fields of the set one by one.
func (s Fields) All() iter.Seq[Field] {
	return func(yield func(Field) bool) {
		for f := range Field(NumFields) {
			if s.has(f) && !yield(f) {
				return
			}
		}
	}
}

// fieldsNamed is the set of the field of a name, empty for any other.
func fieldsNamed(name []byte) Fields {
	for f, n := range fieldNames {
		if len(n) == len(name) && bytes.EqualFold(name, []byte(n)) {
			return 1 << f
		}
	}
	return 0
}

// authors gives the addresses in a header section's From field. It reports false where readers could
// disagree about them: there is not exactly one such field, or it can't be read in full.
func authors(header []byte) (all []envelope.Address, ok bool) {
	parsed, err := envelope.From(header)
	if err != nil {
		return nil, false
	}
	for _, p := range parsed {
		a, err := envelope.ParseAddress(p)
		if err != nil || a.Null() {
			return nil, false
		}
		all = append(all, a)
	}
	return all, true
}

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
		if !remove.match(name) || writtenBy(m.desk.cfg.Hostname, field) {
			kept = append(kept, field...)
			continue
		}
		h.removed = append(h.removed, field...)
		h.fields &^= fieldsNamed(name)
	}
	h.text = kept
}

// writtenBy reports whether a field is a Received field that a host wrote.
func writtenBy(hostname string, field []byte) bool {
	name, value, _ := envelope.CutField(field)
	return bytes.EqualFold(name, []byte("Received")) &&
		bytes.Contains(bytes.Join(bytes.Fields(value), []byte(" ")), []byte(" by "+hostname+" "))
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

// tenantField names the tenant of a message. It counts from clients in Config.TenantFieldFrom only.
const tenantField = "X-MTA-Tenant"

// ownFields are the header fields that are addressed to this relay. They are removed from the message.
type ownFields [9]ownField

// Where each of them is in ownFields.
const (
	ownHoldFor = iota
	ownHoldUntil
	ownHoldSpread
	ownTenant
	ownKey
	ownCampaign
	ownExpires
	ownTimezone
	ownPace
)

var ownNames = [len(ownFields{})][]byte{[]byte(holdFor), []byte(holdUntil), []byte(holdSpread), []byte(tenantField),
	[]byte(keyField), []byte(campaignField), []byte(expiresField), []byte(envelope.TimezoneField),
	[]byte(envelope.PaceField)}

// maxOwnValue bounds how much is kept of a field's value, in octets; a longer one is malformed.
const maxOwnValue = 3 * maxMeta // the longest is metadata in base64

// ownField is what a message has of one of them.
type ownField struct {
	value string // of the first
	times int    // the message has it
}

// take notes a field with its value. It returns nil when the field is not addressed to this relay.
func (f *ownFields) take(name, value []byte) *ownField {
	for i, own := range ownNames {
		if bytes.EqualFold(name, own) {
			f[i].times++
			f[i].add(value)
			return &f[i]
		}
	}
	return nil
}

// add appends a part of the value: the rest of the field's first line, or a continuation line.
func (o *ownField) add(part []byte) {
	if o.times == 1 && len(o.value) <= maxOwnValue {
		o.value = strings.TrimSpace(o.value + " " + string(bytes.TrimSpace(part[:min(len(part), maxOwnValue)])))
	}
}
