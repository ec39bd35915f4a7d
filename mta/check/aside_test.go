package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCheckListsDamagedFiles: who checks a configuration sees what the alarm of the relay has.
func TestCheckListsDamagedFiles(t *testing.T) {
	dir := t.TempDir()
	cfg := parsed(t, "hostname = \"relay.example\"\ndata_dir = \""+dir+"\"\n")
	count := func() (n int) {
		for _, w := range Warnings(cfg, time.Unix(1e9, 0)) {
			if strings.Contains(w, "damaged") {
				n++
			}
		}
		return n
	}
	for i, name := range []string{"suppression.db", "suppression.db.damaged-20260101T000000.000", "inbound/1.mail.damaged-20260101T000000.000", "acme/relay.example.damaged-20260101T000000.000"} {
		path := filepath.Join(dir, name)
		os.MkdirAll(filepath.Dir(path), 0o700)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if n := count(); n != i {
			t.Errorf("with %s: %d warnings of damaged files, want %d: %q", name, n, i, Warnings(cfg, time.Unix(1e9, 0)))
		}
	}
}
