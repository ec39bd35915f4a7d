package e2e

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// process is a server in a process group of its own. Its output goes to a file, whose end is
// shown when the test fails.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended
}

// start runs a server until the test's end.
func start(t *testing.T, name string, argv ...string) *process {
	t.Helper()
	p, err := launch(name, filepath.Join(scratch(t), name+".log"), argv...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.stop(10 * time.Second)
		sound(t, p)
		if t.Failed() {
			t.Logf("the last that %s said:\n%s", name, tail(p.log))
		}
	})
	return p
}

// sound fails the test when a server has said that something in it is broken.
func sound(t *testing.T, p *process) {
	t.Helper()
	b, err := os.ReadFile(p.log)
	if err != nil {
		t.Error(err)
	}
	for _, sign := range []string{"DATA RACE", "panic:", "fatal error:", "msg=panic"} {
		if i := bytes.Index(b, []byte(sign)); i >= 0 {
			t.Errorf("%s says %q:\n%s", p.name, sign, b[max(0, i-200):min(len(b), i+2000)])
		}
	}
}

// launch starts a server whose output is appended to log.
func launch(name, log string, argv ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &process{name: name, cmd: exec.Command(argv[0], argv[1:]...), log: log, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// signal reaches the whole process group.
func (p *process) signal(s syscall.Signal) { _ = syscall.Kill(-p.cmd.Process.Pid, s) }

// pause returns once each thread of the process group stands still. A signal alone doesn't wait for them: a broker
// acknowledged 100 events after it.
func (p *process) pause(t *testing.T) {
	t.Helper()
	p.signal(syscall.SIGSTOP)
	group := p.cmd.Process.Pid
	for end := time.Now().Add(10 * time.Second); groupHas(group, "/proc/[0-9]*/task/*/stat", "TZX"); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s doesn't stand still", p.name)
		}
	}
}

func (p *process) resume() { p.signal(syscall.SIGCONT) }

// stop asks the server to end, and makes it after the limit. It reports whether it ended by
// itself.
func (p *process) stop(limit time.Duration) bool {
	if p.ended() {
		return true
	}
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
		p.signal(syscall.SIGKILL) // what its children left in the group
		p.gone()
		return true
	case <-time.After(limit):
		p.kill()
		return false
	}
}

// kill ends the server as a power cut would, as far as the process is concerned.
func (p *process) kill() {
	if p.ended() {
		return
	}
	p.signal(syscall.SIGKILL)
	<-p.done
	p.gone()
}

// gone waits until the children that were killed are dead, too: until then they have the server's sockets, and another
// one gets no address of its.
func (p *process) gone() {
	for end := time.Now().Add(10 * time.Second); groupLives(p.cmd.Process.Pid) && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
}

// groupLives reports whether a process group has a process that has not ended; one that nobody has waited for has.
func groupLives(group int) bool { return groupHas(group, "/proc/[0-9]*/stat", "ZX") }

// groupHas reports whether one of a group's processes or threads, whose stat files have the pattern, is in a state other
// than those (proc(5)).
func groupHas(group int, pattern, than string) bool {
	stats, _ := filepath.Glob(pattern)
	return slices.ContainsFunc(stats, func(path string) bool {
		text, _ := os.ReadFile(path)
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest) // state, parent, group
		return len(fields) > 2 && fields[2] == strconv.Itoa(group) && !strings.Contains(than, fields[0])
	})
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// listens waits until somebody answers at addr with a line, as SMTP servers do.
func (p *process) listens(t *testing.T, addr string) {
	t.Helper()
	eventually(t, patience, func() error {
		if p.ended() {
			t.Fatalf("%s has ended:\n%s", p.name, tail(p.log))
		}
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
		if _, err := conn.Read(make([]byte, 3)); err != nil {
			return fmt.Errorf("%s greets nobody: %w", p.name, err)
		}
		_, _ = conn.Write([]byte("QUIT\r\n"))
		_, _ = conn.Read(make([]byte, 512))
		return nil
	})
}

// run runs a client to its end and gives what it said; input may be "".
func runClient(t *testing.T, input string, argv ...string) string {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, lastLines(string(out), 40))
	}
	return string(out)
}

func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return lastLines(string(b), 15)
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// offered counts the ports and addresses that tests beside each other have been given: what is free stays free until
// its server starts. Ports lie below those that the kernel gives to clients, which would take them while a server is
// started again.
var offered = struct{ ports, addresses atomic.Int64 }{}

// commonPort finds a TCP port that is free on all the addresses.
func commonPort(t *testing.T, addrs ...string) string {
	t.Helper()
	const first, last = 10000, 32000
	for range last - first {
		port := strconv.Itoa(first + (os.Getpid()*100+int(offered.ports.Add(1)))%(last-first))
		if !slices.ContainsFunc(addrs, func(a string) bool { return !free(net.JoinHostPort(a, port)) }) {
			return port
		}
	}
	t.Fatalf("found no port that is free on all of %v", addrs)
	return ""
}

// ownAddress finds a loopback address in 127.NET.0.0/16 at which a port is free: the world knows no other port.
func ownAddress(t *testing.T, network int, port string) string {
	t.Helper()
	needRoot(t)
	for range 200 {
		if addr := fmt.Sprintf("127.%d.0.%d", network, 1+offered.addresses.Add(1)%250); free(net.JoinHostPort(addr, port)) {
			return addr
		}
	}
	cannot(t, "there is no loopback address with port "+port+" free")
	return ""
}

// listenAgain opens an address that a server of this process had a moment ago: a process that is being started may have a
// copy of its socket.
func listenAgain(t *testing.T, addr string) (l net.Listener) {
	t.Helper()
	eventually(t, patience, func() (err error) {
		l, err = net.Listen("tcp", addr)
		return err
	})
	return l
}

// free looks whether an address can be had. Nothing is started meanwhile: a new process has a copy of all sockets until
// it runs its own program, and would keep the address for a moment longer.
func free(addr string) bool {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	l, err := net.Listen("tcp", addr)
	if err == nil {
		l.Close()
	}
	return err == nil
}
