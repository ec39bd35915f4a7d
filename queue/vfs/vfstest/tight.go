package vfstest

import (
	"path/filepath"
	"sync"
	"syscall"

	"example.org/mta/queue/vfs"
)

// Tight is another file system with little room: what goes beyond fails as on a full disk. It has room for Capacity
// octets in Dir and in the folders right below it that are named in Below.
type Tight struct {
	vfs.FS
	Dir      string
	Below    []string
	Capacity int64

	mu     sync.Mutex // guards the rest, and makes growing one step
	lowest int64
	asked  bool
}

// Lowest is the least that has been free so far.
func (f *Tight) Lowest() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free()
	return f.lowest
}

// Free is what is left of the capacity.
func (f *Tight) Free(string) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.free(), nil
}

func (f *Tight) free() int64 {
	free := f.Capacity
	for _, dir := range append([]string{"."}, f.Below...) {
		list, err := f.FS.List(filepath.Join(f.Dir, dir))
		if err != nil {
			continue // not made yet
		}
		for _, info := range list {
			free -= info.Size
		}
	}
	if !f.asked || free < f.lowest {
		f.asked, f.lowest = true, free
	}
	return free
}

// Create makes a file.
func (f *Tight) Create(name string) (vfs.File, error) { return f.wrap(f.FS.Create(name)) }

// OpenWrite opens a file for reading and writing.
func (f *Tight) OpenWrite(name string) (vfs.File, error) { return f.wrap(f.FS.OpenWrite(name)) }

func (f *Tight) wrap(inner vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &tightFile{File: inner, fs: f}, nil
}

type tightFile struct {
	vfs.File
	fs *Tight
}

// grow does what makes the file size octets long, if there is room.
func (h *tightFile) grow(size int64, do func() error) error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	old, err := h.File.Size()
	if err != nil {
		return err
	}
	if size > old && size-old > h.fs.free() {
		return syscall.ENOSPC
	}
	err = do()
	h.fs.free()
	return err
}

func (h *tightFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = h.grow(off+int64(len(p)), func() (err error) {
		n, err = h.File.WriteAt(p, off)
		return err
	})
	return n, err
}

func (h *tightFile) Allocate(size int64) error {
	return h.grow(size, func() error { return h.File.Allocate(size) })
}
