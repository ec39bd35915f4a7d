package mta

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"example.org/mta/internal/format"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/config"
	"example.org/mta/mta/datadir"
	"example.org/mta/operator/api"
	"example.org/mta/queue/store"
	"example.org/mta/suppression/boltstore"
	"example.org/mta/warmup"
)

// before are the stores as the version before knows them: the queue and the suppression list have a former format.
func before(cfg *config.Config) (out []format.Place) {
	for _, p := range datadir.Places(cfg) {
		if p.Reads < p.Writes {
			p.Writes, p.Unstated = p.Reads, p.Reads
		}
		out = append(out, p)
	}
	return out
}

// version is a relay of a version, with the stores that it knows.
func version(name string, places func(*config.Config) []format.Place) Options {
	return Options{Version: name, places: places}
}

// restart stops the relay and starts another version on its data.
func (w *world) restart(opts Options) {
	w.t.Helper()
	if err := w.stop(); err != nil {
		w.t.Fatal(err)
	}
	w.given = opts
	w.start()
}

// TestUpgradeAndBack: the version before takes mail; the next one keeps it, takes more, and writes what the version
// before reads; that is put back with every message. Once the upgrade is finished it is refused, and the newest version
// delivers all.
func TestUpgradeAndBack(t *testing.T) {
	w := newWorldWith(t, version("0.1.0", before), sink.Config{}, `defaults { smtp_port = PORT }`)
	if _, err := w.rules.Begin(api.Rule{Action: api.RuleSuspend, Selection: api.Selection{All: true}, By: "ann", Since: time.Now()}, false); err != nil {
		t.Fatal(err)
	}
	w.send("a@acme.example", "Subject: first\r\n\r\n1\r\n", "one@box.example")
	queued := func(want int64) {
		t.Helper()
		if got := w.queue.Stats(); got.Queued != want || got.DamagedRecords != 0 {
			t.Fatalf("%d recipients are queued, and %d records damaged, want %d and none", got.Queued, got.DamagedRecords, want)
		}
	}
	w.restart(version("0.2.0", nil))
	queued(1)
	w.send("a@acme.example", "Subject: second\r\n\r\n2\r\n", "two@box.example")
	u, err := w.data.Upgrade(t.Context())
	if err != nil || !u.Pending || u.Stores[0].Format != store.Format.Reads || u.Stores[0].BackTo != "0.1.0" {
		t.Errorf("%+v, %v", u, err)
	}
	w.restart(version("0.1.0", before))
	queued(2)
	w.send("a@acme.example", "Subject: third\r\n\r\n3\r\n", "three@box.example")
	w.restart(version("0.2.0", nil))
	queued(3)
	if done, err := w.data.FinishUpgrade(t.Context(), api.FinishUpgrade{}); err != nil || done.Count != 3 {
		t.Fatalf("%+v, %v", done, err)
	}
	if n := w.data.Formats().Of(boltstore.Format.Name).Number(); n != boltstore.Format.Writes {
		t.Errorf("the suppression list is in format %d", n)
	}
	w.send("a@acme.example", "Subject: fourth\r\n\r\n4\r\n", "four@box.example")
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	_, err = New(w.cfg, Options{Version: "0.1.0", places: before, Log: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, format.ErrRefused) || !strings.Contains(err.Error(), "start mta 0.2.0") {
		t.Fatalf("the version before: %v", err)
	}
	w.start()
	queued(4)
	if _, err := w.rules.End(1); err != nil {
		t.Fatal(err)
	}
	w.arrived(4)
}

// TestStoresOfTheFuture: whichever store a later version has written, the start ends with a sentence that names it, and
// nothing is changed.
func TestStoresOfTheFuture(t *testing.T) {
	w := newWorldWith(t, version("0.1.0", nil), sink.Config{}, "")
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	quiet := Options{Version: "0.1.0", Log: slog.New(slog.DiscardHandler)}
	for _, p := range datadir.Places(w.cfg) {
		was, err := os.ReadFile(p.StatementPath())
		if err != nil {
			t.Fatalf("%s has no statement: %v", p.Name, err)
		}
		later := format.Statement{Store: p.Name, Format: p.Writes + 1, By: "7.8.9", Since: time.Now()}
		text, _ := json.Marshal(later)
		if err := os.WriteFile(p.StatementPath(), text, 0o640); err != nil {
			t.Fatal(err)
		}
		had := contents(t, w.cfg.DataDir)
		_, err = New(w.cfg, quiet)
		if !errors.Is(err, format.ErrRefused) || !strings.Contains(err.Error(), "start mta 7.8.9") || !strings.Contains(err.Error(), p.Name) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", p.Name, err)
		}
		if _, err := datadir.FinishUpgrade(w.cfg, "0.1.0", time.Now(), false); !errors.Is(err, format.ErrRefused) {
			t.Errorf("finishing the upgrade of %s: %v", p.Name, err)
		}
		if has := contents(t, w.cfg.DataDir); has != had {
			t.Errorf("%s: the data directory has changed:\n%s\nwas\n%s", p.Name, has, had)
		}
		if err := os.WriteFile(p.StatementPath(), was, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	w.start()
}

// TestRecordsOfTheFuture: should a statement be missing, the record that a later version has written ends the start, too.
func TestRecordsOfTheFuture(t *testing.T) {
	w := newWorldWith(t, version("0.1.0", nil), sink.Config{}, "")
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	warm := append(make([]byte, 20), byte(warmup.Format.Writes+1)) // see warmup/file.go
	binary.BigEndian.PutUint32(warm, crc32.Checksum(warm[4:], crc32.MakeTable(crc32.Castagnoli)))
	for _, test := range []struct {
		store              format.Store
		file, bucket, name string
		value              []byte
	}{
		{boltstore.Format, "suppression.db", "suppression", "acme\x00a@example.net", []byte{byte(boltstore.Format.Writes + 1), 1, 0, 0}},
		{warmup.Format, "warmup.db", "records-2", "192.0.2.1", warm},
	} {
		path := filepath.Join(w.cfg.DataDir, test.file)
		was, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		db, err := bolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = db.Update(func(tx *bolt.Tx) error { return tx.Bucket([]byte(test.bucket)).Put([]byte(test.name), test.value) })
		if err = errors.Join(err, db.Close(), os.Remove(path+".format")); err != nil {
			t.Fatal(err)
		}
		_, err = New(w.cfg, Options{Version: "0.1.0", Log: slog.New(slog.DiscardHandler)})
		want := fmt.Sprintf("version %d, and this program knows 1 to %d: start the newer one", test.store.Writes+1, test.store.Writes)
		if !errors.Is(err, format.ErrRefused) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", test.store.Name, err)
		}
		if err := os.WriteFile(path, was, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// contents lists the files below a folder with their sizes.
func contents(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			io.WriteString(&out, path+" "+info.ModTime().String()+"\n")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestFinishOfAStoppedRelay: the upgrade of a relay that doesn't run can be finished, and that of one that runs can't be
// behind its back.
func TestFinishOfAStoppedRelay(t *testing.T) {
	w := newWorldWith(t, version("0.1.0", before), sink.Config{}, "")
	if _, err := datadir.FinishUpgrade(w.cfg, "0.2.0", time.Now(), false); err == nil || !strings.Contains(err.Error(), "control socket") {
		t.Errorf("while the relay runs: %v", err)
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	done, err := datadir.FinishUpgrade(w.cfg, "0.2.0", time.Now(), false)
	if err != nil || len(done) != 3 {
		t.Fatalf("%+v, %v", done, err)
	}
	set, err := datadir.Formats(w.cfg, "0.2.0")
	if err != nil || set.Pending() != "" {
		t.Errorf("pending %q, %v", set.Pending(), err)
	}
	w.given = version("0.2.0", nil)
	w.start()
}
