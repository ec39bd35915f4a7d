package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
)

// TestAClusterAdoptsMail kills one of three relays for good, with mail in every state and events that were not sent.
// Another one adopts them from the directory, while it, the third and the command are killed: each message arrives once,
// those twice that the host had but not answered at the death, and each has its attempts and times. The hook gets every
// event, repeated requests are known everywhere, and no relay starts on the directory. With MTA_CLUSTER=full there are
// 200,000 messages, and 50 kills on either side.
func TestAClusterAdoptsMail(t *testing.T) {
	parallel(t)
	const inFlight = 20
	each, kills := 1500, 6
	if os.Getenv("MTA_CLUSTER") == "full" {
		each, kills = 50_000, 100
	}
	seed := time.Now().UnixNano()
	rng := rand.New(rand.NewSource(seed))
	primary, standby := newPair(t)
	primary.schema(t)
	address, silent := "127.31.10.1", "127.31.10.2"
	port := commonPort(t, address, silent)
	taken := sink.NewRecorder(sink.Deliveries, 0)
	var later, mute atomic.Bool // the one host refuses for now, and the other takes mail without an answer
	later.Store(true)
	mute.Store(true)
	mailHost(t, net.JoinHostPort(address, port), sink.Config{Recorder: taken, Hook: notYet(&later)})
	mailHost(t, net.JoinHostPort(silent, port), sink.Config{Recorder: taken, Hook: func(c sink.Command) (a sink.Answer) {
		if a.Mute = c.Phase == sink.Kept && mute.Load(); !mute.Load() { // what is in delivery at later kills can come twice
			return notYet(&later)(c)
		}
		return a
	}})
	zone := mxRecords("flight", silent)
	for _, k := range states {
		zone += mxRecords(k, address)
	}
	hook := &eventHook{addr: freeAddress(t), account: newEventAccount()} // it is away until the death
	relays := members(t, []*database{primary, standby}, serveNames(t, sink.MustZone(zone)), port, `
tenant "acme" {}
keys { file = "KEYS" }
api "web" { address = ["WEB"] }
stream "app" { to = "http://`+hook.addr+`/" }
`, 3)
	for _, r := range relays {
		r.onlyOnce(t)
		r.stop(patience)
		r.start(t)
	}
	one, two, three := relays[0], relays[1], relays[2]
	dir := one.dir + "/data"
	key := one.newKey(t)
	one.mta(t, "pause", "domain", "waiting.example")

	const keyed = 20 // of each kind
	submit := func(r *relay, kinds []string, n int) {
		t.Helper()
		r.submit(t, n*len(kinds), func(n int) (string, []string, string) {
			kind, i, fields := kinds[n%len(kinds)], n/len(kinds), ""
			if i < keyed {
				fields = fmt.Sprintf("X-MTA-Idempotency-Key: %s-%d\r\n", kind, i)
			}
			return inState(kind, i, fields)
		})
	}
	submit(one, states, each)
	one.tried(t, 2*each, "tried", "held")
	one.mta(t, "queue", "hold", "--domain", "held.example")
	before := one.standings(t)
	ids := make(map[string]string) // by recipient
	for line := range strings.Lines(one.mta(t, "queue", "list", "--json", "--limit", "0")) {
		var m struct {
			ID         string
			Recipients []struct{ Address string }
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		ids[m.Recipients[0].Address] = m.ID
	}
	submit(one, []string{"flight"}, inFlight)
	eventually(t, patience, func() error {
		if len(taken.Deliveries()) == 0 {
			return errors.New("the silent host has no message")
		}
		return nil
	})
	one.kill()
	doubtful := len(taken.Deliveries())
	mute.Store(false)
	hook.begin(t)
	t.Cleanup(func() { hook.end(false) })
	old := one.dir + "/copy"
	runClient(t, "", "cp", "-a", dir, old)

	// What is refused, and what would be done.
	adopt := func(args ...string) (string, error) {
		return two.try(append([]string{"cluster", "adopt"}, args...)...)
	}
	for want, args := range map[string][]string{
		"s ago: stop it and wait for 20 s": {dir},
		"is the data directory of this":    {two.dir + "/data"},
		"is in use by a relay":             {three.dir + "/data", "--dead"},
		"it has no folder named queue":     {one.dir + "/none"},
	} {
		if out, err := adopt(args...); err == nil || !strings.Contains(out, want) {
			t.Errorf("mta cluster adopt %v prints %s, %v; want %q", args, out, err, want)
		}
	}
	out, err := adopt(dir, "--dead", "--dry-run", "--json")
	var d api.Adopted
	if err == nil {
		err = json.Unmarshal([]byte(out), &d)
	}
	if err != nil || d.Count != 4*each+inFlight || d.States["held"] != each || d.Adoption.NodeID != "relay-1" || d.Adoption.Moving.Node != 1 {
		t.Errorf("a dry run prints %s, %v", out, err)
	}

	if out, err := adopt(dir, "--dead", "--dry-run"); err != nil || !strings.Contains(out, fmt.Sprintf("node 1 (relay-1): %d recipients would be moved: ", d.Count)) {
		t.Errorf("a dry run prints %s, %v", out, err)
	}

	// The command is killed, too: it goes on in the relay, or with the next one.
	refusedToStart := func(config, want string) {
		t.Helper()
		cmd := exec.Command("env", append(one.env, binary, "serve", "--config", config)...)
		said, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(said), want) {
			t.Errorf("a start ends with %v, and %s; want %q", err, said, want)
		}
		if cmd.ProcessState.ExitCode() != 78 { // the service manager leaves it alone
			t.Errorf("the exit code is %d", cmd.ProcessState.ExitCode())
		}
	}
	begin := func() (d api.Adopted) {
		t.Helper()
		eventually(t, patience, func() error {
			d = api.Adopted{}
			out, err := adopt(dir, "--dead", "--no-wait", "--json")
			if err == nil {
				err = json.Unmarshal([]byte(out), &d)
			}
			if err != nil {
				return fmt.Errorf("mta cluster adopt prints %s, %w", out, err)
			}
			return nil
		})
		return d
	}
	if d := begin(); d.Count != 4*each+inFlight || !d.Adoption.Running {
		t.Errorf("it begins with %+v", d)
	}
	refusedToStart(one.config, "node 2 adopts")
	copied := one.dir + "/copy.conf"
	writeFile(t, copied, strings.Replace(readFile(t, one.config), dir, old, 1))
	refusedToStart(copied, "node 1: this node was forgotten")
	for i := range kills {
		victim := []*relay{two, three}[i%2]
		time.Sleep(time.Duration(rng.Int63n(int64(300+300*min(i, 5))) * int64(time.Millisecond))) // of a move under way
		victim.kill()
		victim.start(t)
		t.Logf("after a kill: %+v", begin().Adoption)
	}
	began := time.Now()
	eventually(t, patience, func() error {
		out, err := adopt(dir, "--dead")
		if err != nil {
			return fmt.Errorf("mta cluster adopt prints %s, %w", out, err)
		}
		t.Logf("%v after the last kill: %s", time.Since(began), out)
		return nil
	})
	if out, err := adopt(dir); err != nil || !strings.Contains(out, "nothing to do: the mail of node 1 (relay-1) was adopted") {
		t.Errorf("mta cluster adopt prints %s, %v", out, err)
	}
	refusedToStart(one.config, "was adopted by node 2")

	// What came is as it was.
	allAsBefore(t, before, two, three)
	// By its old id a message is found anywhere, and a repeated submission is known anywhere.
	for _, r := range []*relay{two, three} {
		for _, to := range []string{"a0@tried.example", "a1@scheduled.example", "a2@held.example"} {
			q, err := http.NewRequest("GET", "http://"+r.web+"/v1/messages/"+ids[to], nil)
			if err != nil {
				t.Fatal(err)
			}
			q.Header.Set("Authorization", "Bearer "+key)
			a, err := http.DefaultClient.Do(q)
			if err != nil {
				t.Fatal(err)
			}
			a.Body.Close()
			if a.StatusCode != 200 {
				t.Errorf("message %s to %s: %s", ids[to], to, a.Status)
			}
		}
		submit(r, states, keyed)
	}
	if out := two.mta(t, "actions"); !strings.Contains(out, "cluster adopt") {
		t.Errorf("the audit log of node 2 has %s", out)
	}

	later.Store(false)
	two.mta(t, "resume", "domain", "waiting.example")
	sendAll(t, two, three)
	noneBounced(t, two, three)
	came := copies(taken)
	cameOnce(t, before, came)
	t.Logf("seed %d", seed)
	again := -inFlight
	for i := range inFlight {
		n := came[fmt.Sprintf("a%d@flight.example", i)]
		if again += n; n == 0 {
			t.Error("a message that was in flight is lost")
		}
	}
	if t.Logf("%d were in flight, and %d came again", doubtful, again); again > doubtful {
		t.Error("more came again than were in flight")
	}
	missing := 0
	events, err := one.events()
	if err != nil {
		t.Fatal(err)
	}
	for id, all := range events {
		came := hook.account.of(id)
		for _, e := range all {
			if !slices.Contains(came, e) {
				missing++
			}
		}
	}
	if missing > 0 || len(events) < 4*each {
		t.Errorf("%d events of %d messages did not come", missing, len(events))
	}
}

