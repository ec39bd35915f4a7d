package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/dkim"
	"example.org/mta/internal/settings"
)

// keyFile writes a new private key into dir.
func keyFile(t *testing.T, dir, name string, alg dkim.Algorithm) string {
	t.Helper()
	_, text, err := dkim.Generate(alg, 2048)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func loadText(t *testing.T, text string) (*Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mta.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(path, func(name string) string {
		if name == "DKIM_KEY" {
			return "nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A="
		}
		return ""
	})
}

func TestDKIMBlocksOfASender(t *testing.T) {
	c, err := loadText(t, `
tenant "acme" {}
tenant "other" {}
dkim "esp" {
  domain  = "esp.example"
  senders = ["*"]
  tenants = ["*"]
  key "s" { private_key = env("DKIM_KEY") }
}
dkim "acme" {
  domain  = "Acme.Example"
  tenants = ["acme"]
  key "s" { private_key = env("DKIM_KEY") }
}
dkim "news" {
  domain  = "news.acme.example"
  tenants = ["acme"]
  key "s" { private_key = env("DKIM_KEY") }
}
dkim "idn" {
  domain  = "bücher.example"
  key "s" { private_key = env("DKIM_KEY") }
}`)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []struct{ tenant, from, want string }{
		{"acme", "acme.example", "acme esp"},
		{"acme", "news.acme.example", "news acme esp"},
		{"acme", "x.y.acme.example", "acme esp"},
		{"acme", "notacme.example", "esp"},
		{"other", "acme.example", "esp"},
		{"", "news.acme.example", "esp"},
		{"", "xn--bcher-kva.example", "idn esp"},
		{"", "", "esp"},
	} {
		var got []string
		for _, d := range c.DKIMFor(q.tenant, q.from) {
			got = append(got, d.Name)
		}
		if strings.Join(got, " ") != q.want {
			t.Errorf("mail of %q from %s is signed by %v, want %s", q.tenant, q.from, got, q.want)
		}
	}
}

// Of each algorithm the key that took over last signs.
func TestKeysTakeTurns(t *testing.T) {
	dir := t.TempDir()
	c, err := loadText(t, fmt.Sprintf(`dkim "acme" {
  domain = "acme.example"
  key "e1" { private_key = env("DKIM_KEY") }
  key "r1" { file = %q }
  key "e3" {
    file = %q
    from = "2026-09-01T12:00:00Z"
  }
  key "e2" {
    file = %q
    from = "2026-07-01"
  }
}`, keyFile(t, dir, "r1", dkim.RSA), keyFile(t, dir, "e3", dkim.Ed25519), keyFile(t, dir, "e2", dkim.Ed25519)))
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string][]string{
		"2026-06-30T23:59:59Z": {"e1", "r1"},
		"2026-07-01T00:00:00Z": {"e2", "r1"},
		"2026-09-01T11:59:59Z": {"e2", "r1"},
		"2026-09-01T12:00:00Z": {"e3", "r1"},
	} {
		now, _ := time.Parse(time.RFC3339, at)
		var got []string
		for _, k := range c.DKIMs[0].Signing(now) {
			got = append(got, k.Selector)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("at %s %v sign, want %v", at, got, want)
		}
	}
	for _, secret := range []string{"nWGxne", "PRIVATE"} {
		if strings.Contains(string(Effective(c)), secret) || strings.Contains(fmt.Sprintf("%v %+v", settings.Object(c), c.DKIMs[0].Keys[0].PrivateKey), secret) {
			t.Errorf("%s is shown", secret)
		}
	}
	if !strings.Contains(string(Effective(c)), `env("DKIM_KEY")`) {
		t.Error("the print does not have the variable that a key is from")
	}
}

func TestKeysThatAreWrong(t *testing.T) {
	dir := t.TempDir()
	good := keyFile(t, dir, "good", dkim.Ed25519)
	open := keyFile(t, dir, "open", dkim.Ed25519)
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	for keys, want := range map[string][]string{
		fmt.Sprintf(`key "s" { file = %q }`, dir+"/none"): {dir + "/none", "mta dkim keygen --domain acme.example --selector s --out " + dir + "/none"},
		fmt.Sprintf(`key "s" { file = %q }`, open):        {"0644", "chmod 0640 " + open},
		fmt.Sprintf(`key "s" { file = %q }`, dir):         {"not a file"},
		`key "s" {}`:                            {"no private key"},
		``:                                      {"has no key", "mta dkim keygen"},
		`key "s" { private_key = env("NONE") }`: {"private_key"},
		`key "s" { private_key = "bm9rZXk=" }`:  {"can't be read"},
		`key "not good" { private_key = env("DKIM_KEY") }`: {"is not a selector"},
		`key "s" {
		   private_key = env("DKIM_KEY")
		   from = "tomorrow"
		 }`: {"is not a date", "2026-01-31"},
		fmt.Sprintf(`key "s" { private_key = env("DKIM_KEY") }
		 key "r" { file = %q }`, good): {"both ed25519 and take over at the same time"},
	} {
		_, err := loadText(t, "dkim \"acme\" {\n domain = \"acme.example\"\n"+keys+"\n}")
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s\n%v\nwant %q", keys, err, w)
			}
		}
		if err != nil && (strings.Contains(err.Error(), "nWGx") || strings.Contains(err.Error(), "bm9r")) {
			t.Errorf("a key is shown: %v", err)
		}
	}
}

