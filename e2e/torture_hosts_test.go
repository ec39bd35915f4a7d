package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/operator/api"
)

// The silent hosts, and the connections that the relay has for them and all others.
const (
	silentHosts       = 1000
	silentConnections = 100
)

// TestTortureSilentHosts has mail for 1,000 hosts that take connections and never greet, and is killed amid
// it. The mail for a host that is well leaves as soon as without the silent ones, and theirs stays in the
// queue until an operator removes it.
func TestTortureSilentHosts(t *testing.T) {
	parallel(t)
	needFiles(t, 3*silentHosts)
	var zone strings.Builder
	addrs := make([]string, silentHosts)
	for i := range addrs {
		addrs[i] = fmt.Sprintf("127.34.%d.%d", i/200, i%200+1)
		fmt.Fprintf(&zone, "h%d.mute.example. 60 IN A %s\n", i, addrs[i])
	}
	b := newBattlefield(t, zone.String())
	b.domains = []string{"quick.example"}
	b.config = fmt.Sprintf("delivery { max_connections = %d }\n", silentConnections)
	mute := listenMute(t, addrs, b.port)
	r := b.startRelay(t)
	lasts := time.Duration(tortureSize(t, 3)) * time.Second

	without := b.phase(t, 1, lasts)
	accepted := 0
	for m := range silentMessages {
		var to []string
		for i := m; i < silentHosts; i += silentMessages {
			to = append(to, fmt.Sprintf("bob@h%d.mute.example", i))
		}
		submitOne(t, r, to)
		accepted += len(to)
	}
	mute.exhaust(t)
	beside := b.phase(t, 2, lasts)
	held := mute.open.Load()
	r.kill()
	b.ends = append(b.ends, time.Now())
	r.process = launchRelay(t, r)
	r.listens(t, r.addr)
	mute.exhaust(t)
	again := b.phase(t, 3, lasts)

	done, err := api.OpChange.Call(t.Context(), r.control(t), api.Change{Action: api.Remove, Filter: api.Filter{Domain: "*.mute.example"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d silent hosts, %d connections, of which they held %d; delay of the mail for a healthy host before their mail came: %v; beside it: %v; after a kill: %v",
		silentHosts, silentConnections, held, without, beside, again)
	if done.Recipients != accepted {
		t.Errorf("removed %d recipients at silent hosts, and %d were accepted", done.Recipients, accepted)
	}
	b.judge(t, b.settle(t))
}

// phase submits for a while to hosts that are well, and so much that the phases together say something. It gives the
// delays when all of it has been delivered.
func (b *battlefield) phase(t *testing.T, n int, lasts time.Duration) lateness {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var client sync.WaitGroup
	defer client.Wait()
	defer cancel()
	client.Go(func() { b.submit(ctx, b.relay.addr, n, rand.New(rand.NewPCG(uint64(n), 0))) })
	<-time.After(lasts)
	b.await(t, n*(tortureLeast/3+1))
	cancel()
	client.Wait()
	prefix := fmt.Sprintf("t-%d-", n)
	want := 0
	for id, to := range b.accepted {
		if strings.HasPrefix(id, prefix) {
			want += len(to)
		}
	}
	var got lateness
	eventually(t, patience, func() error {
		got = b.delays(func(id string, _ time.Time) bool { return strings.HasPrefix(id, prefix) })
		if len(got) < want {
			return fmt.Errorf("phase %d: %d recipients of %d delivered; %v", n, len(got), want, got)
		}
		return nil
	})
	return got
}

// muteHosts take connections and say nothing.
type muteHosts struct {
	open atomic.Int64 // connections now
}

func listenMute(t *testing.T, addrs []string, port string) *muteHosts {
	t.Helper()
	m := &muteHosts{}
	for _, a := range addrs {
		l, err := net.Listen("tcp", net.JoinHostPort(a, port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go m.serve(l)
	}
	return m
}

func (m *muteHosts) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		m.open.Add(1)
		go func() {
			defer m.open.Add(-1)
			defer c.Close()
			_, _ = c.Read(make([]byte, 1)) // a client has nothing to say before the greeting
		}()
	}
}

// exhaust waits until the silent hosts have all the connections that they may have, which is half at least.
func (m *muteHosts) exhaust(t *testing.T) {
	t.Helper()
	eventually(t, patience, func() error {
		if n := m.open.Load(); n < silentConnections/2-5 {
			return fmt.Errorf("silent hosts have %d connections", n)
		}
		return nil
	})
}
