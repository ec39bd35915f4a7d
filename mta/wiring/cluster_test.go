package wiring

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/settings"
	"example.org/mta/mta/config"
	"example.org/mta/submission/auth"
	"example.org/mta/submission/request"
	"example.org/mta/submission/shared"
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
		stored, err := request.OpenStored(dir, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		sums := SharedSums(nil, nil, stored)
		sums[""] = "same"
		return sums
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

// TestAuthoritiesThatDiffer are those of nodes that can't talk.
func TestAuthoritiesThatDiffer(t *testing.T) {
	sums := func(authority string) map[string]string {
		cfg := config.Default()
		if cfg.Cluster.CA = filepath.Join(t.TempDir(), "ca.pem"); authority != "" {
			if err := os.WriteFile(cfg.Cluster.CA, []byte(authority), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return Sums(cfg)
	}
	for authority, want := range map[string]string{"a": "", "a\n": "", "": "", "b": "ca of cluster"} {
		if names, known := settings.Differing(sums("a"), sums(authority)); !known || strings.Join(names, ", ") != want {
			t.Errorf("%q: %q, known: %v; want %q", authority, names, known, want)
		}
	}
}

// TestUsersThatDiffer are known by their names and rights, not by their passwords or their order.
func TestUsersThatDiffer(t *testing.T) {
	service := func(lines ...string) *auth.Service {
		path := filepath.Join(t.TempDir(), "users")
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return auth.New(auth.Config{File: path})
	}
	hash := func(password string) string {
		h, err := auth.NewHash(auth.SchemeSCRAM, password)
		if err != nil {
			t.Fatal(err)
		}
		return h.String()
	}
	ann, bob := "ann:"+hash("one")+":tenant=acme", "bob::certificate=b.example role=viewer"
	shared := func(of *shared.Entries[string, auth.User]) *auth.Service {
		sc := shared.Config{Path: filepath.Join(t.TempDir(), "shared"), Now: time.Now,
			Note: func([]string) (func(), error) { return func() {}, nil }}
		s, err := shared.Open(sc, of)
		if err != nil {
			t.Fatal(err)
		}
		return auth.New(auth.Config{File: "/no/such/file", Shared: s})
	}
	userSums := func(smtp, console *auth.Service) map[string]string {
		none, _ := request.OpenStored("", nil, nil) // never fails
		return SharedSums(smtp, console, none)
	}
	base := userSums(service(ann, bob), nil)
	for _, c := range []struct {
		smtp, console *auth.Service
		want          string
	}{
		{service(bob, "# theirs", "ann:"+hash("two")+":tenant=acme"), nil, ""},
		{service(ann), nil, "users"},
		{service(ann, strings.Replace(bob, "viewer", "admin", 1)), nil, "users"},
		{service(strings.Replace(ann, "acme", "other", 1), bob), service(bob), "users"},
		{nil, service(ann), ""},
		{auth.New(auth.Config{File: "/no/such/file"}), nil, ""},
	} {
		sums := userSums(c.smtp, c.console)
		base[""], sums[""] = "same", "same"
		if names, _ := settings.Differing(base, sums); strings.Join(names, ", ") != c.want {
			t.Errorf("%q differ; want %q", names, c.want)
		}
	}
	one := userSums(shared(auth.UserEntries), shared(auth.UserEntries))
	two := userSums(shared(auth.UserEntries), shared(auth.ConsoleUserEntries))
	one[""], two[""] = "same", "same"
	if names, known := settings.Differing(one, two); !known || !slices.Equal(names, []string{"users of the console"}) {
		t.Errorf("of shared ones %q differ, %v", names, known)
	}
	if sums := userSums(service(ann), service(bob)); len(sums) != 2 || sums["users of the console"] == "" {
		t.Errorf("the sums are %v", sums)
	}
}
