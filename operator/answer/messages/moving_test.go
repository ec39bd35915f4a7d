package messages

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/cluster/link"
	"example.org/mta/cluster/moving"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/smallfile"
	"example.org/mta/mta/exported"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
	"example.org/mta/queue/vfs/vfstest"
	"example.org/mta/submission/intake"
)

// house is the nodes of a cluster, in virtual time: real queues, moves and importers. Only the link is a pipe, and
// delivery takes what is due and notes it.
type house struct {
	*testing.T
	dir   string
	rng   *rand.Rand
	nodes []*member

	mu        sync.Mutex // guards what follows
	delivered map[string][]delivered
	log       bytes.Buffer
}

type delivered struct {
	node uint16
	at   time.Time
}

// member is a node, whose process can be killed and started.
type member struct {
	*movable
	house  *house
	number uint16
	path   string
	text   string // of the configuration
	drive  *vfstest.Disk
	bad    *vfstest.Faulty // the drive, as the process finds it
	mover  *moving.Mover
	stop   func()

	// what the test sets, under mu
	drains, away, forgotten bool
	refuses                 string
	old                     bool   // of an earlier version
	at                      string // where it is to be killed; "": nowhere
	skip                    int    // how often it survives that
	dead                    bool
	died                    time.Time
	conns                   map[net.Conn]bool
}

func newHouse(t *testing.T, seed int64, texts ...string) *house {
	h := &house{T: t, dir: bubble.Folder(t), rng: rand.New(rand.NewSource(seed)), delivered: map[string][]delivered{}}
	for i, text := range texts {
		n := &member{house: h, number: uint16(i + 1), text: text, drive: vfstest.NewDisk(h.rng),
			path: filepath.Join(h.dir, fmt.Sprint("moving", i+1))}
		h.nodes = append(h.nodes, n)
		n.start()
	}
	t.Cleanup(func() {
		for _, n := range h.nodes {
			n.stop()
		}
	})
	return h
}

func (h *house) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.log.Write(p)
}

// start starts the process of a node with what its disk has.
func (n *member) start() {
	n.house.Helper()
	n.house.mu.Lock()
	n.dead, n.at, n.conns = false, "", map[net.Conn]bool{}
	n.house.mu.Unlock()
	n.bad = &vfstest.Faulty{FS: n.drive}
	n.movable = &movable{t: n.house.T, disk: queue.Config{Dir: "/queue", FS: n.bad, MinFree: 1, LargeBody: 64 << 10}}
	n.Moves = Moves{Messages: bare(n.house.T, n.text), Receptions: n.movable, Version: "0.1.0"}
	n.Log = slog.New(slog.NewTextHandler(n.house, nil))
	q, err := queue.Open(n.disk)
	if err != nil {
		n.house.Fatal(err)
	}
	n.Queue, n.Repeats = q, intake.NewRepeats([]byte("secret"), KeyStore{Queue: q})
	if n.mover, err = moving.Open(moving.Config{Node: n.number, Name: n.Policy().Config.NodeID, Path: n.path,
		Mail: fragile{Moving{&n.Moves}, n}, Nodes: n.others, May: func() bool { return true },
		Drains:  func() bool { n.house.mu.Lock(); defer n.house.mu.Unlock(); return n.drains },
		Refuses: func() string { n.house.mu.Lock(); defer n.house.mu.Unlock(); return n.refuses },
		Open:    n.open, Now: time.Now, Log: n.Log}); err != nil {
		n.house.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	mover := n.mover
	all.Go(func() { mover.Run(ctx) })
	all.Go(func() { n.deliver(ctx, q) })
	n.stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
		q.Close()
	})
}

