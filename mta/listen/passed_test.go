package listen

import (
	"errors"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPassedSockets(t *testing.T) {
	pass := func(l interface{ Fd() uintptr }, at int) {
		t.Helper()
		if err := unix.Dup3(int(l.Fd()), at, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	file, err := tcp.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	local, err := net.Listen("unix", t.TempDir()+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	localFile, err := local.(*net.UnixListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer localFile.Close()
	const first = 500 // descriptors that nothing else here uses

	pass(file, first)
	pass(file, first+1)
	all, err := passedSockets("2", "smtp:submission", first)
	if err != nil || len(all) != 2 || all[0].Name != "smtp" || all[1].Name != "submission" || all[1].Addr().String() != tcp.Addr().String() {
		t.Fatalf("%v, %v", all, err)
	}
	for _, s := range all {
		s.Close()
	}
	pass(localFile, first)
	for _, wrong := range []struct{ count, names, want string }{
		{"x", "smtp", "LISTEN_FDS"},
		{"2", "smtp", "FileDescriptorName"},
		{"1", "smtp", "not at an IP address"},
	} {
		if _, err := passedSockets(wrong.count, wrong.names, first); !errors.Is(err, ErrSockets) || !strings.Contains(err.Error(), wrong.want) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
	other := func(name string) string { return map[string]string{"LISTEN_PID": "1", "LISTEN_FDS": "1"}[name] }
	if all, err := Passed(other); len(all) != 0 || err != nil {
		t.Errorf("sockets of another process: %v, %v", all, err)
	}
}
