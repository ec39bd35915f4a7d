package accounting

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sort"
	"time"

	"example.org/mta/internal/backward"
)

// Page is records, newest first. It can have fewer than were asked for, even none, and a next page: then there was much
// to look through.
type Page struct {
	Records  [][]byte // a line of JSON each, without its line end
	Next     string   // cursor of the next page; "" when this is the last
	Looked   int64    // octets of the log
	Complete bool     // this is the last page
	Damage   error    // a *DamagedError: records are missing; nil: none are
}

// pageOctets bounds what is looked at for a page: about 50 ms.
const pageOctets = 8 << 20

// Newest returns a page of at most limit records in dir that q means, newest first; q.Last and q.Follow don't count.
// after is Page.Next of the page before, "" the newest. It reads the files from their ends, so that its time doesn't
// depend on their size; those that another program has compressed it reads whole.
func Newest(ctx context.Context, dir string, q Query, after string, limit int) (Page, error) {
	return (&reader{ctx: ctx, dir: dir, match: q.matcher(), blocks: logFile.blocksOf}).page(after, limit)
}

// Newest is as the function Newest, but finds a message that was recorded just now at once, too.
func (w *Writer) Newest(ctx context.Context, q Query, after string, limit int) (Page, error) {
	return (&reader{ctx: ctx, dir: w.cfg.Dir, match: q.matcher(), blocks: w.keeper.blocksOf}).page(after, limit)
}

// ErrCursor is returned for a cursor that no page has given.
var ErrCursor = errors.New("is no cursor of the log")

func (r *reader) page(after string, limit int) (p Page, err error) {
	b := backwards{reader: r, missing: limit, room: pageOctets}
	if after != "" {
		if b.before, err = ParsePosition(after); err != nil || b.before.String() != after {
			return p, fmt.Errorf("%q %w", after, ErrCursor)
		}
	}
	files, err := listFiles(r.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return p, err
	}
	err = b.read(r.match.within(files))
	p = Page{Records: b.found, Looked: b.looked, Complete: !b.more}
	if b.more {
		p.Next = b.before.String()
	}
	p.Damage = r.damaged()
	return p, err
}

// backwards reads a log from its end.
type backwards struct {
	*reader
	before  Position // all that it gives begins before it; zero: anywhere
	missing int      // records that are wanted
	room    int64    // octets that it may look at
	looked  int64
	found   [][]byte // newest first
	more    bool     // there may be more before the position
	older   int      // blocks in a row that are too old
}

