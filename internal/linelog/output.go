package linelog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"example.org/mta/internal/smallfile"
)

// OutFile is an open file that lines are appended to.
type OutFile interface {
	io.WriteCloser
	// Sync makes the content durable.
	Sync() error
	Truncate(size int64) error
	Stat() (os.FileInfo, error)
}

// Opener opens a file for appending. With create it must not be there before, and its name is durable afterwards.
type Opener func(path string, create bool) (OutFile, error)

// OpenOS opens a file of the operating system. One that root makes belongs to the owner of its folder.
func OpenOS(path string, create bool) (OutFile, error) {
	flags := os.O_WRONLY | os.O_APPEND
	if create {
		flags |= os.O_CREATE | os.O_EXCL
	}
	f, err := os.OpenFile(path, flags, 0o640)
	if err != nil {
		return nil, err
	}
	if create {
		if err := errors.Join(smallfile.Inherit(path), smallfile.SyncDir(filepath.Dir(path))); err != nil {
			f.Close()
			return nil, err
		}
	}
	return OSFile{f}, nil
}

// OSFile is a file of the operating system.
type OSFile struct{ *os.File }

// Sync implements OutFile.
func (f OSFile) Sync() error { return smallfile.Sync(f.File) }

// Output is the file that is written to, and its change for another. It is for one goroutine at a time.
type Output struct {
	Dir  Dir
	Open Opener
	Now  func() time.Time
	Log  *slog.Logger
	// Stamp fills the positions of whole lines in that are written at p. nil: they have none.
	Stamp func(p Position, lines []byte)
	// Begun is called with each new file. nil: nobody needs it.
	Begun func(File)

	// RotateSize is how many octets a file has at most, RotateEvery when it ends: at whole multiples, in UTC. Zero is
	// no limit.
	RotateSize  int64
	RotateEvery time.Duration
	// CheckEvery is how often Write looks whether its file was taken away by somebody else.
	CheckEvery time.Duration

	f       OutFile // nil: the next line begins a file
	current File    // what f is, or what was closed last
	size    int64   // of f, up to the end of its last whole line
	synced  int64   // of f, what is on stable storage
	checked time.Time
}

// Durable is the end of what is on stable storage; zero while there is no file.
func (o *Output) Durable() Position {
	if o.current.Begun.IsZero() {
		return Position{}
	}
	return Position{o.current.ID(), o.synced}
}

// File is the file that is written to, nil if the next line begins another.
func (o *Output) File() OutFile { return o.f }

// Began is when the file that was written to last was begun.
func (o *Output) Began() time.Time { return o.current.Begun }

// Size is how many octets the file has.
func (o *Output) Size() int64 { return o.size }

// Resume goes on with a file that is there, the newest, at an offset behind a line end.
func (o *Output) Resume(f File, size int64) (err error) {
	o.current = f
	if o.f, err = o.Open(f.Path, false); err != nil {
		return fmt.Errorf("opening the newest %s file: %w", o.Dir.Name, err)
	}
	o.size, o.synced, o.checked = size, size, o.Now()
	return nil
}

// EndLine ends the last line of the file that was resumed, which a crash can have left without its end, so that it
// spoils no other.
func (o *Output) EndLine() error {
	_, err := o.f.Write([]byte{'\n'})
	if err == nil {
		o.size++
	}
	return err
}

// Settle makes durable all that the file has that was resumed: a kill may have come between a write and its sync.
func (o *Output) Settle() error {
	if err := o.f.Sync(); err != nil {
		return fmt.Errorf("syncing %s: %w", o.current.Path, err)
	}
	o.synced = o.size
	return nil
}

// Leave ends the file that was resumed as it is, with a torn line behind an offset: readers pass over that line.
func (o *Output) Leave(size int64) error {
	o.size = size
	if err := o.Settle(); err != nil {
		return err
	}
	_, err := o.Close()
	return err
}

// End is when the current file must be closed; zero for not by time.
func (o *Output) End() time.Time {
	if o.f == nil || o.RotateEvery <= 0 {
		return time.Time{}
	}
	return o.current.Begun.Truncate(o.RotateEvery).Add(o.RotateEvery)
}

// Ended reports whether that time has come.
func (o *Output) Ended() bool {
	end := o.End()
	return !end.IsZero() && !o.Now().Before(end)
}

