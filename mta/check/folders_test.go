package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/mta/mta/config"
	"example.org/mta/mta/datadir"
)

// TestWarningsOfFolders goes through what can be wrong with where the relay writes. Each fault is one
// that serve fails at, or loses accounting records by, and each that can't be known is not told.
func TestWarningsOfFolders(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	folder := func(name string, mode os.FileMode) {
		t.Helper()
		if err := os.Mkdir(at(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(at(name), mode); err != nil { // whatever the umask
			t.Fatal(err)
		}
	}
	file := func(name string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(at(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(at(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	folder("data", 0o777)
	folder("ours", 0o755)
	folder("groups", 0o775)
	folder("sealed", 0o555)
	folder("all", 0o777)
	file("file", 0o666)
	file("all/ours.log", 0o644)
	file("ours/all.log", 0o666)

	us := os.Getuid()
	other := us + 1
	for _, test := range []struct {
		what  string
		owner int
		text  string
		want  string // "": nothing to tell
	}{
		{"all is there", us, `log { file = "DIR/all/mta.log" }`, ""},
		{"no folder for the log", nobodyKnown, `log { file = "DIR/none/mta.log" }`, `log (f:3): there is no folder DIR/none for the log file: make it, or the relay can't start`},
		{"a folder for a log", nobodyKnown, `log { file = "DIR/all" }`, `log (f:3): DIR/all is a folder: name a file, or the relay can't start`},
		{"a log in a file", nobodyKnown, `log { file = "DIR/file/mta.log" }`, `log (f:3): DIR/file is not a folder: name another, or the relay can't start`},
		{"a log deep in a file", nobodyKnown, `log { file = "DIR/file/a/b/mta.log" }`, `log (f:3): DIR/file is not a folder: `},
		{"a log that is a device", other, `log { file = "/dev/null" }`, ""},
		{"a new log in another's folder", other, `log { file = "DIR/ours/mta.log" }`, `log (f:3): OTHER, to whom the queue belongs, can't write to DIR/ours: let that user, or name another place, or the relay can't start`},
		{"another's log", other, `log { file = "DIR/all/ours.log" }`, `can't write to DIR/all/ours.log: `},
		{"a log for all in another's folder", other, `log { file = "DIR/ours/all.log" }`, ""},
		{"a group that the user may be of", other, `log { file = "DIR/groups/mta.log" }`, ""},
		{"a user that is not known", nobodyKnown, `log { file = "DIR/ours/mta.log" }`, ""},
		{"the superuser", 0, `log { file = "DIR/sealed/mta.log" }`, ""},
		{"a path that is another for the relay", us, `log { file = "none/mta.log" }`, ""},

		{"accounting in a new folder", other, `accounting { path = "DIR/all/a/b" }`, ""},
		{"accounting below another's folder", other, `accounting { path = "DIR/ours/a/b" }`, `accounting (f:3): OTHER, to whom the queue belongs, can't write to DIR/ours: `},
		{"accounting in another's folder", other, `accounting { path = "DIR/ours" }`, `, or the relay can't start, or loses the accounting records`},
		{"accounting in a file", nobodyKnown, `accounting { path = "DIR/file" }`, `accounting (f:3): DIR/file is not a folder: name another, `},
		{"accounting below a file", nobodyKnown, `accounting { path = "DIR/file/a/b" }`, `accounting (f:3): DIR/file is not a folder: `},
		{"accounting that is off", nobodyKnown, `accounting {
			enabled = false
			path = "DIR/file"
		}`, ""},
	} {
		fill := strings.NewReplacer("DIR", dir, "OTHER", userName(other)).Replace
		f := folders{owner: test.owner, who: "to whom the queue belongs", readOnly: onReadOnly}
		got := f.faults(parsed(t, fill("hostname = \"relay.example\"\ndata_dir = \"DIR/data\"\n"+test.text)))
		if test.want == "" && len(got) > 0 || test.want != "" && (len(got) != 1 || !strings.Contains(got[0], fill(test.want))) {
			t.Errorf("%s: told %q, want %q", test.what, got, fill(test.want))
		}
	}
}

func parsed(t *testing.T, text string) *config.Config {
	t.Helper()
	cfg, err := config.Parse([]byte(text), "f", os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestWarningsOfTheDataDirectory: by default the accounting log is in it, which is not told twice.
func TestWarningsOfTheDataDirectory(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	other := os.Getuid() + 1
	never := func(string) bool { return false }
	always := func(string) bool { return true }
	for _, test := range []struct {
		f    folders
		data string
		want string
	}{
		{folders{owner: nobodyKnown, readOnly: never}, dir + "/new", ""},
		{folders{owner: nobodyKnown, readOnly: never}, file + "/new", `data_dir (f:2): ` + file + ` is not a folder: name another, or the relay can't start`},
		{folders{owner: other, who: "to whom the queue belongs", readOnly: never}, dir, `data_dir (f:2): ` + userName(other) + `, to whom the queue belongs, can't write to ` + dir + `: `},
		{folders{owner: nobodyKnown, readOnly: always}, dir + "/new", `data_dir (f:2): ` + dir + ` is on a file system that is mounted read-only: `},
		{folders{owner: nobodyKnown, readOnly: always}, "new", ""},
	} {
		got := test.f.faults(parsed(t, "hostname = \"relay.example\"\ndata_dir = \""+test.data+"\"\n"))
		if test.want == "" && len(got) > 0 || test.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], test.want)) {
			t.Errorf("%s: told %q, want %q", test.data, got, test.want)
		}
	}
}

// TestWhoseFoldersTheyAre: who made the queue is the relay's user, and where a relative data_dir has a
// queue is where the relay is started.
func TestWhoseFoldersTheyAre(t *testing.T) {
	t.Chdir(t.TempDir())
	cfg := parsed(t, "hostname = \"relay.example\"\ndata_dir = \"data\"\nlog { file = \"none/mta.log\" }\n")
	if f := foldersOf(cfg, 0); f.owner != nobodyKnown || f.here || len(f.faults(cfg)) > 0 {
		t.Errorf("before the first start: %d, %v, %q", f.owner, f.here, f.faults(cfg))
	}
	if err := os.MkdirAll(datadir.Queue(cfg), 0o700); err != nil {
		t.Fatal(err)
	}
	f := foldersOf(cfg, 0)
	if told := f.faults(cfg); f.owner != os.Getuid() || !f.here || len(told) != 1 || !strings.Contains(told[0], "no folder none ") {
		t.Errorf("after it: %d, %v, %q", f.owner, f.here, told)
	}
}

// TestKeysThatTheRelayCanNotRead: who checks the configuration is often root, who can read everything.
func TestKeysThatTheRelayCanNotRead(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // which only we may pass through at first
		t.Fatal(err)
	}
	at := func(name string, mode os.FileMode) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil { // whatever the umask
			t.Fatal(err)
		}
		return path
	}
	ours, groups, all := at("ours", 0o600), at("groups", 0o640), at("all", 0o644)
	hidden := at("sealed/hidden", 0o644)
	if err := os.Chmod(filepath.Dir(hidden), 0o700); err != nil {
		t.Fatal(err)
	}
	us := os.Getuid()
	other := us + 1
	for _, test := range []struct {
		path  string
		owner int
		want  string // "": nothing to tell
	}{
		{ours, us, ""}, {ours, 0, ""}, {ours, nobodyKnown, ""}, {groups, other, ""}, {all, other, ""},
		{filepath.Join(dir, "none"), other, ""}, {"", other, ""},
		{ours, other, userName(other) + ", to whom the queue belongs, can't read " + ours + ": let that user own it"},
		{hidden, other, "can't pass through " + filepath.Dir(hidden) + " to hidden: "},
	} {
		f := folders{owner: test.owner, who: "to whom the queue belongs", readOnly: onReadOnly}
		if got := f.unreadable(test.path); !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%s for user %d: told %q, want %q", test.path, test.owner, got, test.want)
		}
	}

	cfg := parsed(t, "hostname = \"relay.example\"\ndata_dir = \""+dir+"\"\n")
	cfg.Listeners[0].TLS = config.TLS{Certificates: config.Certificates{Certificate: []string{all}, Key: []string{ours}}}
	cfg.Console.Address, cfg.Console.TLS = "127.0.0.1:8026", config.Certificates{Certificate: []string{all}, Key: []string{ours}}
	cfg.Streams = []*config.Stream{{Name: "app", CA: ours}}
	cfg.DKIMs = []*config.DKIM{{Keys: []*config.DKIMKey{{Selector: "k1", File: ours}}}}
	got := folders{owner: other, readOnly: onReadOnly}.faults(cfg)
	var keys []string
	for _, fault := range got {
		if strings.Contains(fault, "can't read "+ours) {
			keys = append(keys, fault)
		}
	}
	want := []string{`listener "smtp"`, "console", `stream "app"`, `key "k1"`}
	if len(keys) != len(want) {
		t.Fatalf("the faults are %q", got)
	}
	for i := range want {
		if !strings.HasPrefix(keys[i], want[i]) {
			t.Errorf("fault %d is %q, want one of %s", i, keys[i], want[i])
		}
	}
}

// TestAddressesThatThisMachineLacks: any of them keeps the relay from starting.
func TestAddressesThatThisMachineLacks(t *testing.T) {
	const lacking = "192.0.2.1:8443" // RFC 5737
	cfg := parsed(t, "hostname = \"relay.example\"\ndata_dir = \""+t.TempDir()+"\"\n")
	cfg.Listeners[0].Address, cfg.HTTP.Address, cfg.Console.Address = []string{lacking}, lacking, lacking
	cfg.APIs = []*config.API{{Name: "web", Address: []string{lacking}}}
	got := Faults(cfg)
	want := []string{`listener "smtp"`, `api "web"`, "console", "http"}
	if len(got) != len(want) {
		t.Fatalf("the faults are %q", got)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) || !strings.Contains(got[i], "does not have the address 192.0.2.1") {
			t.Errorf("fault %d is %q, want one of %s", i, got[i], want[i])
		}
	}
}
