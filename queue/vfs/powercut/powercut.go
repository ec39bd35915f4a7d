// Package powercut is a file system in memory that loses power: what was not synced is then
// kept, dropped, or kept in part, at random. It is for tests of what stands on vfs.FS. It starts
// no goroutines.
//
// It is crueller than real ones: each write since the last sync survives by itself or not,
// sector by sector and in any order; a file can have grown without its content; directory
// entries that were not synced come and go independently of each other and of the files.
package powercut

import (
	"errors"
	"io"
	"io/fs"
	"maps"
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

// FS is the file system. Power is cut at an operation that changes something, counted from 1;
// that operation itself may or may not have happened.
type FS struct {
	mu    sync.Mutex // guards all
	rng   *rand.Rand
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
	live, durable []byte
	pending       []change
}

// change is a write, or with data nil a change of size, that is not durable yet.
type change struct {
	off  int64
	data []byte
	size int64
}

// New gives an empty file system that decides by rng.
func New(rng *rand.Rand) *FS {
	return &FS{rng: rng, dirs: map[string]*dir{}, locks: map[string]bool{}}
}

// CutAt has the power cut at the n-th changing operation from the start; 0: never.
func (f *FS) CutAt(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cutAt = n
}

// Ops is how many changing operations there were.
func (f *FS) Ops() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ops
}

// IsCut reports whether the power was cut.
func (f *FS) IsCut() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cut
}

// Reboot gives the file system as it is found when the power is back. The old one must not be
// used any more.
func (f *FS) Reboot() *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut = true
	after := New(f.rng)
	found := map[*inode]*inode{}
	for _, name := range slices.Sorted(maps.Keys(f.dirs)) {
		after.dirs[name] = f.survivingDir(f.dirs[name], found)
	}
	return after
}

