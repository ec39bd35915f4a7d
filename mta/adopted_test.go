package mta

import (
	"errors"
	"os"
	"testing"
	"time"

	"example.org/mta/internal/format"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/config"
	"example.org/mta/mta/datadir"
)

// TestARelayEndsWhoseMailIsAdopted, where the lock of the directory did not keep the other node away, and no other
// starts.
func TestARelayEndsWhoseMailIsAdopted(t *testing.T) {
	w := newWorldWith(t, Options{}, sink.Config{}, "", func(cfg *config.Config) {
		if err := os.WriteFile(cfg.Cluster.Path, nil, 0o600); err != nil { // it was a node
			t.Fatal(err)
		}
	})
	if err := (datadir.Adopted{By: 2, Began: time.Now()}).Write(w.cfg.DataDir); err != nil {
		t.Fatal(err)
	}
	w.until("stopping", w.life.Stopping)
	if err := w.stop(); !errors.Is(err, format.ErrRefused) {
		t.Errorf("it ends with %v", err)
	}
	if _, err := New(w.cfg, w.given); !errors.Is(err, format.ErrRefused) {
		t.Errorf("another start ends with %v", err)
	}
}
