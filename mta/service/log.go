package service

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"syscall"

	"example.org/mta/mta/config"
)

// Log is the relay's own log, for people: on standard error, or in a file that can be
// renamed under it.
type Log struct {
	*slog.Logger
	level slog.LevelVar
	path  string // "": standard error

	mu   sync.Mutex // guards file
	out  io.Writer
	file *os.File
}

// OpenLog opens the log. stream is JOURNAL_STREAM.
func OpenLog(cfg config.Log, stderr io.Writer, stream string) (*Log, error) {
	l := &Log{path: cfg.File, out: stderr}
	if err := l.Reopen(); err != nil {
		return nil, err
	}
	l.Set(cfg)
	handler := textHandler
	if cfg.Format == "json" {
		handler = jsonHandler
	}
	if cfg.File == "" && isJournal(stderr, stream) {
		l.Logger = slog.New(newJournal(l, &l.level, handler))
	} else {
		l.Logger = slog.New(handler(l, &slog.HandlerOptions{Level: &l.level}))
	}
	return l, nil
}

func textHandler(w io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewTextHandler(w, o) }
func jsonHandler(w io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewJSONHandler(w, o) }

// Set brings the settings into force that a running relay can take over.
func (l *Log) Set(cfg config.Log) {
	var level slog.Level
	if level.UnmarshalText([]byte(cfg.Level)) == nil { // the file was checked
		l.level.Set(level)
	}
}

// Reopen opens the file anew, so that what has renamed it gets no more. After an error the old
// one stays.
func (l *Log) Reopen() error {
	if l.path == "" {
		return nil
	}
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640)
	if err != nil {
		return fmt.Errorf("log file: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		l.file.Close()
	}
	l.out, l.file = f, f
	return nil
}

// Write writes a line where the log is.
func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(line)
}

// Close closes the file, if there is one.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		l.file.Close()
	}
}

// isJournal reports whether out is the stream to systemd's journal that JOURNAL_STREAM names, as device and
// inode (systemd.exec(5)). A shell that inherits the variable and redirects its output is not on the journal.
func isJournal(out io.Writer, stream string) bool {
	f, ok := out.(*os.File)
	if !ok || stream == "" {
		return false
	}
	info, err := f.Stat()
	if err != nil {
		return false
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && stream == fmt.Sprintf("%d:%d", s.Dev, s.Ino)
}

// priorities are those of sd-daemon(3), from the lowest level of a record that has them.
var priorities = [...]struct {
	from   slog.Level
	prefix string
}{{slog.LevelError, "<3>"}, {slog.LevelWarn, "<4>"}, {slog.LevelInfo, "<6>"}, {-1 << 10, "<7>"}}

// journal is a handler for systemd's journal, which has the times itself and takes levels as priorities: it has a
// handler for each priority.
type journal [len(priorities)]slog.Handler

func newJournal(out io.Writer, level slog.Leveler, handler func(io.Writer, *slog.HandlerOptions) slog.Handler) journal {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
			return slog.Attr{}
		}
		return a
	}}
	var j journal
	for i, p := range priorities {
		j[i] = handler(prefixed{out, p.prefix}, options)
	}
	return j
}

func (j journal) Enabled(ctx context.Context, l slog.Level) bool { return j[0].Enabled(ctx, l) }

func (j journal) Handle(ctx context.Context, r slog.Record) error {
	for i, p := range priorities {
		if r.Level >= p.from {
			return j[i].Handle(ctx, r)
		}
	}
	return nil
}

func (j journal) WithAttrs(attrs []slog.Attr) slog.Handler {
	for i := range j {
		j[i] = j[i].WithAttrs(attrs)
	}
	return j
}

func (j journal) WithGroup(name string) slog.Handler {
	for i := range j {
		j[i] = j[i].WithGroup(name)
	}
	return j
}

// prefixed puts a prefix before each line, in one write with it.
type prefixed struct {
	io.Writer
	prefix string
}

func (p prefixed) Write(line []byte) (int, error) {
	if _, err := p.Writer.Write(append([]byte(p.prefix), line...)); err != nil {
		return 0, err
	}
	return len(line), nil
}