func (f *FS) survivingDir(d *dir, found map[*inode]*inode) *dir {
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

func (f *FS) survivingInode(ino *inode) *inode {
	data := slices.Clone(ino.durable)
	all, none := f.rng.Intn(4) == 0, f.rng.Intn(4) == 0
	for _, c := range ino.pending {
		switch {
		case all:
			data = c.apply(data)
		case none || f.rng.Intn(3) == 0:
		default:
			data = f.applyPart(c, data)
		}
	}
	return &inode{live: data, durable: slices.Clone(data)}
}

// applyPart applies some sectors of a write.
func (f *FS) applyPart(c change, data []byte) []byte {
	if c.data == nil {
		return c.apply(data)
	}
	if f.rng.Intn(4) == 0 { // the size alone, or some of it
		data = resize(data, max(int64(len(data)), c.off+f.rng.Int63n(int64(len(c.data))+1)))
	}
	for at := int64(0); at < int64(len(c.data)); {
		end := min((c.off+at)/sector*sector+sector-c.off, int64(len(c.data)))
		if f.rng.Intn(3) > 0 {
			data = change{off: c.off + at, data: c.data[at:end]}.apply(data)
		}
		at = end
	}
	return data
}

func (c change) apply(data []byte) []byte {
	if c.data == nil {
		return resize(data, c.size)
	}
	if end := c.off + int64(len(c.data)); end > int64(len(data)) {
		data = resize(data, end)
	}
	copy(data[c.off:], c.data)
	return data
}

func resize(data []byte, n int64) []byte {
	old := int64(len(data))
	if n <= old {
		return data[:n]
	}
	data = slices.Grow(data, int(n-old))[:n]
	clear(data[old:])
	return data
}

// step counts a changing operation. When the power is cut at it, may is called half of the time,
// to do the operation without a report.
func (f *FS) step(may func()) error {
	if f.cut {
		return ErrCut
	}
	f.ops++
	if f.ops != f.cutAt {
		return nil
	}
	if may != nil && f.rng.Intn(2) == 0 {
		may()
	}
	f.cut = true
	return ErrCut
}

func newDir() *dir {
	return &dir{live: map[string]*inode{}, durable: map[string]*inode{}}
}

// MkdirAll makes a directory, durably at once.
func (f *FS) MkdirAll(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cut {
		return ErrCut
	}
	name = filepath.Clean(name)
	if f.dirs[name] == nil {
		f.dirs[name] = newDir()
	}
	return nil
}

// split finds the directory of a file.
func (f *FS) split(op, name string) (*dir, string, error) {
	if f.cut {
		return nil, "", ErrCut
	}
	d := f.dirs[filepath.Dir(name)]
	if d == nil {
		return nil, "", &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	return d, filepath.Base(name), nil
}

// Create makes a file.
func (f *FS) Create(name string) (vfs.File, error) {
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
		d.pending = append(d.pending, dirOp{set: base, inode: ino})
	}
	if err := f.step(do); err != nil {
		return nil, err
	}
	do()
	return &file{fs: f, ino: ino}, nil
}

// Open opens a file.
func (f *FS) Open(name string) (vfs.File, error) { return f.OpenWrite(name) }

// OpenWrite opens a file.
func (f *FS) OpenWrite(name string) (vfs.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, base, err := f.split("open", name)
	if err != nil {
		return nil, err
	}
	if d.live[base] == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &file{fs: f, ino: d.live[base]}, nil
}

// Remove removes a file.
func (f *FS) Remove(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, base, err := f.split("remove", name)
	if err != nil {
		return err
	}
	if d.live[base] == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	do := func() {
		delete(d.live, base)
		d.pending = append(d.pending, dirOp{remove: base})
	}
	if err := f.step(do); err != nil {
		return err
	}
	do()
	return nil
}

// Rename renames a file. Across directories the two names are not durable together.
func (f *FS) Rename(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, base, err := f.split("rename", from)
	if err != nil {
		return err
	}
	e, newBase, err := f.split("rename", to)
	if err != nil {
		return err
	}
	ino := d.live[base]
	if ino == nil {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	do := func() {
		delete(d.live, base)
		e.live[newBase] = ino
		if d == e {
			d.pending = append(d.pending, dirOp{set: newBase, inode: ino, remove: base})
			return
		}
		e.pending = append(e.pending, dirOp{set: newBase, inode: ino})
		d.pending = append(d.pending, dirOp{remove: base})
	}
	if err := f.step(do); err != nil {
		return err
	}
	do()
	return nil
}

// List gives the files in a directory.
func (f *FS) List(name string) ([]vfs.Info, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, _, err := f.split("list", filepath.Join(name, "x"))
	if err != nil {
		return nil, err
	}
	var list []vfs.Info
	for base, ino := range d.live {
		list = append(list, vfs.Info{Name: base, Size: int64(len(ino.live))})
	}
	slices.SortFunc(list, func(a, b vfs.Info) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// SyncDir makes the names in a directory durable.
func (f *FS) SyncDir(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, _, err := f.split("sync", filepath.Join(name, "x"))
	if err != nil {
		return err
	}
	do := func() { d.durable, d.pending = maps.Clone(d.live), nil }
	if err := f.step(do); err != nil {
		return err
	}
	do()
	return nil
}

// Free is a petabyte: a full disk is not this package's affair.
func (f *FS) Free(string) (int64, error) { return 1 << 50, nil }

// Lock takes a lock; a reboot gives it back.
func (f *FS) Lock(name string) (io.Closer, error) {
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
	fs  *FS
	ino *inode
}

func (h *file) ReadAt(p []byte, off int64) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if h.fs.cut {
		return 0, ErrCut
	}
	if off >= int64(len(h.ino.live)) {
		return 0, io.EOF
	}
	n := copy(p, h.ino.live[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (h *file) change(c change) error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	do := func() {
		h.ino.live = c.apply(h.ino.live)
		h.ino.pending = append(h.ino.pending, c)
	}
	if err := h.fs.step(do); err != nil {
		return err
	}
	do()
	return nil
}

func (h *file) WriteAt(p []byte, off int64) (int, error) {
	if err := h.change(change{off: off, data: slices.Clone(p)}); err != nil {
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
	do := func() {
		for _, c := range h.ino.pending {
			h.ino.durable = c.apply(h.ino.durable)
		}
		h.ino.pending = nil
	}
	if err := h.fs.step(do); err != nil {
		return err
	}
	do()
	return nil
}

func (h *file) Size() (int64, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if h.fs.cut {
		return 0, ErrCut
	}
	return int64(len(h.ino.live)), nil
}

func (h *file) Close() error { return nil }