// deliver delivers what is due.
func (n *member) deliver(ctx context.Context, q *queue.Queue) {
	for {
		l, err := q.Next(ctx)
		if err != nil {
			return
		}
		var rcpts []int
		n.house.mu.Lock()
		for _, p := range l.Recipients {
			to := string(l.Message.Recipients[p.Index].Address)
			if !n.dead {
				n.house.delivered[to] = append(n.house.delivered[to], delivered{n.number, time.Now()})
			}
			rcpts = append(rcpts, p.Index)
		}
		n.house.mu.Unlock()
		q.Settle(l.Message.ID, rcpts, queue.Delivered)
	}
}

func (h *house) rows() (all []moving.Node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.nodes {
		row := moving.Node{Number: n.number, Forgotten: n.forgotten}
		if n.away {
			row.Away = "it has not been seen lately"
		}
		all = append(all, row)
	}
	return all
}

// others are the nodes that mail can go to.
func (n *member) others() []moving.Node {
	return slices.DeleteFunc(n.house.rows(), func(r moving.Node) bool { return r.Number == n.number })
}

// open connects to another node.
func (n *member) open(_ context.Context, node uint16, purpose link.Purpose) (net.Conn, error) {
	to := n.house.nodes[node-1]
	n.house.mu.Lock()
	defer n.house.mu.Unlock()
	switch {
	case n.dead || to.dead:
		return nil, errors.New("connection refused")
	case to.old:
		return nil, fmt.Errorf("node %d has an earlier version of mta, without %s", node, purpose.Name)
	}
	here, there := net.Pipe()
	for _, c := range []net.Conn{here, there} {
		n.conns[c], to.conns[c] = true, true
	}
	go to.mover.Serve(context.Background(), n.number, there)
	return here, nil
}

// dies kills the process if this is where it is to be killed.
func (n *member) dies(at string) error {
	n.house.mu.Lock()
	defer n.house.mu.Unlock()
	if n.dead {
		return errDead
	}
	if n.at != at {
		return nil
	}
	if n.skip--; n.skip >= 0 {
		return nil
	}
	n.kill()
	return errDead
}

var errDead = errors.New("the process was killed")

// kill ends all that the process writes. The caller has mu.
func (n *member) kill() {
	n.dead, n.died = true, time.Now()
	n.drive.CutAt(n.drive.Ops() + 1)
	text, err := os.ReadFile(n.path)
	if err == nil {
		err = os.WriteFile(n.path+".killed", text, 0o600)
	} else if os.IsNotExist(err) {
		err = nil
	}
	if err != nil {
		n.house.Error(err)
	}
	for c := range n.conns {
		c.Close()
	}
}

// restart starts a process that was killed, or kills one.
func (n *member) restart() {
	n.house.Helper()
	n.house.mu.Lock()
	if !n.dead {
		n.kill()
	}
	n.house.mu.Unlock()
	n.stop()
	if err := os.Rename(n.path+".killed", n.path); err != nil && !os.IsNotExist(err) {
		n.house.Fatal(err)
	}
	n.drive = n.drive.Reboot()
	n.start()
}

// fragile is the mail of a process that can be killed at each step.
type fragile struct {
	moving.Mail
	n *member
}

func (f fragile) Leave(ctx context.Context, mark func(string) uint64, each func(moving.Batch, uint64) error) (int, error) {
	return f.Mail.Leave(ctx, mark, func(b moving.Batch, m uint64) error { return each(fragileBatch{b, f.n}, m) })
}

func (f fragile) Again(name string, p []moving.Part) (moving.Batch, []moving.Part) {
	if f.n.dies("again") != nil {
		return fragileBatch{new(batch), f.n}, p
	}
	b, later := f.Mail.Again(name, p)
	return fragileBatch{b, f.n}, later
}

func (f fragile) Moved(t []moving.Taken) error {
	if err := f.n.dies("answered"); err != nil {
		return err
	}
	return errors.Join(f.Mail.Moved(t), f.n.dies("moved"))
}

func (f fragile) Stay(p []moving.Part) {
	f.n.dies("stay")
	f.Mail.Stay(p)
}

