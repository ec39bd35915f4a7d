package vfs

import (
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Memory gives an empty file system in memory, for tests and for measuring what a disk costs.
// Syncing does nothing: all is lost with the process.
func Memory() FS {
	return &memFS{files: map[string]*memData{}, locked: map[string]bool{}}
}

type memFS struct {
	mu     sync.Mutex // guards the maps
	files  map[string]*memData
	locked map[string]bool
}

type memData struct {
	mu   sync.RWMutex
	data []byte
}

type memFile struct {
	*memData
	name  string
	write bool
}

func (m *memFS) MkdirAll(string) error { return nil }

func (m *memFS) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = filepath.Clean(name)
	if m.files[name] != nil {
		return nil, &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	}
	d := &memData{}
	m.files[name] = d
	return &memFile{memData: d, name: name, write: true}, nil
}

func (m *memFS) Open(name string) (File, error) { return m.open(name, false) }

func (m *memFS) OpenWrite(name string) (File, error) { return m.open(name, true) }

func (m *memFS) open(name string, write bool) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = filepath.Clean(name)
	d := m.files[name]
	if d == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &memFile{memData: d, name: name, write: write}, nil
}

func (m *memFS) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = filepath.Clean(name)
	if m.files[name] == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	delete(m.files, name)
	return nil
}

func (m *memFS) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, to = filepath.Clean(from), filepath.Clean(to)
	d := m.files[from]
	if d == nil {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	delete(m.files, from)
	m.files[to] = d
	return nil
}

func (m *memFS) List(dir string) ([]Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir = filepath.Clean(dir)
	var list []Info
	for name, d := range m.files {
		if filepath.Dir(name) == dir {
			list = append(list, Info{Name: filepath.Base(name), Size: d.size()})
		}
	}
	slices.SortFunc(list, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

func (m *memFS) SyncDir(string) error { return nil }

// Free returns so much that what is added to it does not overflow.
func (m *memFS) Free(string) (int64, error) { return math.MaxInt64 / 2, nil }

func (m *memFS) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locked[name] {
		return nil, ErrLocked
	}
	m.locked[name] = true
	return memLock{m, name}, nil
}

type memLock struct {
	m    *memFS
	name string
}

func (l memLock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	delete(l.m.locked, l.name)
	return nil
}

func (d *memData) size() int64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return int64(len(d.data))
}

// resize makes data n octets long; new ones are zero.
func (d *memData) resize(n int64) {
	if old := int64(len(d.data)); n > old {
		d.data = slices.Grow(d.data, int(n-old))[:n]
		clear(d.data[old:])
	} else {
		d.data = d.data[:n]
	}
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if off >= int64(len(f.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if !f.write {
		return 0, &fs.PathError{Op: "write", Path: f.name, Err: fs.ErrPermission}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if end := off + int64(len(p)); end > int64(len(f.data)) {
		f.resize(end)
	}
	return copy(f.data[off:], p), nil
}

func (f *memFile) Truncate(size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.resize(size)
	return nil
}

func (f *memFile) Allocate(size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if size > int64(len(f.data)) {
		f.resize(size)
	}
	return nil
}

func (f *memFile) Sync() error          { return nil }
func (f *memFile) Close() error         { return nil }
func (f *memFile) Size() (int64, error) { return f.size(), nil }
