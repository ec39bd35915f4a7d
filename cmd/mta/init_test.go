package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.org/mta/mta/config"
)

// production is what contrib/examples/production.conf is made of, in the order of the questions.
var production = []string{"mta1.example.com", "example.com", "192.0.2.11", "standard", "192.0.2.10", "postmaster@example.com", "app"}

// TestInitWritesTheExample: flags and answers give the same file, which is the example, with its users and its key.
func TestInitWritesTheExample(t *testing.T) {
	example, err := os.ReadFile("../../contrib/examples/production.conf")
	if err != nil {
		t.Fatal(err)
	}
	var flags []string
	for i, flag := range []string{"--hostname", "--domain", "--address", "--plan", "--warm", "--email", "--login"} {
		flags = append(flags, flag, production[i])
	}
	for name, x := range map[string]struct {
		args []string
		in   string
	}{"flags": {flags, ""}, "answers": {nil, strings.Join(production, "\n") + "\n"}, "both": {flags[:6], strings.Join(production[3:], "\n") + "\n"}} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "etc")
			var out, errs bytes.Buffer
			c := &cli{in: strings.NewReader(x.in), out: &out, err: &errs, env: func(string) string { return "" }}
			args := append([]string{"mta", "init", "--dir", dir}, x.args...)
			if code := run(c, args); code != exitDone {
				t.Fatalf("code %d: %s", code, &errs)
			}
			got, err := os.ReadFile(filepath.Join(dir, "mta.conf"))
			if err != nil || strings.ReplaceAll(string(got), dir, "/etc/mta") != string(example) {
				t.Errorf("%v; mta.conf is\n%s", err, got)
			}
			cfg, err := config.Load(filepath.Join(dir, "mta.conf"), c.env)
			if err != nil || len(cfg.DKIMs) != 1 || len(cfg.DKIMs[0].Keys) != 1 {
				t.Errorf("the result is not a configuration: %v", err)
			}
			for _, want := range []string{"mta1.example.com. IN A 192.0.2.11\n11.2.0.192.in-addr.arpa. IN PTR mta1.example.com.", `"v=spf1 ip4:192.0.2.10 ip4:192.0.2.11 ~all"`, "s1._domainkey.example.com. IN TXT", "The password of app, ", "rua=mailto:dmarc@example.com"} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, &out)
				}
			}
			users, err := os.ReadFile(filepath.Join(dir, "users"))
			if err != nil || !strings.HasPrefix(string(users), "app:") || !strings.Contains(string(users), "senders=example.com") {
				t.Errorf("users: %v\n%s", err, users)
			}
			c.in = strings.NewReader(x.in)
			if code := run(c, args); code != exitFailed || !strings.Contains(errs.String(), "already exists") {
				t.Errorf("a second time: code %d: %s", code, &errs)
			}
		})
	}
}