func (f fragile) Take(ctx context.Context, from string, r io.Reader, look bool) (t []moving.Taken, d []moving.Declined, err error) {
	at := map[bool]string{false: "take", true: "look"}[look]
	if err := f.n.dies("before " + at); err != nil {
		return nil, nil, err
	}
	t, d, err = f.Mail.Take(ctx, from, &fragileReader{r, f.n, at, 0}, look)
	return t, d, errors.Join(err, f.n.dies("after "+at))
}

type fragileReader struct {
	io.Reader
	n  *member
	at string
	is int
}

func (r *fragileReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p[:min(len(p), 4096)])
	if r.is += n; r.is > 50_000 {
		err = errors.Join(err, r.n.dies("within "+r.at))
	}
	return n, err
}

type fragileBatch struct {
	moving.Batch
	n *member
}

func (b fragileBatch) Write(w io.Writer) error {
	if err := b.n.dies("held"); err != nil {
		return err
	}
	if err := b.Batch.Write(&fragileWriter{w, b.n, 0}); err != nil {
		return err
	}
	return b.n.dies("sent")
}

type fragileWriter struct {
	io.Writer
	n  *member
	is int
}

func (w *fragileWriter) Write(p []byte) (int, error) {
	if w.is += len(p); w.is > 50_000 {
		if err := w.n.dies("within"); err != nil {
			return 0, err
		}
	}
	return w.Writer.Write(p)
}

// put queues messages whose recipients are due within some time, each at a time of its own.
func (n *member) put(count int, within time.Duration) {
	n.house.Helper()
	for i := range count {
		to := fmt.Sprintf("r%d@box.example", i)
		m := &envelope.Message{Sender: "ann@client.example", Tenant: "acme", Campaign: "spring",
			Recipients: []envelope.Recipient{{Address: envelope.Address(to)}}}
		d := n.Queue.Begin()
		io.WriteString(d, letter)
		d.Continue([]queue.Standing{{Attempts: 1, Due: time.Now().Add(time.Duration(i) * within / time.Duration(count)),
			Site: "mx.box.example", Tried: true, Last: queue.Attempt{Reply: reply.Reply{Code: 451, Text: "later"}}}})
		if err := d.Commit(m); err != nil {
			n.house.Fatal(err)
		}
	}
}

func (n *member) drain() {
	n.house.mu.Lock()
	n.drains = true
	n.house.mu.Unlock()
	n.mover.Drain()
}

// pass lets time pass.
func (h *house) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// once checks that all were delivered, and how many twice: only what a process was just delivering when it was killed.
func (h *house) once(count int) {
	h.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	lost, twice := 0, 0
	for i := range count {
		to := fmt.Sprintf("r%d@box.example", i)
		all := h.delivered[to]
		if len(all) == 0 {
			lost++
		}
		for _, d := range all[:max(0, len(all)-1)] {
			if n := h.nodes[d.node-1]; d.at.After(n.died) || n.died.Sub(d.at) > 100*time.Millisecond {
				twice++
			}
		}
	}
	if lost+twice > 0 {
		h.Errorf("%d of %d are lost, and %d delivered twice", lost, count, twice)
	}
}

// standings returns all that is known of each recipient, and of its message, but for what a move changes.
func (n *member) standings() map[string]string {
	n.house.Helper()
	all := map[string]string{}
	r := exported.NewReader(bytes.NewReader(n.exported(api.Filter{})), "archive")
	for {
		m, content, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			n.house.Fatal(err)
		}
		text, err := io.ReadAll(content)
		if err != nil {
			n.house.Fatal(err)
		}
		if m.Release.IsZero() {
			m.Release = m.Accepted.Truncate(time.Second)
		}
		m.Node, m.ID, m.Accepted = "", "", time.Time{}
		m.Marks = slices.DeleteFunc(m.Marks, func(s exported.Text) bool {
			return strings.HasPrefix(string(s), "moved=") || strings.HasPrefix(string(s), "accepted=")
		})
		for _, rcpt := range m.Recipients {
			one := *m
			one.Recipients = []exported.Recipient{rcpt}
			is, err := json.Marshal(one)
			if err != nil {
				n.house.Fatal(err)
			}
			all[rcpt.Address] = string(is) + string(text)
		}
	}
}

