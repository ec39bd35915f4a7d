package mta

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.org/mta/internal/format"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/config"
	"example.org/mta/mta/datadir"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
	"example.org/mta/queue/store"
	"example.org/mta/submission/maildrop"
	"example.org/mta/suppression/boltstore"
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
	if _, err := w.rules.Begin(api.Rule{Action: api.RuleSuspend, Selection: api.Selection{All: true}, By: "ann", Since: time.Now()}, false); err != nil {
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
	if err := w.api.Backups.Backup(t.Context(), &saved, api.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	sending.Wait()
	if bytes.Contains(saved.Bytes(), []byte("idempotency.key")) {
		t.Error("a backup without secrets has one")
	}
	if _, err := datadir.StageRestore(w.cfg, "0.1.0", bytes.NewReader(saved.Bytes())); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("into a directory in use: %v", err)
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := datadir.StageRestore(w.cfg, "0.1.0", bytes.NewReader(saved.Bytes())); err == nil || !strings.Contains(err.Error(), "has a queue") {
		t.Errorf("over a queue: %v", err)
	}
	w.cfg = elsewhere(t, w.cfg)
	s, err := datadir.StageRestore(w.cfg, "0.1.0", bytes.NewReader(saved.Bytes()))
	if err != nil || s.Recipients < before {
		t.Fatalf("%+v, %v", s, err)
	}
	if err := s.Restore(true); err != nil {
		t.Fatal(err)
	}
	if report, err := store.Fsck(datadir.Queue(w.cfg), nil, nil); err != nil || report.Damaged() || report.Messages != s.Messages {
		t.Fatalf("fsck: %+v, %v, want %d messages", report, err, s.Messages)
	}
	w.start()
	if held := w.queue.Stats().Held; int(held) != s.Recipients {
		t.Fatalf("%d recipients are held, want %d", held, s.Recipients)
	}
	if found, err := w.rules.End(1); !found || err != nil {
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

// TestRestoreOfWhatSendmailLeft: letters that were not picked up are in a backup, wait with hold, and leave without, beside
// the maildrop that the package has made.
func TestRestoreOfWhatSendmailLeft(t *testing.T) {
	t.Parallel()
	w := newWorldWith(t, Options{Version: "0.1.0"}, sink.Config{}, `defaults { smtp_port = PORT }`)
	w.until("the maildrop is made", func() bool { return dirIsThere(w.maildropDir() + "/new") })
	resume, err := w.pickup.Halt(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.leaveLetter(left, "ann@client.example", "bob@box.example")
	if err := os.WriteFile(filepath.Join(w.maildropDir(), "new", "nonsense"), []byte("x"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(w.cfg.DataDir, "idempotency.key"), filepath.Join(w.maildropDir(), "new", "stolen")); err != nil {
		t.Fatal(err)
	}
	var saved bytes.Buffer
	taken := *w.api.Backups.(*datadir.Backup)
	taken.Halt = func(context.Context) (func(), error) { return resume, nil }
	if err := taken.Backup(t.Context(), &saved, api.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	w.arrived(1) // of the relay that went on
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	for _, hold := range []bool{true, false} {
		w.cfg = elsewhere(t, w.cfg)
		if err := os.MkdirAll(filepath.Join(w.maildropDir(), "new"), 0o711); err != nil {
			t.Fatal(err)
		}
		s, err := datadir.StageRestore(w.cfg, "0.1.0", bytes.NewReader(saved.Bytes()))
		if err == nil {
			err = s.Restore(hold)
		}
		if err != nil || s.Letters() != 1 || s.Messages != 0 {
			t.Fatalf("%d letters and %d messages, %v", s.Letters(), s.Messages, err)
		}
		if held, ready := len(w.letters("held")), len(w.letters("new")); hold && held != 1 || !hold && ready != 1 || held+ready != 1 {
			t.Fatalf("hold %t: %d letters are held, %d not", hold, held, ready)
		}
	}
	w.start()
	if ms := w.arrived(2); !bytes.Contains(ms[1].Content, []byte("while you were away")) {
		t.Errorf("arrived as\n%s", ms[1].Content)
	}
}

// TestALogFileThatIsCompressedMeanwhile, before its turn comes, is in the backup in its new form.
func TestALogFileThatIsCompressedMeanwhile(t *testing.T) {
	w := newWorldWith(t, Options{Version: "0.1.0"}, sink.Config{}, "")
	path := filepath.Join(w.cfg.Accounting.Path, "mta-"+time.Now().UTC().Add(-time.Hour).Format("20060102T150405")+".jsonl")
	if err := os.WriteFile(path, []byte("records\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var saved bytes.Buffer
	compress := sync.OnceValue(func() error { return os.Rename(path, path+".zst") })
	to := writerFunc(func(p []byte) (int, error) {
		if err := compress(); err != nil {
			return 0, err
		}
		return saved.Write(p)
	})
	if err := w.api.Backups.Backup(t.Context(), to, api.BackupOptions{Log: true}); err != nil {
		t.Fatal(err)
	}
	other := restored(t, w.cfg, &saved)
	if text, err := os.ReadFile(filepath.Join(other.DataDir, "log", filepath.Base(path)+".zst")); string(text) != "records\n" {
		t.Errorf("the compressed file has %q, %v", text, err)
	}
}

// restored restores a backup elsewhere, and gives the configuration there.
func restored(t *testing.T, cfg *config.Config, saved io.Reader) *config.Config {
	t.Helper()
	other := elsewhere(t, cfg)
	s, err := datadir.StageRestore(other, "0.1.0", saved)
	if err == nil {
		err = s.Restore(false)
	}
	if err != nil {
		t.Fatal(err)
	}
	return other
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }

// TestTemplatesAreRestored: templates are in each backup.
func TestTemplatesAreRestored(t *testing.T) {
	templates := t.TempDir()
	write := func(path string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("Subject of "+filepath.Base(path)), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(templates, "acme", ".hidden"))
	write(filepath.Join(templates, "acme", "..data", "welcome.text")) // as a volume of Kubernetes has them
	if err := os.Symlink(filepath.Join("..data", "welcome.text"), filepath.Join(templates, "acme", "welcome.text")); err != nil {
		t.Fatal(err)
	}
	w := newWorldWith(t, Options{Version: "0.1.0"}, sink.Config{}, fmt.Sprintf(`
		tenant "acme" {}
		templates { path = %q }`, templates))
	var saved bytes.Buffer
	if err := w.api.Backups.Backup(t.Context(), &saved, api.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	other := restored(t, w.cfg, &saved)
	folder := filepath.Join(other.DataDir, "config", templates, "acme")
	if text, err := os.ReadFile(filepath.Join(folder, "welcome.text")); string(text) != "Subject of welcome.text" {
		t.Errorf("the template is %q, %v", text, err)
	}
	if left, _ := os.ReadDir(folder); len(left) != 1 {
		t.Errorf("there is %v", left)
	}
}

// TestRestoreRefusesTheFuture: a backup with a format that this version does not read, or one that was changed, leaves no
// trace.
func TestRestoreRefusesTheFuture(t *testing.T) {
	later := func(cfg *config.Config) (out []format.Place) {
		for _, p := range datadir.Places(cfg) {
			if p.Name == boltstore.Format.Name {
				p.Writes++
			}
			out = append(out, p)
		}
		return out
	}
	w := newWorldWith(t, version("7.8.9", later), sink.Config{}, "")
	var saved bytes.Buffer
	if err := w.api.Backups.Backup(t.Context(), &saved, api.BackupOptions{Secrets: true}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(saved.Bytes(), []byte("idempotency.key")) {
		t.Error("a backup with secrets has none")
	}
	cfg := elsewhere(t, w.cfg)
	_, err := datadir.StageRestore(cfg, "0.1.0", bytes.NewReader(saved.Bytes()))
	if !errors.Is(err, format.ErrRefused) || !strings.HasPrefix(err.Error(), "the suppression list in ") || !strings.Contains(err.Error(), "start mta 7.8.9") || strings.Contains(err.Error(), "\n") {
		t.Errorf("a format of the future: %v", err)
	}
	text := bytes.ReplaceAll(saved.Bytes(), []byte(`{"store":"queue","format":10,`), []byte(`{"store":"queue","format":18,`))
	if bytes.Equal(text, saved.Bytes()) {
		t.Fatal("the backup has no statement of the queue")
	}
	if _, err := datadir.StageRestore(cfg, "7.8.9", bytes.NewReader(text)); err == nil || errors.Is(err, format.ErrRefused) {
		t.Errorf("a changed octet: %v", err)
	}
	if left, _ := os.ReadDir(cfg.DataDir); len(left) != 0 {
		t.Errorf("there is %v", left)
	}
}

// backedUp is a configuration of a relay to be, and the backup of one with a message whose upgrade is not finished.
func backedUp(t *testing.T) (*world, *bytes.Buffer) {
	t.Helper()
	w := newWorldWith(t, version("0.1.0", before), sink.Config{}, `defaults { smtp_port = PORT }`)
	if _, err := w.rules.Begin(api.Rule{Action: api.RuleSuspend, Selection: api.Selection{All: true}, By: "ann", Since: time.Now()}, false); err != nil {
		t.Fatal(err)
	}
	w.send("a@acme.example", "Subject: one\r\n\r\n1\r\n", "one@box.example")
	saved := new(bytes.Buffer)
	if err := w.api.Backups.Backup(t.Context(), saved, api.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	w.cfg = elsewhere(t, w.cfg)
	return w, saved
}

// TestRestoreBeforeTheUpgradeIsFinished: to hold the mail writes nothing that the version before does not read.
func TestRestoreBeforeTheUpgradeIsFinished(t *testing.T) {
	w, saved := backedUp(t)
	s, err := datadir.StageRestore(w.cfg, "0.2.0", saved)
	if err == nil {
		err = s.Restore(true)
	}
	if err != nil {
		t.Fatal(err)
	}
	q, err := queue.Open(queue.Config{Dir: datadir.Queue(w.cfg), MinFree: 1, Format: func() int { return store.Format.Reads }})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if q.Stats().Held != 1 {
		t.Errorf("%+v", q.Stats())
	}
	indexes, err := filepath.Glob(filepath.Join(datadir.Queue(w.cfg), "*.idx"))
	if err != nil || len(indexes) < 2 {
		t.Fatal(indexes, err)
	}
	for _, name := range indexes {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if newest := int(text[40]); newest > store.Format.Reads { // see queue.index
			t.Errorf("%s is of a segment with records of version %d", name, newest)
		}
	}
}

// TestNoRelayStartsOnAPart: while a restore is under way, or after one that was killed, no relay starts, and the restore
// does not go on over one.
func TestNoRelayStartsOnAPart(t *testing.T) {
	w, saved := backedUp(t)
	quiet := Options{Version: "0.2.0", Log: slog.New(slog.DiscardHandler)}
	whole := saved.Bytes()
	if _, err := datadir.StageRestore(w.cfg, "0.2.0", bytes.NewReader(whole)); err != nil {
		t.Fatal(err)
	}
	if _, err := New(w.cfg, quiet); err == nil || !strings.Contains(err.Error(), "restore again") {
		t.Errorf("a relay started beside a restore: %v", err)
	}
	if left, _ := os.ReadDir(w.cfg.DataDir); len(left) != 1 {
		t.Errorf("the relay has left %v", left)
	}
	part := filepath.Join(w.cfg.DataDir, "destdb") // as a restore that is killed leaves it
	if err := os.Rename(filepath.Join(filepath.Join(w.cfg.DataDir, datadir.Restoring), "destdb"), part); err != nil {
		t.Fatal(err)
	}
	if _, err := datadir.StageRestore(w.cfg, "0.2.0", bytes.NewReader(whole)); err == nil || !strings.Contains(err.Error(), "restore again") {
		t.Errorf("after a restore that was killed: %v", err)
	}
	if _, err := New(w.cfg, quiet); err == nil {
		t.Error("a relay started on a part")
	}
	os.Remove(part)

	s, err := datadir.StageRestore(w.cfg, "0.2.0", bytes.NewReader(whole)) // over one that only unpacked
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(datadir.Queue(w.cfg), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Restore(false); err == nil || !strings.Contains(err.Error(), "has a queue") {
		t.Errorf("over a queue that came meanwhile: %v", err)
	}
	if left, _ := os.ReadDir(w.cfg.DataDir); len(left) != 2 {
		t.Errorf("there is %v", left)
	}
}

// TestNoRelayStartsAfterARestoreThatFailed: with a part of the backup in its place, what keeps a relay from starting stays.
func TestNoRelayStartsAfterARestoreThatFailed(t *testing.T) {
	w, saved := backedUp(t)
	s, err := datadir.StageRestore(w.cfg, "0.2.0", saved)
	if err != nil {
		t.Fatal(err)
	}
	letters := filepath.Join(filepath.Join(w.cfg.DataDir, datadir.Restoring), config.Maildrop, maildrop.New)
	if err := os.MkdirAll(letters, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(letters, "a"), []byte("a letter"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(w.cfg.DataDir, config.Maildrop, maildrop.New, "a"), 0o700); err != nil { // in its way
		t.Fatal(err)
	}
	if err := s.Restore(false); err == nil || !strings.Contains(err.Error(), "restore again") {
		t.Errorf("got %v", err)
	}
	if err := s.Discard(); err != nil { // as the command does
		t.Fatal(err)
	}
	if _, err := New(w.cfg, Options{Version: "0.2.0", Log: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), "restore again") {
		t.Errorf("a relay started on a part: %v", err)
	}
}

// TestRestoreBesideOtherFiles: what is there already is neither lost nor mixed with the backup.
func TestRestoreBesideOtherFiles(t *testing.T) {
	w, saved := backedUp(t)
	mine := filepath.Join(w.cfg.DataDir, config.AuditLog, "mine")
	if err := os.MkdirAll(filepath.Dir(mine), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mine, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := datadir.StageRestore(w.cfg, "0.2.0", saved); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("got %v", err)
	}
	if left, _ := os.ReadDir(w.cfg.DataDir); len(left) != 1 {
		t.Errorf("there is %v", left)
	}
	if text, err := os.ReadFile(mine); string(text) != "mine" {
		t.Errorf("my file has %q, %v", text, err)
	}
}

// TestRestoreByRoot: the relay that starts as the owner of the directory can read what root has restored.
func TestRestoreByRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	w, saved := backedUp(t)
	if err := os.Mkdir(w.cfg.DataDir, 0o751); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(w.cfg.DataDir, 4711, 4711); err != nil {
		t.Fatal(err)
	}
	s, err := datadir.StageRestore(w.cfg, "0.2.0", saved)
	if err == nil {
		err = s.Restore(true)
	}
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.Walk(w.cfg.DataDir, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Sys().(*syscall.Stat_t).Uid != 4711 {
			t.Errorf("%s is not the relay's", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
