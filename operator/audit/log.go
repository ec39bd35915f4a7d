package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"example.org/mta/internal/format"
	"example.org/mta/internal/legible"
	"example.org/mta/internal/linelog"
	"example.org/mta/internal/smallfile"
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
	out      linelog.Output
	reserved int64  // of the file, the disk that is kept for it
	late     []byte // second lines that could not be written yet
	number   int64
	failing  error     // of the last write; nil: it succeeded
	since    time.Time // when the first of the writes failed that have failed in a row
	closed   bool
}

// Open begins or goes on with a log.
func Open(cfg Config) (*Log, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.open == nil {
		cfg.open = openOS
	}
	if cfg.wait == nil {
		cfg.wait = func() { time.Sleep(lockRetry) }
	}
	if err := linelog.MakeDir(cfg.Dir); err != nil {
		return nil, fmt.Errorf("making the audit directory: %w", err)
	}
	l := &Log{cfg: cfg}
	l.out = linelog.Output{Dir: logDir(cfg.Dir), Now: cfg.Now, Begun: l.begun, Stamp: linelog.Stamp,
		Open: func(path string, create bool) (linelog.OutFile, error) {
			return cfg.open(path, create)
		}}
	var err error
	if l.lock, err = lock(filepath.Join(cfg.Dir, "lock"), cfg.wait); errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("%s is in use by another relay: stop that one, or set another data_dir: %w", cfg.Dir,
			err)
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
			if err = smallfile.Inherit(path); err != nil {
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

// resume goes on with the newest file: a line that is cut off is taken off, and what a kill has left open is ended.
func (l *Log) resume() error {
	files, err := l.out.Dir.Files()
	if err != nil || len(files) == 0 {
		return err
	}
	newest := files[len(files)-1]
	open, err := l.unended(files[max(0, len(files)-2):])
	if err != nil {
		return err
	}
	end, err := l.out.Dir.EndOf(newest)
	if err != nil {
		return err
	}
	if err := l.out.Resume(newest, end.End); err != nil {
		return err
	}
	if len(end.Rest) > 0 {
		l.cfg.Log.Warn("the last line of the audit log is incomplete, as a crash leaves it, and is taken off", "at",
			place(newest, end.End), "line", legible.Escaped(string(end.Rest), maxText))
	}
	// The file may have no such line, and the disk be read-only.
	if err := l.out.File().Truncate(end.End); err != nil {
		l.cfg.Log.Error("the audit log can't be written: no change is possible until it can", "error", err)
	}
	for _, line := range open {
		l.cfg.Log.Warn("the outcome of an action is not on record, as when the relay is killed meanwhile", "action",
			line.Action, "subject", line.Subject, "number", line.Number)
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

// place names an octet of a file, for people.
func place(f linelog.File, at int64) string { return fmt.Sprintf("octet %d of %s", at, f.Path) }

// unended returns the first lines in the newest files that have no second one. It notes the largest number, and logs
// damage.
func (l *Log) unended(files []linelog.File) (open []Line, err error) {
	r := linelog.Reader{Ctx: context.Background(), Dir: l.out.Dir}
	begins := make(map[int64]Line)
	var order []int64
	var chain linelog.Chain
	for _, f := range files {
		_, err = r.Lines(f, 0, func(text []byte, at linelog.Position) error {
			line, ok, damaged := judge(&chain, text, at)
			if damaged {
				l.cfg.Log.Error("DAMAGE: lines of the audit log are missing, or not what was written", "at",
					place(f, at.Offset))
			}
			l.number = max(l.number, line.Number)
			switch {
			case !ok:
			case line.Outcome == begun:
				begins[line.Number] = line
				order = append(order, line.Number)
			default:
				delete(begins, line.Number)
			}
			return nil
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

// write appends what is late and then a line, and syncs. After an error the line is not in the file. The caller has
// l.mu.
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
	n, err := l.out.Write(text)
	if err != nil {
		l.reserved, l.late = 0, l.late[min(n, len(l.late)):]
		return err
	}
	l.late = nil
	return nil
}

// ready makes sure that there is a file with space for a line.
func (l *Log) ready() error {
	if l.out.File() != nil && (l.out.Size() >= rotateSize || l.cfg.Now().Sub(l.out.Began()) >= rotateEvery) {
		_ = l.out.Next() // else this one goes on
	}
	if _, err := l.out.Ready(); err != nil { // all was synced: nothing is lost
		return err
	}
	if l.reserved-l.out.Size() < reserveAhead/2 {
		_ = l.reserve() // lines may still fit
	}
	return nil
}

// begun makes space for a new file.
func (l *Log) begun(linelog.File) {
	l.reserved = 0
	if _, err := l.out.Dir.Sweep(l.cfg.Now(), linelog.Limits{Keep: Keep, KeepSize: maxTotal}); err != nil {
		l.cfg.Log.Error("old audit files can't be deleted", "error", err)
	}
}

// reserve keeps disk for lines to come.
func (l *Log) reserve() error {
	size := l.out.Size()
	err := l.out.File().(file).Reserve(size, reserveAhead)
	if err == nil {
		l.reserved = size + reserveAhead
	}
	return err
}

// Trouble returns why nothing can be put on record, or soon can't; "" if nothing is wrong. It tries: a log that has
// failed gets a line about that, which ends it once it can be written, and disk for lines to come is reserved.
func (l *Log) Trouble() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failing != nil && !l.closed {
		line := Line{Actor: Actor{Kind: ByRelay}, Action: "audit", Outcome: Failed,
			Error: fmt.Sprintf("nothing could be put on record since %s: %v",
				l.since.UTC().Format(time.RFC3339), l.failing)}
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
		return fmt.Sprintf(
			"no disk can be reserved for the audit log, and nothing can be changed once it can't be written: %v", err)
	}
	return ""
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
	if f := l.out.File(); f != nil {
		_ = f.Truncate(l.out.Size()) // gives back the disk that was reserved
		_, err = l.out.Close()
	}
	return errors.Join(err, l.lock.Close())
}

// Format is what this program knows of the log's formats. Fields may be added to lines without a new one.
var Format = format.Store{Name: "audit log", Reads: 1, Writes: 1, Unstated: 1}

// logDir is the log in a directory.
func logDir(path string) linelog.Dir {
	return linelog.Dir{Path: path, Name: "audit", Prefix: "audit-", Longest: maxLine}
}

// file is what a Log needs of an open file.
type file interface {
	linelog.OutFile
	// Reserve takes disk from an offset on.
	Reserve(from, size int64) error
}

type opener func(path string, create bool) (file, error)

type osFile struct{ *os.File }

func (f osFile) Sync() error                    { return smallfile.Sync(f.File) }
func (f osFile) Reserve(from, size int64) error { return reserve(f.File, from, size) }

func openOS(path string, create bool) (file, error) {
	f, err := linelog.OpenOS(path, create)
	if err != nil {
		return nil, err
	}
	return osFile{f.(linelog.OSFile).File}, nil
}
