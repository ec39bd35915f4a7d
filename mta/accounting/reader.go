package accounting

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"example.org/mta/internal/envelope"
)

const (
	// followEvery is how often a reader that follows looks for more.
	followEvery = 200 * time.Millisecond
	// longestLine is far above any record; what is longer is no record and is passed over.
	longestLine = 1 << 20
	pauseAfter  = 64 << 10
)

// Read calls each with the records in dir that q means, oldest first: one line of JSON without
// its line end, which is good until each returns. Lines that are no records are passed over, as
// is a last line without an end. Read ends with the error of each, when there is one, or with
// that of ctx. The error is a *DamagedError after all records were given that can be read, if
// some can't.
//
// With q.Follow it goes on with what is written later, until ctx ends; then the error is nil.
// Before it waits for more it calls flush, which may be nil. It needs no Writer and no other
// process's help: it sees what is in the files.
func Read(ctx context.Context, dir string, q Query, each func(record []byte) error, flush func()) error {
	r := reader{ctx: ctx, dir: dir, match: q.matcher(), each: each, flush: flush, blocks: logFile.blocksOf}
	return r.run()
}

// DamagedError is returned by Read when parts of compressed files, or lines, can't be read.
type DamagedError struct {
	Parts []error // what is wrong, and in which file
}

func (e *DamagedError) Error() string {
	text := "records are missing: " + e.Parts[0].Error()
	if n := len(e.Parts) - 1; n > 0 {
		text += fmt.Sprintf(" (and %d more damaged parts)", n)
	}
	return text
}

// Read is as the function Read, but finds a message that was recorded just now at once, too.
func (w *Writer) Read(ctx context.Context, q Query, each func(record []byte) error, flush func()) error {
	r := reader{ctx: ctx, dir: w.cfg.Dir, match: q.matcher(), each: each, flush: flush, blocks: w.keeper.blocksOf}
	return r.run()
}

func (r *reader) run() error {
	if r.flush == nil {
		r.flush = func() {}
	}
	err := r.read()
	if r.match.Follow && r.ctx.Err() != nil && errors.Is(err, r.ctx.Err()) {
		err = nil
	}
	if err == nil {
		err = r.damaged()
	}
	return err
}

// damaged returns what was passed over, nil if nothing was.
func (r *reader) damaged() error {
	if n := r.match.damaged; n > 0 {
		r.damage = append(r.damage, fmt.Errorf("damaged lines in %s: %d", r.dir, n))
	}
	if len(r.damage) == 0 {
		return nil
	}
	return &DamagedError{r.damage}
}

type reader struct {
	ctx    context.Context
	dir    string
	match  matcher
	each   func([]byte) error
	flush  func()
	blocks func(logFile, envelope.ID) lookup // logFile.blocksOf, or the keeper's
	damage []error                           // that was passed over
	looked int64                             // octets since the last pause
}

func (r *reader) read() error {
	all, err := listFiles(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // nothing was ever written
	}
	if err != nil {
		return err
	}
	var at place // where to go on
	files := r.match.within(all)
	if r.match.Last > 0 {
		at, err = r.newest(files)
	} else {
		at, err = r.forward(files)
	}
	if err != nil || !r.match.Follow {
		return err
	}
	return r.follow(at)
}

// place is how far a log was read: the octets up to the end of the last whole line of a file.
type place struct {
	file   logFile // zero: before the first file
	offset int64
}

// forward reads files from their beginnings, one after the other.
func (r *reader) forward(files []logFile) (at place, err error) {
	for _, f := range files {
		at = place{file: f}
		if at.offset, err = r.lines(f, r.give); err != nil {
			return at, err
		}
	}
	return at, nil
}

// lines calls use with the lines of f that can be meant and their offsets, and returns where the last whole line ends.
func (r *reader) lines(f logFile, use func(line []byte, at int64) error) (int64, error) {
	if r.match.message == 0 {
		return r.sound(f, 0, use)
	}
	in := r.blocks(f, r.match.message)
	slices.Sort(in.blocks)
	for _, b := range slices.Compact(in.blocks) {
		if err := r.block(f, b*blockSize, in.covered, use); err != nil {
			return 0, err
		}
	}
	if in.whole {
		return in.covered, nil
	}
	if info, err := os.Stat(f.path); err == nil && info.Size() == in.covered {
		return in.covered, nil
	}
	return r.sound(f, in.covered, use)
}

// sound is scan without an end at damage: it goes on behind that, where the next line begins.
func (r *reader) sound(f logFile, offset int64, use func(line []byte, at int64) error) (int64, error) {
	partial := false
	for {
		at := offset
		end, err := r.scan(f, offset, func(line []byte, size int64) error {
			begun := at
			at += size
			if begun == offset && partial && !beginsAt(line, offset) {
				return nil
			}
			return use(line, begun)
		})
		var damage *damageError
		if !errors.As(err, &damage) {
			return end, err
		}
		r.damage = append(r.damage, damage)
		if damage.end <= end {
			return end, nil // the rest of the file
		}
		offset, partial = damage.end, true
	}
}

