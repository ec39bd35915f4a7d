package linelog

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Position is a place in a log: an offset in one of its files. Positions grow in the order of the lines, and the
// position of a line stays the same as long as the line is kept, even if its file is compressed. The zero Position is
// before all lines.
type Position struct {
	File   int64 // the time in the file's name, in seconds since 1970
	Offset int64 // octets from the start of the file, uncompressed
}

const (
	offsetDigits = 12
	// MaxFileSize is the size from which on a file takes no further line, so that offsets fit.
	MaxFileSize = 1e12 - 1<<20
	// PositionLength is the length of a position as text, whatever it is.
	PositionLength = len(Layout) + 1 + offsetDigits
)

// Compare returns -1, 0 or 1 if p is before q, the same, or after it.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.File, q.File), cmp.Compare(p.Offset, q.Offset))
}

// String returns p as 20260301T120000-000000004711. These texts sort as the positions do.
func (p Position) String() string { return string(p.Append(nil)) }

// Append adds the text of p.
func (p Position) Append(b []byte) []byte {
	b = time.Unix(p.File, 0).UTC().AppendFormat(b, Layout)
	return AppendOffset(append(b, '-'), p.Offset)
}

// AppendOffset adds the second part of a position's text, which has the same length for each offset.
func AppendOffset(b []byte, offset int64) []byte {
	start := len(b)
	b = append(b, "000000000000"...)
	for i := len(b) - 1; i >= start && offset > 0; i-- {
		b[i] = byte('0' + offset%10)
		offset /= 10
	}
	return b
}

// ParsePosition reads what Position.String returns.
func ParsePosition(s string) (Position, error) {
	file, offset, _ := strings.Cut(s, "-")
	begun, err := time.Parse(Layout, file)
	if err == nil && len(offset) == offsetDigits {
		if n, err := strconv.ParseUint(offset, 10, 63); err == nil {
			return Position{begun.Unix(), int64(n)}, nil
		}
	}
	return Position{},
		fmt.Errorf("%q is not a valid position in the accounting log (want one such as 20260301T120000-000000004711)",
			s)
}
