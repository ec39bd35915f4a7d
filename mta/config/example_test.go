package config

import (
	"os"
	"reflect"
	"regexp"
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
