package mta

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.org/mta/mta/config"
	"example.org/mta/operator/api"
	"example.org/mta/submission/request"
)

// A reload brings all templates into force or, where one has a fault, none; the relay doesn't start with
// a fault at all.
func TestTemplatesOfARelay(t *testing.T) {
	dir := t.TempDir()
	file, stored := filepath.Join(dir, "mta.conf"), filepath.Join(dir, "templates", "acme", "welcome.text")
	write := func(path, content string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file, `hostname = "relay.example"
data_dir = "`+filepath.Join(dir, "data")+`"
http { address = "" }
listener "smtp" { address = "127.0.0.1:0" }
tenant "acme" { networks = ["192.0.2.0/24"] }
templates { path = "`+filepath.Join(dir, "templates")+`" }
`)
	start := func() (*Relay, error) {
		cfg, err := config.Load(file, os.Getenv)
		if err != nil {
			t.Fatal(err)
		}
		return New(cfg, Options{ConfigFile: file, Env: os.Getenv})
	}
	write(stored, "{{#a}}")
	if _, err := start(); err == nil || !strings.Contains(err.Error(), "welcome.text: line 1") {
		t.Fatalf("the relay starts with a faulty template: %v", err)
	}
	write(stored, "one {{name}}")
	r, err := start()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	rendered := func() string {
		welcome, ok := r.templates.Stored("acme", "welcome")
		if !ok {
			return ""
		}
		m, err := welcome.Render(ctx, true, request.NewData(map[string]any{"name": "Ann"}))
		if err != nil {
			t.Fatal(err)
		}
		return m.Text
	}
	if got := rendered(); got != "one Ann" {
		t.Errorf("at start: %q", got)
	}
	write(stored, "two {{#a}}")
	if _, err := r.Reload(ctx); err == nil || rendered() != "one Ann" {
		t.Errorf("a reload with a faulty template: %v; in force is %q", err, rendered())
	}
	write(stored, "two {{name}}")
	lists := func(done api.Reload, err error, want ...string) {
		t.Helper()
		if err != nil || !slices.Equal(done.Changes, want) || done.Count != len(want) {
			t.Errorf("a reload lists %q, %d, %v; want %q", done.Changes, done.Count, err, want)
		}
	}
	done, err := r.PreviewReload(ctx)
	lists(done, err, "templates: acme/welcome.text has changed")
	if got := rendered(); got != "one Ann" {
		t.Errorf("after a dry run: %q", got)
	}
	done, err = r.Reload(ctx)
	lists(done, err, "templates: acme/welcome.text has changed")
	if got := rendered(); got != "two Ann" {
		t.Errorf("after a reload: %q", got)
	}
	done, err = r.Reload(ctx)
	lists(done, err)
	if _, faults := r.templates.Compile("acme", request.Mail{Text: "{{>welcome}}"}); faults != nil {
		t.Error(faults)
	}
}
