package linelog

import (
	"bytes"
	"io"
)

// BlockSize is the size of reads from the end, which begin at multiples of it, and of the frames of compressed files.
const BlockSize = 64 << 10

// lastLines reads the lines of a file, the last one first, in bounded memory: the newest lines of a log cost the same
// whatever its size. It is for one goroutine.
type lastLines struct {
	in      io.ReaderAt
	longest int

	buf      []byte
	from, to int   // buf[from:to] was read, and not returned yet; it ends with a line end
	at       int64 // where in the file buf[from] is
	whole    bool  // a line end was found: what followed it was not a whole line
}

// newLastLines reads the lines that end at or before an offset. What stands between the last line end and the offset is
// not a line. Lines of more than longest octets are returned as nil.
func newLastLines(in io.ReaderAt, end int64, longest int) *lastLines {
	return &lastLines{in: in, longest: longest, at: end}
}

// next returns a line without its line end, which is good until the next call, and its offset. The error is io.EOF
// after the first line of the file.
func (l *lastLines) next() (line []byte, at int64, err error) {
	if err := l.skipTail(); err != nil {
		return nil, 0, err
	}
	tooLong := false
	for searched := l.to - 1; ; {
		if i := bytes.LastIndexByte(l.buf[l.from:searched], '\n'); i >= 0 {
			return l.take(l.from+i+1, tooLong)
		}
		if l.at == 0 {
			return l.take(l.from, tooLong)
		}
		if tooLong = tooLong || l.to-1-l.from > l.longest; tooLong { // only where it begins is of interest
			l.buf[l.from], l.to = '\n', l.from+1
		}
		seen := l.to - l.from
		if err := l.fill(); err != nil {
			return nil, 0, err
		}
		searched = l.to - seen
	}
}

// take returns the line that begins at an index of the buffer, and goes up to the line end at its end.
func (l *lastLines) take(begin int, tooLong bool) (line []byte, at int64, err error) {
	if end := l.to - 1; !tooLong && end-begin <= l.longest {
		line = l.buf[begin:end:end]
	}
	l.to = begin
	return line, l.at + int64(begin-l.from), nil
}

// skipTail finds the last line end, and has at least one line in the buffer.
func (l *lastLines) skipTail() error {
	for l.from == l.to || !l.whole {
		if i := bytes.LastIndexByte(l.buf[l.from:l.to], '\n'); i >= 0 {
			l.to, l.whole = l.from+i+1, true
			return nil
		}
		if !l.whole {
			l.to = l.from
		}
		if err := l.fill(); err != nil {
			return err
		}
	}
	return nil
}

// fill puts the block before what is in the buffer.
func (l *lastLines) fill() error {
	if l.at == 0 {
		return io.EOF
	}
	start := (l.at - 1) / BlockSize * BlockSize
	n := int(l.at - start)
	if kept := l.to - l.from; l.from < n {
		to := l.buf
		if n+kept > len(to) {
			to = make([]byte, max(2*len(to), n+kept))
		}
		copy(to[len(to)-kept:], l.buf[l.from:l.to])
		l.buf, l.from, l.to = to, len(to)-kept, len(to)
	}
	if _, err := io.ReadFull(io.NewSectionReader(l.in, start, int64(n)), l.buf[l.from-n:l.from]); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF // the file has become shorter
		}
		return err
	}
	l.from, l.at = l.from-n, start
	return nil
}