const node = `
	tenant "acme" {}
	nodeid = `

// TestMovesThroughCrashes kills the process that sends, or one that receives, at each step of a move, and starts it again
// after a while in which mail becomes due: nothing is lost, and nothing leaves twice but what was in delivery.
func TestMovesThroughCrashes(t *testing.T) {
	const count = 450
	type point struct {
		who  uint16
		at   string
		skip int
	}
	var points []point
	for _, at := range []string{"held", "within", "sent", "answered", "moved"} {
		points = append(points, point{1, at, 0}, point{1, at, 1})
	}
	for _, at := range []string{"before take", "within take", "after take"} {
		points = append(points, point{2, at, 1}, point{3, at, 1})
	}
	for i, p := range points {
		outage := []time.Duration{3 * time.Second, 40 * time.Second}[(i+p.skip)%2]
		t.Run(fmt.Sprintf("node %d %s %d, for %s", p.who, p.at, p.skip, outage), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				h := newHouse(t, int64(len(p.at))+int64(outage), node+`"one"`, node+`"two"`, node+`"three"`)
				one := h.nodes[0]
				one.put(count, time.Minute)
				victim := h.nodes[p.who-1]
				h.mu.Lock()
				victim.at, victim.skip = p.at, p.skip
				h.mu.Unlock()
				one.drain()
				h.pass(2 * time.Second)
				h.mu.Lock()
				dead := victim.dead
				h.mu.Unlock()
				if !dead {
					t.Fatal("it was not killed")
				}
				h.pass(outage)
				victim.restart()
				one.drain()
				h.pass(10 * time.Second)
				if s := one.mover.Status(); s.Waiting > 0 {
					t.Errorf("%+v", s)
				}
				h.pass(2 * time.Minute)
				h.once(count)
				for _, n := range h.nodes {
					if s := n.Queue.Stats(); s.Queued != 0 || s.Fault != "" {
						t.Errorf("node %d has %+v", n.number, s)
					}
				}
			})
		})
	}
}

// TestASecondCrash kills the sender while it asks after its batch, and the node that is asked.
func TestASecondCrash(t *testing.T) {
	const count = 300
	for _, p := range []struct {
		who uint16
		at  string
	}{{1, "again"}, {1, "answered"}, {1, "moved"}, {2, "before look"}, {2, "after look"}} {
		t.Run(fmt.Sprintf("node %d %s", p.who, p.at), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				h := newHouse(t, 5, node+`"one"`, node+`"two"`)
				one := h.nodes[0]
				one.put(count, time.Minute)
				h.mu.Lock()
				one.at = "answered"
				h.mu.Unlock()
				one.drain()
				h.pass(2 * time.Second)
				one.restart()
				victim := h.nodes[p.who-1]
				h.mu.Lock()
				victim.at = p.at
				h.mu.Unlock()
				h.pass(5 * time.Second)
				h.mu.Lock()
				dead := victim.dead
				h.mu.Unlock()
				if !dead {
					t.Fatal("it was not killed")
				}
				h.pass(20 * time.Second)
				victim.restart()
				one.drain()
				h.pass(2 * time.Minute)
				h.once(count)
			})
		})
	}
}

