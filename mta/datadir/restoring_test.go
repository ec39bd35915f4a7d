package datadir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/mta/mta/config"
)

// TestRightsAreNoInterruptedRestore: who may not look into the data directory does not learn that a restore was cut off.
func TestRightsAreNoInterruptedRestore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := NotRestoring(&config.Config{DataDir: file}) // fails as a directory of another user does, for root, too
	if err == nil || strings.Contains(err.Error(), "under way") {
		t.Errorf("error %v, want that of the file system alone", err)
	}
}