// TestInitOfAFile: --config names the file, and its folder those of the others.
func TestInitOfAFile(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "relay", "my.conf")
	var out bytes.Buffer
	c := &cli{in: strings.NewReader(strings.Join(production, "\n") + "\n"), out: &out, err: &out, env: func(string) string { return "" }}
	if code := run(c, []string{"mta", "init", "--config", conf}); code != exitDone {
		t.Fatalf("code %d: %s", code, &out)
	}
	cfg, err := config.Load(conf, c.env)
	if err != nil || cfg.Users.File != filepath.Join(filepath.Dir(conf), "users") {
		t.Errorf("%v, %+v", err, cfg)
	}
	for _, want := range []string{"\n  mta check --config " + conf + "\n", "\n  mta serve --config " + conf + "\n", "\n  mta check --dns --config " + conf + "\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

// TestInitRefusesBadAnswers writes nothing for them.
func TestInitRefusesBadAnswers(t *testing.T) {
	for i, bad := range []string{"", "no domain", "192.0.2.300", "fast", "here", "", "a:b"} {
		dir, answers := filepath.Join(t.TempDir(), "etc"), slices.Clone(production)
		answers[i] = bad
		var out bytes.Buffer
		c := &cli{in: strings.NewReader(strings.Join(answers, "\n")), out: &out, err: &out, env: func(string) string { return "" }}
		if code := run(c, []string{"mta", "init", "--dir", dir}); code != exitUsage || strings.Contains(out.String(), "the answers") {
			t.Errorf("%q: code %d: %s", bad, code, &out)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%q: files are written", bad)
		}
	}
}

// TestInitAsksAgain: each answer is checked at once, a private address has a public one, and names are A-labels.
func TestInitAsksAgain(t *testing.T) {
	t.Chdir(t.TempDir())
	var out, errs bytes.Buffer
	in := "\na b\nlocalhost\nmta1.example.com\nacme\nbücher.example\n999.1.1.1\nfe80::1%eth0\n127.0.0.1\n10.0.0.5\n\n192.0.2.11\nfast\n\nnone\n\n" +
		"ann\na@b\nann@example.com\na:b\n\n"
	c := &cli{in: strings.NewReader(in), out: &out, err: &errs, env: func(string) string { return "" }}
	if code := run(c, []string{"mta", "init", "--dir", "etc"}); code != exitDone {
		t.Fatalf("code %d: %s", code, &errs)
	}
	for _, want := range []string{"an answer is required\nThe name of this machine", `"a b" is not a host name`, `"localhost" is not a`, `"acme" is not a`, "no mail can leave from 127.0.0.1", `no plan "fast"`, `"a@b" is not a mail`, `"999.1.1.1" is not an IP address`, `"fe80::1%eth0" is not an IP address`,
		"an answer is required\nThe address that", `"none" is not an IP address`, `"ann" is not a mail address`} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("no %q in\n%s", want, &errs)
		}
	}
	for _, want := range []string{"mta1.example.com. IN A 192.0.2.11\n", `"v=spf1 ip4:192.0.2.11 ~all"`, "_dmarc.xn--bcher-kva.example. "} {
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "10.0.0.5") {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	file, _ := filepath.Abs("etc/mta.conf")
	t.Chdir("/")
	cfg, err := config.Load(file, c.env)
	if err != nil || cfg.Sources[0].Seen().String() != "192.0.2.11" || cfg.Users.File != filepath.Join(filepath.Dir(file), "users") ||
		cfg.PoolOf("").Overflow != "hold" || cfg.PoolOf("").Dedicated[0].Plan != "standard" {
		t.Errorf("%v", err)
	}
}

// TestInitWithoutAPlan: an address that receivers know has neither a plan nor a question about mail beyond it.
func TestInitWithoutAPlan(t *testing.T) {
	for warm, want := range map[string]int{"": exitDone, "192.0.2.10": exitUsage} {
		dir := t.TempDir()
		var out bytes.Buffer
		c := &cli{in: strings.NewReader(""), out: &out, err: &out, env: func(string) string { return "" }}
		if code := run(c, []string{"mta", "init", "--dir", dir, "--hostname", "mta1.example.com", "--domain", "example.com", "--address", "192.0.2.11",
			"--plan", "none", "--warm", warm, "--email", "ann@example.com", "--login", "app"}); code != want {
			t.Fatalf("code %d: %s", code, &out)
		}
		if text, _ := os.ReadFile(filepath.Join(dir, "mta.conf")); strings.Contains(string(text), "pool") {
			t.Errorf("%s", text)
		}
	}
}

func TestExamplesAreConfigurations(t *testing.T) {
	for _, name := range []string{"minimal", "production"} {
		text, err := os.ReadFile("../../contrib/examples/" + name + ".conf")
		if err != nil {
			t.Fatal(err)
		}
		if cfg, err := config.Parse(text, name, func(string) string { return "" }); err != nil || len(cfg.Warnings()) > 0 {
			t.Errorf("%v, %q", err, cfg.Warnings())
		}
	}
}
