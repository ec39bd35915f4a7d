package e2e

import (
	"fmt"
	"testing"
	"time"
)

// TestOverloadOfCPU gives the relay a part of a core, and offers three times of what it can accept with that, by
// clients that stay connected, and by clients that connect for each attempt. The most important mail is taken all the same, the
// rest is refused from the least important on, and who is refused waits, so that refusals leave CPU for what is
// accepted. How much that is, it prints; the bounds are those of TestA18_AQuotaOfCPUServesTheMostImportant.
func TestOverloadOfCPU(t *testing.T) {
	for _, core := range []int{30, 15} {
		for _, fresh := range []bool{false, true} {
			name := fmt.Sprintf("%d percent, a connection for each %v", core, fresh)
			t.Run(name, func(t *testing.T) { overloadCPU(t, core, fresh) })
			if !boundsHold() {
				return
			}
		}
	}
}

func overloadCPU(t *testing.T, core int, fresh bool) {
	long, clients, lead := overloadTime(t), 50, time.Duration(0)
	if boundsHold() {
		clients = 200
	}
	if !fresh {
		lead = time.Duration(clients) * 20 * time.Millisecond
	}
	first := &crowd{tenant: "login", tier: 1, clients: 2 * clients}
	second := &crowd{tenant: "orders", tier: 3, clients: 3 * clients}
	third := &crowd{tenant: "news", tier: 4, clients: 4 * clients}
	s := openShopOf(t, 1<<40, core, "", first, second, third)
	capacity := s.capacity(t, long/2, fresh)
	accepted := 0
	for c, part := range map[*crowd]float64{first: .5, second: 1, third: 1.5} {
		c.rate, c.retries, c.fresh, c.lead = part*capacity, true, fresh, lead
	}
	s.open(t, long, first, second, third)
	for _, c := range []*crowd{first, second, third} {
		accepted += len(c.accepted)
		t.Logf("%.1f %% of what was to be offered: %v", 100*float64(len(c.accepted))/(c.rate*long.Seconds()), c)
	}
	goodput := float64(accepted) / long.Seconds()
	t.Logf("%d %% of a core accepts %.0f messages a second, and %.0f in overload, %.0f %%",
		core, capacity, goodput, 100*goodput/capacity)
	s.nothingLost(t)
	if first.share() < third.share() {
		t.Errorf("accepted of tier 1 %.3f, of tier 4 %.3f: want more of the more important", first.share(), third.share())
	}
}
