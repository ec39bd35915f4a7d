package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
)

// withCopies has relays keep copies of their queues in the database, and take over those of others after a time.
func withCopies(t *testing.T, relays []*relay, takeover string) {
	t.Helper()
	for _, r := range relays {
		text := readFile(t, r.config)
		at := strings.LastIndex(text, "  secrets_key")
		writeFile(t, r.config, text[:at]+"  replicate = true\n  takeover = \""+takeover+"\"\n"+text[at:])
	}
}

// TestAClusterOutlivesADisk kills one of three relays amid submissions and removes its disk. Another one takes the mail
// over from the copy in the database, and is killed meanwhile: each message that was acknowledged arrives once, with its
// attempts and times. The node starts with an old directory, whose queue it sets aside, and never with one that is older
// than what it has used since. With MTA_CLUSTER=full there are 200,000 messages.
func TestAClusterOutlivesADisk(t *testing.T) {
	parallel(t)
	each, kills := 400, 4
	if os.Getenv("MTA_CLUSTER") == "full" {
		each, kills = 50_000, 20
	}
	seed := time.Now().UnixNano()
	rng := rand.New(rand.NewSource(seed))
	primary, standby := newPair(t)
	primary.schema(t)
	address := "127.31.11.1"
	port := commonPort(t, address)
	taken := sink.NewRecorder(sink.Deliveries, 0)
	var later atomic.Bool
	later.Store(true)
	mailHost(t, net.JoinHostPort(address, port), sink.Config{Recorder: taken, Hook: notYet(&later)})
	zone := mxRecords("last", address)
	for _, k := range states {
		zone += mxRecords(k, address)
	}
	relays := newMembers(t, []*database{primary, standby}, serveNames(t, sink.MustZone(zone)), port, `tenant "acme" {}`, 3)
	withCopies(t, relays, "0s")
	for _, r := range relays {
		r.onlyOnce(t)
		r.start(t)
	}
	meet(t, relays)
	one, two, three := relays[0], relays[1], relays[2]
	dir := one.dir + "/data"
	one.mta(t, "pause", "domain", "waiting.example")
	one.submit(t, each*len(states), func(n int) (string, []string, string) {
		from, to, text := inState(states[n%len(states)], n/len(states), "")
		if n%97 == 0 { // its content has a file of its own
			text += strings.Repeat(strings.Repeat("x", 70)+"\r\n", 5000)
		}
		return from, to, text
	})
	one.tried(t, 2*each, "tried", "held")
	one.mta(t, "queue", "hold", "--domain", "held.example")

	// A restart goes on with the same log, and writes nothing anew that the database has.
	const written = "SELECT sum(octet_length(data)) FROM mta_cluster.entries JOIN mta_cluster.logs USING (log) WHERE node = 1"
	one.stop(patience)
	first := primary.ask(t, written)
	old := one.dir + "/old"
	runClient(t, "", "cp", "-a", dir, old)
	one.start(t)
	var had, has int
	if _, err := fmt.Sscan(first+" "+primary.ask(t, written), &had, &has); err != nil || has > had+had/50 {
		t.Errorf("a start makes %d octets of %d, %v", has, had, err)
	}

	// It dies amid submissions, with its disk.
	lastTo := func(i int) string { return fmt.Sprintf("a%d@last.example", i) }
	ended := make(chan int) // how many were acknowledged
	go func() {
		n := 0
		one.take(1<<30, func(i int) (string, []string, string) { // it ends with the relay
			n = i // those before
			return hello("", lastTo(i))
		})
		ended <- n
	}()
	before := one.standings(t)
	time.Sleep(time.Duration(500+rng.Intn(500)) * time.Millisecond) // of submissions
	one.kill()
	acknowledged := <-ended
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for to := range before {
		if strings.HasSuffix(to, "@last.example") {
			delete(before, to)
		}
	}
	t.Logf("%d were queued, and %d came until the end", len(before), acknowledged)

	for want, args := range map[string][]string{
		"s ago: stop it and wait for ":   {"1"},
		"it is this node":                {"2", "--dead"},
		"has no copy of the queue of":    {"7", "--dead"},
		"is not the number of a node (1": {"0"},
	} {
		if out, err := two.try(append([]string{"cluster", "takeover"}, args...)...); err == nil || !strings.Contains(out, want) {
			t.Errorf("mta cluster takeover %v prints %s, %v; want %q", args, out, err, want)
		}
	}
	out, err := two.try("cluster", "takeover", "1", "--dead", "--dry-run", "--json")
	var d api.Adopted
	if err == nil {
		err = json.Unmarshal([]byte(out), &d)
	}
	if err != nil || d.Count < 4*each+acknowledged || d.Adoption.NodeID != "relay-1" {
		t.Errorf("a dry run prints %s, %v", out, err)
	}
	takes := func(args ...string) (out string) {
		t.Helper()
		eventually(t, patience, func() (err error) {
			if out, err = two.try(append([]string{"cluster", "takeover", "1", "--dead"}, args...)...); err != nil {
				err = fmt.Errorf("mta cluster takeover prints %s, %w", out, err)
			}
			return err
		})
		return out
	}
	for range kills {
		takes("--no-wait")
		time.Sleep(time.Duration(rng.Int63n(int64(300 * time.Millisecond)))) // of a move under way
		two.kill()
		two.start(t)
	}
	began := time.Now()
	t.Logf("%s, %v after the last kill", takes(), time.Since(began))
	if out, err := two.try("cluster", "takeover", "1", "--dead"); err == nil || !strings.Contains(out, "has no copy") {
		t.Errorf("mta cluster takeover prints %s, %v", out, err)
	}
	if left := primary.ask(t, "SELECT count(*) FROM mta_cluster.entries JOIN mta_cluster.logs USING (log) WHERE node = 1"); left != "0" {
		t.Errorf("%s entries are left in the database", left)
	}

	// The node goes on with an old directory, but for its queue, and then with no older one.
	runClient(t, "", "cp", "-a", old, dir)
	one.start(t)
	one.superseded(t)
	meet(t, relays)
	one.submit(t, 1, func(int) (string, []string, string) { return hello("", "anew@last.example") })
	one.stop(patience)
	if err := errors.Join(os.Rename(dir, one.dir+"/new"), os.Rename(old, dir)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("env", append(one.env, binary, "serve", "--config", one.config)...)
	said, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(said), "is an old copy") || cmd.ProcessState.ExitCode() != 78 {
		t.Errorf("a start ends with %v, and %s", err, said)
	}
	if err := errors.Join(os.RemoveAll(dir), os.Rename(one.dir+"/new", dir)); err != nil {
		t.Fatal(err)
	}
	one.start(t)

	allAsBefore(t, before, two, three)
	for i := range acknowledged {
		before[lastTo(i)] = ""
	}
	before["anew@last.example"] = ""
	later.Store(false)
	two.mta(t, "resume", "domain", "waiting.example")
	sendAll(t, relays...)
	noneBounced(t, relays...)
	cameOnce(t, before, copies(taken))
	t.Logf("seed %d", seed)
}

