package intake

import (
	"bytes"
	"iter"

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