// TestAMove spreads mail fairly, and each message comes as it was.
func TestAMove(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHouse(t, 1, node+`"one"`, node+`"two"`, node+`"three"`, node+`"four"`)
		one := h.nodes[0]
		one.put(1500, time.Hour)
		held, err := one.Queue.Change(queue.Selector{Filter: queue.Filter{Recipient: "r77@box.example"}}, queue.Hold, false)
		if err != nil || held != 1 {
			t.Fatal(held, err)
		}
		rich := &envelope.Message{Sender: "ann@client.example", Tenant: "acme", Campaign: "spring", Tags: []string{"a", "b"},
			Meta: `{"n":1}`, Headers: `{"h":"v"}`, EnvID: "env", Ret: envelope.RetFull, RequireTLS: true, Tier: 2, User: "ann",
			APIKey: "key", TraceID: strings.Repeat("a", 32), Release: time.Now().Add(50 * time.Minute).Truncate(time.Second),
			Spread: time.Minute, Expires: time.Now().Add(90 * time.Hour).Truncate(time.Second), Marks: []string{"Pace: 3/m"}}
		for i := range 5 {
			rich.Recipients = append(rich.Recipients, envelope.Recipient{Address: envelope.Address(fmt.Sprintf("rich%d@box.example", i)), Notify: envelope.NotifyFailure, ORcpt: "rfc822;x@y"})
		}
		d := one.Queue.Begin()
		io.WriteString(d, letter)
		last := queue.Attempt{Reply: reply.Reply{Code: 451, Text: "later", Command: "RCPT"}, Via: "s1"}
		d.Continue([]queue.Standing{{Held: true}, {Attempts: 3, Due: time.Now().Add(time.Hour).Truncate(time.Second).UTC(), Warned: true, Site: "mx", Tried: true, Last: last},
			{Due: time.Now().Add(2 * time.Hour).Truncate(time.Second).UTC()}, {Held: true, Attempts: 1, Tried: true, Last: last, Site: "mx"}, {Attempts: 9, Due: time.Now().Add(time.Hour).Truncate(time.Second).UTC(), Tried: true, Last: last}})
		if err := d.Commit(rich); err != nil {
			t.Fatal(err)
		}
		h.pass(time.Second)
		before := one.standings()
		left := one.Queue.Stats().Queued
		one.drain()
		h.pass(5 * time.Second)
		s := one.mover.Status()
		if !s.On || !s.Rests || int64(s.Recipients) < left-5 || s.Waiting+s.Declined+s.Busy != 0 || one.Queue.Stats().Queued != 0 {
			t.Errorf("%+v; it had %d, and has %+v", s, left, one.Queue.Stats())
		}
		if stats := one.Queue.Stats(); int64(s.Recipients) != stats.Transferred || stats.Removed != 0 {
			t.Errorf("%d have moved; the queue counts %d, and %d removed", s.Recipients, stats.Transferred, stats.Removed)
		}
		for _, n := range s.Nodes { // whose process the machine runs first takes more
			if n.Why != "" || n.Recipients < s.Recipients/10 {
				t.Errorf("%+v of %d", n, s.Recipients)
			}
		}
		after := map[string]string{}
		for _, n := range h.nodes[1:] {
			maps.Copy(after, n.standings())
		}
		for to, was := range before {
			if is, there := after[to]; there && is != was || !there && len(h.delivered[to]) == 0 {
				t.Errorf("%s\nwas %s\nis  %s", to, was, is)
			}
		}
		if to, err := (KeyStore{one.Queue}).MovedTo("acme"); err != nil || len(to) != 3 {
			t.Errorf("%q, %v", to, err)
		}
	})
}

