package linelog

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"sort"
	"time"
)

// Newest reads a log from its end.
type Newest struct {
	*Reader
	Before Position // all that it gives begins before it; zero: anywhere
	Wanted int      // lines that are still wanted
	Most   int64    // octets that it may look at
	// Fits reports whether a line is wanted.
	Fits func(line []byte, at Position) bool
	// Time returns when a line was written; zero if that can't be read.
	Time func(line []byte) time.Time
	// After ends the reading where lines are older, Until lets it begin where they are not younger; zero: no limit.
	// Lines can be out of order by as much as the caller makes these later or earlier than what is wanted.
	After, Until time.Time
	// Stride is in octets how often After looks at the time of a line; two in a row have to be older.
	Stride int64
	// Pick calls use with the lines of a file that can fit, oldest first, for those who have an index. nil: all are
	// looked at, from the end.
	Pick func(f File, use func(line []byte, at Position) error) error

	Found  [][]byte // newest first
	Looked int64    // octets
	More   bool     // there may be more before Before
	older  int      // strides in a row that are too old
}

// Read goes through files, oldest first in the list, from their ends.
func (b *Newest) Read(files []File) error {
	for _, f := range slices.Backward(files) {
		end := int64(-1)
		switch {
		case b.Before != (Position{}) && f.ID() > b.Before.File:
			continue
		case f.ID() == b.Before.File:
			end = b.Before.Offset
		}
		if b.Wanted <= 0 || b.Looked >= b.Most {
			b.Before, b.More = Position{f.ID() + 1, 0}, true // all of f
			return nil
		}
		over, err := b.file(f, end)
		if err != nil || over {
			return err
		}
	}
	return nil
}

// file gives the lines of a file that begin before an offset; -1 is all. It reports whether the reading is over.
func (b *Newest) file(f File, end int64) (over bool, err error) {
	if b.Pick != nil {
		return b.picked(f, end, b.Pick)
	}
	in, size, err := f.random()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil // deleted meanwhile
	case errors.Is(err, errNoTable):
		return b.picked(f, end, func(f File, use func([]byte, Position) error) error {
			_, err := b.Lines(f, 0, use)
			return err
		})
	case err != nil:
		return true, err
	}
	defer in.Close()
	if end < 0 || end > size {
		end = size
	}
	if !b.Until.IsZero() {
		end = min(end, b.endBefore(in, end))
	}
	for {
		over, err := b.blocks(f, in, end)
		var damage *DamageError
		if !errors.As(err, &damage) {
			return over, err
		}
		b.Damage = append(b.Damage, damage)
		if end = damage.Begin; end == 0 {
			return false, nil
		}
	}
}

// blocks gives the lines that end at or before an offset, block by block.
func (b *Newest) blocks(f File, in io.ReaderAt, end int64) (over bool, err error) {
	lines := newLastLines(in, end, b.Dir.Longest)
	for last, stride := end, end/b.Stride; ; {
		if err := b.Ctx.Err(); err != nil {
			return true, err
		}
		line, at, err := lines.next()
		if err == io.EOF {
			b.Looked += last
			return false, nil
		}
		if err != nil {
			return true, err
		}
		b.Looked += last - at
		last = at
		if b.Fits(line, Position{f.ID(), at}) {
			b.Found = append(b.Found, bytes.Clone(line))
			b.Wanted--
		}
		if n := at / b.Stride; n != stride && !b.After.IsZero() {
			stride = n
			if t := b.Time(line); !t.IsZero() && !t.Before(b.After) {
				b.older = 0
			} else if b.older++; !t.IsZero() && b.older > 1 {
				return true, nil // all before it is older; the time of one alone may be damaged
			}
		}
		if b.Wanted <= 0 || b.Looked >= b.Most {
			b.Before, b.More = Position{f.ID(), at}, true
			return true, nil
		}
	}
}

// picked gives the last of the lines that pick finds, which it finds oldest first.
func (b *Newest) picked(f File, end int64, pick func(File, func([]byte, Position) error) error) (over bool, err error) {
	keep := ring{size: b.Wanted}
	err = pick(f, func(line []byte, at Position) error {
		if end >= 0 && at.Offset >= end {
			return ErrReached
		}
		b.Looked += int64(len(line))
		if b.Fits(line, at) {
			keep.add(line, at.Offset)
		}
		return nil
	})
	if err != nil && !errors.Is(err, ErrReached) {
		return true, err
	}
	kept := keep.lines()
	for _, k := range slices.Backward(kept) {
		b.Found = append(b.Found, k.line)
	}
	if b.Wanted -= len(kept); b.Wanted > 0 {
		return false, nil
	}
	b.Before, b.More = Position{f.ID(), kept[0].at}, true
	return true, nil
}

// ring keeps copies of the last lines that it was given.
type ring struct {
	size int
	kept []keptLine
	next int // the oldest, once kept is full
}

