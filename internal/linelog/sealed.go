package linelog

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// A sealed line is an object of JSON that ends with a sum, the CRC-32C of the line without the eight digits themselves,
// and with an event_id, which has the position that it was written at. The sum stands before the id, so that programs
// from before it find that where they look for it.
const (
	sumShape = `,"sum":"00000000","event_id":"` // what stands around the sum
	sumAt    = len(`,"sum":"`)                  // where the digits begin
	sumEnd   = sumAt + 8
	// sealEnd is the end of a line whose position is not known yet.
	sealEnd = `-19700101T000000-000000000000"}`
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendSeal adds the last fields of a line and its end. Stamp fills in the sum and the position. The node is a JSON
// string.
func AppendSeal(b []byte, node string) []byte {
	b = append(b, sumShape[:len(sumShape)-1]...)
	b = append(b, node[:len(node)-1]...)
	return append(append(b, sealEnd...), '\n')
}

// Stamp fills in the positions and sums of whole lines that will be written at p.
func Stamp(p Position, lines []byte) {
	stamp := stampOf(p.File)
	for len(lines) > 0 {
		end := bytes.IndexByte(lines, '\n') + 1
		if start := end - len("\"}\n") - PositionLength; start >= 0 {
			copy(lines[start:], stamp[:])
			AppendOffset(lines[start:start+len(stamp)+1], p.Offset)
			seal(lines[:end-1])
		}
		p.Offset += int64(end)
		lines = lines[end:]
	}
}

// stampOf is how positions in a file begin.
func stampOf(file int64) (s [len(Layout)]byte) {
	time.Unix(file, 0).UTC().AppendFormat(s[:0], Layout)
	return s
}

// EventID returns the event_id of a line, as it stands there; "" if it has none.
func EventID(line []byte) string {
	const key = `,"event_id":"`
	line, ok := bytes.CutSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte(`"}`))
	if i := bytes.LastIndex(line, []byte(key)); ok && i >= 0 && len(line)-i-len(key) >= PositionLength {
		return string(line[i+len(key):])
	}
	return ""
}

// ParseEventID reads the event_id of a line.
func ParseEventID(id string) (node string, p Position, err error) {
	if cut := len(id) - PositionLength - 1; cut >= 0 && id[cut] == '-' {
		if p, err := ParsePosition(id[cut+1:]); err == nil {
			return id[:cut], p, nil
		}
	}
	return "", p, fmt.Errorf("%q is not a valid event_id (want one such as node1-20260301T120000-000000004711)", id)
}

// findSum returns where the digits of a line's sum are; -1: it has none. A line that all but has the shape of one with
// a sum is damaged there.
func findSum(line []byte) (at int, damaged bool) {
	// The value of event_id ends with a position and has no quotes within.
	if end := len(line) - PositionLength - len(`"}`); end > 0 {
		i := bytes.LastIndexByte(line[:end], '"') + 1 - len(sumShape)
		if wrong := sumFaults(line, i); wrong == 0 {
			return i + sumAt, false
		}
	}
	i := bytes.LastIndex(line, []byte(sumShape[sumEnd+1:])) - sumEnd - 1
	i = max(i, bytes.LastIndex(line, []byte(sumShape[:sumAt])))
	switch sumFaults(line, i) {
	case 0:
		return i + sumAt, false
	case 1:
		return -1, true
	}
	return -1, false
}

// sumFaults counts the octets at a place of a line that are not those of the shape.
func sumFaults(line []byte, at int) (n int) {
	if at < 0 || at+len(sumShape) > len(line) {
		return len(sumShape)
	}
	line = line[at:]
	if string(line[:sumAt]) == sumShape[:sumAt] && string(line[sumEnd:len(sumShape)]) == sumShape[sumEnd:] {
		return 0
	}
	for i := range len(sumShape) {
		if line[i] != sumShape[i] && (i < sumAt || i >= sumEnd) {
			n++
		}
	}
	return n
}

// sumOf computes the sum of a line whose digits are at a place.
func sumOf(line []byte, at int) (digits [8]byte) {
	crc := crc32.Update(crc32.Checksum(line[:at], castagnoli), castagnoli, line[at+8:])
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], crc)
	hex.Encode(digits[:], b[:])
	return digits
}

// seal fills in the sum of a line without its line end.
func seal(line []byte) {
	if at, _ := findSum(line); at >= 0 {
		digits := sumOf(line, at)
		copy(line[at:], digits[:])
	}
}

// Sound reports whether a line, without its line end, is as it was written, as far as that shows: those of earlier
// programs have no sum.
func Sound(line []byte) bool {
	if len(line) < 2 || line[0] != '{' || line[len(line)-1] != '}' {
		return false
	}
	at, damaged := findSum(line)
	if at < 0 {
		return !damaged
	}
	digits := sumOf(line, at)
	return string(line[at:at+8]) == string(digits[:])
}

