package e2e

import (
	"context"
	"fmt"
	"math/rand"
	"net"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
)

// standing is what must not change when a message moves to another relay.
type standing struct {
	attempts      int
	next, expires time.Time
	scheduled     bool
	reply         string
}

// is compares two; the age of mail counts from a whole second at the new relay.
func (s standing) is(o standing) bool {
	return s.attempts == o.attempts && s.next.Equal(o.next) && s.scheduled == o.scheduled && s.reply == o.reply && s.expires.Sub(o.expires).Abs() <= time.Second
}

// standings lists what is queued, by recipient.
func (r *relay) standings(t *testing.T) map[string]standing {
	t.Helper()
	c := api.NewClient(r.dir + "/data/control.sock")
	defer c.Close()
	all := make(map[string]standing)
	for page := (api.Page{Limit: api.MaxLimit}); ; {
		list, err := api.OpList.Call(context.Background(), c, api.ListQuery{Page: page})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list.Messages {
			for _, to := range m.Recipients {
				s := standing{attempts: to.Attempts, scheduled: to.Scheduled, expires: to.Expires}
				if to.State == api.StateDeferred {
					s.next = to.Next
				}
				if to.Reply != nil {
					s.reply = to.Reply.Text
				}
				if _, twice := all[to.Address]; twice {
					t.Errorf("%s is queued twice", to.Address)
				}
				all[to.Address] = s
			}
		}
		if page.After = list.Next; page.After == "" {
			return all
		}
	}
}

// mta runs a command at a relay.
func (r *relay) mta(t *testing.T, args ...string) string {
	t.Helper()
	return runClient(t, "", append([]string{binary, "--config", r.config}, args...)...)
}