// TestWhoTakesNoMail: nodes that refuse it, are away, of an earlier version, full or without the tenant are left out and
// named. What nobody takes stays, and is delivered here.
func TestWhoTakesNoMail(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHouse(t, 1, node+`"one"`, node+`"two"`, node+`"three"`, node+`"four"`, `nodeid = "five"`)
		one, two := h.nodes[0], h.nodes[1]
		h.mu.Lock()
		two.refuses, h.nodes[2].old, h.nodes[3].away = "no new mail is taken since noon", true, true
		h.mu.Unlock()
		one.put(600, 40*time.Second)
		one.drain()
		h.pass(10 * time.Second)
		s := one.mover.Status()
		for i, want := range []string{"no new mail is taken since noon", "node 3 has an earlier version", "it has not been seen lately", ""} {
			if why := s.Nodes[i].Why; !strings.Contains(why, want) || (why == "") != (want == "") || s.Nodes[i].Recipients != 0 {
				t.Errorf("%+v; want %q", s.Nodes[i], want)
			}
		}
		if s.Declined == 0 || s.Recipients != 0 || !s.Rests {
			t.Errorf("%+v", s)
		}
		h.mu.Lock()
		two.refuses = ""
		if text := h.log.String(); !strings.Contains(text, `there is no tenant \"acme\" here`) {
			t.Error(text)
		}
		h.mu.Unlock()
		h.pass(10 * time.Second)
		if s := one.mover.Status(); s.Recipients == 0 || s.Nodes[0].Recipients != s.Recipients || one.Queue.Stats().Queued != 0 {
			t.Errorf("%+v", s)
		}
		h.pass(time.Minute)
		h.once(600)
		one.mover.Stop(t.Context())
		one.put(10, 0)
		if h.pass(10 * time.Second); one.mover.Status().On {
			t.Error("it is on")
		}
	})
}

// TestWhatWasDeclinedIsOfferedAgain: once the operator has mended the reason, and drains the node again.
// TestAllNodesGetTheKeys of a node that moves no mail, in the background; those that can't get them are named.
func TestAllNodesGetTheKeys(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHouse(t, 1, node+`"one"`, node+`"two"`, node+`"three"`, node+`"four"`)
		one, two := h.nodes[0], h.nodes[1]
		h.mu.Lock()
		h.nodes[2].refuses, h.nodes[3].forgotten = "its disk is full", true
		h.mu.Unlock()
		if _, outcome, err := takeOnce(one.Queue, one.Repeats, "k", "hello"); err != nil || outcome != intake.Fresh {
			t.Fatal(outcome, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, done := one.mover.Informed(ctx); done {
			t.Error("it waits although its caller does not")
		}
		h.pass(time.Second)
		without, done := one.mover.Informed(t.Context())
		if !done || len(without) != 1 || without[0].Node != 3 || !strings.Contains(without[0].Why, "its disk is full") {
			t.Errorf("without the keys: %+v, %t", without, done)
		}
		if known, err := two.Repeats.Known("acme", "k"); err != nil || !known {
			t.Errorf("node 2 knows the key: %t, %v", known, err)
		}
		if known, err := h.nodes[2].Repeats.Known("acme", "k"); err != nil || known {
			t.Errorf("node 3 knows the key: %t, %v", known, err)
		}
		h.mu.Lock()
		h.nodes[2].refuses = ""
		h.mu.Unlock()
		h.pass(10 * time.Second)
		if without, done := one.mover.Informed(t.Context()); !done || len(without) > 0 {
			t.Errorf("without the keys: %+v, %t", without, done)
		}
	})
}

func TestWhatWasDeclinedIsOfferedAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHouse(t, 1, node+`"one"`, `nodeid = "two"`)
		one, two := h.nodes[0], h.nodes[1]
		one.put(60, time.Hour)
		one.drain()
		h.pass(10 * time.Second)
		two.text = node + `"two"`
		two.restart()
		h.pass(time.Minute)
		if s := one.mover.Status(); s.Declined == 0 || s.Recipients != 0 || !s.Rests {
			t.Errorf("%+v", s)
		}
		one.drain()
		h.pass(10 * time.Second)
		if s := one.mover.Status(); s.Declined != 0 || s.Recipients == 0 || one.Queue.Stats().Queued != 0 {
			t.Errorf("%+v, %+v", s, one.Queue.Stats())
		}
	})
}

