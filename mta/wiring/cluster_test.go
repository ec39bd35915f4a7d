package wiring

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.org/mta/internal/settings"
	"example.org/mta/mta/config"
	"example.org/mta/submission/request"
)

// TestTemplatesThatDiffer are named by their tenants, wherever the files are.
func TestTemplatesThatDiffer(t *testing.T) {
	sums := func(files ...string) map[string]string {
		t.Helper()
		dir := t.TempDir()
		for _, file := range files {
			name, text, _ := strings.Cut(file, "=")
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		templates, err := request.LoadTemplates(dir)
		if err != nil {
			t.Fatal(err)
		}
		return Sums(config.Default(), templates)
	}
	base := []string{"acme/a.text=x", "acme/a.html=y", "other/a.text=x"}
	for _, c := range []struct {
		files []string
		want  string
	}{
		{base, ""},
		{[]string{"other/a.text=x", "acme/a.html=y", "acme/a.text=x"}, ""},
		{[]string{"acme/a.text=y", "acme/a.html=x", "other/a.text=x"}, `templates of "acme"`},
		{[]string{"acme/a.text=x", "acme/a.html=y", "other/b.text=x"}, `templates of "other"`},
		{base[:2], `templates of "other"`},
	} {
		names, known := settings.Differing(sums(base...), sums(c.files...))
		if !known || strings.Join(names, ", ") != c.want {
			t.Errorf("%q: %q, known: %v; want %q", c.files, names, known, c.want)
		}
	}
	many := slices.Clone(base)
	for i := range 30 {
		many = append(many, "t"+strings.Repeat("x", i)+"/a.text=x")
	}
	other := append(slices.Clone(many), "late/a.text=x")
	if names, _ := settings.Differing(sums(many...), sums(other...)); !slices.Equal(names, []string{"templates"}) {
		t.Errorf("of many tenants: %q", names)
	}
}
