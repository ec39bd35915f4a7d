package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"example.org/mta/lab/sink"
)

// TestAClusterTakesOverByItself kills a relay of three with its disk, and then the one that takes over its queue, likewise:
// the last one has all mail that was acknowledged, without a command. It is once there, but for what was on its way
// between relays when the second one died.
func TestAClusterTakesOverByItself(t *testing.T) {
	parallel(t)
	const queued, batch = 8000, 1000
	primary, standby := newPair(t)
	primary.schema(t)
	const address = "127.31.13.1"
	port := commonPort(t, address)
	taken := sink.NewRecorder(sink.Deliveries, 0)
	mailHost(t, net.JoinHostPort(address, port), sink.Config{Recorder: taken})
	relays := newMembers(t, []*database{primary, standby}, serveNames(t, sink.MustZone(mxRecords("last", address))), port, `tenant "acme" {}`, 3)
	withCopies(t, relays, "30s")
	for _, r := range relays {
		r.start(t)
	}
	meet(t, relays)
	for _, r := range relays {
		r.mta(t, "pause", "domain", "last.example")
	}
	to := func(i int) string { return fmt.Sprintf("a%d@last.example", i) }
	one := relays[0]
	const keyed = 20
	mail := func(i int) (string, []string, string) {
		fields := ""
		if i < keyed {
			fields = fmt.Sprintf("X-MTA-Idempotency-Key: %d\r\n", i)
		}
		return hello(fields, to(i))
	}
	one.submit(t, queued, mail)
	before := make(map[string]string)
	for i := range queued {
		before[to(i)] = ""
	}
	dies := func(r *relay) {
		t.Helper()
		r.kill()
		if err := os.RemoveAll(r.dir + "/data"); err != nil {
			t.Fatal(err)
		}
	}
	sealed := func(log int) (by int) {
		t.Helper()
		eventually(t, 2*time.Minute, func() error {
			_, err := fmt.Sscan(primary.ask(t, fmt.Sprintf("SELECT COALESCE(sealed_by, 0) FROM mta_cluster.logs WHERE log = %d", log)), &by)
			if err == nil && by == 0 {
				err = fmt.Errorf("log %d goes on", log)
			}
			return err
		})
		return by
	}
	log := func(node int) (n int) {
		t.Helper()
		if _, err := fmt.Sscan(primary.ask(t, fmt.Sprintf("SELECT log FROM mta_cluster.logs WHERE node = %d", node)), &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	dies(one)
	began := time.Now()
	second := sealed(log(1))
	t.Logf("node %d takes over after %v", second, time.Since(began))
	dies(relays[second-1])
	last := relays[5-second-1]
	if by := sealed(log(second)); by != 5-second {
		t.Errorf("node %d takes over the queue of node %d", by, second)
	}
	eventually(t, 2*time.Minute, func() error {
		if left := primary.ask(t, "SELECT count(*) FROM mta_cluster.entries JOIN mta_cluster.logs USING (log) WHERE sealed_by IS NOT NULL"); left != "0" {
			return fmt.Errorf("%s entries are left in the database of logs that were taken over: %v, %s", left, last.cluster().Trouble,
				primary.ask(t, "SELECT string_agg(l::text, ' ') FROM mta_cluster.logs l"))
		}
		return nil
	})
	t.Logf("all is taken over after %v", time.Since(began))
	last.submit(t, keyed, mail) // again
	last.mta(t, "resume", "domain", "last.example")
	sendAll(t, last)
	noneBounced(t, last)
	lost, twice, again := 0, 0, 0
	came := copies(taken)
	for to := range before {
		switch n := came[to]; {
		case n == 0:
			lost++
		case n > 1:
			twice++
		}
	}
	for i := range keyed {
		again += came[to(i)] - 1
	}
	if again > 0 && twice == again { // and not what was on its way
		t.Errorf("%d of %d requests that were repeated have their mail sent again", again, keyed)
	}
	t.Logf("%d arrived twice", twice)
	if lost > 0 || twice > batch {
		t.Errorf("%d are lost, and %d arrived twice", lost, twice)
	}

	// A node that has lost its disk begins with an empty one.
	one.start(t)
	eventually(t, patience, func() error {
		if s := one.cluster(); !s.Takes {
			return fmt.Errorf("its view is %s", strings.Join(s.Trouble, "; "))
		}
		return nil
	})
	one.submit(t, 1, func(int) (string, []string, string) { return hello("", "anew@last.example") })
}

// TestAClusterLosesAllDisks: nobody is left to take anything over, and each relay restores its own queue.
func TestAClusterLosesAllDisks(t *testing.T) {
	parallel(t)
	const each = 1500
	primary, standby := newPair(t)
	primary.schema(t)
	const address = "127.31.13.1"
	port := commonPort(t, address)
	taken := sink.NewRecorder(sink.Deliveries, 0)
	mailHost(t, net.JoinHostPort(address, port), sink.Config{Recorder: taken})
	relays := newMembers(t, []*database{primary, standby}, serveNames(t, sink.MustZone(mxRecords("last", address))), port, "", 2)
	withCopies(t, relays, "30s")
	for _, r := range relays {
		r.start(t)
	}
	meet(t, relays)
	relays[0].mta(t, "pause", "domain", "last.example")
	eventually(t, patience, func() error {
		if !strings.Contains(relays[1].mta(t, "rule", "list"), "last.example") {
			return errors.New("the pause is not known")
		}
		return nil
	})
	before := make(map[string]string)
	for n, r := range relays {
		to := func(i int) string { return fmt.Sprintf("n%d-%d@last.example", n, i) }
		r.submit(t, each, func(i int) (string, []string, string) { return hello("", to(i)) })
		for i := range each {
			before[to(i)] = ""
		}
	}
	for _, r := range relays {
		r.kill()
		if err := os.RemoveAll(r.dir + "/data"); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("env", append(relays[0].env, binary, "cluster", "rejoin", "--config", relays[0].config, "--dead")...).CombinedOutput()
	if err == nil {
		t.Errorf("rejoin takes a directory without the queue: %s", out)
	}
	began := time.Now()
	for _, r := range relays {
		r.process = start(t, "relay", r.command()...)
	}
	for _, r := range relays {
		eventually(t, 3*time.Minute, func() error {
			n, err := r.left()
			if err == nil && n != each {
				err = fmt.Errorf("%d recipients are in the queue", n)
			}
			return err
		})
	}
	t.Logf("all is there after %v", time.Since(began))
	relays[0].mta(t, "resume", "domain", "last.example")
	sendAll(t, relays...)
	noneBounced(t, relays...)
	cameOnce(t, before, copies(taken))
}
