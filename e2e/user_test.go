package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestRootIsGivenUp starts the relay as root: it binds a port below 1024 and runs as another user, who can
// do nothing else, nor have the memory written down.
func TestRootIsGivenUp(t *testing.T) {
	needRoot(t)
	uid, gid := idsOf(t, "nobody")
	const addr = "127.33.0.1:587"
	r := newRelay(t, "127.0.0.1:53", "25", fmt.Sprintf("user = \"nobody\"\nlistener \"submission\" { address = %q }\n", addr))
	if err := os.Chown(r.dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(r.config, uid, gid); err != nil {
		t.Fatal(err)
	}
	r.start(t)
	r.listens(t, addr)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"Uid": strings.TrimSpace(strings.Repeat(strconv.Itoa(uid)+"\t", 4)), "CapEff": "0000000000000400", "CapPrm": "0000000000000400", "Groups": strconv.Itoa(gid),
	} {
		m := regexp.MustCompile(`(?m)^` + name + `:\s*(.*?)\s*$`).FindSubmatch(status)
		if m == nil || string(m[1]) != want {
			t.Errorf("%s is %q, want %q", name, m, want)
		}
	}
	// The owner of what /proc has of a process that can't be dumped is root.
	if info, err := os.Stat(fmt.Sprintf("/proc/%d/environ", r.cmd.Process.Pid)); err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("the memory can be written down: %v, %v", info, err)
	}
	log, err := os.ReadFile(r.log)
	if err != nil || strings.Contains(string(log), "RUNS AS ROOT") {
		t.Errorf("%v\n%s", err, log)
	}
}
