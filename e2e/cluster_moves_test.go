package e2e

import (
	"context"
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

	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
)

// TestAClusterMovesMail drains one of three relays by a command at another one, while it and the others are killed: each
// message arrives once, and had its attempts and times where it went. Then all nodes are drained one after the other, as
// for an upgrade.
func TestAClusterMovesMail(t *testing.T) {
	t.Parallel()
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
	host := sink.New(sink.Config{Recorder: taken, Hook: func(c sink.Command) (a sink.Answer) {
		if c.Phase == sink.Rcpt && later.Load() {
			a.Reply = "451 4.7.1 later"
		}
		return a
	}})
	l, err := net.Listen("tcp", net.JoinHostPort(address, port))
	if err != nil {
		t.Fatal(err)
	}
	go host.Serve(l)
	t.Cleanup(host.Close)
	zone := ""
	kinds := []string{"tried", "held", "waiting", "scheduled"}
	for _, k := range kinds {
		zone += fmt.Sprintf("%[1]s.example. 60 IN MX 10 mx.%[1]s.example.\nmx.%[1]s.example. 60 IN A %[2]s\n", k, address)
	}
	names := sink.NewDNS(sink.MustZone(zone))
	dns, err := names.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { names.Close() })
	relays := members(t, []*database{primary, standby}, dns.String(), port, "tenant \"acme\" {}\n", 3)
	for _, r := range relays {
		text := strings.NewReplacer(`retry_interval     = "1s"`, `retry_interval     = "3h"`, `max_retry_interval = "2s"`, `max_retry_interval = "4h"`).Replace(readFile(t, r.config))
		writeFile(t, r.config, text)
		r.mta(t, "config", "reload")
	}
	one, two, three := relays[0], relays[1], relays[2]
	one.mta(t, "pause", "domain", "waiting.example")

	s, err := dialSession(one.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for i := range each {
		for _, k := range kinds {
			head := ""
			if k == "scheduled" {
				head = "X-Hold-For: 7200\r\n"
			}
			content := fmt.Sprintf("%sFrom: ann@client.example\r\nX-MTA-Tenant: acme\r\nX-Mta-Test-Id: %s-%d\r\n\r\nhello\r\n", head, k, i)
			if _, err := s.send("ann@client.example", []string{fmt.Sprintf("a%d@%s.example", i, k)}, content); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, patience, func() error {
		n := 0
		for to, s := range one.standings(t) {
			if s.attempts == 1 && (strings.HasSuffix(to, "@tried.example") || strings.HasSuffix(to, "@held.example")) {
				n++
			}
		}
		if n < 2*each {
			return fmt.Errorf("%d recipients were tried, want %d", n, 2*each)
		}
		return nil
	})
	one.mta(t, "queue", "hold", "--domain", "held.example")
	before := one.standings(t)

	// The first drain is ordered at another node, and then again and again, as processes are killed.
	drains := func(r *relay) (m api.Moving) {
		eventually(t, patience, func() error {
			out, err := mta([]string{"MTA_CONFIG=" + r.config}, "cluster", "drain", "--json", "--no-wait", "1")
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
	out, err := mta([]string{"MTA_CONFIG=" + two.config}, "cluster", "drain", "--timeout", "1ms", "1")
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
	after := two.standings(t)
	for to, s := range three.standings(t) {
		if _, twice := after[to]; twice {
			t.Errorf("%s is queued twice", to)
		}
		after[to] = s
	}
	for to, s := range before {
		if is := after[to]; !is.is(s) {
			t.Errorf("%s is %+v, was %+v", to, is, s)
			break
		}
	}
	if len(after) != len(before) {
		t.Errorf("%d recipients were queued, and %d are", len(before), len(after))
	}
	out, _ = mta([]string{"MTA_CONFIG=" + one.config}, "actions")
	if !strings.Contains(out, "cluster drain") || !strings.Contains(out, "at node 2") {
		t.Errorf("the audit log of node 1 has %s", out)
	}

	// One after the other, as for an upgrade: back to node 1, which has come to another address meanwhile, and on to node 3.
	one.kill()
	text, err := os.ReadFile(one.config)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, one.config, regexp.MustCompile(`(?m)^  address     = .*`).ReplaceAllString(string(text), fmt.Sprintf("  address     = %q", freeAddress(t))))
	one.start(t)
	for _, r := range []*relay{two, three} {
		began, had := time.Now(), len(r.standings(t))
		if out, err := mta([]string{"MTA_CONFIG=" + r.config}, "cluster", "drain", "--reason", "upgrade"); err != nil || !strings.Contains(out, ", 0 left") {
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
	for _, r := range relays {
		r.mta(t, "queue", "release", "--all")
		r.mta(t, "queue", "retry", "--all", "--scheduled", "--now")
	}
	for _, r := range relays {
		r.drained(t, patience)
	}
	copies := make(map[string]int)
	for _, d := range taken.Deliveries() {
		copies[d.Recipient]++
	}
	lost, twice := 0, 0
	for to := range before {
		switch copies[to] {
		case 0:
			lost++
		case 1:
		default:
			twice++
		}
	}
	if lost+twice > 0 {
		t.Errorf("%d of %d are lost, and %d arrived twice (seed %d)", lost, len(before), twice, seed)
	}
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
