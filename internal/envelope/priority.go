package envelope

import (
	"strconv"
	"strings"
)

// priorityMark begins a mark as byMark does.
const priorityMark = "priority="

// PriorityMark is the mark of a message whose client has asked for a priority, from -9 to 9 (RFC 6710).
func PriorityMark(n int) string { return priorityMark + strconv.Itoa(n) }

// Priority returns the priority for the next host, which MAIL must have where that offers MT-PRIORITY (RFC 6710, 4.2);
// false if nobody has asked for one.
func (m *Message) Priority() (n int, asked bool) {
	for _, mark := range m.Marks {
		if value, is := strings.CutPrefix(mark, priorityMark); is {
			n, err := strconv.Atoi(value)
			return n, err == nil && -9 <= n && n <= 9
		}
	}
	return 0, false
}
