package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"example.org/mta/mta/config"
)

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
