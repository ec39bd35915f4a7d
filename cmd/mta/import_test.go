package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/mta/importer"
)

// imported runs the end of an import of a draft.
func imported(t *testing.T, im importing, change func(*importer.Draft)) (out, errs string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	im.c = &cli{out: &stdout, err: &stderr, env: func(string) string { return "" }}
	d := importer.New("A test.")
	change(d)
	err = im.finish(d)
	return stdout.String(), stderr.String(), err
}

func lose(d *importer.Draft) {
	d.Lost(importer.Origin{File: "old", Line: 3, Directive: "max-x 1/h"}, "no such rate", true)
}

func TestALostLimitFailsUntilItIsAccepted(t *testing.T) {
	out, errs, err := imported(t, importing{}, lose)
	if err != exitError(exitFailed) || !strings.Contains(out, "# old:3 max-x 1/h: not carried, and it protects: no such rate") {
		t.Errorf("%v, printed:\n%s", err, out)
	}
	if !strings.Contains(errs, "old:3  max-x 1/h  no       yes       no such rate\n") || !strings.Contains(errs, "0 directives carried, 0 with a note, 1 not carried\n") || !strings.Contains(errs, "--accept") {
		t.Errorf("summary:\n%s", errs)
	}
	if _, errs, err = imported(t, importing{accept: true}, lose); err != nil || strings.Contains(errs, "--accept") {
		t.Errorf("accepted: %v\n%s", err, errs)
	}
}

func TestAFaultOfTheImportIsReportedAsSuch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mta.conf")
	_, errs, err := imported(t, importing{out: path}, func(d *importer.Draft) { d.Set("no_such_setting", 1, importer.Origin{}) })
	if err == nil || !strings.Contains(hintOf(err), "please report it") || !strings.Contains(errs, "no_such_setting") {
		t.Errorf("%v: %s", err, errs)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a configuration with faults was written: %v", err)
	}
}

func TestAnImportReplacesOnlyItsOwnFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mta.conf")
	for range 2 { // the second time over the first one's result
		if _, _, err := imported(t, importing{out: path}, func(*importer.Draft) {}); err != nil {
			t.Fatal(err)
		}
	}
	result, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"presets = false\n", string(result) + "presets = false\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := imported(t, importing{out: path}, func(*importer.Draft) {}); err == nil || !strings.Contains(err.Error(), "not the unchanged result") {
			t.Errorf("somebody's file was replaced: %v", err)
		}
	}
}

func TestPasswordsGoIntoAFileOfTheirOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mta.conf")
	login := func(d *importer.Draft) {
		b := d.Inner("domain", "a.example")
		b.Set("route", []string{"smtp://192.0.2.1:25"}, importer.Origin{})
		b.Set("username", "joe", importer.Origin{})
		b.SetSecret("password", "a.example", "it's \\ \"$1\"", importer.Origin{})
	}
	read := func(path string) string {
		text, _ := os.ReadFile(path)
		return string(text)
	}
	if _, errs, err := imported(t, importing{out: path}, login); err != nil || strings.Contains(read(path)+errs, "it's") {
		t.Errorf("%v, the password shows in\n%s\n%s", err, read(path), errs)
	}
	// As systemd 252 and dash read it; in single quotes, systemd knows no way to write a single quote.
	if secrets := read(path + ".secrets"); !strings.HasSuffix(secrets, "\nPASSWORD_A_EXAMPLE=\"it's \\\\ \\\"\\$1\\\"\"\n") {
		t.Errorf("the secrets are:\n%s", secrets)
	}
	if err := os.WriteFile(path+".secrets", []byte("X=1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := read(path)
	if _, _, err := imported(t, importing{out: path}, func(d *importer.Draft) { login(d); lose(d) }); err == nil || read(path) != before {
		t.Errorf("half of the result was written: %v", err)
	}
	if out, errs, err := imported(t, importing{}, login); err != nil || strings.Contains(out+errs, "it's") || !strings.Contains(errs, "1 password not written") {
		t.Errorf("standard output: %v\n%s\n%s", err, out, errs)
	}
	other := filepath.Join(t.TempDir(), "mta.conf")
	if _, _, err := imported(t, importing{out: other, withSecrets: true}, login); err != nil || !strings.Contains(read(other), "it's") || read(other+".secrets") != "" {
		t.Errorf("--with-secrets: %v\n%s", err, read(other))
	}
}

func TestImportAsJSON(t *testing.T) {
	out, _, err := imported(t, importing{asJSON: true, accept: true}, lose)
	var got struct {
		Lost   int `json:"not_carried"`
		Notes  []importer.Note
		Config string
	}
	if err != nil || json.Unmarshal([]byte(out), &got) != nil || got.Lost != 1 || len(got.Notes) != 1 || !unedited([]byte(got.Config)) {
		t.Errorf("%v: %s", err, out)
	}
}

// All faults are printed, each on a line, and nothing is written.
func TestFaultsOfWhatIsImported(t *testing.T) {
	dir := t.TempDir()
	var many strings.Builder
	for range 60 {
		many.WriteString("name-server x\n")
	}
	for name, text := range map[string]string{
		"config":  "include gone\nhost-name a..b\n" + many.String(),
		"main.cf": "nonsense\nrelayhost = [a\n", "master.cf": "smtp unix - - n - - smtp\nsmtp inet n - n - - smtpd\nx\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	result := filepath.Join(dir, "mta.conf")
	for _, x := range []struct {
		args []string
		want []string
	}{
		{[]string{"powermta", filepath.Join(dir, "config")}, []string{"/config:1: include: ", "/config:2: host-name: ", "/config:50: name-server: ", "\nmta: and 12 more faults\n"}},
		{[]string{"postfix", dir}, []string{"mta: main.cf:1: ", "\nmta: main.cf:2: ", "\nmta: master.cf:3: "}},
	} {
		var out, errs bytes.Buffer
		c := &cli{out: &out, err: &errs, env: func(string) string { return "" }}
		if code := run(c, append(append([]string{"mta", "import"}, x.args...), "--out", result)); code != exitFailed {
			t.Errorf("%v: exit code %d", x.args, code)
		}
		rest := errs.String()
		for _, want := range x.want {
			_, after, ok := strings.Cut(rest, want)
			if !ok {
				t.Errorf("%v: no %q in its place in\n%s", x.args, want, errs.String())
			}
			rest = after
		}
		if _, err := os.Stat(result); !errors.Is(err, os.ErrNotExist) || out.Len() > 0 {
			t.Errorf("%v: something was written: %v\n%s", x.args, err, out.String())
		}
	}
}

// A device in the place of the result is not read: some have no end.
func TestImportIntoADevice(t *testing.T) {
	if _, _, err := imported(t, importing{out: os.DevNull}, func(*importer.Draft) {}); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("%v", err)
	}
}
