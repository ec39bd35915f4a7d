package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestInstallOfSome: install.sh with names looks for these alone, and make cluster names what it needs.
func TestInstallOfSome(t *testing.T) {
	parallel(t)
	bin := t.TempDir() // whoever runs the test, nothing is installed
	if err := os.WriteFile(filepath.Join(bin, "id"), []byte("#!/bin/sh\necho 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ args, missing string }{
		{"pebble", "Missing: pebble\n"}, {"helm pebble", "Missing: pebble helm\n"}, {"sh", ""}, {"", " helm "},
	} {
		c := exec.Command("sh", append([]string{"install.sh"}, strings.Fields(test.args)...)...)
		c.Env = append(os.Environ(), "MTA_E2E_CACHE="+t.TempDir(), "PATH="+bin+":"+os.Getenv("PATH"))
		out, err := c.CombinedOutput()
		if err != nil || !strings.Contains(string(out), test.missing) || test.missing == "" && len(out) > 0 {
			t.Errorf("install.sh %s: %v\n%s", test.args, err, out)
		}
	}
	script, err := os.ReadFile("install.sh")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`(?m)^cluster:  *##.*\n\t@sh e2e/install\.sh (.+)$`).FindSubmatch(rules)
	if named == nil {
		t.Fatal("make cluster installs nothing, or all")
	}
	for _, name := range strings.Fields(string(named[1])) {
		if !strings.Contains(string(script), "|| echo "+name+"\n") {
			t.Errorf("install.sh does not know %s", name)
		}
	}
}
