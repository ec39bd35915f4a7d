package weights

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/smallfile"
	"example.org/mta/internal/smallfile/smallfiletest"
	"example.org/mta/mta/config"
	"example.org/mta/operator/api"
)

// A file that is damaged is set aside, and its second copy counts. If both are, mail leaves by the weights of the
// configuration, and the log has the remedy.
func TestDamagedWeights(t *testing.T) {
	var log bytes.Buffer
	dir, pool := t.TempDir(), &config.Pool{Name: "p", Shared: []string{"a", "b"}}
	read := func() *Weights {
		t.Helper()
		w, err := Read(dir, time.Now(), slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	w := read()
	if w.In(pool) != nil {
		t.Error("equal weights are looked up")
	}
	if err := w.Set(api.Weight{Pool: "p", Source: "a", Weight: 7}); err != nil {
		t.Fatal(err)
	}
	if of := read().In(pool); of("a") != 7 || of("b") != 1 {
		t.Errorf("read as %d and %d", of("a"), of("b"))
	}
	damage := func(name string) { smallfiletest.Flip(t, filepath.Join(dir, name)) }
	damage(FileName)
	for range 2 { // the copy makes the file anew
		if of := read().In(pool); of == nil || of("a") != 7 || !strings.Contains(log.String(), "their second copy is in their place") {
			t.Errorf("damaged: logged %q", log.String())
		}
	}
	damage(FileName + smallfile.CopySuffix)
	if of := read().In(pool); of("a") != 7 || !strings.Contains(log.String(), "made anew") {
		t.Errorf("the copy is damaged: logged %q", log.String())
	}
	if aside, err := smallfile.Aside(dir); len(aside) != 2 {
		t.Error(aside, err)
	}
	damage(FileName)
	damage(FileName + smallfile.CopySuffix)
	if read().In(pool) != nil || !strings.Contains(log.String(), "mta pools weight") {
		t.Errorf("both damaged: logged %q", log.String())
	}
}
