package envelope

import (
	"strconv"
	"strings"
	"time"
)

// By is what a client has asked for with BY at MAIL (RFC 2852, 4). The zero By is nothing.
type By struct {
	At     time.Time // in whole seconds
	Return bool      // the message is given up then; false: its sender is notified then, and it is tried further
	Trace  bool      // the sender is notified when a host with DELIVERBY takes the message
	Late   bool      // At had passed already: who sent it has notified the sender
}

// byMark begins a mark that no header field has: theirs have ": " after the name.
const byMark = "by="

// ParseBy reads the value of BY that came at a time (RFC 2852, 4): up to nine digits of seconds, ";", N or R, and T for
// Trace.
func ParseBy(value string, now time.Time) (b By, ok bool) {
	n, b, ok := parseBy(value)
	b.At, b.Late = now.Add(time.Duration(n)*time.Second).Truncate(time.Second), n <= 0
	return b, ok && -1e9 < n && n < 1e9 && (n > 0 || !b.Return)
}

func parseBy(value string) (n int64, b By, ok bool) {
	seconds, mode, _ := strings.Cut(strings.ToUpper(value), ";")
	mode, b.Trace = strings.CutSuffix(mode, "T")
	n, err := strconv.ParseInt(seconds, 10, 64)
	b.Return = mode == "R"
	return n, b, err == nil && (b.Return || mode == "N")
}

// Notifies reports whether the sender is to be notified of the delay at the time.
func (b *By) Notifies() bool { return !b.At.IsZero() && !b.Return && !b.Late }

// Left returns the whole seconds that are left.
func (b *By) Left(now time.Time) int64 {
	return int64(b.At.Sub(now).Truncate(time.Second) / time.Second)
}

// Append appends the value of BY, given the seconds that are left.
func (b *By) Append(to []byte, left int64) []byte {
	to = append(strconv.AppendInt(to, left, 10), ";N"...)
	if b.Return {
		to[len(to)-1] = 'R'
	}
	if b.Trace {
		to = append(to, 'T')
	}
	return to
}

// Mark returns it as one of a message's marks, which every format of the queue and of exports has, so that the version
// before keeps it, too.
func (b *By) Mark() string {
	mark := string(b.Append([]byte(byMark), b.At.Unix()))
	if b.Late {
		mark += "L"
	}
	return mark
}

// By returns what the message's client has asked for with BY, zero for nothing.
func (m *Message) By() By {
	for _, mark := range m.Marks {
		if value, is := strings.CutPrefix(mark, byMark); is {
			value, late := strings.CutSuffix(value, "L")
			if at, b, ok := parseBy(value); ok {
				b.At, b.Late = time.Unix(at, 0).UTC(), late
				return b
			}
		}
	}
	return By{}
}
