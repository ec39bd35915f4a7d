package linelog

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"sync"
)

// pauseAfter is after how many octets a Reader pauses.
const pauseAfter = 64 << 10

// ErrReached ends a reading at the place that it was to end at.
var ErrReached = errors.New("the end is reached")

// Reader reads a log. It is for one goroutine.
type Reader struct {
	Ctx context.Context // ends the reading
	Dir Dir
	// Pause is called each time that 64 KiB were looked at, for readings that give way to others. Its error ends the
	// reading. May be nil.
	Pause func() error
	// Begins reports whether a line begins at an offset, as far as the line shows: behind damage it may be the rest of
	// one. May be nil.
	Begins func(line []byte, offset int64) bool
	// Damage is what was passed over.
	Damage []error

	looked int64 // octets since the last pause
}

// Scan calls use with each whole line of a file from an offset on, and its size in the file. It returns where the last
// of them ends. The line is nil if it is too long. A file that is deleted meanwhile has no more lines.
func (r *Reader) Scan(f File, offset int64, use func(line []byte, size int64) error) (int64, error) {
	return r.scanBy(&buffers, f, offset, use)
}

// scanBy is Scan with buffers of another size.
func (r *Reader) scanBy(buffers *sync.Pool, f File, offset int64,
	use func(line []byte, size int64) error) (int64, error) {
	in, err := f.from(offset)
	if errors.Is(err, fs.ErrNotExist) {
		return offset, nil
	}
	if err != nil {
		return offset, err
	}
	defer in.Close()
	buf := buffers.Get().(*bufio.Reader)
	defer buffers.Put(buf)
	buf.Reset(in)
	lines := lineReader{in: buf, longest: r.Dir.Longest}
	for {
		if err := r.rest(); err != nil {
			return offset, err
		}
		line, size, err := lines.next()
		if err == io.EOF {
			return offset, nil
		}
		if err != nil {
			return offset, err
		}
		if err := use(line, size); err != nil {
			return offset, err
		}
		offset += size
		r.looked += size
	}
}

// rest pauses where that is wanted, and returns why the reading ends.
func (r *Reader) rest() error {
	if r.Pause != nil && r.looked >= pauseAfter {
		r.looked = 0
		if err := r.Pause(); err != nil {
			return err
		}
	}
	return r.Ctx.Err()
}

// Lines is Scan with the position of each line, and without an end at damage: it goes on behind that, where the next
// line begins.
func (r *Reader) Lines(f File, offset int64, use func(line []byte, at Position) error) (int64, error) {
	partial := false
	for {
		at := offset
		end, err := r.Scan(f, offset, func(line []byte, size int64) error {
			begun := at
			at += size
			if begun == offset && partial && !r.begins(line, offset) {
				return nil
			}
			return use(line, Position{f.ID(), begun})
		})
		var damage *DamageError
		if !errors.As(err, &damage) {
			return end, err
		}
		r.Damage = append(r.Damage, damage)
		if damage.End <= end {
			return end, nil // the rest of the file
		}
		offset, partial = damage.End, true
	}
}

func (r *Reader) begins(line []byte, offset int64) bool {
	return r.Begins == nil || r.Begins(line, offset)
}

// Block calls use with the lines that begin in the block at an offset, and before an end.
func (r *Reader) Block(f File, offset, end int64, use func(line []byte, at Position) error) error {
	at := offset
	end = min(offset+BlockSize, end)
	_, err := r.scanBy(&blockBuffers, f, offset, func(line []byte, size int64) error {
		if at >= end {
			return ErrReached
		}
		begun := at
		at += size
		// The block can begin within a line.
		if begun == offset && offset > 0 && !r.begins(line, offset) {
			return nil
		}
		return use(line, Position{f.ID(), begun})
	})
	var damage *DamageError
	switch {
	case errors.Is(err, ErrReached):
		return nil
	case errors.As(err, &damage):
		r.Damage = append(r.Damage, damage)
		return nil
	}
	return err
}

// buffers are for reading files; streams read often and little.
var buffers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 256<<10) }}

// blockBuffers are for reading one block.
var blockBuffers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, BlockSize) }}

// lineReader parts a file into lines, in bounded memory.
type lineReader struct {
	in      *bufio.Reader
	longest int
	long    []byte // a line that is longer than the buffer of in
}

// next gives the next whole line without its end, and how many octets were read for it. The line is nil when it is
// longer than any. io.EOF means that no whole line is left.
func (l *lineReader) next() (line []byte, size int64, err error) {
	l.long = l.long[:0]
	for {
		part, err := l.in.ReadSlice('\n')
		size += int64(len(part))
		if err != nil && err != bufio.ErrBufferFull {
			return nil, size, err
		}
		tooLong := size > int64(l.longest)
		if tooLong {
			l.long = l.long[:0]
		} else if err != nil || len(l.long) > 0 {
			l.long = append(l.long, part...)
		}
		switch {
		case err != nil:
			continue
		case tooLong:
			return nil, size, nil
		case len(l.long) > 0:
			return bytes.TrimSuffix(l.long, []byte("\n")), size, nil
		}
		return part[:len(part)-1], size, nil
	}
}
