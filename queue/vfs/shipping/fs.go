package shipping

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/queue/vfs"
)

// Log is where entries go.
type Log interface {
	// Append returns when an entry is durable, or never will be: its number is taken by another node, or ctx has ended.
	Append(ctx context.Context, entry uint64, changes, data []byte) error
	// Data returns the octets of an entry's writes.
	Data(ctx context.Context, entry uint64) ([]byte, error)
	// Drop forgets the entries before one that begins with an image, except those that are kept.
	Drop(ctx context.Context, image uint64, kept []uint64) error
}

// Names are what the files of a directory are for, by their names relative to it.
type Names struct {
	Dirs  []string               // that have the files, "." for itself
	Local func(name string) bool // not in the log: it is made anew, or the directory's own
	Void  func(name string) bool // what a file of that name has is not needed
}

// Config is a file system's.
type Config struct {
	FS    vfs.FS
	Dir   string // whose changes are shipped, with those of the directories in it
	Names Names
	Log   Log
	// Clock goes on while the machine sleeps. Nil: one that does not.
	Clock func() time.Duration
	Slog  *slog.Logger
}

// Beat is the longest time between two entries, while the log takes any.
const Beat = 10 * time.Second

const (
	// patience is how long a Sync waits for the log, and impatience how long once that has taken nothing for so long.
	patience   = 10 * time.Second
	impatience = time.Second
	// mostWaiting is how many octets of writes may wait for the log before the next one waits.
	mostWaiting = 16 << 20
	// atOnce is when changes are shipped before a Sync.
	atOnce = 1 << 20
	// soon is when changes are shipped that no Sync follows.
	soon = 100 * time.Millisecond
	// leastImage is how many octets of changes there are at least between two images.
	leastImage = 64 << 10
)

// ErrAway is returned by Sync while the log takes no entries. What was written is in it later, or never was.
var ErrAway = errors.New("the log of this node's queue takes nothing")

// FS is the file system. It implements vfs.FS, and is safe for concurrent use.
type FS struct {
	vfs.FS
	cfg   Config
	kick  chan struct{}
	ended chan struct{}
	stop  context.CancelFunc
	lag   atomic.Pointer[lag]

	mu      sync.Mutex // guards what follows
	numbers map[string]uint32
	named   map[uint32]bool // the files of these numbers
	last    uint32          // number of a file
	waiting []*entry        // the first of them is under way
	octets  int64           // of their data
	made    uint64          // changes so far
	shipped uint64          // of these
	news    chan struct{}   // closed when shipped or broken changes
	broken  error           // nothing will be in the log any more
	image   *Image          // what is in the log, and the shipper's: nobody else reads it while that runs
	beaten  time.Duration   // when the newest entry in the log was sent
	number  uint64          // its number
	size    int64           // octets that it has
	since   int             // octets of changes since the last image
}

// entry is changes that go to the log together.
type entry struct {
	all   []change
	data  []byte
	made  uint64        // the number of the last change
	since time.Duration // when the first was made
}

func (c *Config) setDefaults() {
	if began := time.Now(); c.Clock == nil {
		c.Clock = func() time.Duration { return time.Since(began) }
	}
}

func newFS(cfg Config, image *Image) *FS {
	cfg.setDefaults()
	named := make(map[uint32]bool, len(image.files))
	for number := range image.files {
		named[number] = true
	}
	fs := &FS{FS: cfg.FS, cfg: cfg, kick: make(chan struct{}, 1), ended: make(chan struct{}),
		numbers: maps.Clone(image.names), named: named, last: image.last, news: make(chan struct{}), image: image,
		number: image.entry, size: image.total, beaten: cfg.Clock()}
	fs.figures()
	return fs
}

// start begins to ship.
func (fs *FS) start() {
	ctx, stop := context.WithCancel(context.Background())
	fs.stop = stop
	go fs.ship(ctx)
}

// Close ships what waits, and ends. The error is nil if the log has all.
func (fs *FS) Close() error {
	err := fs.sync(func() error { return nil })
	fs.stop()
	<-fs.ended
	return err
}

// Status is how far the log is.
type Status struct {
	Entry   uint64 // the last one in the log
	Octets  int64  // that the log has of the files
	Waiting int64  // octets that are not in the log yet
}

// Status returns how far the log is.
func (fs *FS) Status() Status {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return Status{Entry: fs.number, Octets: fs.size, Waiting: fs.octets}
}