// TestANodeThatNeverComesBack: its batch waits for it, and is delivered here once it is forgotten.
func TestANodeThatNeverComesBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHouse(t, 1, node+`"one"`, node+`"two"`)
		one, two := h.nodes[0], h.nodes[1]
		one.put(100, 10*time.Second)
		h.mu.Lock()
		two.at = "within take"
		h.mu.Unlock()
		one.drain()
		h.pass(time.Hour)
		s := one.mover.Status()
		if s.Waiting == 0 || s.Recipients != 0 || !strings.Contains(s.Nodes[0].Why, "it has not answered whether it has") {
			t.Errorf("%+v", s)
		}
		one.restart()
		h.pass(time.Hour)
		if s := one.mover.Status(); s.Waiting == 0 || int64(s.Waiting) != one.Queue.Stats().Queued {
			t.Errorf("%+v, %+v", s, one.Queue.Stats())
		}
		if why := one.mover.Trouble(); !strings.Contains(why, "since node 2 has not answered whether it has them") {
			t.Error(why)
		}
		if err := moving.Nothing(one.path); err == nil || !strings.Contains(err.Error(), "other nodes may have") {
			t.Error(err)
		}
		h.mu.Lock()
		two.forgotten = true
		h.mu.Unlock()
		h.pass(time.Minute)
		h.once(100)
		if err := moving.Nothing(one.path); err != nil || one.mover.Status().Waiting != 0 || one.mover.Trouble() != "" {
			t.Error(err)
		}
	})
}

// TestWhatIsAskedAfterARestart: neither another nodeid nor a disk that gives nothing for a while, or something else for
// good, has mail delivered by both, whose node had it and could not answer.
func TestWhatIsAskedAfterARestart(t *testing.T) {
	const damagedForGood = "a disk that gives something else"
	for name, change := range map[string]func(one *member) (undo func()){
		"another nodeid": func(one *member) func() {
			one.text = node + `"uno"`
			one.restart()
			return func() {}
		},
		"a disk that gives nothing": badDisk(vfstest.Fault{Err: errors.New("input/output error")}, true),
		damagedForGood:              badDisk(vfstest.Fault{Flip: true}, false),
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				h := newHouse(t, 1, node+`"one"`, node+`"two"`)
				one, two := h.nodes[0], h.nodes[1]
				one.put(100, 10*time.Hour)
				h.mu.Lock()
				two.at, two.skip = "after take", 1 // the keys come first
				h.mu.Unlock()
				one.drain()
				h.pass(10 * time.Second)
				if s := one.mover.Status(); s.Waiting == 0 {
					t.Fatalf("%+v", s)
				}
				undo := change(one)
				two.restart()
				h.pass(time.Minute)
				undo()
				h.pass(20 * time.Hour)
				h.once(100)
				if s, q := one.mover.Status(), one.Queue.Stats(); int64(s.Waiting) != q.Queued || s.Waiting > 0 && name != damagedForGood {
					t.Errorf("%+v, %+v", s, q)
				}
			})
		})
	}
}

