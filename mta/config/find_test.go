package config

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

const findable = `
hostname = "relay.example"
data_dir = "/srv/mta"
listener "in" {
  address = ["10.0.0.1:25", "127.0.0.1:2525"]
}
http { address = "10.0.0.1:8025" }
`

// TestFindNeedsNotTheWholeFile: whatever is wrong elsewhere, the relay is found.
func TestFindNeedsNotTheWholeFile(t *testing.T) {
	want := Whereabouts{Hostname: "relay.example", DataDir: "/srv/mta", Socket: "/srv/mta/control.sock", Accounting: "/srv/mta/log", SMTP: []string{"10.0.0.1:25", "127.0.0.1:2525"}}
	for name, extra := range map[string]string{
		"a sound file":         ``,
		"a variable not set":   `domain "a.example" { route = ["smtp://relay.example"]` + "\n" + `  password = env("NOT_SET")` + "\n}",
		"an unknown setting":   `hostnam = "x"`,
		"a missing brace":      "source \"a\" {\n  address = \"192.0.2.1\"\n",
		"a brace too many":     "}",
		"a missing quote":      `postmaster = "me@relay.example`,
		"no value":             `nodeid =`,
		"a comment left open":  `/* left open`,
		"nonsense":             "\x00\xff = = {{{",
		"a key nobody can see": "listener \"tls\" {\n  tls {\n    certificate = \"/root/cert\"\n    key = \"/root/key\"\n  }\n}",
	} {
		for place, src := range map[string]string{"after": findable + extra, "before": extra + "\n" + findable} {
			if name == "a comment left open" && place == "before" {
				continue // then all is a comment
			}
			if got := find([]byte(src), func(string) string { return "" }); !reflect.DeepEqual(got, want) {
				t.Errorf("%s %s the rest: %+v", name, place, got)
			}
		}
	}
}

func TestFindSocketAndVariables(t *testing.T) {
	env := func(name string) string { return map[string]string{"DIR": "/data"}[name] }
	for _, test := range []struct{ src, dir, socket string }{
		{"", "./mta-data", "mta-data/control.sock"},
		{`data_dir = env("DIR")`, "/data", "/data/control.sock"},
		{`data_dir = env("UNSET")`, "", ""},
		{"data_dir = env(\"UNSET\")\ncontrol {\n  socket = \"/run/x.sock\"\n}", "", "/run/x.sock"},
		{"data_dir = 7", "", ""},
		{"control { socket = \"/run/x.sock\" }\nsource \"x\" {", "./mta-data", "/run/x.sock"},
		{"listener \"x\" {\n  address = [\n    \"127.0.0.1:26\", # one\n  ]\nsource \"a\" {\n  address = \"192.0.2.1\"\n}\ncontrol {\n socket = \"/run/y.sock\"\n}", "./mta-data", "/run/y.sock"},
	} {
		got := find([]byte(test.src), env)
		if got.DataDir != test.dir || got.Socket != test.socket {
			t.Errorf("%q: data_dir %q, socket %q", test.src, got.DataDir, got.Socket)
		}
	}
}

// Sendmail speaks in clear and has no login: listeners with TLS from the first octet are none of its, and
// those that demand a login come last.
func TestFindForSendmail(t *testing.T) {
	const src = `
listener "tls" {
  address = "127.0.0.1:465"
  tls { implicit = true }
}
listener "users" {
  address = "127.0.0.1:587"
  auth {
    required = true
  }
}
listener "local" {
  address = ["127.0.0.1:25"]
  auth { required = false }
}
`
	want := []string{"127.0.0.1:25", "127.0.0.1:587"}
	for name, src := range map[string]string{"sound": src, "line by line": src + "nonsense = = {"} {
		if got := find([]byte(src), os.Getenv).SMTP; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestFindSaysThatAFileCantBeRead(t *testing.T) {
	if _, err := Find(filepath.Join(t.TempDir(), "none.conf"), os.Getenv); !os.IsNotExist(err) {
		t.Errorf("got %v", err)
	}
}

// FuzzFind: no file makes it fail, and what the parser accepts it finds as the relay does.
func FuzzFind(f *testing.F) {
	f.Add(findable)
	f.Add("listener \"a\" {\naddress = [\n\"x\"")
	f.Add("/* */ data_dir = \"\\u0041\"")
	f.Fuzz(func(t *testing.T, src string) {
		env := func(string) string { return "" }
		got := find([]byte(src), env)
		if c, err := Parse([]byte(src), "f", env); err == nil && (c.DataDir != got.DataDir || c.Control.Socket != got.Socket || c.Accounting.Path != got.Accounting) {
			t.Errorf("found %+v, the relay has %q, %q and %q", got, c.DataDir, c.Control.Socket, c.Accounting.Path)
		}
	})
}
