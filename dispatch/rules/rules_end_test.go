package rules

import (
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"example.org/mta/internal/parking"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/api"
)

// A pause whose end has come is not lost when another begins or ends before that is noticed: its mail is taken up. So
// it is, once, when the file can't be written.
func TestAPauseThatEndsBesideAnother(t *testing.T) {
	now := time.Now()
	var told []string
	p, err := Read(t.TempDir(), func() time.Time { return now }, newest, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	p.Resumed = func(key parking.Key) { told = append(told, key.String()) }
	begin := func(name string, until time.Time) {
		if _, err := p.Begin(api.Rule{Action: api.RuleSuspend, Selection: api.Selection{Domain: name}, Since: now, Until: until}, false); err != nil {
			t.Fatal(err)
		}
	}
	begin("a.example", now.Add(time.Minute))
	now = now.Add(2 * time.Minute)
	begin("b.example", now.Add(time.Minute))
	if list := p.List(); len(list) != 1 || list[0].Domain != "b.example" {
		t.Errorf("in force: %+v", list)
	}
	p.expire()
	p.expire()
	if want := []string{"paused: domain a.example"}; !slices.Equal(told, want) {
		t.Errorf("taken up: %q, want %q", told, want)
	}
	told = nil
	p.path = filepath.Join(t.TempDir(), "no", "folder")
	now = now.Add(2 * time.Minute)
	p.expire()
	p.expire()
	if want := []string{"paused: domain b.example"}; !slices.Equal(told, want) {
		t.Errorf("taken up without a file: %q, want %q", told, want)
	}
}

// The end of a source's pause takes up what waits for the others of its pool: any of them will do.
func TestTheEndOfASourcesPauseIsOneForItsPool(t *testing.T) {
	cfg, err := config.Parse([]byte(`
		source "one" { address = "127.0.0.2" }
		source "two" { address = "127.0.0.3" }`), "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	pol := wiring.New(cfg)
	p, err := Read(t.TempDir(), time.Now, newest, func() *wiring.Policy { return pol }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	p.Resumed = func(key parking.Key) { told = append(told, key.String()) }
	if _, err := p.Begin(api.Rule{Action: api.RuleSuspend, Selection: api.Selection{Source: "two"}}, false); err != nil {
		t.Fatal(err)
	}
	if found, err := p.End(1); !found || err != nil {
		t.Fatal(found, err)
	}
	if !slices.Contains(told, Key(api.Selection{Source: "one"}).String()) {
		t.Errorf("taken up after source two was resumed: %q", told)
	}
}
