package accounting

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/linelog"
)

// followEvery is how often a reader that follows looks for more.
const followEvery = 200 * time.Millisecond

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
	return newReader(ctx, dir, q, blocksOf).run(each, flush)
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
	return w.reader(ctx, q).run(each, flush)
}

// reader reads the log for a Query.
type reader struct {
	linelog.Reader
	match  matcher
	each   func([]byte) error
	flush  func()
	blocks lookUp
}

// lookUp looks a message up in the index of a file: blocksOf, or the keeper's.
type lookUp func(linelog.File, envelope.ID) lookup

func newReader(ctx context.Context, dir string, q Query, blocks lookUp) *reader {
	return &reader{
		Reader: linelog.Reader{Ctx: ctx, Dir: logDir(dir), Pause: q.Pause, Begins: beginsAt},
		match:  q.matcher(), blocks: blocks,
	}
}

// reader is a newReader that finds what was recorded just now, and whose damage the Writer counts.
func (w *Writer) reader(ctx context.Context, q Query) *reader {
	r := newReader(ctx, w.cfg.Dir, q, w.keeper.blocksOf)
	r.match.spoiled = w.spoiled
	return r
}

func (r *reader) run(each func([]byte) error, flush func()) error {
	r.each, r.flush = each, flush
	if flush == nil {
		r.flush = func() {}
	}
	err := r.read()
	if r.match.Follow && r.Ctx.Err() != nil && errors.Is(err, r.Ctx.Err()) {
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
		r.Damage = append(r.Damage, fmt.Errorf("damaged lines: %d, the first at %s", n, placeOf(r.Dir, r.match.first)))
	}
	if len(r.Damage) == 0 {
		return nil
	}
	return &DamagedError{r.Damage}
}

func (r *reader) read() error {
	all, err := r.Dir.Files()
	if err != nil {
		return err
	}
	var at place // where to go on
	files := r.match.within(all)
	if r.match.Last > 0 {
		at, err = r.last(files)
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
	file   linelog.File // zero: before the first file
	offset int64
}

// forward reads files from their beginnings, one after the other.
func (r *reader) forward(files []linelog.File) (at place, err error) {
	for _, f := range files {
		at = place{file: f}
		if at.offset, err = r.lines(f, r.give); err != nil {
			return at, err
		}
	}
	return at, nil
}

// lines calls use with the lines of f that can be meant and their positions, and returns where the last whole line
// ends.
func (r *reader) lines(f linelog.File, use func(line []byte, at Position) error) (int64, error) {
	if r.match.message == 0 {
		return r.whole(f, 0, use)
	}
	in := r.blocks(f, r.match.message)
	info, err := os.Stat(f.Path)
	if err == nil && !f.Compressed && info.Size() < in.covered { // what is left of it may have moved
		return r.whole(f, 0, use)
	}
	slices.Sort(in.blocks)
	read := int64(0) // the end of the last line that was used
	for _, b := range slices.Compact(in.blocks) {
		err := r.Block(f, b*linelog.BlockSize, in.covered, func(line []byte, at Position) error {
			if linelog.Moved(line, at) {
				return errMoved
			}
			read = at.Offset + int64(len(line)) + 1
			return use(line, at)
		})
		if errors.Is(err, errMoved) {
			return r.whole(f, read, use)
		}
		if err != nil {
			return 0, err
		}
	}
	if in.whole || err == nil && info.Size() == in.covered {
		return in.covered, nil
	}
	return r.Lines(f, in.covered, use)
}

// errMoved is of a line that stands elsewhere than where it was written: so may others, and the index knows none.
var errMoved = errors.New("the line has moved")

// whole is lines from an offset to the end of the file, without an index.
func (r *reader) whole(f linelog.File, from int64, use func(line []byte, at Position) error) (int64, error) {
	end, err := r.Lines(f, from, use)
	if err == nil {
		r.ended(f)
	}
	return end, err
}

// ended counts what is damaged at the end of a file. In a compressed one it shows, but where the keeper looks.
func (r *reader) ended(f linelog.File) {
	if f.Compressed {
		return
	}
	if from, to := lostEnd(r.Dir, f); from < to {
		r.match.spoil(Position{File: f.ID(), Offset: from})
	}
}

// beginsAt reports whether a line is a record that begins at an offset.
func beginsAt(line []byte, offset int64) bool {
	if !bytes.HasPrefix(line, []byte(`{"type":"`)) {
		return false
	}
	id := linelog.EventID(line)
	_, p, err := ParseEventID(id)
	return id == "" || err == nil && p.Offset == offset
}

func (r *reader) give(line []byte, at Position) error {
	if r.match.fits(line, at) {
		return r.each(line)
	}
	return nil
}

// last gives the last records that fit, oldest first. It returns the end of the newest file.
func (r *reader) last(files []linelog.File) (at place, err error) {
	if len(files) == 0 {
		return at, nil
	}
	at.file = files[len(files)-1]
	end, err := r.Dir.EndOf(at.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return at, err
	}
	at.offset = end.End
	b := r.newest(Position{File: at.file.ID(), Offset: at.offset}, r.match.Last, math.MaxInt64)
	if err := r.back(b, files); err != nil {
		return at, err
	}
	for _, record := range slices.Backward(b.Found) {
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
		case <-r.Ctx.Done():
			return r.Ctx.Err()
		}
	}
}

// catchUp reads on from at to the end of the newest file. The list of files is asked for first:
// a file that has a successor in it is complete.
func (r *reader) catchUp(at place) (place, error) {
	files, err := r.Dir.Files()
	if err != nil {
		return at, err
	}
	for _, f := range files {
		switch {
		case f.Begun.Before(at.file.Begun):
			continue
		case f.Begun.After(at.file.Begun):
			at = place{file: f}
		}
		if at.offset, err = r.Lines(f, at.offset, r.give); err != nil {
			return at, err
		}
	}
	return at, nil
}