// name is a file's relative to the directory; "": it is not shipped.
func (fs *FS) name(path string) string {
	name, ok := strings.CutPrefix(path, fs.cfg.Dir+string(filepath.Separator))
	if name = filepath.ToSlash(name); !ok || fs.cfg.Names.Local(name) {
		return ""
	}
	return name
}

// record notes a change, and octets that it writes. The caller has mu.
func (fs *FS) record(c change, data []byte) {
	switch {
	case c.kind == opCreate:
		fs.named[c.file] = true
	case !fs.named[c.file]: // it is removed, and still open
		return
	case c.kind == opRemove:
		delete(fs.named, c.file)
	}
	n := len(fs.waiting)
	if n == 0 || len(fs.waiting[n-1].data)+len(data) > MaxData {
		fs.waiting = append(fs.waiting, new(entry))
		n++
	}
	e := fs.waiting[n-1]
	if len(e.all) == 0 {
		e.since = fs.cfg.Clock()
		time.AfterFunc(soon, fs.nudge)
	}
	c.from, c.size = int64(len(e.data)), int64(len(data))
	e.all, e.data = append(e.all, c), append(e.data, data...)
	fs.made++
	e.made = fs.made
	if fs.octets += c.size; len(e.data) >= atOnce {
		fs.nudge()
	}
	fs.figures()
}

// figures notes what Lag returns. The caller has mu.
func (fs *FS) figures() {
	l := lag{beaten: fs.beaten, broken: fs.broken}
	if i := slices.IndexFunc(fs.waiting, func(e *entry) bool { return len(e.all) > 0 }); i >= 0 {
		l.waits, l.since = true, fs.waiting[i].since
	}
	fs.lag.Store(&l)
}

// lag is how far the log is behind.
type lag struct {
	waits         bool
	since, beaten time.Duration // by the clock
	broken        error
}

// Lag returns for how long the oldest change has waited, how long ago the newest entry in the log was sent, and why
// nothing will be in the log any more. It waits for no disk.
func (fs *FS) Lag() (oldest, silent time.Duration, broken error) {
	now, l := fs.cfg.Clock(), fs.lag.Load()
	if l.waits {
		oldest = now - l.since
	}
	return oldest, now - l.beaten, l.broken
}

func (fs *FS) nudge() {
	select {
	case fs.kick <- struct{}{}:
	default:
	}
}

// late is a timer for how long a caller waits for the log.
func (fs *FS) late() *time.Timer {
	if oldest, _, _ := fs.Lag(); oldest > patience {
		return time.NewTimer(impatience)
	}
	return time.NewTimer(patience)
}

// wait waits until the log has the first changes. A caller that has made durable what it wrote before may wait for all.
func (fs *FS) wait(made uint64) error {
	late := fs.late()
	defer late.Stop()
	for {
		fs.mu.Lock()
		news, err, is := fs.news, fs.broken, fs.shipped >= made
		fs.mu.Unlock()
		switch {
		case is:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-news:
		case <-late.C:
			return ErrAway
		}
	}
}

// sync makes durable what f does on the disk, and all changes so far in the log, at the same time.
func (fs *FS) sync(f func() error) error {
	fs.mu.Lock()
	made := fs.made
	fs.mu.Unlock()
	fs.nudge()
	if err := f(); err != nil {
		return err
	}
	return fs.wait(made)
}

// change changes names, in the order of the log.
func (fs *FS) change(f func() error) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.broken != nil {
		return fs.broken
	}
	return f()
}

// Create implements vfs.FS.
func (fs *FS) Create(path string) (vfs.File, error) {
	name := fs.name(path)
	if name == "" {
		return fs.FS.Create(path)
	}
	var made vfs.File
	err := fs.change(func() error {
		f, err := fs.FS.Create(path)
		if err != nil {
			return err
		}
		fs.last++
		fs.numbers[name] = fs.last
		fs.record(change{kind: opCreate, file: fs.last, name: name}, nil)
		made = &shipped{File: f, fs: fs, number: fs.last}
		return nil
	})
	return made, err
}

