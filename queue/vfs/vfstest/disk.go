package vfstest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"math"
	"math/rand"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"example.org/mta/queue/vfs"
)

// ErrCut is returned by every operation after the power was cut.
var ErrCut = errors.New("power is cut")

const sector = 512

// Disk is a file system in memory that can lose power: what was not synced is then kept, dropped, or kept in part, at
// random. Power is cut at an operation that changes something, counted from 1; that operation itself may or may not
// have happened.
//
// It is crueller than real ones: each write since the last sync survives by itself or not, sector by sector and in any
// order; a file can have grown without its content; directory entries that were not synced come and go independently of
// each other and of the files.
type Disk struct {
	mu    sync.Mutex // guards all
	rng   *rand.Rand // nil: power is never cut, and what is not synced is not kept apart
	dirs  map[string]*dir
	ops   int
	cutAt int
	cut   bool
	locks map[string]bool
}

type dir struct {
	live, durable map[string]*inode
	pending       []dirOp
}

// dirOp is a change of names that is not durable yet: one that is set, one that is removed, or
// both in one step.
type dirOp struct {
	set    string
	inode  *inode
	remove string
}

type inode struct {
	live, durable content
	pending       []change
}

// content is that of a file. What is behind data up to size is zeros: segments of a journal are made at full length.
type content struct {
	data []byte
	size int64
}

// change is a write, or with data nil a change of size, that is not durable yet.
type change struct {
	off  int64
	data []byte
	size int64
}

// NewDisk gives an empty file system that decides by rng.
func NewDisk(rng *rand.Rand) *Disk {
	return &Disk{rng: rng, dirs: map[string]*dir{}, locks: map[string]bool{}}
}

// Memory gives an empty file system that loses no power. Syncing does nothing: all is lost with the process.
func Memory() vfs.FS { return NewDisk(nil) }

// CutAt has the power cut at the n-th changing operation from the start; 0: never.
func (f *Disk) CutAt(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cutAt = n
}

// Ops is how many changing operations there were.
func (f *Disk) Ops() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ops
}

// IsCut reports whether the power was cut.
func (f *Disk) IsCut() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cut
}

// Reboot gives the file system as it is found when the power is back. The old one must not be
// used any more.
func (f *Disk) Reboot() *Disk {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut = true
	after := NewDisk(f.rng)
	found := map[*inode]*inode{}
	for _, name := range slices.Sorted(maps.Keys(f.dirs)) {
		after.dirs[name] = f.survivingDir(f.dirs[name], found)
	}
	return after
}

func (f *Disk) survivingDir(d *dir, found map[*inode]*inode) *dir {
	names := maps.Clone(d.durable)
	for _, op := range d.pending {
		if f.rng.Intn(2) == 0 {
			continue
		}
		if op.remove != "" {
			delete(names, op.remove)
		}
		if op.set != "" {
			names[op.set] = op.inode
		}
	}
	out := newDir()
	for _, name := range slices.Sorted(maps.Keys(names)) {
		ino := names[name]
		if found[ino] == nil {
			found[ino] = f.survivingInode(ino)
		}
		out.live[name], out.durable[name] = found[ino], found[ino]
	}
	return out
}

func (f *Disk) survivingInode(ino *inode) *inode {
	c := ino.durable.clone()
	all, none := f.rng.Intn(4) == 0, f.rng.Intn(4) == 0
	for _, p := range ino.pending {
		switch {
		case all:
			c.apply(p)
		case none || f.rng.Intn(3) == 0:
		default:
			f.applyPart(p, &c)
		}
	}
	return &inode{live: c, durable: c.clone()}
}

// applyPart applies some sectors of a write.
func (f *Disk) applyPart(p change, c *content) {
	if p.data == nil {
		c.apply(p)
		return
	}
	if f.rng.Intn(4) == 0 { // the size alone, or some of it
		c.size = max(c.size, p.off+f.rng.Int63n(int64(len(p.data))+1))
	}
	for at := int64(0); at < int64(len(p.data)); {
		end := min((p.off+at)/sector*sector+sector-p.off, int64(len(p.data)))
		if f.rng.Intn(3) > 0 {
			c.apply(change{off: p.off + at, data: p.data[at:end]})
		}
		at = end
	}
}

func (c *content) apply(p change) {
	if p.data == nil {
		c.data, c.size = c.data[:min(int64(len(c.data)), p.size)], p.size
		return
	}
	end := p.off + int64(len(p.data))
	if old := int64(len(c.data)); end > old {
		c.data = slices.Grow(c.data, int(end-old))[:end]
		clear(c.data[old:])
	}
	copy(c.data[p.off:], p.data)
	c.size = max(c.size, end)
}

func (c *content) clone() content { return content{slices.Clone(c.data), c.size} }

// read reads from an offset, which is before the end.
func (c *content) read(p []byte, off int64) int {
	p = p[:min(int64(len(p)), c.size-off)]
	n := 0
	if off < int64(len(c.data)) {
		n = copy(p, c.data[off:])
	}
	clear(p[n:])
	return len(p)
}

// later notes changes of names that are not durable yet.
func (f *Disk) later(d *dir, ops ...dirOp) {
	if f.rng != nil {
		d.pending = append(d.pending, ops...)
	}
}

// step does a changing operation, and counts it. One at which the power is cut is done half of the time, without a
// report.
func (f *Disk) step(do func()) error {
	if f.cut {
		return ErrCut
	}
	if f.ops++; f.ops != f.cutAt {
		do()
		return nil
	}
	if f.rng.Intn(2) == 0 {
		do()
	}
	f.cut = true
	return ErrCut
}