// TestARelayAdoptsUnderTheNumberOfTheDeadNode: each of two nodes dies in turn, and a relay with an empty directory joins
// under its number. The only node that is left takes mail of the dead one whose number it has, and such a relay takes
// some where another node adopts.
func TestARelayAdoptsUnderTheNumberOfTheDeadNode(t *testing.T) {
	parallel(t)
	const each = 300
	primary, standby := newPair(t)
	primary.schema(t)
	port := commonPort(t, "127.0.0.1")
	dns := serveNames(t, sink.MustZone(mxRecords("a", "127.0.0.1"))) // nobody listens
	relays := members(t, []*database{primary, standby}, dns, port, "", 2)
	one, two := relays[0], relays[1]
	queued := func(relays ...*relay) (n []int) {
		t.Helper()
		for _, r := range relays {
			is, err := r.queued()
			if err != nil {
				t.Fatal(err)
			}
			n = append(n, len(is))
		}
		return n
	}
	// dies ends a node with mail for good, and returns the directory that it has left. Its number has another relay then.
	dies := func(r *relay, number string) (left string) {
		t.Helper()
		r.submit(t, each, func(i int) (string, []string, string) { return hello("", fmt.Sprintf("to%d-%s@a.example", i, number)) })
		r.kill()
		left = r.dir + "/left"
		runClient(t, "", "mv", r.dir+"/data", left)
		if out, err := mta(r.env, "cluster", "forget", number, "--dead"); err != nil {
			t.Fatal(out, err)
		}
		r.start(t)
		return left
	}
	two.kill() // node 1 is alone
	left := dies(one, "1")
	t.Log(one.mta(t, "cluster", "adopt", left, "--dead"))
	if n := queued(one); n[0] != each {
		t.Errorf("%v are queued, want %d", n, each)
	}
	two.start(t)
	left = dies(two, "2")
	eventually(t, patience, func() error { // nodes read who is there every 5 s
		if s := one.cluster(); len(s.Members) != 2 || s.Members[1].Incarnation != 2 || s.Members[1].Forgotten {
			return fmt.Errorf("node 1 does not know the new node 2: %+v", s)
		}
		return nil
	})
	t.Log(one.mta(t, "cluster", "adopt", left, "--dead"))
	if n := queued(one, two); n[0]+n[1] != 2*each || n[1] < each/4 {
		t.Errorf("%v are queued of %d", n, 2*each)
	}
}
