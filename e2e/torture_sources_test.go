package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"
)

const (
	thirty = 30
	// withoutAPlace is how long mail waits at most that no kill was near: less than others' idle connections,
	// kept in use by a message now and then, take to time out, and far more than a slow machine needs.
	withoutAPlace = 30 * time.Second
)

// TestTortureThirtySources kills the relay again and again while mail arrives at a steady rate for one host
// and leaves by 30 sources, which have ten connections between them. All of it is delivered, and a source
// without a connection waits for no other's to time out.
func TestTortureThirtySources(t *testing.T) {
	parallel(t)
	b := newBattlefield(t)
	b.clients, b.domains, b.pause = 1, []string{"steady.example"}, 2*time.Second
	var sources strings.Builder
	for i := range thirty {
		fmt.Fprintf(&sources, "source \"out%d\" { address = \"127.30.1.%d\" }\n", i+1, i+1)
	}
	b.config = sources.String()
	used := func() int {
		clients := make(map[netip.Addr]bool)
		for _, d := range b.taken.Deliveries() {
			clients[d.Client.Addr()] = true
		}
		return len(clients)
	}
	b.storm(t, tortureSize(t, 3), func(r *relay, _ *rand.Rand) (settled bool) {
		if err := allCome("sources", thirty, used); err != nil {
			t.Error(err)
		}
		r.kill()
		return true
	})
	left := b.settle(t)
	if len(left) > 0 {
		t.Errorf("%d recipients are still in the queue", len(left))
	}
	b.judge(t, left)
	all, calm := b.delays(func(string, time.Time) bool { return true }), b.delays(b.farFromKills)
	t.Logf("%d sources, %d kills, one host with ten connections, replies 50 ms late: delay of all mail %v; of mail that no kill was near: %v",
		used(), len(b.ends), all, calm)
	if late := calm.quantile(0.99); late > withoutAPlace {
		t.Errorf("p99 of mail that no kill was near is %v", late)
	}
}

// farFromKills reports whether a message was submitted neither shortly before a kill nor shortly after it.
func (b *battlefield) farFromKills(_ string, began time.Time) bool {
	for _, k := range b.ends {
		if d := began.Sub(k); d > -time.Second && d < time.Second {
			return false
		}
	}
	return true
}
