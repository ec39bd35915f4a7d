package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"net"
	"net/http"
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
// event, repeated requests are known everywhere, and no relay starts on the directory.
func TestAClusterAdoptsMail(t *testing.T) {
	t.Parallel()
	const each, inFlight = 1500, 20
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
	for at, hook := range map[string]func(sink.Command) sink.Answer{
		address: func(c sink.Command) (a sink.Answer) {
			if c.Phase == sink.Rcpt && later.Load() {
				a.Reply = "451 4.7.1 later"
			}
			return a
		},
		silent: func(c sink.Command) (a sink.Answer) {
			a.Mute = c.Phase == sink.Kept && mute.Load()
			if c.Phase == sink.Rcpt && !mute.Load() && later.Load() { // what is in delivery at later kills can come twice
				a.Reply = "451 4.7.1 later"
			}
			return a
		},
	} {
		host := sink.New(sink.Config{Recorder: taken, Hook: hook})
		l, err := net.Listen("tcp", net.JoinHostPort(at, port))
		if err != nil {
			t.Fatal(err)
		}
		go host.Serve(l)
		t.Cleanup(host.Close)
	}
	zone := ""
	kinds := []string{"tried", "held", "waiting", "scheduled"}
	for _, k := range append(kinds, "flight") {
		at := address
		if k == "flight" {
			at = silent
		}
		zone += fmt.Sprintf("%[1]s.example. 60 IN MX 10 mx.%[1]s.example.\nmx.%[1]s.example. 60 IN A %[2]s\n", k, at)
	}
	names := sink.NewDNS(sink.MustZone(zone))
	dns, err := names.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { names.Close() })
	hook := &eventHook{addr: freeAddress(t), account: newEventAccount()} // it is away until the death
	relays := members(t, []*database{primary, standby}, dns.String(), port, `
tenant "acme" {}
keys { file = "KEYS" }
api "web" { address = ["WEB"] }
stream "app" { to = "http://`+hook.addr+`/" }
`, 3)
	for _, r := range relays {
		text := strings.NewReplacer(`retry_interval     = "1s"`, `retry_interval     = "3h"`, `max_retry_interval = "2s"`,
			`max_retry_interval = "4h"`).Replace(readFile(t, r.config))
		writeFile(t, r.config, text)
		r.stop(patience)
		r.start(t)
	}
	one, two, three := relays[0], relays[1], relays[2]
	dir := one.dir + "/data"
	out, err := mta(one.env, "--config", one.config, "key", "add", "--tenant", "acme", "--name", "shop")
	if err != nil {
		t.Fatal(out, err)
	}
	key, _, _ := strings.Cut(out, "\n")
	one.mta(t, "pause", "domain", "waiting.example")

	const keyed = 20 // of each kind
	letter := func(kind string, i int) (string, []string, string) {
		head := ""
		if kind == "scheduled" {
			head = "X-Hold-For: 7200\r\n"
		}
		if i < keyed {
			head += fmt.Sprintf("X-MTA-Idempotency-Key: %s-%d\r\n", kind, i)
		}
		return "ann@client.example", []string{fmt.Sprintf("a%d@%s.example", i, kind)}, fmt.Sprintf(
			"%sFrom: ann@client.example\r\nX-MTA-Tenant: acme\r\nX-Mta-Test-Id: %[2]s-%[3]d\r\n\r\nhello\r\n", head, kind, i)
	}
	submit := func(r *relay, kinds []string, n int) {
		t.Helper()
		s, err := dialSession(r.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		for i := range n {
			for _, k := range kinds {
				if _, err := s.send(letter(k, i)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	submit(one, kinds, each)
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
		return mta([]string{"MTA_CONFIG=" + two.config}, append([]string{"cluster", "adopt"}, args...)...)
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
	out, err = adopt(dir, "--dead", "--dry-run", "--json")
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
	for i, victim := range []*relay{two, three, two, two, three, two} {
		time.Sleep(time.Duration(rng.Int63n(int64(300+300*i)) * int64(time.Millisecond))) // of a move that is under way
		victim.kill()
		victim.start(t)
		t.Logf("after a kill: %+v", begin().Adoption)
	}
	eventually(t, patience, func() error {
		out, err := adopt(dir, "--dead")
		if err != nil {
			return fmt.Errorf("mta cluster adopt prints %s, %w", out, err)
		}
		t.Log(out)
		return nil
	})
	if out, err := adopt(dir); err != nil || !strings.Contains(out, "nothing to do: the mail of node 1 (relay-1) was adopted") {
		t.Errorf("mta cluster adopt prints %s, %v", out, err)
	}
	refusedToStart(one.config, "was adopted by node 2")

	// What came is as it was.
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
		submit(r, kinds, keyed)
	}
	if out := two.mta(t, "actions"); !strings.Contains(out, "cluster adopt") {
		t.Errorf("the audit log of node 2 has %s", out)
	}

	later.Store(false)
	two.mta(t, "resume", "domain", "waiting.example")
	for _, r := range []*relay{two, three} {
		r.mta(t, "queue", "release", "--all")
		r.mta(t, "queue", "retry", "--all", "--scheduled", "--now")
	}
	for _, r := range []*relay{two, three} {
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
	again := -inFlight
	for i := range inFlight {
		n := copies[fmt.Sprintf("a%d@flight.example", i)]
		if again += n; n == 0 {
			lost++
		}
	}
	if t.Logf("%d were in flight, and %d came again", doubtful, again); again > doubtful {
		t.Error("more came again than were in flight")
	}
	if lost+twice > 0 {
		t.Errorf("%d of %d are lost, and %d arrived twice (seed %d)", lost, len(before), twice, seed)
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
	t.Parallel()
	const each = 300
	primary, standby := newPair(t)
	primary.schema(t)
	port := commonPort(t, "127.0.0.1")
	names := sink.NewDNS(sink.MustZone("a.example. 60 IN MX 10 mx.a.example.\nmx.a.example. 60 IN A 127.0.0.1\n")) // nobody listens
	dns, err := names.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { names.Close() })
	relays := members(t, []*database{primary, standby}, dns.String(), port, "", 2)
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
		s, err := dialSession(r.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		for i := range each {
			if _, err := s.send("ann@client.example", []string{fmt.Sprintf("to%d-%s@a.example", i, number)}, "Subject: x\r\n\r\nhello\r\n"); err != nil {
				t.Fatal(err)
			}
		}
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