// CutOff reports whether a line is the beginning of one, as a crash leaves it. One whose end is there is not, whatever
// else it has.
func CutOff(line []byte) bool {
	if len(line) == 0 || line[0] != '{' {
		return false
	}
	if end := len(line) - len(sealEnd); end >= 0 {
		wrong := 0
		for i, c := range line[end:] {
			if want := sealEnd[i]; c != want && !('0' <= want && want <= '9' && '0' <= c && c <= '9') {
				wrong++
			}
		}
		if wrong <= 2 {
			return false
		}
	}
	d := jsontext.NewDecoder(bytes.NewReader(line), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	_, err := d.ReadValue()
	return errors.Is(err, io.ErrUnexpectedEOF)
}

// Chain judges the lines of a log one after the other, forward or backward: whether each is what was written, and
// whether others are missing before it. It is for one goroutine.
//
// A line knows the position that it was written at. Until it is clear where the lines behind one stand that looks cut
// off, it may be one that an earlier program had a crash cut off.
type Chain struct {
	file       int64
	stamp      [len(Layout)]byte
	begin, end int64 // of what was read of the file at a stretch
	// shift is how far its lines stand before where they were written, if that is known: 0 unless there is damage.
	shift int64
	known bool
	cut   int64 // where the last line stands, if it looks cut off; noCut: it does not
}

const (
	noCut   = -1
	noShift = -1 << 62
)

// Line returns whether a line is sound; damaged says that there is damage at a position: the line, or lines that are
// missing where it or the one before begins.
func (c *Chain) Line(line []byte, at Position) (ok bool, place Position, damaged bool) {
	end := at.Offset + int64(len(line)) + 1
	back := end == c.begin
	switch {
	case at.File != c.file || at.Offset != c.end && !back:
		if at.File != c.file {
			c.stamp = stampOf(at.File)
		}
		c.file, c.begin, c.end, c.shift, c.known, c.cut = at.File, at.Offset, end, 0, at.Offset == 0, noCut
	case back:
		c.begin = at.Offset
	default:
		c.end = end
	}
	if !Sound(line) {
		if CutOff(line) {
			c.cut, c.known = at.Offset, true // with the shift that there was, or none
			return false, Position{}, false
		}
		c.known, c.cut = false, noCut
		if line == nil { // too long, nobody knows how much
			c.end = -1
		}
		return false, at, true
	}
	shift, stated := shiftOf(line, at.Offset, &c.stamp)
	if !stated {
		c.cut = noCut
		return true, Position{}, false
	}
	damaged = c.known && shift != c.shift || at.Offset == 0 && shift != 0
	place = at
	if back && at.Offset > 0 {
		place.Offset = end
	}
	if c.cut >= 0 {
		place.Offset = c.cut
	}
	c.shift, c.known, c.cut = shift, true, noCut
	return true, place, damaged
}

// Moved reports whether a sound line stands elsewhere than where it was written.
func Moved(line []byte, at Position) bool {
	stamp := stampOf(at.File)
	shift, stated := shiftOf(line, at.Offset, &stamp)
	return stated && shift != 0 && Sound(line)
}

// shiftOf returns how far a sound line at an offset stands before where it was written; false: it has no position.
// Positions in its file begin with the stamp.
func shiftOf(line []byte, at int64, stamp *[len(Layout)]byte) (shift int64, stated bool) {
	const dash = len(Layout)
	start := len(line) - PositionLength - len(`"}`)
	if start < 1 || line[start-1] != '-' || line[start+dash] != '-' || line[len(line)-2] != '"' {
		return 0, false
	}
	p := line[start : start+PositionLength]
	for _, d := range p[dash+1:] {
		if d < '0' || d > '9' {
			return 0, false
		}
		shift = 10*shift + int64(d-'0')
	}
	if string(p[:dash]) != string(stamp[:]) { // of another file
		sum, _ := findSum(line)
		return noShift, sum >= 0
	}
	return shift - at, true
}

// Shift is how far the last sound line stands before where it was written.
func (c *Chain) Shift() int64 {
	if c.shift == noShift {
		return 0
	}
	return c.shift
}

// Cut returns where the last line stands if it looks cut off.
func (c *Chain) Cut() (at int64, looks bool) { return c.cut, c.known && c.cut >= 0 }

// Gap notes that lines are missing before a position.
func (c *Chain) Gap(at Position) {
	*c = Chain{file: at.File, stamp: stampOf(at.File), begin: -1, end: at.Offset, shift: noShift, known: true,
		cut: noCut}
}

// Ending is the end of a file.
type Ending struct {
	Line []byte // the last whole line; nil if there is none, or it is too long
	End  int64  // where it ends
	Rest []byte // what follows it: a line without an end
	Size int64
}

// Lost returns the octets at the end of a file that are damaged, of which known is known to have been written; none if
// from is to.
func (e *Ending) Lost(known int64) (from, to int64) {
	switch {
	case known > e.Size:
		return e.Size, known
	case len(e.Rest) > 0 && !CutOff(e.Rest) && !Sound(e.Rest):
		return e.End, e.Size
	case len(e.Rest) == 0 && len(e.Line) > 0 && !Sound(e.Line) && CutOff(e.Line):
		return e.End - int64(len(e.Line)) - 1, e.End
	}
	return 0, 0
}

// Claims reports whether what follows the last whole line is a line that was written there and lacks its line end.
func (e *Ending) Claims(f File) bool {
	stamp := stampOf(f.ID())
	shift, stated := shiftOf(e.Rest, e.End, &stamp)
	return Sound(e.Rest) && stated && shift == 0
}
