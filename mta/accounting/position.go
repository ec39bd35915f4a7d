package accounting

import (
	"bytes"
	"fmt"
	"time"

	"example.org/mta/internal/linelog"
)

// Position is a place in the log.
type Position = linelog.Position

// ParsePosition reads what Position.String returns.
func ParsePosition(s string) (Position, error) { return linelog.ParsePosition(s) }

// EventID returns the event_id of the record at p in the log of a node.
func EventID(node string, p Position) string { return node + "-" + p.String() }

// ParseEventID reads the event_id of a record.
func ParseEventID(id string) (node string, p Position, err error) {
	if cut := len(id) - positionLength - 1; cut >= 0 && id[cut] == '-' {
		if p, err := ParsePosition(id[cut+1:]); err == nil {
			return id[:cut], p, nil
		}
	}
	return "", p, fmt.Errorf("%q is not a valid event_id (want one such as node1-20260301T120000-000000004711)", id)
}

// appendEventID adds the last fields of each record, the sum and event_id, with room for both: fillIn fills it in.
func appendEventID(b []byte, node string) []byte {
	b = append(b, sumShape[:len(sumShape)-1]...)
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

// positionLength is the length of a position as text, whatever it is.
const positionLength = linelog.PositionLength

// afterPosition is what follows the position in each line.
const afterPosition = len("\"}\n")

// fillIn fills in the positions and sums of records. lines are whole lines that will be written at p.
func fillIn(p Position, lines []byte) {
	const length = len(linelog.Layout)
	file := time.Unix(p.File, 0).UTC().AppendFormat(make([]byte, 0, length), linelog.Layout)
	for len(lines) > 0 {
		end := bytes.IndexByte(lines, '\n') + 1
		if start := end - afterPosition - positionLength; start >= 0 {
			at := lines[start : end-afterPosition]
			copy(at, file)
			linelog.AppendOffset(at[:length+1], p.Offset)
			seal(lines[:end-1])
		}
		p.Offset += int64(end)
		lines = lines[end:]
	}
}