// block calls use with the lines that begin in the block at an offset, and before the end of what is covered.
func (r *reader) block(f logFile, offset, covered int64, use func(line []byte, at int64) error) error {
	at, end := offset, min(offset+blockSize, covered)
	_, err := r.scanBy(&blockBuffers, f, offset, func(line []byte, size int64) error {
		if at >= end {
			return errReached
		}
		begun := at
		at += size
		// The block can begin within a line, whose event_id then has another offset.
		if begun == offset && offset > 0 && !beginsAt(line, offset) {
			return nil
		}
		return use(line, begun)
	})
	var damage *damageError
	switch {
	case errors.Is(err, errReached):
		return nil
	case errors.As(err, &damage):
		r.damage = append(r.damage, damage)
		return nil
	}
	return err
}

// beginsAt reports whether a line is a record that begins at an offset.
func beginsAt(line []byte, offset int64) bool {
	if !bytes.HasPrefix(line, []byte(`{"type":"`)) {
		return false
	}
	id := eventIDOf(line)
	_, p, err := ParseEventID(id)
	return id == "" || err == nil && p.Offset == offset
}

func (r *reader) give(line []byte, _ int64) error {
	if r.match.fits(line) {
		return r.each(line)
	}
	return nil
}

// newest gives the last records that fit, oldest first. It returns the end of the newest file.
func (r *reader) newest(files []logFile) (at place, err error) {
	if len(files) == 0 {
		return at, nil
	}
	at.file = files[len(files)-1]
	if at.offset, err = r.endOf(at.file); err != nil {
		return at, err
	}
	b := backwards{reader: r, before: Position{at.file.id(), at.offset}, missing: r.match.Last, room: math.MaxInt64}
	if err := b.read(files); err != nil {
		return at, err
	}
	for _, record := range slices.Backward(b.found) {
		if err := r.each(record); err != nil {
			return at, err
		}
	}
	return at, nil
}

// follow gives what is written after at, until the context ends.
func (r *reader) follow(at place) error {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		var err error
		if at, err = r.catchUp(at); err != nil {
			return err
		}
		r.flush()
		select {
		case <-tick.C:
		case <-r.ctx.Done():
			return r.ctx.Err()
		}
	}
}

// catchUp reads on from at to the end of the newest file. The list of files is asked for first:
// a file that has a successor in it is complete.
func (r *reader) catchUp(at place) (place, error) {
	files, err := listFiles(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return at, nil
	}
	if err != nil {
		return at, err
	}
	for _, f := range files {
		switch {
		case f.begun.Before(at.file.begun):
			continue
		case f.begun.After(at.file.begun):
			at = place{file: f}
		}
		if at.offset, err = r.sound(f, at.offset, r.give); err != nil {
			return at, err
		}
	}
	return at, nil
}

// scan calls use with each whole line of f from offset on and its size in the file, and returns where the last
// of them ends; line is nil if it is too long for a record. A file that is deleted meanwhile has no more lines.
func (r *reader) scan(f logFile, offset int64, use func(line []byte, size int64) error) (int64, error) {
	return r.scanBy(&buffers, f, offset, use)
}

// scanBy is scan with buffers of another size.
func (r *reader) scanBy(buffers *sync.Pool, f logFile, offset int64, use func(line []byte, size int64) error) (int64, error) {
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
	lines := lineReader{in: buf}
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

// rest pauses where the query wants that, and returns why the reading ends.
func (r *reader) rest() error {
	if r.match.Pause != nil && r.looked >= pauseAfter {
		r.looked = 0
		if err := r.match.Pause(); err != nil {
			return err
		}
	}
	return r.ctx.Err()
}

// buffers are for reading files; streams read often and little.
var buffers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 256<<10) }}

// blockBuffers are for reading one block.
var blockBuffers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, blockSize) }}

// lineReader parts a file into lines, in bounded memory.
type lineReader struct {
	in   *bufio.Reader
	long []byte // a line that is longer than the buffer of in
}

// next gives the next whole line without its end, and how many octets were read for it. The
// line is nil when it is longer than any record. io.EOF means that no whole line is left.
func (l *lineReader) next() (line []byte, size int64, err error) {
	l.long = l.long[:0]
	for {
		part, err := l.in.ReadSlice('\n')
		size += int64(len(part))
		if err != nil && err != bufio.ErrBufferFull {
			return nil, size, err
		}
		if size > longestLine {
			l.long = l.long[:0]
		} else if err != nil || len(l.long) > 0 {
			l.long = append(l.long, part...)
		}
		switch {
		case err != nil:
			continue
		case size > longestLine:
			return nil, size, nil
		case len(l.long) > 0:
			return bytes.TrimSuffix(l.long, []byte("\n")), size, nil
		}
		return part[:len(part)-1], size, nil
	}
}
