package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
)

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
