package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"example.org/mta/internal/settings"
)

// wantSame holds two configurations against each other, but for secrets.
func wantSame(t *testing.T, what string, a, b *Config) {
	t.Helper()
	for _, c := range settings.Diff(a, b) {
		if !strings.Contains(c.Setting, "password") {
			t.Errorf("%s: %s", what, c)
		}
	}
}

func TestWhatIsPrintedLoadsToTheSame(t *testing.T) {
	for what, c := range map[string]*Config{"default": Default(), "full": mustParse(t, full), "planned": mustParse(t, planned)} {
		printed := Effective(c)
		again, err := Parse(printed, "effective.conf", noEnv)
		if err != nil {
			t.Fatalf("%s: what was printed does not load:\n%s\n%s", what, err, printed)
		}
		wantSame(t, what, c, again)
		if twice := string(Effective(again)); stripLines(twice) != stripLines(string(printed)) {
			t.Errorf("%s: printed twice it differs:\n%s\n---\n%s", what, printed, twice)
		}
	}
}

// stripLines takes the marks of set settings off: everything is set in what was printed.
func stripLines(s string) string {
	var out []string
	for line := range strings.Lines(s) {
		line, _, _ = strings.Cut(line, " # line ")
		line, _, _ = strings.Cut(line, " # preset")
		out = append(out, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(out, "\n")
}

func TestPrintMarksWhatTheFileSets(t *testing.T) {
	out := string(Effective(mustParse(t, full)))
	for _, want := range []string{`# line 2`, `max_recipients             = 5000`, `["5m", "30m", "2h"]`, `listener "odd \"name\" $${x}" {`} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %s in:\n%s", want, out)
		}
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	env := func(name string) string { return map[string]string{"PW": "hunter2"}[name] }
	block := func(pw string) string {
		return `domain "a.example" {
  route    = "smtp://a.example"
  username = "u"
  password = ` + pw + "\n}\n"
	}
	fromEnv, err := Parse([]byte(block(`env("PW")`)), "f", env)
	if err != nil {
		t.Fatal(err)
	}
	literal, err := Parse([]byte(block(`"hunter2"`)), "f", env)
	if err != nil {
		t.Fatal(err)
	}
	other, err := Parse([]byte(block(`"swordfish"`)), "f", env)
	if err != nil {
		t.Fatal(err)
	}
	d := literal.Domains[0]
	for _, shown := range []string{
		string(Effective(fromEnv)), string(Effective(literal)),
		fmt.Sprint(settings.Diff(literal, other)), fmt.Sprint(settings.Diff(fromEnv, literal)), fmt.Sprint(settings.Diff(Default(), literal)),
		fmt.Sprintf("%v %+v %#v %s %q", *d, *d, *d, d.Password, d.Password),
	} {
		if strings.Contains(shown, "hunter2") || strings.Contains(shown, "swordfish") {
			t.Errorf("a password is shown in %s", shown)
		}
	}
	if len(settings.Diff(literal, other)) != 1 {
		t.Errorf("a changed password is not told of: %v", settings.Diff(literal, other))
	}
	again, err := Parse(Effective(fromEnv), "f", env)
	if err != nil || again.Domains[0].Password != "hunter2" {
		t.Errorf("a password from the environment does not survive printing: %v", err)
	}
}

func TestDiff(t *testing.T) {
	old := mustParse(t, `
queue { incoming_memory = "1GiB" }
listener "smtp" {
  address        = "127.0.0.1:2525"
  max_recipients = 500
}
shutdown { drain = "1m" }
domain "a.example" { connection_limit = 3 }`)
	fresh := mustParse(t, `
queue { incoming_memory = "2GiB" }
listener "smtp" {
  address    = ["127.0.0.1:2525", "[::1]:2525"]
  relay_from = ["10.0.0.0/8"]
}
domain "b.example" {
  connection_limit = 3
  timeouts { dot = "1m" }
}`)
	want := `listener "smtp": address = ["127.0.0.1:2525", "[::1]:2525"] (was ["127.0.0.1:2525"])
listener "smtp": relay_from = ["10.0.0.0/8"] (was ["127.0.0.0/8", "::1/128"])
listener "smtp": max_recipients = 1000 (was 500)
queue: incoming_memory = "2GiB" (was "1GiB"), needs a restart
shutdown: drain = "30s" (was "1m")
domain "b.example": connection_limit = 3 (new)
domain "b.example": timeouts.dot = "1m" (new)
domain "a.example": connection_limit = 3 (removed)
`
	got := ""
	for _, c := range settings.Diff(old, fresh) {
		got += c.String() + "\n"
	}
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if d := settings.Diff(old, old); d != nil {
		t.Errorf("a configuration differs from itself: %v", d)
	}
}

// FuzzParse looks for crashes, for problems without a place, and for configurations that don't
// survive being printed.
func FuzzParse(f *testing.F) {
	f.Add([]byte(full))
	f.Add([]byte(planned))
	f.Add([]byte("hostname = \"a\nb"))
	f.Add([]byte("listener \"\\n\" { address = \":1\" }\nqueue { incoming_memory = 1e400 }"))
	f.Add([]byte("domain \"a\" { route = [for x in [1, 2] : \"smtp://$${x}%%{h\"] }"))
	f.Add([]byte("defaults { retry_interval = [\"1s\"] }\n# \xff"))
	f.Fuzz(func(t *testing.T, src []byte) {
		c, problems := parse(src, "f", noEnv, func() string { return "host.example" })
		if found := settings.Problems(nil); errors.As(problems.Err(), &found) {
			for _, p := range found {
				if p.File == "" || p.Message == "" || strings.ContainsAny(p.String(), "\x00\x1b") {
					t.Fatalf("badly told: %q", p.String())
				}
			}
			return
		}
		printed := Effective(c)
		again, problems := parse(printed, "g", noEnv, func() string { return "host.example" })
		if err := problems.Err(); err != nil {
			t.Fatalf("what was printed does not load:\n%s\n%s", err, printed)
		}
		wantSame(t, "printed", c, again)
	})
}
