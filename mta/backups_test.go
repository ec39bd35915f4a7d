package mta

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/internal/format"
	"example.org/mta/internal/sink"
	"example.org/mta/mta/config"
	"example.org/mta/mta/control"
	"example.org/mta/mta/pauses"
	"example.org/mta/queue"
)

// elsewhere is a configuration with another data directory.
func elsewhere(t *testing.T, cfg *config.Config) *config.Config {
	other := *cfg
	other.DataDir = filepath.Join(t.TempDir(), "data")
	other.Accounting.Path = filepath.Join(other.DataDir, "log")
	other.Control.Socket = filepath.Join(other.DataDir, "control.sock")
	return &other
}

// TestBackupAndRestore takes a backup while mail comes in, and restores it: what was accepted before is there and held,
// fsck finds nothing wrong, pauses and suppressions have come along, and once the mail is released it arrives.
func TestBackupAndRestore(t *testing.T) {
	w := newWorldWith(t, Options{Version: "0.1.0"}, sink.Config{}, `defaults { smtp_port = PORT }`)
	if err := w.pauses.Begin(control.Pause{What: control.PauseEverything, By: "ann", Since: time.Now()}); err != nil {
		t.Fatal(err)
	}
	const before = 20
	for i := range before {
		w.send("a@acme.example", fmt.Sprintf("Subject: %d\r\n\r\nhello\r\n", i), fmt.Sprintf("before%d@box.example", i))
	}
	var sending sync.WaitGroup
	sending.Go(func() {
		for i := range 20 {
			w.send("a@acme.example", "Subject: later\r\n\r\nhello\r\n", fmt.Sprintf("later%d@box.example", i))
		}
	})
	var saved bytes.Buffer
	if err := w.Backup(t.Context(), &saved, control.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	sending.Wait()
	if bytes.Contains(saved.Bytes(), []byte("idempotency.key")) {
		t.Error("a backup without secrets has one")
	}
	if _, err := StageRestore(w.cfg, "0.1.0", bytes.NewReader(saved.Bytes())); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("into a directory in use: %v", err)
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := StageRestore(w.cfg, "0.1.0", bytes.NewReader(saved.Bytes())); err == nil || !strings.Contains(err.Error(), "has a queue") {
		t.Errorf("over a queue: %v", err)
	}
	w.cfg = elsewhere(t, w.cfg)
	s, err := StageRestore(w.cfg, "0.1.0", bytes.NewReader(saved.Bytes()))
	if err != nil || s.Recipients < before {
		t.Fatalf("%+v, %v", s, err)
	}
	if err := s.Restore(true); err != nil {
		t.Fatal(err)
	}
	if report, err := queue.Fsck(queueDir(w.cfg), nil, nil); err != nil || report.Damaged() || report.Messages != s.Messages {
		t.Fatalf("fsck: %+v, %v, want %d messages", report, err, s.Messages)
	}
	w.start()
	if held := w.queue.Stats().Held; int(held) != s.Recipients {
		t.Fatalf("%d recipients are held, want %d", held, s.Recipients)
	}
	if _, found, err := w.pauses.End(pauses.Key(control.PauseEverything, "")); !found || err != nil {
		t.Errorf("the pause did not come along: %v", err)
	}
	if _, err := w.queue.Change(queue.Selector{All: true}, queue.Unhold, false); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range w.arrived(int64(s.Messages)) {
		for _, to := range m.Recipients {
			seen[to] = true
		}
	}
	for i := range before {
		if !seen[fmt.Sprintf("before%d@box.example", i)] {
			t.Errorf("message %d was accepted before the backup and is lost", i)
		}
	}
}

// TestRestoreRefusesTheFuture: a backup with a format that this version does not read leaves no trace.
func TestRestoreRefusesTheFuture(t *testing.T) {
	w := newWorldWith(t, Options{Version: "0.1.0"}, sink.Config{}, "")
	var saved bytes.Buffer
	if err := w.Backup(t.Context(), &saved, control.BackupOptions{Secrets: true}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(saved.Bytes(), []byte("idempotency.key")) {
		t.Error("a backup with secrets has none")
	}
	text := bytes.ReplaceAll(saved.Bytes(), []byte(`{"store":"queue","format":9,`), []byte(`{"store":"queue","format":8,`))
	if bytes.Equal(text, saved.Bytes()) {
		t.Fatal("the backup has no statement of the queue")
	}
	cfg := elsewhere(t, w.cfg)
	if _, err := StageRestore(cfg, "0.1.0", bytes.NewReader(text)); err == nil || errors.Is(err, format.ErrRefused) {
		t.Errorf("a changed octet: %v", err)
	}
	if left, _ := os.ReadDir(cfg.DataDir); len(left) != 0 {
		t.Errorf("there is %v", left)
	}
}
