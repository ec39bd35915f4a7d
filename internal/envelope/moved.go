package envelope

import "strings"

// movedMark begins a mark as byMark does.
const movedMark = "moved="

// Moved marks a message that was moved here from another relay, by that relay's nodeid and the id that it had there.
// Of one that has moved before, the first relay counts.
func (m *Message) Moved(node, id string) {
	if m.MovedFrom() == "" {
		m.Marks = append(m.Marks[:len(m.Marks):len(m.Marks)], movedMark+node+"/"+id)
	}
}

// MovedFrom returns the relay that accepted the message, and its id there, as node/id; "" if this one did.
func (m *Message) MovedFrom() string {
	for _, mark := range m.Marks {
		if from, is := strings.CutPrefix(mark, movedMark); is {
			return from
		}
	}
	return ""
}