// A block that names no tenants signs for those alone whose senders cover its domain.
func TestDKIMBlocksSignForOwners(t *testing.T) {
	const tenants = `
tenant "a" { senders = ["a.test"] }
tenant "below" { senders = ["*.test"] }
tenant "news" { senders = ["news.a.test"] }
tenant "one" { senders = ["bob@a.test"] }
tenant "b" { senders = ["b.test"] }
tenant "open" {}`
	const blocks = `
dkim "a" {
  domain = "a.test"
  key "s" { private_key = env("DKIM_KEY") }
}
dkim "esp" {
  domain  = "esp.example"
  senders = ["*"]
  key "s" { private_key = env("DKIM_KEY") }
}
dkim "named" {
  domain  = "named.test"
  tenants = ["open"]
  key "s" { private_key = env("DKIM_KEY") }
}`
	with, err := loadText(t, tenants+blocks)
	if err != nil {
		t.Fatal(err)
	}
	without, err := loadText(t, strings.ReplaceAll(blocks, `tenants = ["open"]`, ""))
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []struct{ tenant, from, want string }{
		{"a", "a.test", "a"},
		{"a", "x.a.test", "a"},
		{"below", "a.test", "a"},
		{"news", "news.a.test", ""},
		{"one", "a.test", ""},
		{"b", "a.test", ""},
		{"b", "b.test", ""},
		{"open", "a.test", ""},
		{"open", "named.test", "named"},
		{"a", "named.test", ""},
		{"gone", "a.test", ""},
		{"", "a.test", "a esp"}, // the operator's own
	} {
		check := func(c *Config, tenant, want string) {
			var got []string
			for _, d := range c.DKIMFor(tenant, q.from) {
				got = append(got, d.Name)
			}
			if strings.Join(got, " ") != want {
				t.Errorf("mail of %q from %s is signed by %v, want %s", tenant, q.from, got, want)
			}
		}
		check(with, q.tenant, q.want)
		if q.from == "a.test" {
			check(without, q.tenant, "a esp") // without tenant blocks nothing is bounded
		}
	}
	got := strings.Join(with.Unsigned(), "\n")
	for _, want := range []string{`mail of tenants "news", "one", "open" leaves without a signature of a.test`, `mail of tenants "a", "below", "news", "one", "b" and 1 more leaves without a signature of esp.example`,
		`or name each tenant that it signs for: tenants = ["a", "below", "news", "one", "open"]`, `write tenants = ["*"] into the block to sign for all`} {
		if !strings.Contains(got, want) {
			t.Errorf("mta check lacks %q:\n%s", want, got)
		}
	}
	if strings.Count(got, `["*"]`) != 1 || strings.Contains(got, "of named.test") || len(without.Unsigned()) > 0 {
		t.Errorf("%s\n%v", got, without.Unsigned())
	}
}

// TestDKIMBlockOfAnESP: the block that signs all mail of all tenants proves of none that it writes as the ESP.
func TestDKIMBlockOfAnESP(t *testing.T) {
	cfg, err := loadText(t, `
tenant "esp" { senders = ["esp.example"] }
tenant "below" { senders = ["*.esp.example"] }
tenant "acme" { senders = ["acme.example"] }
tenant "open" {}
dkim "esp" {
  domain  = "esp.example"
  senders = ["*"]
  tenants = ["*", "open"]
  key "s" { private_key = env("DKIM_KEY") }
}
dkim "all" {
  domain  = "all.example"
  tenants = ["*"]
  key "s" { private_key = env("DKIM_KEY") }
}`)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []struct {
		tenant string
		from   string // separated by spaces
		signs  bool
	}{
		{"acme", "acme.example", true},
		{"acme", "esp.example", false},
		{"acme", "x.esp.example", false},
		{"acme", "acme.example esp.example", false},
		{"esp", "esp.example", true},
		{"esp", "x.esp.example", false},
		{"below", "x.esp.example", true},
		{"open", "esp.example", true}, // it is named
		{"", "esp.example", true},     // the operator's own
		{"acme", "all.example", true},
	} {
		authors := strings.Fields(q.from)
		if signs := len(cfg.DKIMFor(q.tenant, authors...)) > 0; signs != q.signs {
			t.Errorf("mail of %q from %s is signed: %t", q.tenant, q.from, signs)
		}
		if withheld := len(cfg.Withheld(q.tenant, authors...)) > 0; withheld == q.signs {
			t.Errorf("mail of %q from %s lacks a signature: %t", q.tenant, q.from, withheld)
		}
	}
	if got := cfg.Unsigned(); len(got) > 0 {
		t.Errorf("mta check: %q", got)
	}
}
