package vfstest

import (
	"io"
	"sync/atomic"

	"example.org/mta/queue/vfs"
)

// Op is a kind of operation.
type Op uint8

const (
	Create Op = iota
	Open
	Remove
	Rename
	List
	SyncDir
	Read
	Write
	Sync
	Allocate
	Truncate
)

// Fault is what happens instead of an operation.
type Fault struct {
	Err  error // returned, if not nil
	Part int   // octets of a write that are written all the same; with a nil Err, a short write
	Flip bool  // of a read: one bit of what is read is turned
	Done bool  // the operation is done, and then fails
}

// Faulty is another file system with faults: operations that fail, writes that are short, reads that give wrong octets.
type Faulty struct {
	vfs.FS
	decider atomic.Pointer[Decider]
}

// Decider is called before each operation with its kind and the file's name. Nil: no fault.
type Decider func(op Op, name string) *Fault

// Decide has d decide from now on, also while others use the file system.
func (f *Faulty) Decide(d Decider) { f.decider.Store(&d) }

func (f *Faulty) decide(op Op, name string) *Fault {
	if d := f.decider.Load(); d != nil {
		return (*d)(op, name)
	}
	return nil
}

// try does what the fault leaves of an operation.
func (f *Faulty) try(op Op, name string, do func() error) error {
	fault := f.decide(op, name)
	if fault == nil {
		return do()
	}
	if fault.Done || fault.Err == nil {
		if err := do(); err != nil {
			return err
		}
	}
	return fault.Err
}

func (f *Faulty) open(op Op, name string, do func(string) (vfs.File, error)) (vfs.File, error) {
	var inner vfs.File
	err := f.try(op, name, func() (err error) {
		inner, err = do(name)
		return err
	})
	if err != nil {
		if inner != nil {
			inner.Close()
		}
		return nil, err
	}
	return &faultyFile{File: inner, fs: f, name: name}, nil
}

// Create makes a file.
func (f *Faulty) Create(name string) (vfs.File, error) { return f.open(Create, name, f.FS.Create) }

// Open opens a file for reading.
func (f *Faulty) Open(name string) (vfs.File, error) { return f.open(Open, name, f.FS.Open) }

// OpenWrite opens a file for reading and writing.
func (f *Faulty) OpenWrite(name string) (vfs.File, error) { return f.open(Open, name, f.FS.OpenWrite) }

// Remove removes a file.
func (f *Faulty) Remove(name string) error {
	return f.try(Remove, name, func() error { return f.FS.Remove(name) })
}

// Rename renames a file.
func (f *Faulty) Rename(from, to string) error {
	return f.try(Rename, from, func() error { return f.FS.Rename(from, to) })
}

// List gives the files in a directory.
func (f *Faulty) List(dir string) (list []vfs.Info, err error) {
	err = f.try(List, dir, func() (err error) {
		list, err = f.FS.List(dir)
		return err
	})
	return list, err
}

// SyncDir makes the names in a directory durable.
func (f *Faulty) SyncDir(dir string) error {
	return f.try(SyncDir, dir, func() error { return f.FS.SyncDir(dir) })
}

type faultyFile struct {
	vfs.File
	fs   *Faulty
	name string
}

func (h *faultyFile) ReadAt(p []byte, off int64) (int, error) {
	fault := h.fs.decide(Read, h.name)
	if fault != nil && fault.Err != nil {
		return 0, fault.Err
	}
	n, err := h.File.ReadAt(p, off)
	if fault != nil && fault.Flip && n > 0 {
		p[n/2] ^= 0x10
	}
	return n, err
}

func (h *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	fault := h.fs.decide(Write, h.name)
	if fault == nil {
		return h.File.WriteAt(p, off)
	}
	if fault.Done {
		if n, err := h.File.WriteAt(p, off); err != nil {
			return n, err
		}
		return 0, fault.Err
	}
	n, err := h.File.WriteAt(p[:min(fault.Part, len(p))], off)
	if err == nil {
		err = fault.Err
	}
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return n, err
}

func (h *faultyFile) Sync() error {
	return h.fs.try(Sync, h.name, h.File.Sync)
}

func (h *faultyFile) Allocate(size int64) error {
	return h.fs.try(Allocate, h.name, func() error { return h.File.Allocate(size) })
}

func (h *faultyFile) Truncate(size int64) error {
	return h.fs.try(Truncate, h.name, func() error { return h.File.Truncate(size) })
}
