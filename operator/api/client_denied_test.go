package api

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestADeniedSocketIsNoRelayThatIsDown: mta log reads the files of a relay that is down, and must not call
// one so that only its own user and group may ask.
func TestADeniedSocketIsNoRelayThatIsDown(t *testing.T) {
	for errno, denied := range map[syscall.Errno]bool{syscall.EACCES: true, syscall.ECONNREFUSED: false, syscall.ENOENT: false} {
		dial := &net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", errno)}
		err := NewClient("control.sock").explain(t.Context(), dial)
		if got := errors.Is(err, fs.ErrPermission); got != denied || !Down(err) {
			t.Errorf("%v: denied is %v, want %v; down is %v", errno, got, denied, Down(err))
		}
		if e := (*Error)(nil); !errors.As(err, &e) || denied && !strings.Contains(e.Hint, "get into the group") {
			t.Errorf("%v: %+v has no remedy", errno, err)
		}
	}
}
