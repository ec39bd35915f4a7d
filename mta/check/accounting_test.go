package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTheBudgetOfTheAccountingLog: by the files that are there, keep_size is reached before keep is over.
func TestTheBudgetOfTheAccountingLog(t *testing.T) {
	dir := t.TempDir()
	warned := func(keepSize string) (found string) {
		cfg := parsed(t, "hostname = \"relay.example\"\ndata_dir = \""+dir+"\"\naccounting { keep_size = \""+keepSize+"\" }\n")
		for _, w := range Warnings(cfg, time.Unix(1e9, 0)) {
			if strings.Contains(w, "accounting log grows") {
				found = w
			}
		}
		return found
	}
	if got := warned("128MiB"); got != "" {
		t.Errorf("no files: %s", got)
	}
	if err := os.MkdirAll(filepath.Join(dir, "log"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, begun := range []string{"20260301T120000", "20260302T120000", "20260303T120000"} {
		path := filepath.Join(dir, "log", "mta-"+begun+".jsonl")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, 20<<20); err != nil {
			t.Fatal(err)
		}
	}
	if got := warned("512MiB"); got != "" {
		t.Errorf("14 days take 280 MiB: %s", got)
	}
	got := warned("200MiB")
	if !strings.Contains(got, "grows by 20M a day, so that its oldest files are deleted after 10d, before keep = 2w: raise keep_size to 350M") {
		t.Errorf("14 days take 280 MiB: %s", got)
	}
}