// read goes through files, oldest first in the list, from their ends.
func (b *backwards) read(files []logFile) error {
	for _, f := range slices.Backward(files) {
		end := int64(-1)
		switch {
		case b.before != (Position{}) && f.id() > b.before.File:
			continue
		case f.id() == b.before.File:
			end = b.before.Offset
		}
		if b.missing <= 0 || b.looked >= b.room {
			b.before, b.more = Position{f.id() + 1, 0}, true // all of f
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
func (b *backwards) file(f logFile, end int64) (over bool, err error) {
	if b.match.message != 0 {
		return b.picked(f, end, b.lines)
	}
	in, size, err := f.random()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil // deleted meanwhile
	case errors.Is(err, errNoTable):
		return b.picked(f, end, func(f logFile, use func([]byte, int64) error) (int64, error) { return b.sound(f, 0, use) })
	case err != nil:
		return true, err
	}
	defer in.Close()
	if end < 0 || end > size {
		end = size
	}
	if !b.match.Until.IsZero() {
		end = min(end, endBefore(in, end, b.match.Until.Add(clockSlack)))
	}
	for {
		over, err := b.blocks(f, in, end)
		var damage *damageError
		if !errors.As(err, &damage) {
			return over, err
		}
		b.damage = append(b.damage, damage)
		if end = damage.begin; end == 0 {
			return false, nil
		}
	}
}

// blocks gives the lines that end at or before an offset, block by block.
func (b *backwards) blocks(f logFile, in io.ReaderAt, end int64) (over bool, err error) {
	lines := backward.New(in, end, longestLine)
	for last, block := end, end/backward.BlockSize; ; {
		if err := b.ctx.Err(); err != nil {
			return true, err
		}
		line, at, err := lines.Next()
		if err == io.EOF {
			b.looked += last
			return false, nil
		}
		if err != nil {
			return true, err
		}
		b.looked += last - at
		last = at
		if b.match.fits(line) {
			b.found = append(b.found, bytes.Clone(line))
			b.missing--
		}
		if n := at / backward.BlockSize; n != block {
			block = n
			if t := timeOf(line); b.match.Since.IsZero() || !t.IsZero() && !t.Before(b.match.Since.Add(-clockSlack)) {
				b.older = 0
			} else if b.older++; !t.IsZero() && b.older > 1 {
				return true, nil // all before it is older; the time of one alone may be damaged
			}
		}
		if b.missing <= 0 || b.looked >= b.room {
			b.before, b.more = Position{f.id(), at}, true
			return true, nil
		}
	}
}

// picked gives the last of the lines that pick finds, which it finds oldest first.
func (b *backwards) picked(f logFile, end int64, pick func(logFile, func([]byte, int64) error) (int64, error)) (over bool, err error) {
	keep := ring{size: b.missing}
	_, err = pick(f, func(line []byte, at int64) error {
		if end >= 0 && at >= end {
			return errReached
		}
		b.looked += int64(len(line))
		if b.match.fits(line) {
			keep.add(line, at)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errReached) {
		return true, err
	}
	kept := keep.lines()
	for _, k := range slices.Backward(kept) {
		b.found = append(b.found, k.line)
	}
	if b.missing -= len(kept); b.missing > 0 {
		return false, nil
	}
	b.before, b.more = Position{f.id(), kept[0].at}, true
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
func (f logFile) random() (randomFile, int64, error) {
	in, err := os.Open(f.plain())
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
	if in, err = os.Open(f.plain() + compressedSuffix); err != nil {
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

// endOf returns where the last whole line of a file ends.
func (r *reader) endOf(f logFile) (int64, error) {
	in, size, err := f.random()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case errors.Is(err, errNoTable):
		return f.size()
	case err != nil:
		return 0, err
	}
	defer in.Close()
	line, at, err := backward.New(in, size, longestLine).Next()
	switch {
	case err == io.EOF:
		return 0, nil
	case errors.As(err, new(*damageError)):
		return size, nil
	case line == nil || err != nil:
		return size, err
	}
	return at + int64(len(line)) + 1, nil
}

// timeOf returns when the event of a record was; zero if the line is none.
func timeOf(line []byte) time.Time {
	var w struct {
		Time time.Time `json:"event_time"`
	}
	_ = json.Unmarshal(line, &w)
	return w.Time
}

// endBefore returns an offset of a line up to end; all lines from there on are younger than t, and most of those before
// it are not. Two blocks in a row have to be younger, since the time of one line may be damaged. Damage makes it look at
// more than it has to.
func endBefore(in io.ReaderAt, end int64, t time.Time) int64 {
	younger := func(i int) bool {
		_, first := firstLine(in, int64(i)*backward.BlockSize, end)
		return first.After(t)
	}
	last := int(end / backward.BlockSize)
	second := 2 + sort.Search(max(0, last-1), func(i int) bool { return younger(i+1) && younger(i+2) })
	if second > last {
		return end
	}
	at, _ := firstLine(in, int64(second)*backward.BlockSize, end)
	return at
}

// firstLine returns the offset and the time of the first record that begins at an offset or behind it.
func firstLine(in io.ReaderAt, from, end int64) (at int64, t time.Time) {
	buf := blockBuffers.Get().(*bufio.Reader)
	defer blockBuffers.Put(buf)
	at = from - 1 // the line end of the one before may be there
	buf.Reset(io.NewSectionReader(in, at, end-at))
	lines := lineReader{in: buf}
	_, size, err := lines.next()
	for at += size; err == nil; at += size {
		var line []byte
		if line, size, err = lines.next(); err == nil {
			if t = timeOf(line); !t.IsZero() {
				return at, t
			}
		}
	}
	return end, time.Time{}
}
