package accounting

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"example.org/mta/queue/vfs"
)

// file is what the writer needs of an open file.
type file interface {
	io.WriteCloser
	// Sync makes the content durable.
	Sync() error
	Truncate(size int64) error
	Stat() (os.FileInfo, error)
}

// opener opens a file for appending. With create it must not be there before, and its name is durable
// afterwards.
type opener func(path string, create bool) (file, error)

func openOS(path string, create bool) (file, error) {
	flags := os.O_WRONLY | os.O_APPEND
	if create {
		flags |= os.O_CREATE | os.O_EXCL
	}
	f, err := os.OpenFile(path, flags, 0o640)
	if err != nil {
		return nil, err
	}
	if create {
		if err := vfs.OS().SyncDir(filepath.Dir(path)); err != nil {
			f.Close()
			return nil, err
		}
	}
	return osFile{f}, nil
}

type osFile struct{ *os.File }

func (f osFile) Sync() error { return vfs.Sync(f.File) }

// output is the file that is written to, and its change for another.
type output struct {
	dir  string
	open opener
	now  func() time.Time
	log  *slog.Logger
	// begun is called with each new file; nil: nobody needs it.
	begun func(logFile)

	f       file    // nil: the next record begins a file
	current logFile // what f is, or what was closed last
	size    int64   // of f, up to the end of its last whole line
	synced  int64   // of f, what is on stable storage
	checked time.Time
}

// durable is the end of what is on stable storage.
func (o *output) durable() Position { return Position{o.current.begun.Unix(), o.synced} }

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
		if _, err := o.f.Write([]byte{'\n'}); err != nil { // the disk is full: no reason to hold up mail
			o.log.Error("the last line of an accounting file can't be ended; the next record begins another file", "error", err)
			return o.leave()
		}
		o.size++
	}
	// A kill may have come between a write and its sync. Nobody was given those records before.
	if _, err := o.sync(); err != nil {
		return err
	}
	o.checked = o.now()
	if end := o.end(l); !end.IsZero() && !o.now().Before(end) {
		_, err = o.close()
	}
	return err
}

// leave ends a file with a torn line as it is: readers pass over that line.
func (o *output) leave() error {
	whole, err := (&reader{ctx: context.Background()}).scan(o.current, 0, func([]byte, int64) error { return nil })
	if err != nil {
		return err
	}
	o.size = whole
	_, err = o.close()
	return err
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

// write appends whole lines and makes them durable. It returns how many octets of them are safe, also after
// an error. A line is never split between files.
func (o *output) write(lines []byte, l Limits) (n int, err error) {
	for n < len(lines) {
		lost, err := o.ready(l)
		if n -= lost; err != nil {
			return n, err
		}
		chunk := fitting(lines[n:], l.RotateSize, o.size)
		if len(chunk) == 0 {
			lost, err := o.close()
			if n -= lost; err != nil {
				return n, err
			}
			continue
		}
		Position{o.current.begun.Unix(), o.size}.stamp(chunk)
		written, err := o.f.Write(chunk)
		if err != nil {
			n += o.repair(chunk[:max(0, written)])
			lost, _ := o.sync()
			return n - lost, fmt.Errorf("writing %s: %w", o.current.path, err)
		}
		o.size += int64(written)
		n += written
	}
	lost, err := o.sync()
	return n - lost, err
}

// sync makes durable what was written. If that fails, nobody knows what the disk has of it: it is taken back,
// and its size returned, to be written to another file.
func (o *output) sync() (lost int, err error) {
	if o.f == nil || o.size == o.synced {
		return 0, nil
	}
	if err = o.f.Sync(); err == nil {
		o.synced = o.size
		return 0, nil
	}
	lost = int(o.size - o.synced)
	o.size = o.synced
	_ = o.f.Truncate(o.size) // else these records are there twice
	_ = o.f.Close()
	o.f = nil
	return lost, fmt.Errorf("syncing %s: %w", o.current.path, err)
}

// fitting gives the lines that may go into a file of that size; at least one into an empty one.
func fitting(lines []byte, limit, size int64) []byte {
	if limit <= 0 || limit > maxFileSize {
		limit = maxFileSize
	}
	if size+int64(len(lines)) <= limit {
		return lines
	}
	room := max(0, limit-size)
	chunk := lines[:bytes.LastIndexByte(lines[:room], '\n')+1]
	if len(chunk) == 0 && size == 0 {
		chunk = lines[:bytes.IndexByte(lines, '\n')+1]
	}
	return chunk
}

// repair takes back the part of a line that a failed write has left, and returns how much of
// chunk is in the file for good. When it can't, the file is left as it is: readers pass over
// the last line of a file when it has no end.
func (o *output) repair(chunk []byte) int {
	whole := bytes.LastIndexByte(chunk, '\n') + 1
	o.size += int64(whole)
	if whole < len(chunk) && o.f.Truncate(o.size) != nil {
		lost, _ := o.close()
		whole -= lost
	}
	return whole
}

// ready makes sure that there is a file to write to. It returns how many octets written before the disk has
// lost, if it had to end another file.
func (o *output) ready(l Limits) (lost int, err error) {
	now := o.now()
	if end := o.end(l); !end.IsZero() && !now.Before(end) {
		if lost, err := o.close(); err != nil {
			return lost, err
		}
	}
	if o.f != nil && now.Sub(o.checked) >= checkEvery {
		o.checked = now
		if o.taken() {
			lost, _ = o.close()
		}
	}
	if o.f == nil {
		err = o.begin(now)
	}
	return lost, err
}

// taken reports whether the file was deleted, renamed or truncated, by a program that rotates logs or by
// hand: what is written to it would be lost, or have another position.
func (o *output) taken() bool {
	ours, err := o.f.Stat()
	if err != nil || ours.Size() < o.size {
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
	o.f, o.current, o.size, o.synced, o.checked = f, next, 0, 0, now
	if o.begun != nil {
		o.begun(next)
	}
	if err := point(o.dir, next); err != nil {
		o.log.Warn("the link to the newest accounting file can't be made", "error", err)
	}
	return nil
}

// close ends the current file; the next record begins another. It returns how many octets of the file could
// not be made durable and were taken back.
func (o *output) close() (lost int, err error) {
	if lost, err = o.sync(); o.f == nil {
		return lost, err
	}
	err = errors.Join(err, o.f.Close())
	o.f = nil
	return lost, err
}