// OpenWrite implements vfs.FS.
func (fs *FS) OpenWrite(path string) (vfs.File, error) {
	f, err := fs.FS.OpenWrite(path)
	if err != nil {
		return nil, err
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if number := fs.numbers[fs.name(path)]; number != 0 {
		return &shipped{File: f, fs: fs, number: number}, nil
	}
	return f, nil
}

// Remove implements vfs.FS.
func (fs *FS) Remove(path string) error {
	return fs.change(func() error {
		err := fs.FS.Remove(path)
		if err == nil {
			fs.removed(fs.name(path))
		}
		return err
	})
}

func (fs *FS) removed(name string) {
	if number := fs.numbers[name]; number != 0 {
		delete(fs.numbers, name)
		fs.record(change{kind: opRemove, file: number}, nil)
	}
}

// Rename implements vfs.FS. A file that is not in the log does not get a name of one that is.
func (fs *FS) Rename(from, to string) error {
	return fs.change(func() error {
		old, name := fs.name(from), fs.name(to)
		number := fs.numbers[old]
		if number == 0 && name != "" {
			return fmt.Errorf("%s is not in the log, and can't become %s", from, to)
		}
		if err := fs.FS.Rename(from, to); err != nil {
			return err
		}
		if name == "" || number == 0 {
			fs.removed(old)
			return nil
		}
		delete(fs.numbers, old)
		delete(fs.named, fs.numbers[name])
		fs.numbers[name], fs.named[number] = number, true
		fs.record(change{kind: opRename, file: number, name: name}, nil)
		if fs.cfg.Names.Void(name) {
			fs.record(change{kind: opVoid, file: number}, nil)
		}
		return nil
	})
}

// SyncDir implements vfs.FS.
func (fs *FS) SyncDir(dir string) error { return fs.sync(func() error { return fs.FS.SyncDir(dir) }) }

// shipped is an open file that is in the log. What is written to it goes there with its next Sync, or when it is much:
// so the log has no record that the disk may have lost and written anew.
type shipped struct {
	vfs.File
	fs     *FS
	number uint32

	mu     sync.Mutex // guards what follows
	writes []write
	octets int
}

// write is octets that go to the log.
type write struct {
	at   int64
	data []byte
}

// WriteAt implements vfs.File.
func (f *shipped) WriteAt(p []byte, off int64) (n int, err error) {
	n, err = f.File.WriteAt(p, off)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes = append(f.writes, write{off, bytes.Clone(p[:n])})
	if f.octets += n; f.octets >= atOnce && err == nil {
		err = f.flush()
	}
	return n, err
}

// flush records what was written, once the log has room for it. The caller has f.mu.
func (f *shipped) flush() error {
	for i, w := range f.writes {
		for len(w.data) > 0 {
			data := w.data[:min(len(w.data), maxWrite)]
			if err := f.fs.room(int64(len(data))); err != nil {
				f.writes = append([]write{w}, f.writes[i+1:]...)
				return err
			}
			f.fs.mu.Lock()
			f.fs.record(change{kind: opWrite, file: f.number, at: w.at, sum: sumOf(data)}, data)
			f.fs.mu.Unlock()
			w.at, w.data = w.at+int64(len(data)), w.data[len(data):]
		}
	}
	f.writes, f.octets = f.writes[:0], 0
	return nil
}

// change is FS.change, after all that was written before.
func (f *shipped) change(do func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.flush(); err != nil {
		return err
	}
	return f.fs.change(do)
}

// room waits until so much more may wait for the log.
func (fs *FS) room(octets int64) error {
	late := fs.late()
	defer late.Stop()
	for {
		fs.mu.Lock()
		news, err, is := fs.news, fs.broken, fs.octets == 0 || fs.octets+octets <= mostWaiting
		fs.mu.Unlock()
		if err != nil || is {
			return err
		}
		fs.nudge()
		select {
		case <-news:
		case <-late.C:
			return ErrAway
		}
	}
}

// Truncate implements vfs.File.
func (f *shipped) Truncate(size int64) error {
	return f.change(func() error {
		err := f.File.Truncate(size)
		if err == nil {
			f.fs.record(change{kind: opSize, file: f.number, at: size}, nil)
		}
		return err
	})
}

// Allocate implements vfs.File.
func (f *shipped) Allocate(size int64) error {
	return f.change(func() error {
		was, err := f.File.Size()
		if err == nil {
			err = f.File.Allocate(size)
		}
		if err == nil && size > was {
			f.fs.record(change{kind: opSize, file: f.number, at: size}, nil)
		}
		return err
	})
}

// Sync implements vfs.File.
func (f *shipped) Sync() error {
	f.mu.Lock()
	err := f.flush()
	f.mu.Unlock()
	if err != nil {
		return err
	}
	return f.fs.sync(f.File.Sync)
}