// superseded expects that the relay has set a queue aside, and has none.
func (r *relay) superseded(t *testing.T) {
	t.Helper()
	aside, err := filepath.Glob(r.dir + "/data/superseded/log-*")
	if err != nil || len(aside) != 1 {
		t.Fatalf("%q is set aside, %v", aside, err)
	}
	if out := r.mta(t, "queue", "fsck", aside[0]); strings.HasPrefix(out, "0 ") {
		t.Errorf("what is set aside is %s", out)
	}
	if left, err := r.left(); left > 0 || err != nil {
		t.Errorf("%d recipients are in the queue, %v", left, err)
	}
}

// TestAWokenNodeSendsNothing stops a node amid deliveries to a slow host for longer than half of takeover, has another
// one take its mail over, and wakes it: it ends no message, and starts anew without what it had.
func TestAWokenNodeSendsNothing(t *testing.T) {
	parallel(t)
	address := "127.31.13.1"
	port := commonPort(t, address)
	taken := sink.NewRecorder(sink.Deliveries, 0)
	const slow, small = 12, 300
	reads := make(chan struct{}) // closed when the host takes what was sent to it
	read := sync.OnceFunc(func() { close(reads) })
	var isSlow atomic.Bool
	var holds atomic.Int64
	mailHost(t, net.JoinHostPort(address, port), sink.Config{Recorder: taken, Without: sink.Chunking, Hook: func(c sink.Command) sink.Answer {
		if c.Phase == sink.Rcpt && isSlow.Load() {
			holds.Add(1)
			<-reads
		}
		return sink.Answer{}
	}})
	t.Cleanup(read)
	primary, standby := newPair(t)
	primary.schema(t)
	relays := newMembers(t, []*database{primary, standby}, serveNames(t, sink.MustZone(mxRecords("last", address))), port,
		fmt.Sprintf(`domain "last.example" { connection_limit = %d }`, slow), 2)
	withCopies(t, relays, "40s")
	for _, r := range relays {
		r.start(t)
	}
	meet(t, relays)
	one, two := relays[0], relays[1]
	before := make(map[string]string)
	submit := func(n int, more string) {
		t.Helper()
		one.submit(t, n, func(int) (string, []string, string) {
			to := fmt.Sprintf("a%d@last.example", len(before))
			before[to] = ""
			from, all, text := hello("", to)
			return from, all, text + more
		})
	}
	submit(small, "") // the host becomes known
	eventually(t, patience, func() error { return empty(one) })
	isSlow.Store(true)
	submit(slow, strings.Repeat(strings.Repeat("x", 70)+"\r\n", 5000))
	eventually(t, patience, func() error {
		if n := holds.Load(); n < 2 {
			return fmt.Errorf("the host is sent mail on %d connections", n)
		}
		return nil
	})
	one.pause(t)
	eventually(t, patience, func() error { // half of 40 s, and for what is under way
		if out := primary.ask(t, "SELECT count(*) FROM mta_cluster.logs WHERE node = 1 AND beat < clock_timestamp() - interval '25 s'"); out != "1" {
			return fmt.Errorf("%s logs are silent", out)
		}
		return nil
	})
	read()
	two.mta(t, "cluster", "takeover", "1", "--dead")
	woken := time.Now()
	one.resume()
	select {
	case <-one.done:
		if code := one.cmd.ProcessState.ExitCode(); code != 1 {
			t.Errorf("the exit code of the woken node is %d, and it logs %s", code, tail(one.log))
		}
	case <-time.After(patience):
		t.Fatalf("the woken node goes on: %s", tail(one.log))
	}
	t.Logf("it ends after %v", time.Since(woken))
	one.start(t)
	one.superseded(t)
	meet(t, relays)
	before["anew@last.example"] = ""
	one.submit(t, 1, func(int) (string, []string, string) { return hello("", "anew@last.example") })
	sendAll(t, relays...)
	noneBounced(t, relays...)
	cameOnce(t, before, copies(taken))
}