// TestOneMessageThatCanNotBeRead of an unfinished move stays withheld, since its node may have it, and is named. All
// other mail moves, also to that node.
func TestOneMessageThatCanNotBeRead(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHouse(t, 1, node+`"one"`, node+`"two"`)
		one := h.nodes[0]
		one.put(9, 10*time.Hour)
		d := one.Queue.Begin()
		io.WriteString(d, letter+strings.Repeat("xxxxxxxxxx\r\n", 20_000))
		d.Continue([]queue.Standing{{Due: time.Now().Add(10 * time.Hour)}})
		if err := d.Commit(&envelope.Message{Sender: "large@client.example", Tenant: "acme",
			Recipients: []envelope.Recipient{{Address: "r9@box.example"}}}); err != nil {
			t.Fatal(err)
		}
		var large string
		var parts []moving.Part
		if _, err := one.Queue.Export(queue.Selector{All: true}, func(x *queue.Exported) error {
			id := x.Message.ID.String()
			if parts = append(parts, moving.Part{ID: id, Recipients: []int{0}}); x.Message.Sender == "large@client.example" {
				large = id
			}
			return nil
		}); err != nil || large == "" {
			t.Fatal(err)
		}
		one.stop()
		if err := smallfile.WriteObject(one.path, 0o600, map[string]any{"Version": 1, "Batches": []any{
			map[string]any{"To": 2, "Name": "one", "Parts": parts}}}); err != nil {
			t.Fatal(err)
		}
		one.start()
		one.bad.Decide(func(op vfstest.Op, path string) *vfstest.Fault {
			if op == vfstest.Read && strings.Contains(path, "/large/") {
				return &vfstest.Fault{Err: errors.New("input/output error")}
			}
			return nil
		})
		one.drain()
		h.pass(20 * time.Second)
		s := one.mover.Status()
		if s.Messages != 8 || s.Waiting != 1 || !strings.Contains(s.Nodes[0].Why, "can't be read here") || !strings.Contains(s.Nodes[0].Why, large) {
			t.Errorf("%+v", s)
		}
		if why := one.mover.Trouble(); !strings.Contains(why, large) {
			t.Errorf("the alarm has %q", why)
		}
		one.bad.Decide(func(vfstest.Op, string) *vfstest.Fault { return nil })
		h.pass(2 * time.Minute)
		if s := one.mover.Status(); s.Messages != 9 || s.Waiting != 0 || s.Nodes[0].Why != "" || one.mover.Trouble() != "" {
			t.Errorf("%+v", s)
		}
		h.pass(20 * time.Hour)
		h.once(10)
	})
}

// badDisk restarts a node whose disk has a fault with each read then, which may heal.
func badDisk(fault vfstest.Fault, heals bool) func(*member) (undo func()) {
	return func(n *member) func() {
		n.restart()
		n.bad.Decide(func(op vfstest.Op, _ string) *vfstest.Fault {
			if op == vfstest.Read {
				return &fault
			}
			return nil
		})
		return func() {
			if heals {
				n.bad.Decide(func(vfstest.Op, string) *vfstest.Fault { return nil })
			}
		}
	}
}

// TestMailStaysWhoseMoveCanNotBeWrittenDown: it is not withheld, and moves once it can be written down.
func TestMailStaysWhoseMoveCanNotBeWrittenDown(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHouse(t, 1, node+`"one"`, node+`"two"`)
		one := h.nodes[0]
		one.put(100, time.Minute)
		if err := os.MkdirAll(filepath.Join(one.path, "in the way"), 0o700); err != nil {
			t.Fatal(err)
		}
		one.drain()
		h.pass(2 * time.Minute)
		if n := one.Queue.Stats().Queued; n != 0 {
			t.Errorf("%d messages are withheld", n)
		}
		h.once(100)
		if err := os.RemoveAll(one.path); err != nil {
			t.Fatal(err)
		}
		one.put(100, time.Hour)
		h.pass(10 * time.Second)
		if s := one.mover.Status(); s.Messages < 90 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestAFullNode takes what fits, and the rest stays.
func TestAFullNode(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHouse(t, 1, node+`"one"`, node+`"two"`)
		one, two := h.nodes[0], h.nodes[1]
		two.stop()
		tight := &vfstest.Tight{FS: vfstest.Memory(), Dir: "/queue", Capacity: 300_000}
		two.movable.disk = queue.Config{Dir: "/queue", FS: tight, MinFree: 1, SegmentSize: 64 << 10}
		var err error
		if two.Queue, err = queue.Open(two.movable.disk); err != nil {
			t.Fatal(err)
		}
		one.put(1000, time.Hour)
		one.drain()
		h.pass(10 * time.Second)
		s := one.mover.Status()
		here, there := one.Queue.Stats().Queued, two.Queue.Stats().Queued
		if here == 0 || there == 0 || here+there+int64(len(h.delivered)) != 1000 || s.Waiting != 0 || !strings.Contains(s.Nodes[0].Why, "it refuses mail") {
			t.Errorf("%+v; %d are here, %d there, %d delivered", s, here, there, len(h.delivered))
		}
		one.stop()
		two.Queue.Close()
	})
}
