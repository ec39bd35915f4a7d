package config

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.org/mta/internal/settings"
)

// TestTheExampleIsTheDefault proves each default in the example, and that none is missing.
func TestTheExampleIsTheDefault(t *testing.T) {
	const path = "../../mta.conf.example"
	c, err := Load(path, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range settings.Diff(Default(), c) {
		t.Errorf("the example is not the default: %s", change)
	}

	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// Samples stand behind a # with no space after it.
	src = regexp.MustCompile(`(?m)^( *)#(\w|  |})`).ReplaceAll(src, []byte("$1$2"))
	whole, err := Parse(src, "mta.conf.example with its samples", noEnv)
	if err != nil {
		t.Fatal(err)
	}
	shown := make(map[string]bool)
	var walk func(v reflect.Value, name string, b *block, prefix string)
	walk = func(v reflect.Value, name string, b *block, prefix string) {
		for f := range settings.Fields(v) {
			switch {
			case f.Kind == settings.Setting && b.Set(prefix+f.Name):
				shown[name+" "+f.Name] = true
			case f.Kind == settings.Single && settings.BlockOf(f.Value) != nil:
				walk(f.Value, blockKey(name, f.Name), settings.BlockOf(f.Value), "")
			case f.Kind == settings.Single:
				walk(f.Value, blockKey(name, f.Name), b, prefix+f.Name+".")
			case f.Kind == settings.Many:
				for i := range f.Value.Len() {
					e := f.Value.Index(i).Elem()
					walk(e, blockKey(name, f.Name), settings.BlockOf(e), "")
				}
			}
		}
	}
	walk(reflect.ValueOf(whole).Elem(), "", &whole.block, "")
	for name, v := range blocks() {
		for s := range settingsOf(name, v) {
			if !shown[name+" "+s] {
				t.Errorf("the example does not show %s in block %q", s, name)
			}
		}
	}
}

// TestTheManualNamesEverySetting holds the tables of the manual page against the structs: the
// same settings in the same order, the same defaults, the same marks for what takes a restart.
func TestTheManualNamesEverySetting(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	manual := tables(string(page))
	for name, v := range blocks() {
		rows := manual[name]
		delete(manual, name)
		var want, got []string
		own := settingsOf(name, v)
		for f := range settings.Fields(v) {
			if _, ok := own[f.Name]; ok {
				want = append(want, f.Name)
			}
		}
		for _, r := range rows {
			got = append(got, r.name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("block %q: the manual has %v, the program %v", name, got, want)
			continue
		}
		for _, r := range rows {
			f := own[r.name]
			if want := defaultText(f); strings.HasPrefix(r.byDefault, "`") && r.byDefault != "`"+want+"`" && want != "" {
				t.Errorf("%s of block %q: the default is %s, the manual says %s", r.name, name, want, r.byDefault)
			} else if want != "" && !strings.HasPrefix(r.byDefault, "`") {
				t.Errorf("%s of block %q: the manual does not tell the default, %s", r.name, name, want)
			}
			if restart := needsRestart(name, f); restart != (r.restart == "R") {
				t.Errorf("%s of block %q: takes a restart: %v, the manual has %q", r.name, name, restart, r.restart)
			}
		}
	}
	for name := range manual {
		t.Errorf("the manual has a block %q that the program does not know", name)
	}
}

type row struct{ name, byDefault, restart string }

// tables reads the settings of each block out of the manual.
func tables(page string) map[string][]row {
	all := make(map[string][]row)
	block, known := "", false
	heading := regexp.MustCompile("^##+ `([\\w.]+)")
	entry := regexp.MustCompile("^\\| `(\\w+)` \\| (.*?) \\| (R?) ?\\| ")
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "#") {
			m := heading.FindStringSubmatch(line)
			known = m != nil || strings.HasPrefix(line, "## The top of the file")
			block = ""
			if m != nil {
				block = m[1]
			}
		}
		if m := entry.FindStringSubmatch(line); m != nil && known {
			all[block] = append(all[block], row{m[1], m[2], m[3]})
		}
	}
	return all
}
