package accounting

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Position is a place in a log: an offset in one of its files. Positions grow in the order of the
// records, and the position of a record stays the same as long as the record is kept, even if its
// file is compressed. The zero Position is before all records.
type Position struct {
	File   int64 // the time in the file's name, in seconds since 1970
	Offset int64 // octets from the start of the file, uncompressed
}

const (
	offsetDigits = 12
	// maxFileSize is the size from which on a file takes no further record, so that offsets fit.
	maxFileSize = 1e12 - longestLine
	// positionLength is the length of a position as text, whatever it is.
	positionLength = len(nameLayout) + 1 + offsetDigits
)

// Compare returns -1, 0 or 1 if p is before q, the same, or after it.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.File, q.File), cmp.Compare(p.Offset, q.Offset))
}

// String returns p as 20260301T120000-000000004711. These texts sort as the positions do.
func (p Position) String() string { return string(p.append(nil)) }

func (p Position) append(b []byte) []byte {
	b = time.Unix(p.File, 0).UTC().AppendFormat(b, nameLayout)
	b = append(b, '-')
	start := len(b)
	b = append(b, "000000000000"...)
	var digits [20]byte
	offset := strconv.AppendInt(digits[:0], p.Offset, 10)
	copy(b[max(start, len(b)-len(offset)):], offset)
	return b
}

// ParsePosition reads what Position.String returns.
func ParsePosition(s string) (Position, error) {
	file, offset, _ := strings.Cut(s, "-")
	begun, err := time.Parse(nameLayout, file)
	if err == nil && len(offset) == offsetDigits {
		if n, err := strconv.ParseUint(offset, 10, 63); err == nil {
			return Position{begun.Unix(), int64(n)}, nil
		}
	}
	return Position{}, fmt.Errorf("%q is no position in the accounting log: want one like 20260301T120000-000000004711", s)
}

// EventID returns the event_id of the record at p in the log of a node.
func EventID(node string, p Position) string { return node + "-" + p.String() }

// ParseEventID reads the event_id of a record.
func ParseEventID(id string) (node string, p Position, err error) {
	if cut := len(id) - positionLength - 1; cut >= 0 && id[cut] == '-' {
		if p, err := ParsePosition(id[cut+1:]); err == nil {
			return id[:cut], p, nil
		}
	}
	return "", p, fmt.Errorf("%q is no event_id: want one like node1-20260301T120000-000000004711", id)
}

// appendEventID adds the field event_id, the last of each record, with room for the position:
// stamp fills it in.
func appendEventID(b []byte, node string) []byte {
	b = append(b, `,"event_id":`...)
	b = append(b, node[:len(node)-1]...)
	return append(b, noPosition...)
}

// noPosition is the end of a line whose position is not known yet.
const noPosition = `-19700101T000000-000000000000"}` + "\n"

// eventIDOf returns the event_id of a record, as it stands in the line; "" if it has none.
func eventIDOf(line []byte) string {
	const key = `,"event_id":"`
	line, ok := bytes.CutSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte(`"}`))
	if i := bytes.LastIndex(line, []byte(key)); ok && i >= 0 && len(line)-i-len(key) >= positionLength {
		return string(line[i+len(key):])
	}
	return ""
}

// afterPosition is what follows the position in each line.
const afterPosition = len("\"}\n")

// stamp fills the positions of records into their event_id. lines are whole lines that will be
// written at p.
func (p Position) stamp(lines []byte) {
	file := time.Unix(p.File, 0).UTC().AppendFormat(make([]byte, 0, len(nameLayout)), nameLayout)
	for len(lines) > 0 {
		end := bytes.IndexByte(lines, '\n') + 1
		if room := end - afterPosition - positionLength; room >= 0 {
			at := lines[room : end-afterPosition]
			copy(at, file)
			offset := p.Offset
			for i := len(at) - 1; i > len(nameLayout); i-- {
				at[i] = byte('0' + offset%10)
				offset /= 10
			}
		}
		p.Offset += int64(end)
		lines = lines[end:]
	}
}
