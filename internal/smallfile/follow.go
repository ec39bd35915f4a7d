package smallfile

import (
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"example.org/mta/internal/faultlog"
)

// Follower has what a file says, and reads it again once the file has changed. A file that can't be read
// changes nothing: what it said before stays in force. It is safe for concurrent use.
type Follower[T any] struct {
	path  string
	load  func(path string) (*T, error)
	taken func(was, is *T) // nil: nothing to do
	kind  *faultlog.Kind

	mu      sync.Mutex // guards what follows, for who writes
	value   atomic.Pointer[T]
	seen    stamp
	checked atomic.Int64 // when the file was looked at last, in Unix nanoseconds
	broken  atomic.Pointer[error]
}

// stamp distinguishes one version of a file from another.
type stamp struct {
	inode    uint64
	size     int64
	modified time.Time
	mode     fs.FileMode // a file that was refused for its mode is read after a chmod
}

// Follow reads a file by load. taken is called with each new value, and the one before it or nil, before
// the new one is in force; kind is of a file that can't be read.
func Follow[T any](path string, load func(path string) (*T, error), taken func(was, is *T),
	kind *faultlog.Kind) *Follower[T] {
	f := &Follower[T]{path: path, load: load, taken: taken, kind: kind}
	f.Get(0)
	return f
}

// Get gives what the file says, nil when it could never be read. What is known of the file is at most age
// old; a check of an unchanged file costs a stat.
func (f *Follower[T]) Get(age time.Duration) *T {
	now := time.Now().UnixNano()
	if age > 0 && now-f.checked.Load() < int64(age) {
		return f.value.Load()
	}
	info, err := os.Stat(f.path)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.checked.Store(now)
	is := stampOf(info)
	if err == nil && is == f.seen {
		return f.value.Load()
	}
	f.seen = is
	var next *T
	if err == nil {
		next, err = f.load(f.path)
	}
	if err != nil {
		f.broken.Store(&err)
		f.kind.Failed(err.Error(), "file", f.path, "error", err)
		return f.value.Load()
	}
	if f.taken != nil {
		f.taken(f.value.Load(), next)
	}
	f.value.Store(next)
	f.broken.Store(nil)
	f.kind.Well()
	return next
}

// Last gives what Get gave last.
func (f *Follower[T]) Last() *T { return f.value.Load() }

// Broken looks at the file and says why it can't be read, nil when it can.
func (f *Follower[T]) Broken() error {
	f.Get(0)
	if err := f.broken.Load(); err != nil {
		return *err
	}
	return nil
}

func stampOf(info fs.FileInfo) (out stamp) {
	if info == nil {
		return stamp{}
	}
	out = stamp{size: info.Size(), modified: info.ModTime(), mode: info.Mode()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		out.inode = sys.Ino
	}
	return out
}
