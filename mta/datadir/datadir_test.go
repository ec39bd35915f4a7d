package datadir

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/format"
	"example.org/mta/mta/config"
	"example.org/mta/operator/api"
)

// before are the stores as the version before knows them: the queue and the suppression list have a former format.
func before(cfg *config.Config) (out []format.Place) {
	for _, p := range Places(cfg) {
		if p.Reads < p.Writes {
			p.Writes, p.Unstated = p.Reads, p.Reads
		}
		out = append(out, p)
	}
	return out
}

// TestFinishOfNothing: an empty directory has nothing to finish, and is none of a version before afterwards.
func TestFinishOfNothing(t *testing.T) {
	cfg, err := config.Parse([]byte(`data_dir = "`+t.TempDir()+`"`), "test.conf", os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	if done, err := FinishUpgrade(cfg, "0.2.0", time.Now(), false); err != nil || len(done) != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	if set, err := Formats(cfg, "0.2.0"); err != nil || set.Pending() != "" {
		t.Errorf("pending %q, %v", set.Pending(), err)
	}
}

// TestUpgradeIsFinishedAfterADay, with upgrade = "auto".
func TestUpgradeIsFinishedAfterADay(t *testing.T) {
	for _, mode := range []string{config.UpgradeAuto, config.UpgradeManual} {
		t.Run(mode, func(t *testing.T) { finishedAfterADay(t, mode) })
	}
}

func finishedAfterADay(t *testing.T, mode string) {
	dir := t.TempDir()
	cfg, err := config.Parse([]byte(`data_dir = "`+dir+`"`+"\nupgrade = \""+mode+"\""), "test.conf", os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	old, err := format.Inspect("0.1.0", before(cfg)...)
	if err == nil {
		err = old.State(time.Now())
	}
	if err != nil {
		t.Fatal(err)
	}
	bubble.Test(t, func(t *testing.T) {
		var mixed atomic.Value
		mixed.Store("node 2 has mta 0.1.0")
		d, err := Open(cfg, Config{
			Version: "0.2.0", InForce: func() *config.Config { return cfg }, Now: time.Now, Log: slog.New(slog.DiscardHandler),
			Mixed: func() string { return mixed.Load().(string) },
		})
		if err != nil {
			t.Fatal(err)
		}
		set := d.Formats()
		ctx, cancel := context.WithTimeout(t.Context(), upgradeAfter-time.Minute)
		defer cancel()
		d.Run(ctx)
		if set.Pending() == "" {
			t.Error("it was finished before a day was over")
		}
		for _, dry := range []bool{true, false} {
			_, err := d.FinishUpgrade(t.Context(), api.FinishUpgrade{Intent: api.Intent{DryRun: dry}})
			if err == nil || !strings.Contains(err.Error(), "node 2 has mta 0.1.0, and this relay 0.2.0") {
				t.Errorf("an upgrade that another node has not got: %v", err)
			}
		}
		time.AfterFunc(upgradeAfter+90*time.Minute, func() {
			if set.Pending() == "" {
				t.Error("it was finished before another node had this version")
			}
			mixed.Store("")
		})
		ctx, cancel = context.WithTimeout(t.Context(), upgradeAfter+150*time.Minute)
		defer cancel()
		d.Run(ctx)
		if finished := set.Pending() == ""; finished != (mode == config.UpgradeAuto) {
			t.Errorf("after a day: finished is %v", finished)
		}
	})
}

// TestTheWayBackIsReadFromTheDisk: a version without statements can be put back if its queue shows that it knows a format
// that this one writes. An older one would not see the mail that comes now.
func TestTheWayBackIsReadFromTheDisk(t *testing.T) {
	for dir, back := range map[string]string{
		"../testdata/formats/before-0.1.0/queue": "before 0.1.0", "../../queue/testdata/format6": "", "../../queue/testdata/format2": "",
	} {
		cfg := &config.Config{DataDir: t.TempDir()}
		if err := os.CopyFS(Queue(cfg), os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(cfg.DataDir, "suppression.db"), []byte("entries"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, when := range []string{"before the first start", "after it"} {
			set, err := Formats(cfg, "0.2.0")
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range UpgradeStatus(cfg, "0.2.0", set).Stores {
				if s.Reads < s.Writes && s.BackTo != back || s.Reads == s.Writes && s.BackTo != "" {
					t.Errorf("%s, %s: the %s in format %d goes back to %q", dir, when, s.Store, s.Format, s.BackTo)
				}
			}
			if err := set.State(time.Now()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestAPipeDoesNotBlockTheStart: a pipe in place of a file would block whoever opens it. One in the maildrop, where every
// user may write, stops nothing. A folder in place of a journal segment stops the start, too.
func TestAPipeDoesNotBlockTheStart(t *testing.T) {
	const folder, log = "queue/00000001-5a5a5a5a.seg", "../elsewhere/format"
	for name, stops := range map[string]bool{
		"pauses.json": true, "queue/format": true, "history": true, config.Maildrop + "/new/letter": false,
		folder: true, log: true,
	} {
		cfg := &config.Config{DataDir: filepath.Join(t.TempDir(), "data")}
		cfg.Accounting.Enabled, cfg.Accounting.Path = true, filepath.Join(cfg.DataDir, "../elsewhere")
		path := filepath.Join(cfg.DataDir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
			t.Fatal(err)
		}
		var err error
		if name == folder {
			err = os.Mkdir(path, 0o700)
		} else {
			err = syscall.Mkfifo(path, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		real := cfg.DataDir
		cfg.DataDir = filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(real, cfg.DataDir); err != nil {
			t.Fatal(err)
		}
		_, err = Open(cfg, Config{
			Version: "0.2.0", InForce: func() *config.Config { return cfg }, Now: time.Now, Log: slog.New(slog.DiscardHandler),
			Mixed: func() string { return "" },
		})
		if refused := errors.Is(err, format.ErrRefused) && strings.Contains(err.Error(), filepath.Base(path)); refused != stops || !stops && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWhetherADirectoryWasAdopted: a file that can't be read now may be read by the next start, and one that says
// nothing is refused for good.
func TestWhetherADirectoryWasAdopted(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, adoptedFile)
	opens := func(finally bool) {
		t.Helper()
		cfg, err := config.Parse([]byte(`data_dir = "`+dir+`"`), "test.conf", os.Getenv)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(cfg, Config{Version: "0.1.0"}); err == nil || !strings.Contains(err.Error(), path) || errors.Is(err, format.ErrRefused) != finally {
			t.Errorf("the error is %v; want it to be final: %t", err, finally)
		}
	}
	if err := os.Mkdir(path, 0o700); err != nil { // as a failing disk
		t.Fatal(err)
	}
	opens(false)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	} else if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	opens(true)
}
