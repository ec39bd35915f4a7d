package e2e

import (
	"net"
	"os/exec"
	"sync"
	"testing"
)

// TestAFreePortStaysFreeBesideForks: a process that is being started has copies of the test's sockets, those of ports that
// were only looked at, too.
func TestAFreePortStaysFreeBesideForks(t *testing.T) {
	done := make(chan struct{})
	var forks sync.WaitGroup
	defer forks.Wait()
	defer close(done)
	for range 4 {
		forks.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_ = exec.Command("true").Run()
				}
			}
		})
	}
	const ports = 2000
	taken := 0
	for range ports {
		l, err := net.Listen("tcp", freeAddress(t))
		if err != nil {
			taken++
			continue
		}
		l.Close()
	}
	if taken > 0 {
		t.Errorf("%d of %d ports that were free were taken a moment later", taken, ports)
	}
}
