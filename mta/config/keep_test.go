package config

import (
	"slices"
	"strings"
	"testing"

	"example.org/mta/internal/settings"
)

// TestReloadKeepsWhatTakesARestart reads a changed file over a running relay's configuration.
func TestReloadKeepsWhatTakesARestart(t *testing.T) {
	old := mustParse(t, `
hostname = "old.example"
data_dir = "/old"
listener "smtp" { address = "127.0.0.1:2525" }
listener "going" { address = "127.0.0.1:2526" }
queue { incoming_memory = "1GiB" }
accounting { keep = "3d" }
source "a" { address = "192.0.2.1" }`)
	fresh := mustParse(t, `
hostname = "new.example"
data_dir = "/new"
listener "coming" { address = "127.0.0.1:2527" }
listener "smtp" {
  address        = "127.0.0.1:25"
  max_recipients = 500
}
queue {
  incoming_memory = "2GiB"
  min_free = "256MiB"
}
accounting { keep = "5d" }
source "a" { address = "192.0.2.2" }
defaults {
  delay_warning    = "1h"
  connection_limit = 3
}`)
	fresh.Keep(old)

	for _, x := range []struct{ what, got, want string }{
		{"hostname", fresh.Hostname, "old.example"},
		{"postmaster, which follows from it", fresh.Postmaster, "postmaster@old.example"},
		{"from, which follows from that", fresh.DSN.From, "Mail Delivery System <postmaster@old.example>"},
		{"ehlo, which follows from it", fresh.Sources[0].EHLO, "old.example"},
		{"accounting path", fresh.Accounting.Path, "/old/log"},
		{"socket", fresh.Control.Socket, "/old/control.sock"},
		{"cache", fresh.Queue.IncomingMemory.String(), "1GiB"},
		{"delay_warning", fresh.Traffic("x.example", "").DelayWarning.String(), "1h0m0s"},
		{"accounting path is from", fresh.Accounting.Origin("path"), "kept until a restart"},
		{"address of the listener", strings.Join(fresh.Listeners[1].Address, " "), "127.0.0.1:25"},
		{"address of the source", fresh.Sources[0].Address.String(), "192.0.2.2"},
		{"keep", settings.FormatDuration(fresh.Accounting.Keep), "5d"},
	} {
		if x.got != x.want {
			t.Errorf("%s is %q, want %q", x.what, x.got, x.want)
		}
	}
	if got := fresh.Listeners[1].MaxRecipients; got != 500 {
		t.Errorf("max_recipients is %d, want the file's", got)
	}
	if len(fresh.Listeners) != 2 || fresh.Listeners[0].Name != "coming" {
		t.Errorf("listeners %v: they come and go", fresh.Listeners)
	}

	shown := string(Effective(fresh))
	plain := strings.Join(strings.Fields(shown), " ")
	for _, want := range []string{
		`# queue: incoming_memory = "2GiB" (was "1GiB"), needs a restart`,
		`incoming_memory = "1GiB" # until a restart`,
	} {
		if !strings.Contains(plain, want) {
			t.Errorf("there is no %s in:\n%s", want, shown)
		}
	}
	if again, err := Parse([]byte(shown), "shown", noEnv); err != nil {
		t.Errorf("what is shown does not load: %v", err)
	} else {
		wantSame(t, "shown", fresh, again)
	}

	// A further reload says again what waits, and the file as it was makes all well.
	third := mustParse(t, `queue { incoming_memory = "1GiB" }`)
	third.Keep(fresh)
	is := func(setting string) func(settings.Change) bool {
		return func(c settings.Change) bool { return c.Setting == setting }
	}
	if slices.ContainsFunc(third.Waiting(), is("queue: cache")) || !slices.ContainsFunc(third.Waiting(), is("hostname")) {
		t.Errorf("waiting after the third: %v", third.Waiting())
	}
}

// TestKeepOfTheSameMarksNothing guards against marks where nothing differs.
func TestKeepOfTheSameMarksNothing(t *testing.T) {
	c := mustParse(t, full)
	c.Keep(mustParse(t, full))
	if shown := string(Effective(c)); len(c.Waiting()) > 0 || strings.Contains(shown, "restart") {
		t.Errorf("waiting %v in\n%s", c.Waiting(), shown)
	}
}

// TestTheConsoleWaitsAsAWhole: what a reload can change of the console it does, unless something waits that may not go
// together with it: without its proxies, an address would take passwords in clear.
func TestTheConsoleWaitsAsAWhole(t *testing.T) {
	const old = `console {
		address         = "192.0.2.1:8026"
		users           = "/etc/mta/console-users"
		trusted_proxies = ["192.0.2.80"]
	}`
	for _, x := range []struct {
		fresh   string
		waiting int
		users   string
		proxies int
	}{
		{`console {
			address         = "192.0.2.1:8026"
			users           = "/etc/mta/others"
			hosts           = ["ops.example.com"]
			trusted_proxies = ["192.0.2.80", "192.0.2.81"]
		}`, 0, "/etc/mta/others", 2},
		{`console {
			address = "127.0.0.1:8026"
			users   = "/etc/mta/others"
		}`, 3, "/etc/mta/console-users", 1},
		{"", 3, "/etc/mta/console-users", 1},
	} {
		before, c := mustParse(t, old), mustParse(t, x.fresh)
		c.Keep(before)
		if len(c.Waiting()) != x.waiting || c.Console.Users != x.users || len(c.Console.TrustedProxies) != x.proxies || c.Console.Address != "192.0.2.1:8026" {
			t.Errorf("%s: %v waits, in force is %+v", x.fresh, c.Waiting(), c.Console)
		}
		if _, err := Parse(Effective(c), "shown", noEnv); err != nil {
			t.Errorf("%s: what is in force does not load: %v", x.fresh, err)
		}
	}
}
