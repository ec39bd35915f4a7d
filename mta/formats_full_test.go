package mta

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/mta/lab/sink"
	"example.org/mta/mta/config"
	"example.org/mta/submission/auth"
)

// TestTheFirstStartOfAVersionOnAFullDisk: a full disk takes no sums for the statements of an earlier version, and the
// relay starts all the same.
func TestTheFirstStartOfAVersionOnAFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	token, _, err := auth.AddKey(path, auth.Key{Tenant: "acme", Name: "shop", Scopes: auth.MaySend}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	w := newWorldWith(t, Options{}, sink.Config{}, fmt.Sprintf(flipsConfig, path, unsubscribeURL), func(cfg *config.Config) {
		if err := unix.Mount("tmpfs", cfg.DataDir, "tmpfs", 0, "size=256m"); err != nil {
			t.Skipf("can't mount a file system: %v", err)
		}
		t.Cleanup(func() { unix.Unmount(cfg.DataDir, unix.MNT_DETACH) })
	})
	w.fillStores(token)
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	sum, stripped := regexp.MustCompile(`,"sum":"[0-9a-f]{8}"`), 0
	for name, text := range filesIn(t, w.cfg.DataDir) {
		if kindOf(name) != "format" || !sum.Match(text) {
			continue
		}
		stripped++
		if err := os.WriteFile(filepath.Join(w.cfg.DataDir, name), sum.ReplaceAll(text, nil), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if stripped == 0 {
		t.Fatal("no statement has a sum")
	}
	if err := os.WriteFile(filepath.Join(w.cfg.DataDir, "full"), make([]byte, 257<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	r, err := New(w.cfg, Options{Log: w.given.Log})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(r.data.Formats().Later()); n != stripped {
		t.Errorf("%d statements of %d stay as they were", n, stripped)
	}
	if err := os.Remove(filepath.Join(w.cfg.DataDir, "full")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.Run(ctx); err != nil {
		t.Error(err)
	}
}
