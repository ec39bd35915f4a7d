package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/mta/lab/sink"
)

// tree is a whole Debian, booted by systemd-nspawn with a network of its own. What is written to it goes away with
// it: install.sh keeps the files below it.
type tree struct {
	p    *process
	init int // the process id of its systemd
}

// bootScript gives systemd what it takes wherever the test runs: a temporary /run, and a control group of the second
// version, for itself. The tree's files are below an overlay in memory.
const bootScript = `set -eu
mount -t tmpfs tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir /sys/fs/cgroup/"$2"
echo $$ >/sys/fs/cgroup/"$2"/cgroup.procs
mount -t tmpfs -o mode=755 tmpfs "$3"
mkdir "$3/up" "$3/work" "$3/root"
mount -t overlay overlay -o "lowerdir=$1,upperdir=$3/up,workdir=$3/work" "$3/root"
[ -z "${4-}" ] || exit 0
SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 exec systemd-nspawn -q -D "$3/root" -M "$2" --boot \
	--private-network --register=no --keep-unit --console=pipe --link-journal=no`

// boot starts the tree, and waits for its systemd.
func boot(t *testing.T) *tree {
	t.Helper()
	needRoot(t)
	need(t, "unshare", "nsenter", "systemd-nspawn")
	lower, dir, name := filepath.Join(cacheDir(), "tree"), scratch(t), fmt.Sprintf("mta-e2e-%d", os.Getpid())
	if _, err := os.Stat(filepath.Join(lower, "etc")); err != nil {
		cannot(t, "there is no tree of Debian to boot: "+err.Error())
	}
	t.Cleanup(func() { removeGroup(name) })
	argv := []string{"unshare", "--mount", "--propagation", "private", "sh", "-c", bootScript, "boot", lower, name, dir}
	trial := append([]string{"unshare", "--net", "--pid", "--fork", "--uts", "--ipc"}, append(argv, "trial")...)
	if out, err := exec.Command(trial[0], trial[1:]...).CombinedOutput(); err != nil {
		forbidden(t, fmt.Sprintf("this machine forbids what systemd-nspawn takes (namespaces, mounts, a control group), so the packages are not tested in a booted Debian: %v: %s",
			err, strings.TrimSpace(string(out))))
	}
	removeGroup(name)
	tr := &tree{p: start(t, "tree", argv...)}
	eventually(t, patience, func() error {
		if tr.p.ended() {
			t.Fatalf("the tree has ended:\n%s", tail(tr.p.log))
		}
		if tr.init = childNamed(tr.p.cmd.Process.Pid, "systemd"); tr.init == 0 {
			return errors.New("no systemd yet")
		}
		_, err := tr.try("systemctl is-system-running --wait")
		return err
	})
	tr.sh(t, "ip link set lo up; echo nameserver 127.0.0.1 >/etc/resolv.conf")
	return tr
}

// removeGroup removes the control groups that a tree has left.
func removeGroup(name string) {
	for _, root := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		top := filepath.Join(root, name)
		var groups []string
		_ = filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				groups = append(groups, path)
			}
			return nil
		})
		for i := len(groups) - 1; i >= 0; i-- {
			_ = os.Remove(groups[i])
		}
	}
}

// childNamed gives the child of a process that runs a program; 0 when there is none.
func childNamed(parent int, program string) int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		pid, rest, ok := strings.Cut(string(text), " (")
		name, rest, ok2 := strings.Cut(rest, ") ")
		if fields := strings.Fields(rest); ok && ok2 && len(fields) > 1 && name == program && fields[1] == strconv.Itoa(parent) {
			n, _ := strconv.Atoi(pid)
			return n
		}
	}
	return 0
}

// try runs a script in the tree, as root in its home.
func (tr *tree) try(script string) (string, error) {
	cmd := exec.Command("nsenter", "-t", strconv.Itoa(tr.init), "-m", "-u", "-i", "-n", "-p", "-C",
		"env", "-i", "-C", "/root", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive", "SYSTEMD_PAGER=cat",
		"sh", "-ec", script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", script, err, lastLines(string(out), 40))
	}
	return string(out), err
}

// sh runs a script that has to succeed.
func (tr *tree) sh(t *testing.T, script string) string {
	t.Helper()
	out, err := tr.try(script)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// path is where this process sees a file of the tree.
func (tr *tree) path(name string) string { return fmt.Sprintf("/proc/%d/root%s", tr.init, name) }

// within runs f in the tree's network.
func (tr *tree) within(f func() error) error { return inNetwork(tr.init, f) }

// inNetwork runs f on a thread in the network of a process: the sockets that it opens stay there.
func inNetwork(pid int, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err != nil {
			done <- err
			return
		}
		defer ns.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// dial connects to an address in the tree's network.
func (tr *tree) dial(addr string) (conn net.Conn, err error) {
	err = tr.within(func() error {
		conn, err = net.DialTimeout("tcp", addr, 10*time.Second)
		return err
	})
	return conn, err
}

// serveMail starts a sink at an address of the tree.
func (tr *tree) serveMail(t *testing.T, addr string, to *sink.Recorder) {
	t.Helper()
	tr.sh(t, "ip address replace "+addr+"/32 dev lo")
	var l net.Listener
	if err := tr.within(func() (err error) {
		l, err = net.Listen("tcp", addr+":25")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	s := sink.New(sink.Config{Recorder: to})
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
}

// serveNames starts a name server in the tree, and returns what it serves.
func (tr *tree) serveNames(t *testing.T, records string) *sink.Zone {
	t.Helper()
	zone := sink.MustZone(records)
	s := sink.NewDNS(zone)
	if err := tr.within(func() error {
		_, err := s.Listen("127.0.0.1:53")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return zone
}

// pageBlocks gives the commands of a page's section: its blocks for the shell.
func pageBlocks(t *testing.T, page, section string) string {
	t.Helper()
	return strings.Join(pageCode(t, page, section, "sh"), "")
}

// pageCode gives the blocks of a language in a page's section.
func pageCode(t *testing.T, page, section, language string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	in, code, wanted := false, false, false
	for line := range strings.Lines(string(text)) {
		switch trimmed := strings.TrimSpace(line); {
		case strings.HasPrefix(trimmed, "#") && !code:
			in = strings.TrimLeft(trimmed, "# ") == section
		case strings.HasPrefix(trimmed, "```"):
			code = !code
			if wanted = code && in && trimmed == "```"+language; wanted {
				blocks = append(blocks, "")
			}
		case wanted:
			blocks[len(blocks)-1] += line
		}
	}
	if len(blocks) == 0 {
		t.Fatalf("%s has no code in %q in the section %q", page, language, section)
	}
	return blocks
}
