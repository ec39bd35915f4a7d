// Package bubble runs tests in virtual time: testing/synctest, and what it takes to run it under the race
// detector. Tests alone import it.
package bubble

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// Test runs f as synctest.Test does, where time passes only when all goroutines of the test wait.
//
// Under the race detector it does so on one processor. The runtime keeps one race context for all timers of
// a bubble, and two goroutines that receive from two timers which are due take it both at once when they
// run side by side: a fault in the detector's memory ends the test binary (golang/go#78156, in Go 1.26 at
// least). The detector goes by what is ordered before what, not by what happened to run at the same moment,
// so one processor hides no race from it.
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	if RaceEnabled {
		oneProcessor.take()
		defer oneProcessor.give()
	}
	synctest.Test(t, f)
}

// oneProcessor is the process's own setting, so it is kept once for the process: tests may run side by side.
var oneProcessor processors

type processors struct {
	mu     sync.Mutex
	users  int
	before int
}

func (p *processors) take() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users++; p.users == 1 {
		p.before = runtime.GOMAXPROCS(1)
	}
}

func (p *processors) give() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users--; p.users == 0 {
		runtime.GOMAXPROCS(p.before)
	}
}
