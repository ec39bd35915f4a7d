package smallfile

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTwinOnAFullDisk: what can't be written anew keeps nobody from what was read.
func TestTwinOnAFullDisk(t *testing.T) {
	for name, there := range map[string]string{"no copy": "", "the copy is damaged": CopySuffix} {
		path := filepath.Join(t.TempDir(), "names")
		for _, p := range []string{path, path + there} {
			if err := os.WriteFile(p, []byte("sound"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if there != "" {
			os.WriteFile(path+there, []byte("rotten"), 0o600)
		}
		var log bytes.Buffer
		f := Twin[string]{Path: path, Name: "the names", Now: time.Unix(1e9, 0), Log: slog.New(slog.NewTextHandler(&log, nil)),
			Write: func(string) error { return errors.New("no space left on device") },
			Parse: func(text []byte) (string, error) {
				if string(text) == "rotten" {
					return "", errors.New("damaged")
				}
				return string(text), nil
			},
		}
		if v, err := f.Read(); v != "sound" || err != nil || !strings.Contains(log.String(), "no space left") {
			t.Errorf("%s: %q, %v\n%s", name, v, err, &log)
		}
	}
}
