package pauses

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/mta/operator/api"
)

// The log has what took the place of damaged pauses, and an operator who finds everything paused has the command that
// ends it.
func TestDamagedPausesNameTheRemedy(t *testing.T) {
	var log bytes.Buffer
	dir := t.TempDir()
	read := func() []api.Pause {
		t.Helper()
		p, err := Read(dir, time.Now, nil, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		return p.List()
	}
	damage := func(name string) {
		t.Helper()
		path := filepath.Join(dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text[len(text)/2] ^= 1
		if err := os.WriteFile(path, text, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	logged := func(want string) {
		t.Helper()
		if text := log.String(); !strings.Contains(text, want) || strings.Contains(text, "<nil>") {
			t.Errorf("logged %q, want %q in it", text, want)
		}
		log.Reset()
	}
	p, err := Read(dir, time.Now, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Begin(api.Pause{What: api.PauseDomain, Name: "a.example", Since: time.Now()}); err != nil {
		t.Fatal(err)
	}
	damage("pauses.json")
	if list := read(); len(list) != 1 || list[0].Name != "a.example" {
		t.Errorf("in force from the second copy: %+v", list)
	}
	logged("their second copy is in their place")
	damage("pauses.json")
	damage("pauses.json.copy")
	if list := read(); len(list) != 1 || list[0].What != api.PauseEverything || !strings.Contains(list[0].Reason, "mta resume everything") {
		t.Errorf("in force without a copy: %+v", list)
	}
	logged("mta resume everything")
}
