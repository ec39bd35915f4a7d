package accounting

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"time"
)

// file is what the writer needs of an open file.
type file interface {
	io.WriteCloser
	Truncate(size int64) error
	Stat() (os.FileInfo, error)
}

// opener opens a file for appending. With create it must not be there before.
type opener func(path string, create bool) (file, error)

func openOS(path string, create bool) (file, error) {
	flags := os.O_WRONLY | os.O_APPEND
	if create {
		flags |= os.O_CREATE | os.O_EXCL
	}
	return os.OpenFile(path, flags, 0o640)
}

// output is the file that is written to, and its change for another.
type output struct {
	dir  string
	open opener
	now  func() time.Time
	log  *slog.Logger

	f       file    // nil: the next record begins a file
	current logFile // what f is, or what was closed last
	size    int64   // of f, up to the end of its last whole line
	checked time.Time
}

// checkEvery is how often the writer looks whether its file was taken away by somebody else.
const checkEvery = time.Second

// resume goes on with the newest file that is there. A crash can have left it without the end
// of its last line: that line is ended, so that it spoils no other.
func (o *output) resume(l Limits) error {
	files, err := listFiles(o.dir)
	if err != nil || len(files) == 0 {
		return err
	}
	o.current = files[len(files)-1]
	whole, size, err := endsInNewline(o.current.path)
	if err != nil {
		return fmt.Errorf("looking at the newest accounting file: %w", err)
	}
	if o.f, err = o.open(o.current.path, false); err != nil {
		return fmt.Errorf("opening the newest accounting file: %w", err)
	}
	o.size = size
	if !whole {
		if _, err := o.f.Write([]byte{'\n'}); err != nil {
			return errors.Join(fmt.Errorf("ending the last line of an accounting file: %w", err), o.close())
		}
		o.size++
	}
	o.checked = o.now()
	if end := o.end(l); !end.IsZero() && !o.now().Before(end) {
		return o.close()
	}
	return nil
}

// endsInNewline looks at the last octet of a file; an empty one ends well.
func endsInNewline(path string) (whole bool, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return false, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return true, 0, err
	}
	var last [1]byte
	_, err = f.ReadAt(last[:], info.Size()-1)
	return last[0] == '\n', info.Size(), err
}

// end is when the current file is to be closed; zero for not by time.
func (o *output) end(l Limits) time.Time {
	if o.f == nil || l.RotateEvery <= 0 {
		return time.Time{}
	}
	return o.current.begun.Truncate(l.RotateEvery).Add(l.RotateEvery)
}

// write appends whole lines and tells how many octets of them are safely in files. A line is
// never parted between files.
func (o *output) write(lines []byte, l Limits) (n int, err error) {
	for n < len(lines) {
		if err := o.ready(l); err != nil {
			return n, err
		}
		chunk := fitting(lines[n:], l.RotateSize, o.size)
		if len(chunk) == 0 {
			if err := o.close(); err != nil {
				return n, err
			}
			continue
		}
		written, err := o.f.Write(chunk)
		if err != nil {
			return n + o.repair(chunk[:max(0, written)]), fmt.Errorf("writing %s: %w", o.current.path, err)
		}
		o.size += int64(written)
		n += written
	}
	return n, nil
}

// fitting gives the lines that may go into a file of that size; at least one into an empty one.
func fitting(lines []byte, limit, size int64) []byte {
	if limit <= 0 || size+int64(len(lines)) <= limit {
		return lines
	}
	room := max(0, limit-size)
	chunk := lines[:bytes.LastIndexByte(lines[:room], '\n')+1]
	if len(chunk) == 0 && size == 0 {
		chunk = lines[:bytes.IndexByte(lines, '\n')+1]
	}
	return chunk
}

// repair takes back the part of a line that a failed write has left, and tells how much of
// chunk is in the file for good. When it can't, the file is left as it is: readers pass over
// the last line of a file when it has no end.
func (o *output) repair(chunk []byte) int {
	whole := bytes.LastIndexByte(chunk, '\n') + 1
	o.size += int64(whole)
	if whole < len(chunk) && o.f.Truncate(o.size) != nil {
		_ = o.close()
	}
	return whole
}

// ready makes sure that there is a file to write to.
func (o *output) ready(l Limits) error {
	now := o.now()
	if end := o.end(l); !end.IsZero() && !now.Before(end) {
		if err := o.close(); err != nil {
			return err
		}
	}
	if o.f != nil && now.Sub(o.checked) >= checkEvery {
		o.checked = now
		if o.taken() {
			_ = o.close()
		}
	}
	if o.f != nil {
		return nil
	}
	return o.begin(now)
}

// taken reports whether the file was deleted or renamed, by a program that rotates logs or by
// hand: what is written to it would be lost.
func (o *output) taken() bool {
	ours, err := o.f.Stat()
	if err != nil {
		return true
	}
	named, err := os.Stat(o.current.path)
	return err != nil || !os.SameFile(ours, named)
}

// begin makes a new file. Names only grow, whatever the clock does.
func (o *output) begin(now time.Time) error {
	next := fileAt(o.dir, now)
	if !next.begun.After(o.current.begun) {
		next = fileAt(o.dir, o.current.begun.Add(time.Second))
	}
	if err := os.MkdirAll(o.dir, 0o750); err != nil {
		return fmt.Errorf("making the accounting directory: %w", err)
	}
	f, err := o.open(next.path, true)
	for errors.Is(err, fs.ErrExist) {
		next = fileAt(o.dir, next.begun.Add(time.Second))
		f, err = o.open(next.path, true)
	}
	if err != nil {
		return fmt.Errorf("beginning an accounting file: %w", err)
	}
	o.f, o.current, o.size, o.checked = f, next, 0, now
	if err := point(o.dir, next); err != nil {
		o.log.Warn("the link to the newest accounting file can't be made", "error", err)
	}
	return nil
}

// close ends the current file; the next record begins another.
func (o *output) close() error {
	if o.f == nil {
		return nil
	}
	err := o.f.Close()
	o.f = nil
	return err
}