func newDir() *dir {
	return &dir{live: map[string]*inode{}, durable: map[string]*inode{}}
}

// MkdirAll makes a directory and its parents, durably at once.
func (f *Disk) MkdirAll(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cut {
		return ErrCut
	}
	for name = filepath.Clean(name); f.dirs[name] == nil; name = filepath.Dir(name) {
		f.dirs[name] = newDir()
	}
	return nil
}

// split finds the directory of a file.
func (f *Disk) split(op, name string) (*dir, string, error) {
	if f.cut {
		return nil, "", ErrCut
	}
	d := f.dirs[filepath.Dir(name)]
	if d == nil && f.rng == nil { // Memory has all directories
		d = newDir()
		f.dirs[filepath.Dir(name)] = d
	}
	if d == nil {
		return nil, "", &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	return d, filepath.Base(name), nil
}

// find finds a file that is there.
func (f *Disk) find(op, name string) (*dir, string, *inode, error) {
	d, base, err := f.split(op, name)
	if err == nil && d.live[base] == nil {
		err = &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	if err != nil {
		return nil, "", nil, err
	}
	return d, base, d.live[base], nil
}

// Create makes a file.
func (f *Disk) Create(name string) (vfs.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, base, err := f.split("create", name)
	if err != nil {
		return nil, err
	}
	if d.live[base] != nil {
		return nil, &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	}
	ino := &inode{}
	do := func() {
		d.live[base] = ino
		f.later(d, dirOp{set: base, inode: ino})
	}
	if err := f.step(do); err != nil {
		return nil, err
	}
	return &file{f, ino, true}, nil
}

// Open opens a file for reading.
func (f *Disk) Open(name string) (vfs.File, error) { return f.open(name, false) }

// OpenWrite opens a file for reading and writing.
func (f *Disk) OpenWrite(name string) (vfs.File, error) { return f.open(name, true) }

func (f *Disk) open(name string, write bool) (vfs.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _, ino, err := f.find("open", name)
	if err != nil {
		return nil, err
	}
	return &file{f, ino, write}, nil
}

// Remove removes a file.
func (f *Disk) Remove(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, base, _, err := f.find("remove", name)
	if err != nil {
		return err
	}
	return f.step(func() {
		delete(d.live, base)
		f.later(d, dirOp{remove: base})
	})
}

// Rename renames a file. Across directories the two names are not durable together.
func (f *Disk) Rename(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, base, ino, err := f.find("rename", from)
	if err != nil {
		return err
	}
	e, newBase, err := f.split("rename", to)
	if err != nil {
		return err
	}
	return f.step(func() {
		delete(d.live, base)
		e.live[newBase] = ino
		if d == e {
			f.later(d, dirOp{set: newBase, inode: ino, remove: base})
			return
		}
		f.later(e, dirOp{set: newBase, inode: ino})
		f.later(d, dirOp{remove: base})
	})
}

// List gives the files in a directory.
func (f *Disk) List(name string) ([]vfs.Info, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, _, err := f.split("list", filepath.Join(name, "x"))
	if err != nil {
		return nil, err
	}
	var list []vfs.Info
	for base, ino := range d.live {
		list = append(list, vfs.Info{Name: base, Size: ino.live.size})
	}
	slices.SortFunc(list, func(a, b vfs.Info) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// SyncDir makes the names in a directory durable.
func (f *Disk) SyncDir(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, _, err := f.split("sync", filepath.Join(name, "x"))
	if err != nil {
		return err
	}
	return f.step(func() {
		if f.rng != nil {
			d.durable, d.pending = maps.Clone(d.live), nil
		}
	})
}

// Free is so much that what is added to it does not overflow: a full disk is Tight's affair.
func (f *Disk) Free(string) (int64, error) { return math.MaxInt64 / 2, nil }

// Lock takes a lock; a reboot gives it back.
func (f *Disk) Lock(name string) (io.Closer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.locks[name] {
		return nil, vfs.ErrLocked
	}
	f.locks[name] = true
	return unlock(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.locks, name)
	}), nil
}

type unlock func()

func (u unlock) Close() error { u(); return nil }

type file struct {
	fs    *Disk
	ino   *inode
	write bool
}

func (h *file) ReadAt(p []byte, off int64) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if h.fs.cut {
		return 0, ErrCut
	}
	if off >= h.ino.live.size {
		return 0, io.EOF
	}
	n := h.ino.live.read(p, off)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (h *file) change(c change) error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if !h.write {
		return fs.ErrPermission
	}
	return h.fs.step(func() {
		h.ino.live.apply(c)
		if h.fs.rng != nil {
			c.data = bytes.Clone(c.data)
			h.ino.pending = append(h.ino.pending, c)
		}
	})
}

func (h *file) WriteAt(p []byte, off int64) (int, error) {
	if err := h.change(change{off: off, data: p}); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (h *file) Truncate(size int64) error { return h.change(change{size: size}) }

func (h *file) Allocate(size int64) error {
	if n, _ := h.Size(); size <= n {
		return nil
	}
	return h.change(change{size: size})
}

func (h *file) Sync() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	return h.fs.step(func() {
		for _, c := range h.ino.pending {
			h.ino.durable.apply(c)
		}
		h.ino.pending = nil
	})
}

func (h *file) Size() (int64, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if h.fs.cut {
		return 0, ErrCut
	}
	return h.ino.live.size, nil
}

func (h *file) Close() error { return nil }
