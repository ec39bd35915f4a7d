package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
)

// TestAClusterMovesMail drains one of three relays by a command at another one, while it and the others are killed: each
// message arrives once, and had all that an export has of it where it went. Then all nodes are drained one after the
// other, as for an upgrade. With MTA_CLUSTER=full there are 200,000 messages, and 50 kills on either side.
func TestAClusterMovesMail(t *testing.T) {
	parallel(t)
	each, kills := 1500, 6
	if os.Getenv("MTA_CLUSTER") == "full" {
		each, kills = 50_000, 100
	}
	total := each * len(states)
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

	var clients errgroup.Group
	const sessions = 50
	for client := range sessions {
		clients.Go(func() error {
			return one.take(total/sessions, func(n int) (string, []string, string) {
				n = n*sessions + client
				return inState(states[n%len(states)], n/len(states), "")
			})
		})
	}
	if err := clients.Wait(); err != nil {
		t.Fatal(err)
	}
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
	queued, err := one.left()
	out := two.mta(t, "cluster", "drain", "--dry-run", "1")
	if err != nil || out != fmt.Sprintf("1 node would be changed\n%d recipients would move\n", queued) {
		t.Errorf("a dry run prints %s; %d recipients are queued, %v", out, queued, err)
	}
	out, err = two.try("cluster", "drain", "--timeout", "1ms", "1")
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(out, "not all moved within 1ms: ") {
		t.Errorf("a drain that takes longer than it may prints %s, %v", out, err)
	}
	drains(three)
	began, down, had := time.Now(), time.Duration(0), total
	for i := range kills { // evenly over the move, whatever the speed of this machine
		victim := []*relay{two, one, three, one}[i%4]
		at := total - total*(i+1)/(kills+1)
		eventually(t, patience, func() error {
			left, err := one.left()
			if err == nil && left > at {
				err = fmt.Errorf("%d recipients are left, which were %d at the kill before", left, had)
			}
			had = left
			return err
		})
		time.Sleep(time.Duration(rng.Int63n(int64(100 * time.Millisecond)))) // of a batch
		killed := time.Now()
		victim.kill()
		victim.start(t)
		down += time.Since(killed)
		t.Logf("after kill %d, of %s: %+v", i+1, victim.addr, drains(two))
	}
	eventually(t, patience, func() error { return empty(one) })
	if m := drains(one); m.Waiting != 0 || m.Left != 0 {
		t.Errorf("%+v", m)
	}
	t.Logf("%d messages with %d kills in %v, %v of this for starts", total, kills, time.Since(began), down)
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
		had, err := r.left()
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if out, err := r.try("cluster", "drain", "--reason", "upgrade"); err != nil || !strings.Contains(out, ", 0 left") {
			t.Errorf("mta cluster drain prints %s, %v", out, err)
		}
		took := time.Since(began).Seconds()
		t.Logf("%d messages in %.1f s, %.0f a second", had, took, float64(had)/took)
		if err := empty(r); err != nil {
			t.Error(err)
		}
		r.mta(t, "cluster", "undrain")
	}
	if err := empty(one); err == nil {
		t.Error("the node at another address got no mail")
	}
	if n := allAsBefore(t, before, one, two); n != len(before) {
		t.Errorf("%d recipients were queued, and after two more moves %d are", len(before), n)
	}
	later.Store(false)
	one.mta(t, "resume", "domain", "waiting.example")
	sendAll(t, relays...)
	noneBounced(t, relays...)
	cameOnce(t, before, copies(taken))
	t.Logf("seed %d", seed)
}

// noneBounced fails the test if a relay has a record of a bounce, which its web hooks would get.
func noneBounced(t *testing.T, relays ...*relay) {
	t.Helper()
	for _, r := range relays {
		for _, event := range []string{"Bounce", "AdminBounce"} {
			if out := r.mta(t, "log", "--json", "--type", event, "--last", "1"); strings.TrimSpace(out) != "no record matches" {
				t.Errorf("%s has %s", r.addr, out)
			}
		}
	}
}

// empty returns why the queue of a relay is not empty.
func empty(r *relay) error {
	left, err := r.left()
	if err == nil && left > 0 {
		err = fmt.Errorf("%d recipients are left", left)
	}
	return err
}
