package e2e

import (
	"fmt"
	"testing"
)

// TestOverloadOfCPU gives the relay a part of a core, and offers three times of what it can accept with that. The
// most important mail is taken all the same, the rest is refused from the least important on, and who is refused again
// and again waits, so that refusals leave CPU for what is accepted.
func TestOverloadOfCPU(t *testing.T) {
	for _, core := range []int{30, 15} {
		t.Run(fmt.Sprintf("%d percent", core), func(t *testing.T) { overloadCPU(t, core) })
		if !boundsHold() {
			return
		}
	}
}

func overloadCPU(t *testing.T, core int) {
	long := overloadTime(t)
	free := openShopOf(t, 1<<40, core, "admission { mode = \"off\" }\n")
	capacity := free.capacity(t, long/2)
	free.nothingLost(t)
	first := &crowd{tenant: "login", tier: 1, clients: 50, rate: capacity / 2, retries: true}
	second := &crowd{tenant: "orders", tier: 3, clients: 100, rate: capacity, retries: true}
	third := &crowd{tenant: "news", tier: 4, clients: 150, rate: capacity * 3 / 2, retries: true}
	s := openShopOf(t, 1<<40, core, "", first, second, third)
	s.open(t, long, first, second, third)
	accepted := float64(len(first.accepted)+len(second.accepted)+len(third.accepted)) / long.Seconds()
	t.Logf("%d %% of a core accepts %.0f messages a second, and %.0f in overload, %.0f %%", core, capacity, accepted, 100*accepted/capacity)
	for _, c := range []*crowd{first, second, third} {
		t.Log(c)
	}
	s.nothingLost(t)
	if first.share() < third.share() {
		t.Errorf("accepted of tier 1 %.3f, of tier 4 %.3f: want more of the more important", first.share(), third.share())
	}
	if !boundsHold() {
		return
	}
	if p := first.share(); p < .99 {
		t.Errorf("%.2f %% of tier 1 were accepted, want 99 %% or more", 100*p)
	}
}
