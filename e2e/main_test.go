// Package e2e runs the relay's own binary between mail servers and clients that others wrote:
// Postfix, Exim, OpenSMTPD, swaks, msmtp, Python's smtplib, and NSD and Unbound for the DNS; Chromium looks at the
// console, with axe-core (MPL 2.0, in testdata with its licence). It also kills the
// relay under load, again and again (torture_test.go, http_torture_test.go). By HTTP, the SDKs of SendGrid and Resend
// send to it, directly and through nginx and Caddy; sdk/ has the programs that drive them.
//
// Everything listens on loopback with configurations of its own in temporary folders, in process
// groups of its own that are ended by their ids. install.sh fetches what is needed from Debian;
// what is missing makes tests skip, loudly, or fail when MTA_E2E_REQUIRE is set. The list of those that were
// skipped goes to the file that MTA_E2E_SKIPPED names, since go test hides the output of tests that pass.
//
// Time is real here: a test waits for what other programs do by looking again and again, within
// a limit.
package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"
)

// binary is the relay, built once from this tree.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run tests the binary that MTA_E2E_BINARY names, else the one that it builds.
func run(m *testing.M) int {
	if binary = os.Getenv("MTA_E2E_BINARY"); binary == "" {
		remove, err := build()
		defer remove()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	code := m.Run()
	if err := skipped.report(os.Getenv("MTA_E2E_SKIPPED")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// turns are those of the tests that work at a time.
var turns = make(chan struct{}, 8)

// parallel lets a test run beside others when its turn comes. A test that mostly waits calls t.Parallel: it takes no
// turn, and begins early.
func parallel(t *testing.T) {
	t.Helper()
	t.Parallel()
	turns <- struct{}{}
	t.Cleanup(func() { <-turns })
}

// build makes the binary, with the race detector when MTA_E2E_RACE is set.
func build() (remove func(), err error) {
	dir, err := os.MkdirTemp("", "mta-e2e-bin-")
	if err != nil {
		return func() {}, fmt.Errorf("making a folder for the binary: %w", err)
	}
	remove = func() { os.RemoveAll(dir) }
	binary = filepath.Join(dir, "mta")
	program := exec.Command("go", "build", "-o", binary, "../cmd/mta")
	if os.Getenv("MTA_E2E_RACE") != "" {
		program.Args = slices.Insert(program.Args, 2, "-race")
		program.Env = append(os.Environ(), "CGO_ENABLED=1")
	}
	if out, err := program.CombinedOutput(); err != nil {
		return remove, fmt.Errorf("building the relay: %w\n%s", err, out)
	}
	return remove, nil
}

// skips is what could not be tested, and why.
type skips struct {
	mu  sync.Mutex // guards the rest
	why map[string]string
}

var skipped = &skips{why: make(map[string]string)}

func (s *skips) add(test, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.why[test] = why
}

// report writes the list to a file, or to standard error where none is given. Where nothing was skipped, it
// writes nothing.
func (s *skips) report(file string) error {
	if len(s.why) == 0 {
		return nil
	}
	var lines []string
	for test, why := range s.why {
		lines = append(lines, fmt.Sprintf("  %s: %s", test, why))
	}
	sort.Strings(lines)
	frame := strings.Repeat("*", 76)
	text := fmt.Sprintf("%s\n  SKIPPED, so not tested (see e2e/install.sh):\n%s\n%s\n", frame, strings.Join(lines, "\n"), frame)
	if file == "" {
		_, err := fmt.Fprint(os.Stderr, text)
		return err
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

func TestSkipsAreListed(t *testing.T) {
	s := &skips{why: make(map[string]string)}
	file := filepath.Join(t.TempDir(), "skipped")
	if err := s.report(file); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("there is a list of nothing")
	}
	s.add("TestA", "this machine forbids it")
	if err := s.report(file); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(file); !strings.Contains(string(text), "  TestA: this machine forbids it\n") {
		t.Errorf("the list is %q", text)
	}
}

// need skips the test, or fails it when MTA_E2E_REQUIRE is set, if one of the programs is
// missing. It gives their paths.
func need(t *testing.T, programs ...string) []string {
	t.Helper()
	var paths []string
	for _, p := range programs {
		path, err := find(p)
		if err != nil {
			cannot(t, err.Error())
		}
		paths = append(paths, path)
	}
	return paths
}

// needRoot is for servers that change their user.
func needRoot(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		cannot(t, "real mail servers change their user, which takes root on Linux")
	}
}

// cannot is for what can be installed or given to the tests.
func cannot(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("MTA_E2E_REQUIRE") != "" {
		t.Fatalf("%s, and MTA_E2E_REQUIRE is set", why)
	}
	forbidden(t, why)
}

// forbidden skips the test, with MTA_E2E_REQUIRE too: it is for what nothing that can be installed changes.
func forbidden(t *testing.T, why string) {
	t.Helper()
	skipped.add(t.Name(), why)
	t.Skip(why)
}

// find looks for a program by its name, or, when it was only unpacked, by its path.
func find(program string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/lib/postfix/sbin", filepath.Join(cacheDir(), "pebble"), filepath.Join(cacheDir(), "helm")} {
		path := filepath.Join(dir, program)
		if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not there", program)
}

func cacheDir() string {
	if dir := os.Getenv("MTA_E2E_CACHE"); dir != "" {
		return dir
	}
	return "/var/cache/mta-e2e"
}

// scratch gives a folder that other users may enter, unlike t.TempDir, and whose path is short
// enough for unix sockets.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "mta-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// patience is how long a test waits for what takes a moment: whoever waits longer than that, on however
// slow a machine, waits for what won't come.
const patience = 2 * time.Minute

// eventually calls f until it gives nil, and fails the test with its last error after limit.
func eventually(t *testing.T, limit time.Duration, f func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v: %v", limit, err)
		}
		<-look.C
	}
}

// allCome waits until there are so many, as long as more come: how fast is the machine's doing.
func allCome(what string, want int, count func() int) error {
	for before := -1; ; {
		n := count()
		switch {
		case n >= want:
			return nil
		case n == before:
			return fmt.Errorf("%d of %d %s are there, and no more have come for %v", n, want, what, patience)
		}
		before = n
		for end := time.Now().Add(patience); n == before && time.Now().Before(end); n = count() {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
