// Package vfs is the strip of a file system that the queue stands on, so that tests can put
// another under it: one that loses power, one that fails. It starts no goroutines.
//
// What the queue relies on, and no more: bytes are on stable storage once File.Sync has returned
// nil; the name of a new, renamed or removed file once SyncDir of its directory has; anything
// else may be there after a power cut wholly, in part, in another order, or not at all.
package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"example.org/mta/internal/smallfile"
)

// ErrLocked is returned by FS.Lock when another holds the lock.
var ErrLocked = errors.New("locked by another process")

// FS is a file system. Names are paths as the operating system has them. It is safe for use by
// many goroutines.
type FS interface {
	// MkdirAll makes dir and its parents; it is no error that dir is there.
	MkdirAll(dir string) error
	// Create makes a file that must not be there yet, for reading and writing.
	Create(name string) (File, error)
	// Open opens a file for reading.
	Open(name string) (File, error)
	// OpenWrite opens a file that is there for reading and writing.
	OpenWrite(name string) (File, error)
	// Remove removes a file.
	Remove(name string) error
	// Rename gives a file another name in the same directory or another, in one step; a file
	// of that name is replaced.
	Rename(from, to string) error
	// List gives the files, not the directories, in dir, ordered by name.
	List(dir string) ([]Info, error)
	// SyncDir makes durable what was created, renamed or removed in dir.
	SyncDir(dir string) error
	// Free is how many octets can still be written under dir.
	Free(dir string) (int64, error)
	// Lock takes the lock that the file stands for, or fails with ErrLocked. Closing gives it
	// back, and so does the end of the process.
	Lock(name string) (io.Closer, error)
}

// File is an open file. Reads and writes may come from many goroutines.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Sync makes the content and the size durable; times and other attributes need not be.
	Sync() error
	// Allocate reserves disk for size octets and makes the file that long; the new part reads
	// as zeros.
	Allocate(size int64) error
	// Truncate makes the file size octets long.
	Truncate(size int64) error
	// Size is its length in octets.
	Size() (int64, error)
}

// Info is an entry of a directory.
type Info struct {
	Name string // without the directory
	Size int64  // octets
}

// OS gives the file system of the operating system.
func OS() FS { return osFS{} }

// ErrReadOnly is returned for what would change something in a file system of ReadOnly.
var ErrReadOnly = errors.New("opened for reading only")

// ReadOnly gives a file system in which nothing can be changed. A directory that is not there is empty.
func ReadOnly(of FS) FS { return readOnly{of} }

type readOnly struct{ FS }

func refuse(op, name string) error { return &os.PathError{Op: op, Path: name, Err: ErrReadOnly} }

func (readOnly) MkdirAll(string) error               { return nil }
func (readOnly) Create(name string) (File, error)    { return nil, refuse("create", name) }
func (readOnly) OpenWrite(name string) (File, error) { return nil, refuse("open", name) }
func (readOnly) Remove(name string) error            { return refuse("remove", name) }
func (readOnly) Rename(from, _ string) error         { return refuse("rename", from) }
func (readOnly) SyncDir(string) error                { return nil }

func (r readOnly) List(dir string) ([]Info, error) {
	list, err := r.FS.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return list, err
}

type osFS struct{}

type osFile struct{ *os.File }

func (osFS) MkdirAll(dir string) error { return os.MkdirAll(dir, 0o700) }

func (osFS) Create(name string) (File, error) {
	return open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (osFS) Open(name string) (File, error) { return open(name, os.O_RDONLY) }

func (osFS) OpenWrite(name string) (File, error) { return open(name, os.O_RDWR) }

func open(name string, flags int) (File, error) {
	f, err := os.OpenFile(name, flags, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Remove(name string) error { return os.Remove(name) }

func (osFS) Rename(from, to string) error { return os.Rename(from, to) }

func (osFS) List(dir string) ([]Info, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var list []Info
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		fi, err := e.Info()
		if os.IsNotExist(err) {
			continue // removed since
		}
		if err != nil {
			return nil, err
		}
		list = append(list, Info{Name: e.Name(), Size: fi.Size()})
	}
	return list, nil
}

func (osFS) SyncDir(dir string) error { return smallfile.SyncDir(dir) }

func (f osFile) Sync() error { return smallfile.Sync(f.File) }

func (f osFile) Size() (int64, error) {
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}
