package audit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"example.org/mta/internal/wholefile"
	"example.org/mta/queue/vfs"
)

// Config is how a Log is made.
type Config struct {
	Dir  string           // is made when it is not there
	Now  func() time.Time // nil: time.Now
	Log  *slog.Logger     // nil: nowhere
	open opener           // nil: the OS; for tests
	wait func()           // for another process to be done; nil: lockRetry; for tests
}

const (
	// Keep is how long lines are kept at least, unless there are more than fit into maxTotal.
	Keep = 400 * 24 * time.Hour
	// maxTotal bounds all files together.
	maxTotal = 1 << 30
	// A file ends at rotateSize octets or after rotateEvery.
	rotateSize  = 16 << 20
	rotateEvery = 30 * 24 * time.Hour
	// reserveAhead octets of the disk are kept for lines to come, so that an operator can act on a full one: about a
	// thousand lines.
	reserveAhead = 512 << 10
	// lockPatience is how long Open waits for another process: a command that changes a file while no relay runs holds
	// the log for milliseconds, a relay for as long as it runs.
	lockPatience = time.Second
	lockRetry    = 20 * time.Millisecond
)

// Log is the audit log of a running relay. It is safe for use by many goroutines.
type Log struct {
	cfg  Config
	lock io.Closer

	mu       sync.Mutex
	f        file // nil: the next line begins a file
	current  logFile
	size     int64
	reserved int64  // of f, the disk that is kept for it
	late     []byte // second lines that could not be written yet
	number   int64
	failing  error     // of the last write; nil: it succeeded
	since    time.Time // when the first of the writes failed that have failed in a row
	closed   bool
}

// file is what a Log needs of an open file.
type file interface {
	io.Writer
	io.Closer
	Sync() error
	Truncate(size int64) error
	// Reserve takes disk from an offset on.
	Reserve(from, size int64) error
}

type opener func(path string, create bool) (file, error)

type osFile struct{ *os.File }

func (f osFile) Sync() error                    { return vfs.Sync(f.File) }
func (f osFile) Reserve(from, size int64) error { return reserve(f.File, from, size) }

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
		if err := errors.Join(wholefile.Inherit(path), vfs.OS().SyncDir(filepath.Dir(path))); err != nil {
			f.Close()
			return nil, err
		}
	}
	return osFile{f}, nil
}

// Open begins or goes on with a log.
func Open(cfg Config) (*Log, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.open == nil {
		cfg.open = openOS
	}
	if cfg.wait == nil {
		cfg.wait = func() { time.Sleep(lockRetry) }
	}
	if err := makeDir(cfg.Dir); err != nil {
		return nil, err
	}
	l := &Log{cfg: cfg}
	var err error
	if l.lock, err = lock(filepath.Join(cfg.Dir, "lock"), cfg.wait); errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("%s is in use by another relay: stop that one, or set another data_dir: %w", cfg.Dir, err)
	}
	if err != nil {
		return nil, err
	}
	if err := l.resume(); err != nil {
		l.lock.Close()
		return nil, err
	}
	return l, nil
}

// lock makes this process the only one that writes.
func lock(path string, wait func()) (io.Closer, error) {
	for waited := time.Duration(0); ; waited += lockRetry {
		held, err := vfs.OS().Lock(path)
		if err == nil {
			if err = wholefile.Inherit(path); err != nil {
				held.Close()
			}
			return held, err
		}
		if !errors.Is(err, vfs.ErrLocked) || waited >= lockPatience {
			return nil, err
		}
		wait()
	}
}

func makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	err := os.MkdirAll(dir, 0o750)
	if err == nil {
		err = wholefile.Inherit(dir)
	}
	if err != nil {
		return fmt.Errorf("making the audit directory: %w", err)
	}
	return nil
}

// resume goes on with the newest file: a torn line is taken off, and what a kill has left open is ended.
func (l *Log) resume() error {
	files, err := listFiles(l.cfg.Dir)
	if err != nil || len(files) == 0 {
		return err
	}
	l.current = files[len(files)-1]
	if l.f, err = l.cfg.open(l.current.path, false); err != nil {
		return fmt.Errorf("opening the newest audit file: %w", err)
	}
	open, err := l.unended(files[max(0, len(files)-2):])
	if err != nil {
		return err
	}
	if err := l.f.Truncate(l.size); err != nil { // the file may have no torn line, and the disk be read-only
		l.cfg.Log.Error("the audit log can't be written: no change is possible until it can", "error", err)
	}
	for _, line := range open {
		line.Outcome = Unknown
		l.late = append(l.late, line.encode()...)
	}
	if len(l.late) > 0 {
		if err := l.write(nil); err != nil {
			l.cfg.Log.Error("the audit log can't be written: no change is possible until it can", "error", err)
		}
	}
	return nil
}

