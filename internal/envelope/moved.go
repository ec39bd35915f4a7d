package envelope

import (
	"strconv"
	"strings"
	"time"
)

// movedMark and acceptedMark begin marks as byMark does.
const (
	movedMark    = "moved="
	acceptedMark = "accepted="
)

// Moved marks a message that was moved here from another relay, by that relay's nodeid, the id that it had there, and
// when it was accepted there. Of one that has moved before, the first relay counts. Its age counts from then on, too:
// without a time of its own that becomes its Release.
func (m *Message) Moved(node, id string, accepted time.Time) {
	if m.MovedFrom() == "" {
		m.Marks = append(m.Marks[:len(m.Marks):len(m.Marks)], movedMark+node+"/"+id,
			acceptedMark+strconv.FormatInt(accepted.UnixMilli(), 10))
	}
	if m.Release.IsZero() {
		m.Release = accepted.UTC().Truncate(time.Second)
	}
}

// mark returns what follows the beginning of a mark, "" when there is none.
func (m *Message) mark(begin string) string {
	for _, mark := range m.Marks {
		if text, is := strings.CutPrefix(mark, begin); is {
			return text
		}
	}
	return ""
}

// MovedFrom returns the relay that accepted the message, and its id there, as node/id; "" if this one did.
func (m *Message) MovedFrom() string { return m.mark(movedMark) }

// Accepted is when the message was accepted, at the relay that it has come from if it was moved. Mail that earlier
// versions took says only when it came.
func (m *Message) Accepted() time.Time {
	if ms, err := strconv.ParseInt(m.mark(acceptedMark), 10, 64); err == nil {
		return time.UnixMilli(ms).UTC()
	}
	return m.Received
}

// Scheduled reports whether Release is a time that the message was submitted for, and not that of its move.
func (m *Message) Scheduled() bool {
	age := m.Spread == 0 && m.mark(acceptedMark) != "" && m.Release.Equal(m.Accepted().Truncate(time.Second))
	return !m.Release.IsZero() && !age
}
