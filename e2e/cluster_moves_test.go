package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"net"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
)

// TestAClusterMovesMail drains one of three relays by a command at another one, while it and the others are killed: each
// message arrives once, and had its attempts and times where it went. Then all nodes are drained one after the other, as
// for an upgrade.
func TestAClusterMovesMail(t *testing.T) {
	parallel(t)
	const each = 1500
	seed := time.Now().UnixNano()
	rng := rand.New(rand.NewSource(seed))
	primary, standby := newPair(t)
	primary.schema(t)
	address := "127.31.9.1"
	port := commonPort(t, address)
	taken := sink.NewRecorder(sink.Deliveries, 0)
	var later atomic.Bool // the host refuses for now
	later.Store(true)
	mailHost(t, net.JoinHostPort(address, port), sink.Config{Recorder: taken, Hook: notYet(&later)})
	zone := ""
	for _, k := range states {
		zone += mxRecords(k, address)
	}
	relays := members(t, []*database{primary, standby}, serveNames(t, sink.MustZone(zone)), port, "tenant \"acme\" {}\n", 3)
	for _, r := range relays {
		r.onlyOnce(t)
		r.mta(t, "config", "reload")
	}
	one, two, three := relays[0], relays[1], relays[2]
	one.mta(t, "pause", "domain", "waiting.example")

	one.submit(t, each*len(states), func(n int) (string, []string, string) { return inState(states[n%len(states)], n/len(states), "") })
	one.tried(t, 2*each, "tried", "held")
	one.mta(t, "queue", "hold", "--domain", "held.example")
	before := one.standings(t)

	// The first drain is ordered at another node, and then again and again, as processes are killed.
	drains := func(r *relay) (m api.Moving) {
		eventually(t, patience, func() error {
			out, err := r.try("cluster", "drain", "--json", "--no-wait", "1")
			var d api.DrainedNode
			if err == nil {
				err = json.Unmarshal([]byte(out), &d)
			}
			if m = d.Moving; err != nil || m.Node != 1 || !m.On {
				return fmt.Errorf("mta cluster drain prints %s, %w", out, err)
			}
			return nil
		})
		return m
	}
	out, err := two.try("cluster", "drain", "--timeout", "1ms", "1")
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(out, "not all moved within 1ms: ") {
		t.Errorf("a drain that takes longer than it may prints %s, %v", out, err)
	}
	drains(three)
	for i, victim := range []*relay{two, one, three, one, two, one} {
		time.Sleep(time.Duration(rng.Int63n(int64(300+500*i)) * int64(time.Millisecond))) // of a move that is under way
		victim.kill()
		victim.start(t)
		m := drains(two)
		t.Logf("after a kill: %+v", m)
	}
	eventually(t, patience, func() error { drains(two); return empty(one) })
	if m := drains(one); m.Waiting != 0 || m.Left != 0 {
		t.Errorf("%+v", m)
	}
	if n := allAsBefore(t, before, two, three); n != len(before) {
		t.Errorf("%d recipients were queued, and %d are", len(before), n)
	}
	out, _ = one.try("actions")
	if !strings.Contains(out, "cluster drain") || !strings.Contains(out, "at node 2") {
		t.Errorf("the audit log of node 1 has %s", out)
	}

	// One after the other, as for an upgrade: back to node 1, which has come to another address meanwhile, and on to node 3.
	one.kill()
	other := freeAddress(t)
	writeFile(t, one.config, regexp.MustCompile(`(?m)^  address     = .*`).ReplaceAllString(readFile(t, one.config),
		fmt.Sprintf("  address     = %q", other)))
	one.start(t)
	for _, r := range []*relay{two, three} {
		eventually(t, patience, func() error { // nodes read who is there every 5 s
			if s := r.cluster(); len(s.Members) != 3 || s.Members[0].Address != other {
				return fmt.Errorf("a relay does not know that node 1 is at %s: %+v", other, s)
			}
			return nil
		})
	}
	for _, r := range []*relay{two, three} {
		began, had := time.Now(), len(r.standings(t))
		if out, err := r.try("cluster", "drain", "--reason", "upgrade"); err != nil || !strings.Contains(out, ", 0 left") {
			t.Errorf("mta cluster drain prints %s, %v", out, err)
		}
		t.Logf("%d messages in %.1f s", had, time.Since(began).Seconds())
		if err := empty(r); err != nil {
			t.Error(err)
		}
		r.mta(t, "cluster", "undrain")
	}
	if len(one.standings(t)) == 0 {
		t.Error("the node at another address got no mail")
	}
	later.Store(false)
	one.mta(t, "resume", "domain", "waiting.example")
	sendAll(t, relays...)
	cameOnce(t, before, copies(taken))
	t.Logf("seed %d", seed)
}

// empty returns why the queue of a relay is not empty.
func empty(r *relay) error {
	c := api.NewClient(r.dir + "/data/control.sock")
	defer c.Close()
	s, err := api.OpStatus.Call(context.Background(), c, api.None{})
	if err == nil && s.Queue.Queued > 0 {
		err = fmt.Errorf("%d recipients are left", s.Queue.Queued)
	}
	return err
}
