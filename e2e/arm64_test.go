package e2e

import (
	"fmt"
	"net"
	"net/smtp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestArm64 runs the program for arm64 in QEMU: it takes mail, delivers it, keeps what it can't deliver, reloads, and
// ends on TERM.
func TestArm64(t *testing.T) {
	parallel(t)
	qemu, program := need(t, "qemu-aarch64-static")[0], filepath.Join(scratch(t), "mta")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", program, "../cmd/mta")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=arm64")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the program for arm64: %v\n%s", err, out)
	}

	host, took := exchanger(t)
	nobody := net.JoinHostPort("127.0.0.1", commonPort(t, "127.0.0.1"))
	r := newRelay(t, "127.0.0.1", "25", fmt.Sprintf(`
domain "now.example"   { route = ["smtp://%s"] }
domain "later.example" { route = ["smtp://%s"] }
`, host, nobody))
	mta := func(args ...string) string {
		t.Helper()
		return runClient(t, "", append([]string{qemu, program}, append(args, "--config", r.config)...)...)
	}

	if version := runClient(t, "", qemu, program, "version"); !strings.Contains(version, "linux/arm64") {
		t.Errorf("the version is %q", version)
	}
	mta("check")
	r.process = start(t, "relay", qemu, program, "serve", "--config", r.config)
	r.listens(t, r.addr)
	to := []string{"ann@now.example", "ben@later.example"}
	if err := smtp.SendMail(r.addr, nil, "me@example.com", to, []byte("Subject: x\r\n\r\nfrom arm64\r\n")); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() error {
		list := mta("queue", "list")
		if strings.Contains(list, to[0]) || !strings.Contains(list, to[1]) || len(took.Messages()) != 1 {
			return fmt.Errorf("%d messages delivered, and in the queue are:\n%s", len(took.Messages()), list)
		}
		return nil
	})
	mta("config", "reload")
	r.signal(syscall.SIGTERM)
	<-r.done
	if code := r.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d after TERM:\n%s", code, tail(r.log))
	}

	// The queue is read again.
	r.process = start(t, "again", qemu, program, "serve", "--config", r.config)
	r.listens(t, r.addr)
	if list := mta("queue", "list"); !strings.Contains(list, to[1]) {
		t.Errorf("after a restart the queue has\n%s", list)
	}
}