// TestMoveToAnotherRelay moves 1,000 messages in every state that mail can wait in from one relay to another, by the line of
// docs/backup.md, while relays and commands are killed. Each arrives once, and had its attempts and times at the new relay,
// although the clients repeat them all there, with their keys.
func TestMoveToAnotherRelay(t *testing.T) {
	t.Parallel()
	const each = 250
	seed := time.Now().UnixNano()
	rng := rand.New(rand.NewSource(seed))
	taken := sink.NewRecorder(sink.Deliveries, 0)
	var later atomic.Bool // the host refuses for now
	later.Store(true)
	addr := "127.31.0.1"
	port := commonPort(t, addr)
	host := sink.New(sink.Config{Recorder: taken, Hook: func(c sink.Command) (a sink.Answer) {
		if c.Phase == sink.Rcpt && later.Load() {
			a.Reply = "451 4.7.1 later"
		}
		return a
	}})
	l, err := net.Listen("tcp", net.JoinHostPort(addr, port))
	if err != nil {
		t.Fatal(err)
	}
	go host.Serve(l)
	t.Cleanup(host.Close)
	kinds := []string{"tried", "held", "waiting", "scheduled"}
	zone := ""
	for _, k := range kinds {
		zone += fmt.Sprintf("%[1]s.example. 60 IN MX 10 mx.%[1]s.example.\nmx.%[1]s.example. 60 IN A %[2]s\n", k, addr)
	}
	names := sink.NewDNS(sink.MustZone(zone))
	dns, err := names.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { names.Close() })

	relays := make([]*relay, 2)
	for i, name := range []string{"old", "new"} {
		r := newRelay(t, dns.String(), port, fmt.Sprintf("nodeid = %q\ntenant \"acme\" {}\n", name)+takingAll)
		text := strings.NewReplacer(`retry_interval     = "1s"`, `retry_interval     = "3h"`, `max_retry_interval = "2s"`, `max_retry_interval = "4h"`).Replace(readFile(t, r.config))
		writeFile(t, r.config, text)
		r.start(t)
		relays[i] = r
	}
	old, now := relays[0], relays[1]
	old.mta(t, "pause", "domain", "waiting.example")
	old.mta(t, "pause", "domain", "held.example")
	now.mta(t, "pause", "everything")

	send := func(r *relay) {
		t.Helper()
		s, err := dialSession(r.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		for i := range each {
			for _, k := range kinds {
				head := fmt.Sprintf("X-MTA-Idempotency-Key: %s-%d\r\n", k, i)
				if k == "scheduled" {
					head += "X-Hold-For: 7200\r\n"
				}
				content := fmt.Sprintf("%sFrom: ann@client.example\r\nX-MTA-Tenant: acme\r\nX-Mta-Test-Id: %s-%d\r\n\r\nhello\r\n", head, k, i)
				to := []string{fmt.Sprintf("a%d@%s.example", i, k), fmt.Sprintf("b%d@%s.example", i, k)}
				if _, err := s.send("ann@client.example", to, content); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	send(old)
	eventually(t, patience, func() error {
		n := 0
		for to, s := range old.standings(t) {
			if strings.HasSuffix(to, "@tried.example") && s.attempts == 1 {
				n++
			}
		}
		if n < 2*each {
			return fmt.Errorf("%d recipients were tried, want %d", n, 2*each)
		}
		return nil
	})
	old.mta(t, "queue", "hold", "--domain", "held.example")
	before := old.standings(t)
	if len(before) != 2*each*len(kinds) {
		t.Fatalf("%d recipients are queued", len(before))
	}

	// What is held already goes first, then the rest; with kills at any time.
	line := "%[1]s --config %[2]s queue export --state held%[4]s | %[1]s --config %[3]s queue import %[5]s --receipt - - | %[1]s --config %[2]s queue remove --receipt -"
	move := func(filter, how string, kills int) {
		for round := 0; ; round++ {
			cmd := exec.Command("sh", "-c", fmt.Sprintf(line, binary, old.config, now.config, filter, how))
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			var out strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if round < kills {
				time.Sleep(time.Duration(rng.Int63n(int64(250 * time.Millisecond))))
				switch victim := round % 3; victim {
				case 2: // the commands
					_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
				default:
					relays[victim].kill()
					_ = cmd.Wait()
					relays[victim].start(t)
				}
			}
			_ = cmd.Wait()
			t.Logf("round %d%s: %s", round, filter, strings.ReplaceAll(strings.TrimSpace(out.String()), "\n", "; "))
			c := api.NewClient(old.dir + "/data/control.sock")
			left, err := api.OpList.Call(t.Context(), c, api.ListQuery{Filter: api.Filter{State: api.StateHeld}})
			c.Close()
			if err != nil {
				t.Fatal(err)
			}
			if len(left.Messages) == 0 && round >= kills {
				return
			}
			if round > kills+20 {
				t.Fatalf("%d messages are still held at the old relay", len(left.Messages))
			}
		}
	}
	move(" --domain held.example", "", 6)
	held := 0
	for to, s := range now.standings(t) {
		if held++; !strings.HasSuffix(to, "@held.example") || !s.is(before[to]) {
			t.Errorf("%s is %+v, was %+v", to, s, before[to])
		}
	}
	if held != 2*each {
		t.Errorf("%d held recipients have moved, want %d", held, 2*each)
	}
	old.mta(t, "queue", "hold", "--all")
	move("", "--release", 9)
	if left, err := old.queued(); err != nil || len(left) > 0 {
		t.Errorf("%d recipients are left at the old relay, %v", len(left), err)
	}
	send(now)
	after := now.standings(t)
	for to, s := range after {
		if !s.is(before[to]) {
			t.Errorf("%s is %+v, was %+v (seed %d)", to, s, before[to], seed)
			break
		}
	}
	if len(after) != len(before) {
		t.Errorf("%d recipients were queued, and %d are (seed %d)", len(before), len(after), seed)
	}

	later.Store(false)
	now.mta(t, "queue", "release", "--all")
	now.mta(t, "resume", "everything")
	now.mta(t, "queue", "retry", "--all", "--scheduled", "--now")
	now.drained(t, patience)
	copies := make(map[string]int)
	for _, d := range taken.Deliveries() {
		copies[d.ID+" "+d.Recipient]++
	}
	for i := range each {
		for _, k := range kinds {
			for _, who := range []string{"a", "b"} {
				name := fmt.Sprintf("%[1]s-%[2]d %[3]s%[2]d@%[1]s.example", k, i, who)
				if copies[name] != 1 {
					t.Errorf("%s arrived %d times (seed %d)", name, copies[name], seed)
				}
				delete(copies, name)
			}
		}
	}
	if len(copies) > 0 {
		t.Errorf("there also arrived %v", copies)
	}
}
