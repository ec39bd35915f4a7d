package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestManualPages holds the manual pages against mandoc's lint and groff's warnings, and the completions
// against the shells.
func TestManualPages(t *testing.T) {
	parallel(t)
	mandoc, man, bash := need(t, "mandoc")[0], need(t, "man")[0], need(t, "bash")[0]
	dir := scratch(t)
	program := exec.Command("go", "run", "-tags", "man", "./cmd/mta", "man", dir)
	program.Dir = ".."
	program.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1795392000")
	if out, err := program.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pages, err := filepath.Glob(dir + "/man?/*")
	if err != nil || len(pages) < 100 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	if out, err := exec.Command(mandoc, append([]string{"-T", "lint", "-W", "error"}, pages...)...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("mandoc: %v\n%s", err, lastLines(string(out), 20))
	}
	show := exec.Command(man, append([]string{"--warnings", "-l"}, pages...)...)
	show.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANWIDTH=80", "MANPAGER=cat")
	var troubles strings.Builder
	show.Stderr = &troubles
	text, err := show.Output()
	if n := strings.Count(string(text), "\nNAME\n"); err != nil || troubles.Len() > 0 || n != len(pages) {
		t.Errorf("man -l shows %d of %d pages: %v: %s", n, len(pages), err, troubles.String())
	}
	if !strings.Contains(string(text), "Nov 2026") {
		t.Error("the pages are not of the date of SOURCE_DATE_EPOCH")
	}
	if out, err := exec.Command(bash, "-n", dir+"/bash/mta").CombinedOutput(); err != nil {
		t.Errorf("bash: %s", out)
	}
	for _, script := range []string{"/zsh/_mta", "/fish/mta.fish"} {
		if text, err := os.ReadFile(dir + script); err != nil || !strings.Contains(string(text), "__complete") {
			t.Errorf("%s: %v: %.200s", script, err, text)
		}
	}
}