// TestACopyWaitsForItsDatabase stops the database under load: what is acknowledged is in the copy, mail is refused for
// now, and nothing more is delivered, until it is back. A node that is stopped meanwhile waits at its start.
func TestACopyWaitsForItsDatabase(t *testing.T) {
	parallel(t)
	address := "127.31.12.1"
	port := commonPort(t, address)
	taken := sink.NewRecorder(sink.Deliveries, 0)
	mailHost(t, net.JoinHostPort(address, port), sink.Config{Recorder: taken, Latency: 20 * time.Millisecond})
	primary, standby := newPair(t)
	primary.schema(t)
	relays := newMembers(t, []*database{primary, standby}, serveNames(t, sink.MustZone(mxRecords("last", address))), port,
		`domain "last.example" { connection_limit = 2 }`, 1)
	withCopies(t, relays, "0s")
	r := relays[0]
	r.start(t)
	meet(t, relays)
	to := func(i int) string { return fmt.Sprintf("a%d@last.example", i) }
	r.mta(t, "pause", "domain", "last.example")
	const queued = 6000
	r.submit(t, queued, func(i int) (string, []string, string) { return hello("", to(i)) })
	before := make(map[string]string)
	for i := range queued {
		before[to(i)] = ""
	}
	r.mta(t, "resume", "domain", "last.example")
	eventually(t, patience, func() error {
		if n := len(taken.Deliveries()); n < 50 {
			return fmt.Errorf("%d were delivered", n)
		}
		return nil
	})
	primary.end()
	troubled := func() error {
		if s := r.cluster(); !strings.Contains(strings.Join(s.Trouble, " "), "mail is neither accepted nor delivered") {
			return fmt.Errorf("the troubles are %q", s.Trouble)
		}
		return nil
	}
	eventually(t, patience, troubled)
	had := len(taken.Deliveries())
	err := r.take(1, func(int) (string, []string, string) { return hello("", "refused@last.example") })
	if err == nil || !strings.Contains(err.Error(), "4.3.0 message could not be stored") {
		t.Errorf("mail is answered by %v", err)
	}
	if has := len(taken.Deliveries()); has > had+2 || has == queued {
		t.Errorf("%d were delivered when that had ended, and %d are later", had, has)
	}
	primary.begin(t)
	eventually(t, patience, func() error {
		if n := len(taken.Deliveries()); n < had+50 {
			return fmt.Errorf("%d were delivered, and %d are", had, n)
		}
		return nil
	})
	primary.end()
	eventually(t, patience, troubled)
	r.kill()
	r.process = start(t, "relay", r.command()...)
	eventually(t, patience, func() error {
		if text := readFile(t, r.process.log); !strings.Contains(text, "the queue waits for the database") {
			return fmt.Errorf("the relay logs %s", text)
		}
		return nil
	})
	primary.begin(t)
	r.listens(t, r.addr)
	sendAll(t, r)
	lost, twice := 0, 0
	for i, n := range copies(taken) {
		if _, is := before[i]; is && n > 1 {
			twice += n - 1
		}
	}
	for to := range before {
		if copies(taken)[to] == 0 {
			lost++
		}
	}
	t.Logf("%d arrived twice", twice)
	if lost > 0 || twice > 1100 { // what the queue does not know, and what was in delivery
		t.Errorf("%d are lost, and %d arrived twice", lost, twice)
	}
}
