package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"example.org/mta/mta/config"
	"example.org/mta/operator/api"
)

// supervisor is systemd, or who else listens on NOTIFY_SOCKET (sd_notify(3)).
type supervisor struct{ socket string }

// notify reports how the relay is. Nobody listening is as good as somebody.
func (s supervisor) notify(state string) {
	if s.socket == "" {
		return
	}
	// A name that begins with @ is an abstract one; package net knows that as well.
	if conn, err := net.Dial("unixgram", s.socket); err == nil {
		_, _ = conn.Write([]byte(state))
		conn.Close()
	}
}

// reloading is the message that Type=notify-reload expects. The time on the monotonic clock distinguishes reloads.
func reloading() string {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return "RELOADING=1"
	}
	return fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/1000)
}

const (
	// extension is how much time the service manager is asked for at a time, and extendEvery how often.
	extension   = time.Minute
	extendEvery = 10 * time.Second
	// statusEvery is how often the status line changes.
	statusEvery = 5 * time.Second
)

// busy asks the service manager to be patient, until done is called: a start reads the whole queue, and a stop takes
// as long as the configuration allows.
func (s supervisor) busy(doing string) (done func()) {
	ctx, cancel := context.WithCancel(context.Background())
	began := time.Now()
	go s.repeat(ctx, extendEvery, func() string {
		return fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d\nSTATUS=%s, for %s", extension.Microseconds(), doing,
			time.Since(began).Round(time.Second))
	})
	return cancel
}

// report keeps the status line up to date, until ctx ends.
func (s supervisor) report(ctx context.Context, status func() api.Status) {
	s.repeat(ctx, statusEvery, func() string { return "STATUS=" + statusLine(status()) })
}

// repeat notifies the service manager at once, and again in every interval, until ctx ends.
func (s supervisor) repeat(ctx context.Context, every time.Duration, state func() string) {
	if s.socket == "" {
		return
	}
	again := time.NewTicker(every)
	defer again.Stop()
	for ctx.Err() == nil {
		s.notify(state())
		select {
		case <-ctx.Done():
		case <-again.C:
		}
	}
}

// statusLine sums up the relay for 'systemctl status'.
func statusLine(s api.Status) string {
	line := fmt.Sprintf("%s: %d queued, %.0f accepted/s, %.0f delivered/s", s.State, s.Queue.Queued, s.Rates.Accepted,
		s.Rates.Delivered)
	if s.Reason != "" {
		line += "; " + s.Reason
	}
	if n := len(s.Alarms); n > 0 {
		line += "; " + plural(n, "alarm")
	}
	return strings.ReplaceAll(line, "\n", " ")
}

// logbook is the relay's own log, for people: on standard error, or in a file that can be
// renamed under it.
type logbook struct {
	*slog.Logger
	level slog.LevelVar
	path  string // "": standard error

	mu   sync.Mutex // guards file
	out  io.Writer
	file *os.File
}

// newLogbook opens the log. stream is JOURNAL_STREAM.
func newLogbook(cfg config.Log, stderr io.Writer, stream string) (*logbook, error) {
	l := &logbook{path: cfg.File, out: stderr}
	if err := l.reopen(); err != nil {
		return nil, err
	}
	l.set(cfg)
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

// set brings the settings into force that a running relay can take over.
func (l *logbook) set(cfg config.Log) {
	var level slog.Level
	if level.UnmarshalText([]byte(cfg.Level)) == nil { // the file was checked
		l.level.Set(level)
	}
}

// reopen opens the file anew, so that what has renamed it gets no more. After an error the old
// one stays.
func (l *logbook) reopen() error {
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

func (l *logbook) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(line)
}

func (l *logbook) close() {
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
