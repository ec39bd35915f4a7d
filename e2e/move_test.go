package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/mta/exported"
	"example.org/mta/operator/api"
)

// list calls each with the messages that a filter selects.
func (r *relay) list(f api.Filter, each func(api.Item)) error {
	c := api.NewClient(r.dir + "/data/control.sock")
	defer c.Close()
	for page := (api.Page{Limit: api.MaxLimit}); ; {
		list, err := api.OpList.Call(context.Background(), c, api.ListQuery{Filter: f, Page: page})
		if err != nil {
			return fmt.Errorf("listing the queue: %w", err)
		}
		for _, m := range list.Messages {
			each(m)
		}
		if page.After = list.Next; page.After == "" {
			return nil
		}
	}
}

// left is the number of recipients in the queue.
func (r *relay) left() (int, error) {
	c := api.NewClient(r.dir + "/data/control.sock")
	defer c.Close()
	s, err := api.OpStatus.Call(context.Background(), c, api.None{})
	return int(s.Queue.Queued), err
}

// standings is all that an export has of each recipient that is queued and of its message, but what must change when
// they move.
func (r *relay) standings(t *testing.T) (all map[string]string) {
	t.Helper()
	c := api.NewClient(r.dir + "/data/control.sock")
	defer c.Close()
	eventually(t, patience, func() error {
		all = make(map[string]string)
		in, out := io.Pipe()
		go func() { out.CloseWithError(api.OpExport.Copy(context.Background(), c, out, api.Filter{})) }()
		defer in.Close()
		archive := exported.NewReader(in, "the export of a queue")
		for {
			m, _, err := archive.Next()
			if left := archive.Summary(); errors.Is(err, io.EOF) && left.InDelivery+left.Ending > 0 {
				return fmt.Errorf("%d recipients are in delivery, %d end", left.InDelivery, left.Ending)
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			for to, s := range standingsOf(t, m) {
				if _, twice := all[to]; twice {
					t.Errorf("%s is queued twice", to)
				}
				all[to] = s
			}
		}
	})
	return all
}

// standingsOf is standings of a message. Of one that has moved the id is that at its first relay, and its age counts
// from the second of its acceptance there.
func standingsOf(t *testing.T, m *exported.Message) map[string]string {
	t.Helper()
	marks := m.Marks
	m.Marks = nil
	for _, mark := range marks {
		if first, moved := strings.CutPrefix(string(mark), "moved="); moved {
			m.Node, m.ID, _ = strings.Cut(first, "/")
		} else if !strings.HasPrefix(string(mark), "accepted=") {
			m.Marks = append(m.Marks, mark)
		}
	}
	if m.Release.IsZero() {
		m.Release = m.Accepted.Truncate(time.Second)
	}
	recipients, all := m.Recipients, make(map[string]string, len(m.Recipients))
	m.Accepted, m.Total = time.Time{}, 0
	for _, to := range recipients {
		if to.Index = 0; to.Last == nil { // the router has looked at it again
			to.Site = ""
		}
		m.Recipients = []exported.Recipient{to}
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		all[to.Address] = string(text)
	}
	return all
}

// states are those in which mail waits that is to move, and the names of its domains: one attempt has failed, and the
// others; held; kept back by a pause; for later.
var states = []string{"tried", "held", "waiting", "scheduled"}

// inState is the message of a number in a state, with further fields.
func inState(state string, i int, fields string) (from string, to []string, content string) {
	switch {
	case state == "scheduled":
		fields += "X-Hold-For: 7200\r\n"
	case i%2 == 0:
		fields += fmt.Sprintf("X-MTA-Campaign: autumn\r\nX-MTA-Meta: order=%d\r\n", i)
	}
	return hello(fmt.Sprintf("%sX-MTA-Tenant: acme\r\nX-Mta-Test-Id: %s-%d\r\n", fields, state, i), fmt.Sprintf("a%d@%s.example", i, state))
}

// notYet refuses recipients as long as later is set.
func notYet(later *atomic.Bool) func(sink.Command) sink.Answer {
	return func(c sink.Command) (a sink.Answer) {
		if c.Phase == sink.Rcpt && later.Load() {
			a.Reply = "451 4.7.1 later"
		}
		return a
	}
}

// onlyOnce has a relay make no second attempt, from its next start or reload on.
func (r *relay) onlyOnce(t *testing.T) {
	t.Helper()
	writeFile(t, r.config, strings.NewReplacer(`retry_interval     = "1s"`, `retry_interval     = "3h"`,
		`max_retry_interval = "2s"`, `max_retry_interval = "4h"`).Replace(readFile(t, r.config)))
}

// tried waits until a number of recipients in these states have had an attempt.
func (r *relay) tried(t *testing.T, want int, states ...string) {
	t.Helper()
	eventually(t, patience, func() error {
		n := 0
		for _, state := range states {
			if err := r.list(api.Filter{Domain: state + ".example"}, func(m api.Item) {
				for _, to := range m.Recipients {
					n += min(to.Attempts, 1)
				}
			}); err != nil {
				return err
			}
		}
		if n < want {
			return fmt.Errorf("%d recipients were tried, want %d", n, want)
		}
		return nil
	})
}

// allAsBefore looks whether relays have the mail as it was, and returns how many recipients they have.
func allAsBefore(t *testing.T, before map[string]string, relays ...*relay) int {
	t.Helper()
	after := make(map[string]string)
	for _, r := range relays {
		for to, s := range r.standings(t) {
			if _, twice := after[to]; twice {
				t.Errorf("%s is queued twice", to)
			}
			after[to] = s
		}
	}
	for to, s := range before {
		if is := after[to]; is != s {
			t.Errorf("%s is %s, was %s", to, is, s)
			break
		}
	}
	return len(after)
}

// sendAll waits until relays have sent all that they have.
func sendAll(t *testing.T, relays ...*relay) {
	t.Helper()
	for _, r := range relays {
		r.mta(t, "queue", "release", "--all")
		r.mta(t, "queue", "retry", "--all", "--scheduled", "--now")
	}
	for _, r := range relays {
		had, err := r.left()
		if err == nil {
			err = allCome("recipients of a relay's queue", had, func() int {
				if left, err := r.left(); err == nil {
					return had - left
				}
				return 0
			})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// copies are the numbers of messages that have come, by recipient.
func copies(taken *sink.Recorder) map[string]int {
	n := make(map[string]int)
	for _, d := range taken.Deliveries() {
		n[d.Recipient]++
	}
	return n
}

// cameOnce looks whether all that was queued has come, once.
func cameOnce(t *testing.T, before map[string]string, copies map[string]int) {
	t.Helper()
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
		t.Errorf("%d of %d are lost, and %d arrived twice", lost, len(before), twice)
	}
}

// mta runs a command at a relay.
func (r *relay) mta(t *testing.T, args ...string) string {
	t.Helper()
	return runClient(t, "", append([]string{binary, "--config", r.config}, args...)...)
}

// try is mta for a command that may fail.
func (r *relay) try(args ...string) (string, error) {
	return mta([]string{"MTA_CONFIG=" + r.config}, args...)
}

// TestMoveToAnotherRelay moves 1,000 messages in every state that mail can wait in from one relay to another, by the line of
// docs/backup.md, while relays and commands are killed. Each arrives once, and had its attempts and times at the new relay,
// although the clients repeat them all there, with their keys.
func TestMoveToAnotherRelay(t *testing.T) {
	parallel(t)
	const each = 250
	seed := time.Now().UnixNano()
	rng := rand.New(rand.NewSource(seed))
	taken := sink.NewRecorder(sink.Deliveries, 0)
	var later atomic.Bool // the host refuses for now
	later.Store(true)
	addr := "127.31.0.1"
	port := commonPort(t, addr)
	mailHost(t, net.JoinHostPort(addr, port), sink.Config{Recorder: taken, Hook: notYet(&later)})
	zone := ""
	for _, k := range states {
		zone += mxRecords(k, addr)
	}
	dns := serveNames(t, sink.MustZone(zone))
	relays := make([]*relay, 2)
	for i, name := range []string{"old", "new"} {
		r := newRelay(t, dns, port, fmt.Sprintf("nodeid = %q\ntenant \"acme\" {}\n", name)+takingAll)
		r.onlyOnce(t)
		r.start(t)
		relays[i] = r
	}
	old, now := relays[0], relays[1]
	old.mta(t, "pause", "domain", "waiting.example")
	old.mta(t, "pause", "domain", "held.example")
	now.mta(t, "pause", "everything")

	send := func(r *relay) {
		t.Helper()
		r.submit(t, each*len(states), func(n int) (from string, to []string, content string) {
			state, i := states[n%len(states)], n/len(states)
			from, to, content = inState(state, i, fmt.Sprintf("X-MTA-Idempotency-Key: %s-%d\r\n", state, i))
			return from, append(to, fmt.Sprintf("b%d@%s.example", i, state)), content
		})
	}
	send(old)
	old.tried(t, 2*each, "tried")
	old.mta(t, "queue", "hold", "--domain", "held.example")
	before := old.standings(t)
	if len(before) != 2*each*len(states) {
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
		if held++; !strings.HasSuffix(to, "@held.example") || s != before[to] {
			t.Errorf("%s is %s, was %s", to, s, before[to])
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
	if n := allAsBefore(t, before, now); n != len(before) {
		t.Errorf("%d recipients were queued, and %d are (seed %d)", len(before), n, seed)
	}

	later.Store(false)
	now.mta(t, "resume", "everything")
	sendAll(t, now)
	copies := make(map[string]int)
	for _, d := range taken.Deliveries() {
		copies[d.ID+" "+d.Recipient]++
	}
	for i := range each {
		for _, k := range states {
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
