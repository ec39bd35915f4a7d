package rules

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/smallfile"
	"example.org/mta/internal/smallfile/smallfiletest"
	"example.org/mta/operator/api"
)

// newest is the format of a data directory whose upgrade is finished.
func newest() int { return Format.Writes }

// The log has what took the place of damaged pauses, and an operator who finds everything paused has the command that
// ends it.
func TestDamagedPausesNameTheRemedy(t *testing.T) {
	var log bytes.Buffer
	dir := t.TempDir()
	read := func() []api.Rule {
		t.Helper()
		p, err := Read(dir, time.Now, newest, nil, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		return p.List()
	}
	damage := func(name string) { smallfiletest.Flip(t, filepath.Join(dir, name)) }
	logged := func(want string) {
		t.Helper()
		if text := log.String(); !strings.Contains(text, want) || strings.Contains(text, "<nil>") {
			t.Errorf("logged %q, want %q in it", text, want)
		}
		log.Reset()
	}
	p, err := Read(dir, time.Now, newest, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Begin(api.Rule{Action: api.RuleSuspend, Selection: api.Selection{Domain: "a.example"}, Since: time.Now()}, false); err != nil {
		t.Fatal(err)
	}
	damage("pauses.json")
	if list := read(); len(list) != 1 || list[0].Domain != "a.example" {
		t.Errorf("in force from the second copy: %+v", list)
	}
	logged("their second copy is in their place")
	damage("pauses.json")
	damage("pauses.json.copy")
	if list := read(); len(list) != 1 || !list[0].All || !strings.Contains(list[0].Reason, "mta resume everything") {
		t.Errorf("in force without a copy: %+v", list)
	}
	logged("mta resume everything")
}

// TestPausesThatCantBeRead: a second copy takes the place of the file. Without one everything is paused, since mail would
// be sent that somebody has stopped.
func TestPausesThatCantBeRead(t *testing.T) {
	path, now := filepath.Join(t.TempDir(), "pauses.json"), time.Unix(1e9, 0)
	read := func() []api.Rule {
		t.Helper()
		now = now.Add(time.Second)
		p, err := Read(filepath.Dir(path), func() time.Time { return now }, newest, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return p.List()
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(); len(got) != 0 {
		t.Errorf("without a file: %+v", got)
	}
	write(path, `{"pauses": [{"what": "domain", "name": "box.example", "by": "ann"}]}`) // of a program without sums
	domain, all := api.Selection{Domain: "box.example"}, api.Selection{All: true}
	want := func(mail api.Selection, alarms int) {
		t.Helper()
		if got := read(); len(got) != 1 || got[0].Selection != mail {
			t.Fatalf("in force: %+v, want %s", got, mail)
		}
		if aside, _ := smallfile.Aside(filepath.Dir(path)); len(aside) != alarms {
			t.Fatalf("set aside: %v, want %d", aside, alarms)
		}
	}
	want(domain, 0)
	for i, text := range []string{"{", "{}", "null", `{"pauses": null}`, `{"pauses": [], "sum": "0"}`} {
		write(path, text)
		want(domain, i+1)
	}
	write(path+".copy", "{")
	want(domain, 6)
	os.Remove(path + ".copy") // as after a restore
	want(domain, 6)
	os.Remove(path)
	want(domain, 7)
	write(path+".copy", "{}")
	write(path, "{}")
	want(all, 8)
	write(path, `{"pauses": []}`) // all ended by a program without sums
	if got := read(); len(got) != 0 {
		t.Errorf("in force: %+v", got)
	}
}