// unended returns the first lines in the newest files that have no second one, and notes the size of the last file and
// the largest number.
func (l *Log) unended(files []logFile) (open []Line, err error) {
	begins := make(map[int64]Line)
	var order []int64
	for _, f := range files {
		l.size, err = eachLine(f.path, func(line Line) {
			l.number = max(l.number, line.Number)
			if line.Outcome == begun {
				begins[line.Number] = line
				order = append(order, line.Number)
			} else {
				delete(begins, line.Number)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	for _, n := range order {
		if line, ok := begins[n]; ok {
			open = append(open, line)
		}
	}
	return open, nil
}

// Add makes a line durable that is about something done: a login, the reading of a message.
func (l *Log) Add(line Line) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stamp(&line)
	return l.write(line.encode())
}

// stamp numbers a line and gives it its time.
func (l *Log) stamp(line *Line) {
	l.number++
	line.Number, line.Time = l.number, l.cfg.Now().UTC()
}

// Begun is an action that is on record and has no outcome yet.
type Begun struct {
	log  *Log
	line Line
}

// Begin makes it durable that an action begins. After an error the action must not be carried out.
func (l *Log) Begin(line Line) (*Begun, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line.Outcome = begun
	l.stamp(&line)
	if err := l.write(line.encode()); err != nil {
		return nil, err
	}
	return &Begun{l, line}, nil
}

// End makes the outcome durable. After an error the line is written with the next one, or the next start ends the
// action as Unknown.
func (b *Begun) End(outcome Outcome, count int, why string) error {
	l := b.log
	l.mu.Lock()
	defer l.mu.Unlock()
	line := b.line
	line.Time, line.Outcome, line.Count, line.Error = l.cfg.Now().UTC(), outcome, count, why
	text := line.encode()
	err := l.write(text)
	if err != nil && len(l.late)+len(text) <= reserveAhead {
		l.late = append(l.late, text...)
	}
	return err
}

var errClosed = errors.New("the audit log is closed")

// write appends what is late and then lines, and syncs. After an error none of them is in the file. The caller has l.mu.
func (l *Log) write(lines []byte) error {
	if l.closed {
		return errClosed
	}
	err := l.tryWrite(lines)
	if err != nil && l.failing == nil {
		l.since = l.cfg.Now()
	}
	l.failing = err
	return err
}

func (l *Log) tryWrite(lines []byte) error {
	if err := l.ready(); err != nil {
		return err
	}
	text := append(l.late[:len(l.late):len(l.late)], lines...)
	_, err := l.f.Write(text)
	if err == nil {
		err = l.f.Sync()
	}
	if err != nil {
		l.takeBack()
		return fmt.Errorf("writing %s: %w", l.current.path, err)
	}
	l.size += int64(len(text))
	l.late = nil
	return nil
}

// takeBack removes what a failed write has left, or gives the file up: nobody knows what the disk has of it. A torn line
// is passed over by readers.
func (l *Log) takeBack() {
	err := l.f.Truncate(l.size)
	if err == nil {
		err = l.f.Sync()
	}
	l.reserved = 0
	if err != nil {
		l.f.Close()
		l.f = nil
	}
}

// ready makes sure that there is a file with room for a line.
func (l *Log) ready() error {
	now := l.cfg.Now()
	old := l.f != nil && (l.size >= rotateSize || now.Sub(l.current.begun) >= rotateEvery)
	if old || l.f == nil || l.taken() {
		if err := l.begin(now); err != nil && (l.f == nil || !old) {
			return err
		}
	}
	if l.reserved-l.size < reserveAhead/2 {
		_ = l.reserve() // lines may still fit
	}
	return nil
}

// reserve keeps disk for lines to come.
func (l *Log) reserve() error {
	err := l.f.Reserve(l.size, reserveAhead)
	if err == nil {
		l.reserved = l.size + reserveAhead
	}
	return err
}

// Trouble returns why nothing can be put on record, or soon can't; "" if nothing is wrong. It tries: a log that has
// failed gets a line about that, which ends the trouble once it can be written, and disk for lines to come is reserved.
func (l *Log) Trouble() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failing != nil && !l.closed {
		line := Line{Actor: Actor{Kind: byRelay}, Action: "audit", Outcome: Failed,
			Error: fmt.Sprintf("nothing could be put on record since %s: %v", l.since.UTC().Format(time.RFC3339), l.failing)}
		l.stamp(&line)
		_ = l.write(line.encode())
	}
	if l.closed {
		return ""
	}
	err := l.failing
	if err == nil {
		err = l.ready()
	}
	if err != nil {
		return fmt.Sprintf("the audit log can't be written, so nothing can be changed: %v", err)
	}
	if err := l.reserve(); err != nil {
		return fmt.Sprintf("no disk can be reserved for the audit log, and nothing can be changed once it can't be written: %v", err)
	}
	return ""
}

// taken reports whether the file was moved or removed by somebody else: what is written to it would be lost.
func (l *Log) taken() bool {
	info, err := os.Stat(l.current.path)
	return errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() < l.size
}

// begin makes a new file. Names only grow, whatever the clock does.
func (l *Log) begin(now time.Time) error {
	next := fileAt(l.cfg.Dir, now)
	if !next.begun.After(l.current.begun) {
		next = fileAt(l.cfg.Dir, l.current.begun.Add(time.Second))
	}
	if err := makeDir(l.cfg.Dir); err != nil {
		return err
	}
	f, err := l.cfg.open(next.path, true)
	for errors.Is(err, fs.ErrExist) {
		next = fileAt(l.cfg.Dir, next.begun.Add(time.Second))
		f, err = l.cfg.open(next.path, true)
	}
	if err != nil {
		return fmt.Errorf("beginning an audit file: %w", err)
	}
	if l.f != nil {
		_ = l.f.Close() // all in it is synced
	}
	l.f, l.current, l.size, l.reserved = f, next, 0, 0
	if err := sweep(l.cfg.Dir, now, Keep, maxTotal); err != nil {
		l.cfg.Log.Error("old audit files can't be deleted", "error", err)
	}
	return nil
}

// Close ends the log. What is under way then is ended by the next start.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	var err error
	if l.f != nil {
		_ = l.f.Truncate(l.size) // gives back the disk that was reserved
		err = l.f.Close()
	}
	return errors.Join(err, l.lock.Close())
}