type keptLine struct {
	line []byte
	at   int64
}

func (k *ring) add(line []byte, at int64) {
	if len(k.kept) < k.size {
		k.kept = append(k.kept, keptLine{bytes.Clone(line), at})
		return
	}
	old := &k.kept[k.next]
	old.line, old.at = append(old.line[:0], line...), at
	k.next = (k.next + 1) % k.size
}

// lines gives them oldest first.
func (k *ring) lines() []keptLine { return slices.Concat(k.kept[k.next:], k.kept[:k.next]) }

// randomFile is a file of the log in its plain form.
type randomFile interface {
	io.ReaderAt
	io.Closer
}

// random opens the file, in whichever form it is there, and returns the size of the plain one. The error is
// fs.ErrNotExist if it was deleted, errNoTable if another program has compressed it.
func (f File) random() (randomFile, int64, error) {
	in, err := os.Open(f.Plain())
	if err == nil {
		info, err := in.Stat()
		if err != nil {
			in.Close()
			return nil, 0, err
		}
		return in, info.Size(), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, 0, err
	}
	if in, err = os.Open(f.Plain() + compressedSuffix); err != nil {
		return nil, 0, err
	}
	z, err := openFrames(in)
	if err != nil {
		in.Close()
		return nil, 0, err
	}
	return &randomFrames{z: z, held: -1}, z.size(), nil
}

// randomFrames reads a compressed file at any offset. It is for one goroutine.
type randomFrames struct {
	z    *frames
	held int // the frame in buf; -1: none
	buf  []byte
}

func (r *randomFrames) ReadAt(p []byte, off int64) (n int, err error) {
	i := sort.Search(len(r.z.ends), func(i int) bool { return r.z.ends[i].plain > off })
	for ; n < len(p); i++ {
		if i == len(r.z.ends) {
			return n, io.EOF
		}
		if r.held != i {
			r.held = -1
			if r.buf, err = r.z.frame(i, r.buf); err != nil {
				return n, err
			}
			r.held = i
		}
		begin := r.z.ends[i].plain - int64(len(r.buf))
		n += copy(p[n:], r.buf[off+int64(n)-begin:])
	}
	return n, nil
}

func (r *randomFrames) Close() error { return r.z.f.Close() }

// EndOf reads the end of a file. Of one that is damaged there, or that another program has compressed, it has the
// size. The error is fs.ErrNotExist if it was deleted.
func (d Dir) EndOf(f File) (e Ending, err error) {
	in, size, err := f.random()
	switch {
	case errors.Is(err, errNoTable):
		e.Size, err = f.Size()
		e.End = e.Size
		return e, err
	case err != nil:
		return e, err
	}
	defer in.Close()
	lines := newLastLines(in, size, d.Longest)
	line, at, err := lines.next()
	e = Ending{Line: line, End: at + int64(len(line)) + 1, Size: size}
	switch {
	case err == io.EOF:
		e.End, err = 0, nil
	case err != nil || line == nil:
		e.End = size
	}
	if errors.As(err, new(*DamageError)) {
		return e, nil
	}
	if rest := size - e.End; err == nil && rest > 0 {
		e.Rest = make([]byte, min(rest, int64(d.Longest)))
		_, err = in.ReadAt(e.Rest, e.End)
	}
	return e, err
}

// endBefore returns an offset of a line up to end; all lines from there on are younger than Until, and most of those
// before it are not. Two blocks in a row have to be younger, since the time of one line may be damaged. Damage makes it
// look at more than it has to.
func (b *Newest) endBefore(in io.ReaderAt, end int64) int64 {
	younger := func(i int) bool {
		_, first := b.firstLine(in, int64(i)*BlockSize, end)
		return first.After(b.Until)
	}
	last := int(end / BlockSize)
	second := 2 + sort.Search(max(0, last-1), func(i int) bool { return younger(i+1) && younger(i+2) })
	if second > last {
		return end
	}
	at, _ := b.firstLine(in, int64(second)*BlockSize, end)
	return at
}

// firstLine returns the offset and the time of the first line with a time that begins at an offset or behind it.
func (b *Newest) firstLine(in io.ReaderAt, from, end int64) (at int64, t time.Time) {
	buf := blockBuffers.Get().(*bufio.Reader)
	defer blockBuffers.Put(buf)
	at = from - 1 // the line end of the one before may be there
	buf.Reset(io.NewSectionReader(in, at, end-at))
	lines := lineReader{in: buf, longest: b.Dir.Longest}
	_, size, err := lines.next()
	for at += size; err == nil; at += size {
		var line []byte
		if line, size, err = lines.next(); err == nil {
			if t = b.Time(line); !t.IsZero() {
				return at, t
			}
		}
	}
	return end, time.Time{}
}
