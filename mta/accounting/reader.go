package accounting

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"
)

const (
	// followEvery is how often a reader that follows looks for more.
	followEvery = 200 * time.Millisecond
	// longestLine is far above any record; what is longer is no record and is passed over.
	longestLine = 1 << 20
)

// Read calls each with the records in dir that q means, oldest first: one line of JSON without
// its line end, which is good until each returns. Lines that are no records are passed over, as
// is a last line without an end. Read ends with the error of each, when there is one, or with
// that of ctx.
//
// With q.Follow it goes on with what is written later, until ctx ends; then the error is nil.
// Before it waits for more it calls flush, which may be nil. It needs no Writer and no other
// process's help: it sees what is in the files.
func Read(ctx context.Context, dir string, q Query, each func(record []byte) error, flush func()) error {
	if flush == nil {
		flush = func() {}
	}
	r := reader{ctx: ctx, dir: dir, match: q.matcher(), each: each, flush: flush}
	err := r.read()
	if q.Follow && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

type reader struct {
	ctx   context.Context
	dir   string
	match matcher
	each  func([]byte) error
	flush func()
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
		if at.offset, err = r.scan(f, 0, r.give); err != nil {
			return at, err
		}
	}
	return at, nil
}

func (r *reader) give(line []byte) error {
	if r.match.fits(line) {
		return r.each(line)
	}
	return nil
}

// newest gives the last records that fit: it goes through the files backwards until it has
// enough, and through each of them forwards.
func (r *reader) newest(files []logFile) (at place, err error) {
	var found [][][]byte // by file, the newest first
	missing := r.match.Last
	for i := len(files) - 1; i >= 0 && missing > 0; i-- {
		keep := ring{size: missing}
		offset, err := r.scan(files[i], 0, func(line []byte) error {
			if r.match.fits(line) {
				keep.add(line)
			}
			return nil
		})
		if err != nil {
			return at, err
		}
		if at.file.path == "" {
			at = place{files[i], offset}
		}
		found = append(found, keep.lines())
		missing -= len(found[len(found)-1])
	}
	for i := len(found) - 1; i >= 0; i-- {
		for _, line := range found[i] {
			if err := r.each(line); err != nil {
				return at, err
			}
		}
	}
	return at, nil
}

// ring keeps copies of the last lines that it was given.
type ring struct {
	size int
	kept [][]byte
	next int // the oldest, once kept is full
}

func (k *ring) add(line []byte) {
	if len(k.kept) < k.size {
		k.kept = append(k.kept, bytes.Clone(line))
		return
	}
	k.kept[k.next] = append(k.kept[k.next][:0], line...)
	k.next = (k.next + 1) % k.size
}

// lines gives them oldest first.
func (k *ring) lines() [][]byte {
	return append(append([][]byte(nil), k.kept[k.next:]...), k.kept[:k.next]...)
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
		case f.path != at.file.path:
			at = place{file: f}
		}
		if at.offset, err = r.scan(f, at.offset, r.give); err != nil {
			return at, err
		}
	}
	return at, nil
}

// scan calls use with each whole line of f from offset on, and tells where the last of them
// ends. A file that is deleted meanwhile has no more lines.
func (r *reader) scan(f logFile, offset int64, use func(line []byte) error) (int64, error) {
	in, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return offset, nil
	}
	if err != nil {
		return offset, err
	}
	defer in.Close()
	if info, err := in.Stat(); err != nil || info.Size() <= offset {
		return offset, err
	}
	if _, err := in.Seek(offset, io.SeekStart); err != nil {
		return offset, err
	}
	lines := lineReader{in: bufio.NewReaderSize(in, 256<<10)}
	for {
		if err := r.ctx.Err(); err != nil {
			return offset, err
		}
		line, size, err := lines.next()
		if err == io.EOF {
			return offset, nil
		}
		if err != nil {
			return offset, err
		}
		if line != nil {
			if err := use(line); err != nil {
				return offset, err
			}
		}
		offset += size
	}
}

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
