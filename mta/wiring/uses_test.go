package wiring_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/cluster/node"
	"example.org/mta/delivery"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/gcra"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/submission/http"
	"example.org/mta/submission/intake"
)

// TestLimitsThatAClusterCountsInLargeUnits, of a tenant with a long name that is no UTF-8, are never exceeded by three
// relays, and nearly all of each is used.
func TestLimitsThatAClusterCountsInLargeUnits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const messages, second = 3_000_001, 10 << 20
		r := begin(t, 3, delivery.Scope{Connections: 1})
		ctx, stop := context.WithCancel(context.Background())
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		var all []*wiring.Uses
		for _, n := range r.nodes {
			u := wiring.NewUses(func() *node.Node { return n }, time.Now)
			running.Go(func() { u.Run(ctx) })
			all = append(all, u)
		}
		time.Sleep(30 * time.Second) // the shards have owners, who have counted
		tenant := strings.Repeat("\xe9", 400)
		held := make([]int64, 3)
		for range 200 {
			for i, u := range all {
				if u.HoldMessages(tenant, messages, held[i]+50_001, false).OK {
					held[i] += 50_001
				}
			}
			if sum := held[0] + held[1] + held[2]; sum > messages {
				t.Fatalf("%v messages of %d", held, messages)
			}
			time.Sleep(time.Second / 2)
		}
		if sum := held[0] + held[1] + held[2]; sum < messages-4*50_001 {
			t.Errorf("%v messages of %d", held, messages)
		}
		octets := gcra.Rate{Events: second, Per: time.Second}
		var sum, begun int64
		for i := range 600 {
			for _, u := range all {
				if (wiring.Requests{Uses: u}).Charge("key "+tenant, octets, 400_001).OK {
					sum += 400_001
				}
			}
			if sum > second*int64(i+20)/10 { // a second's worth at once, and a larger request for each relay
				t.Fatalf("%d octets in %d tenths of a second", sum, i)
			}
			if i == 100 {
				begun = sum
			}
			time.Sleep(time.Second / 10)
		}
		if sum-begun < second*45 {
			t.Errorf("%d octets in 50 s", sum-begun)
		}
	})
}

// TestARateThatIsCorrected: a request for more than its key's rate of one an hour is paid off in weeks. When the rate is
// corrected the relay that had it holds no other one to that.
func TestARateThatIsCorrected(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := begin(t, 2, delivery.Scope{Connections: 1})
		ctx, stop := context.WithCancel(context.Background())
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		var inForce [2]atomic.Pointer[config.Config]
		var all []wiring.Requests
		for i, n := range r.nodes {
			u := wiring.NewUses(func() *node.Node { return n }, time.Now)
			inForce[i].Store(&config.Config{})
			quotas := intake.NewQuotas(nil, nil, time.Now)
			wiring.ShareLimits(u, quotas, http.NewLimits(time.Now), inForce[i].Load)
			running.Go(func() { u.Run(ctx) })
			all = append(all, wiring.Requests{Uses: u})
		}
		time.Sleep(30 * time.Second)
		wrong, right := gcra.Rate{Events: 1, Per: time.Hour}, gcra.Rate{Events: 100}
		for !all[0].Charge("key", wrong, 500).OK {
			time.Sleep(time.Second / 2)
		}
		for i := range inForce {
			inForce[i].Store(&config.Config{})
		}
		taken := 0
		for range 400 {
			for all[1].Charge("key", right, 1).OK {
				taken++
			}
			time.Sleep(time.Second / 10)
		}
		if taken < 1000 {
			t.Errorf("%d requests in 40 s at 100 a second", taken)
		}
	})
}
