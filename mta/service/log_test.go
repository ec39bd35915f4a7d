package service

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"example.org/mta/mta/config"
)

// journalled writes a few records to a log on a file, and returns what is in it. stream makes JOURNAL_STREAM.
func journalled(t *testing.T, cfg config.Log, stream func(dev, ino uint64) string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stderr")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	s := info.Sys().(*syscall.Stat_t)
	log, err := OpenLog(cfg, f, stream(uint64(s.Dev), s.Ino))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	log.Debug("not for level info")
	log.Info("taking mail", "listener", "smtp")
	log.With("session", "s1").Warn("refused client", "address", "192.0.2.1", "text", "two\nlines")
	log.WithGroup("g").Error("disk", "error", errors.New("full"), slog.String("level", "kept"))
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestJournalHasPrioritiesAndNoTimes(t *testing.T) {
	same := func(dev, ino uint64) string { return fmt.Sprintf("%d:%d", dev, ino) }
	want := `<6>msg="taking mail" listener=smtp
<4>msg="refused client" session=s1 address=192.0.2.1 text="two\nlines"
<3>msg=disk g.error=full g.level=kept
`
	if got := journalled(t, config.Log{Level: "info", Format: "text"}, same); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
	want = `<6>{"msg":"taking mail","listener":"smtp"}
<4>{"msg":"refused client","session":"s1","address":"192.0.2.1","text":"two\nlines"}
<3>{"msg":"disk","g":{"error":"full","level":"kept"}}
`
	if got := journalled(t, config.Log{Level: "info", Format: "json"}, same); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
	other := func(dev, ino uint64) string { return fmt.Sprintf("%d:%d", dev, ino+1) }
	if got := journalled(t, config.Log{Level: "info", Format: "text"}, other); got[:5] != "time=" {
		t.Errorf("standard error that is not the journal has:\n%s", got)
	}
	file := config.Log{Level: "info", Format: "text", File: filepath.Join(t.TempDir(), "log")}
	if got := journalled(t, file, same); got != "" {
		t.Errorf("with a log file, standard error has:\n%s", got)
	}
	if text, err := os.ReadFile(file.File); err != nil || string(text[:5]) != "time=" {
		t.Errorf("the log file has no times: %v\n%s", err, text)
	}
}