// Write appends whole lines and makes them durable. It returns how many octets of them are safe, also after an error. A
// line is never split between files.
func (o *Output) Write(lines []byte) (n int, err error) {
	for n < len(lines) {
		lost, err := o.Ready()
		if n -= lost; err != nil {
			return n, err
		}
		chunk := fitting(lines[n:], o.RotateSize, o.size)
		if len(chunk) == 0 {
			lost, err := o.Close()
			if n -= lost; err != nil {
				return n, err
			}
			continue
		}
		if o.Stamp != nil {
			o.Stamp(Position{o.current.ID(), o.size}, chunk)
		}
		written, err := o.f.Write(chunk)
		if err != nil {
			n += o.repair(chunk[:max(0, written)])
			lost, _ := o.Sync()
			return n - lost, fmt.Errorf("writing %s: %w", o.current.Path, err)
		}
		o.size += int64(written)
		n += written
	}
	lost, err := o.Sync()
	return n - lost, err
}

// Sync makes durable what was written. If that fails, nobody knows what the disk has of it: it is taken back, and its
// size returned, to be written to another file.
func (o *Output) Sync() (lost int, err error) {
	if o.f == nil || o.size == o.synced {
		return 0, nil
	}
	if err = o.f.Sync(); err == nil {
		o.synced = o.size
		return 0, nil
	}
	lost = int(o.size - o.synced)
	o.size = o.synced
	_ = o.f.Truncate(o.size) // else these lines are there twice
	_ = o.f.Close()
	o.f = nil
	return lost, fmt.Errorf("syncing %s: %w", o.current.Path, err)
}

// fitting gives the lines that may go into a file of that size; at least one into an empty one.
func fitting(lines []byte, limit, size int64) []byte {
	if limit <= 0 || limit > MaxFileSize {
		limit = MaxFileSize
	}
	if size+int64(len(lines)) <= limit {
		return lines
	}
	free := max(0, limit-size)
	chunk := lines[:bytes.LastIndexByte(lines[:free], '\n')+1]
	if len(chunk) == 0 && size == 0 {
		chunk = lines[:bytes.IndexByte(lines, '\n')+1]
	}
	return chunk
}

// repair takes back the part of a line that a failed write has left, and returns how much of chunk is in the file for
// good. When it can't, the file is left as it is: readers pass over the last line of a file when it has no end.
func (o *Output) repair(chunk []byte) int {
	whole := bytes.LastIndexByte(chunk, '\n') + 1
	o.size += int64(whole)
	if whole < len(chunk) && o.f.Truncate(o.size) != nil {
		lost, _ := o.Close()
		whole -= lost
	}
	return whole
}

// Ready makes sure that there is a file to write to. It returns how many octets written before the disk has lost, if it
// had to end another file.
func (o *Output) Ready() (lost int, err error) {
	if o.Ended() {
		if lost, err := o.Close(); err != nil {
			return lost, err
		}
	}
	if now := o.Now(); o.f != nil && now.Sub(o.checked) >= o.CheckEvery {
		o.checked = now
		if o.taken() {
			lost, _ = o.Close()
		}
	}
	if o.f == nil {
		err = o.Next()
	}
	return lost, err
}

// taken reports whether the file was deleted, renamed or truncated, by a program that rotates logs or by hand: what is
// written to it would be lost, or have another position.
func (o *Output) taken() bool {
	ours, err := o.f.Stat()
	if err != nil || ours.Size() < o.size {
		return true
	}
	named, err := os.Stat(o.current.Path)
	return err != nil || !os.SameFile(ours, named)
}

// Next begins another file, and ends the one before, in which all is synced. After an error that one goes on. Names
// only grow, whatever the clock does.
func (o *Output) Next() error {
	now := o.Now()
	next := o.Dir.At(now)
	if !next.Begun.After(o.current.Begun) {
		next = o.Dir.At(o.current.Begun.Add(time.Second))
	}
	if err := MakeDir(o.Dir.Path); err != nil {
		return fmt.Errorf("making the %s directory: %w", o.Dir.Name, err)
	}
	f, err := o.Open(next.Path, true)
	for errors.Is(err, fs.ErrExist) {
		next = o.Dir.At(next.Begun.Add(time.Second))
		f, err = o.Open(next.Path, true)
	}
	if err != nil {
		return fmt.Errorf("beginning an %s file: %w", o.Dir.Name, err)
	}
	if o.f != nil {
		_ = o.f.Close()
	}
	o.f, o.current, o.size, o.synced, o.checked = f, next, 0, 0, now
	if o.Begun != nil {
		o.Begun(next)
	}
	return nil
}

// MakeDir makes a folder, unless it is there. One that root makes belongs to the owner of its parent.
func MakeDir(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(path, 0o750); err != nil {
		return err
	}
	return smallfile.Inherit(path)
}

// Close ends the current file; the next line begins another. It returns how many octets of the file could not be made
// durable and were taken back.
func (o *Output) Close() (lost int, err error) {
	if lost, err = o.Sync(); o.f == nil {
		return lost, err
	}
	err = errors.Join(err, o.f.Close())
	o.f = nil
	return lost, err
}
