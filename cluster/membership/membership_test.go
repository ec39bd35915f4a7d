package membership

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/cluster/ca"
	"example.org/mta/cluster/link"
	"example.org/mta/cluster/member"
	"example.org/mta/cluster/node"
	"example.org/mta/cluster/once"
	"example.org/mta/cluster/owner"
	"example.org/mta/cluster/postgres"
	"example.org/mta/cluster/share"
	"example.org/mta/cluster/term"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/format"
	"example.org/mta/internal/smallfile"
)

// database is a simulated engine. It keeps the conditions of joined and forgotten in schema.sql.
type database struct {
	mu      sync.Mutex
	heads   [owner.Shards]owner.Head
	members map[uint16]postgres.Member
	standby bool
	away    error
	locked  error // rows of members can't be written
	fault   error // of a reading
	joins   int
	seen    map[uint16]time.Time
	origin  owner.Origin
	reset   uint64

	version  int // of the schema
	reserves map[uint16]*owner.Reserve
	wishes   int
}

func newDatabase() *database {
	return &database{version: postgres.Reserves, reserves: make(map[uint16]*owner.Reserve),
		members: make(map[uint16]postgres.Member), seen: make(map[uint16]time.Time), standby: true, origin: owner.Origin{System: 7, Timeline: 1}}
}

func (d *database) do(f func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.away == nil {
		f()
	}
	return d.away
}

func (d *database) set(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

func (d *database) Shards(_ context.Context, c owner.Call) (r owner.Result, err error) {
	err = d.do(func() {
		r = owner.Result{Number: c.Number, Done: make([]bool, len(c.Parts)), Books: map[int][]owner.Entry{}, Origin: d.origin}
		for i, p := range c.Parts {
			if r.Done[i] = p.Fits(d.heads[p.Shard]); r.Done[i] {
				d.heads[p.Shard] = p.To
			}
		}
		heads := d.heads
		if r.Heads = &heads; !d.standby {
			r.Standby = errors.New("none is synchronous and streaming")
		}
		if c.Reserves && d.version < postgres.Reserves {
			panic("a call that the schema does not have")
		}
		d.wish(c.Wish)
		for _, x := range d.reserves {
			if c.Reserves && x != nil {
				r.Reserves = append(r.Reserves, *x)
			}
		}
	})
	return r, err
}

func (d *database) wish(w *owner.Wish) {
	if w == nil {
		return
	}
	d.wishes++
	var others []owner.Reserve
	for node, x := range d.reserves {
		if node != w.Node && x != nil {
			others = append(others, *x)
		}
	}
	closed := false
	for _, m := range d.members {
		closed = closed || !m.Forgotten && m.OnLoss == ""
	}
	d.reserves[w.Node], _ = w.Apply(d.reserves[w.Node], others, closed)
}

func (d *database) Keys(context.Context, once.Call) (once.Result, error) {
	return once.Result{}, errors.New("nobody claims keys")
}

func (d *database) Unsettled(context.Context, uint16) ([]once.Row, error) {
	return nil, d.do(func() {})
}

func (d *database) DropKeys(context.Context, int) (int, error) {
	return 0, d.do(func() {})
}

func (d *database) Close() {}

func (d *database) View(context.Context) (v postgres.View, err error) {
	err = d.do(func() {
		for n := range uint16(10) {
			if m, ok := d.members[n]; ok {
				m.Ago = d.ago(n)
				v.Members = append(v.Members, m)
			}
		}
		v.Version, v.Fault = d.version, d.fault
		v.Now, v.Reset = float64(time.Now().UnixMilli())/1000, d.reset
		if d.standby {
			v.Standbys.Names = []string{"standby (sync)"}
		}
	})
	return v, err
}

func (d *database) Join(_ context.Context, m postgres.Member) (err error) {
	err = d.do(func() {
		if d.locked != nil {
			return
		}
		was := d.members[m.Number]
		if d.joins++; was.Incarnation > m.Incarnation || was.Incarnation == m.Incarnation &&
			(was.Process > m.Process || was.Process == m.Process && was.Life != m.Life) {
			panic("a join that the database refuses")
		}
		d.members[m.Number], d.seen[m.Number] = m, time.Now()
	})
	return cmp.Or(err, d.locked)
}

// ago is since when a member was not seen, by its joins and what a test adds.
func (d *database) ago(n uint16) (s float64) {
	if at := d.seen[n]; !at.IsZero() {
		s = time.Since(at).Seconds()
	}
	return s + d.members[n].Ago
}

func (d *database) Fence(_ context.Context, n uint16, incarnation uint64, off bool) error {
	switch {
	case d.members[n].Incarnation != incarnation:
		return nil
	case !off && d.ago(n) < absent.Seconds():
		return errors.New("it answered")
	}
	d.forget(n)
	return nil
}

func (d *database) Reset(_ context.Context, by uint16, known uint64) (n uint64, err error) {
	err = d.do(func() {
		d.reset = max(d.reset+1, known+1, uint64(time.Now().Unix()))
		for i := range d.heads {
			h := &d.heads[i]
			*h = owner.Head{Node: by, Epoch: max(h.Epoch+1, d.reset), Beat: h.Beat + 1}
		}
	})
	return d.reset, err
}

func (d *database) forget(n uint16) {
	d.set(func() {
		m := d.members[n]
		m.Incarnation, m.Process, m.Life, m.Forgotten = m.Incarnation+1, 0, 0, true
		d.members[n] = m
	})
}

// site is a machine with certificates.
type site struct {
	*testing.T
	db   *database
	dir  string
	text bytes.Buffer // of the log
	log  *slog.Logger
	old  [4]bool      // by number: the program has an earlier version
	part bool         // nodes go on by their parts
	boot uint64       // of all machines
	late atomic.Int64 // nanoseconds by which their clocks are fast
}

func (s *site) now() time.Time { return time.Now().Add(time.Duration(s.late.Load())) }

var errAway = errors.New("connection refused")

// within runs a test in virtual time.
func within(t *testing.T, test func(s *site)) {
	t.Helper()
	dir := bubble.Folder(t)
	if err := ca.Init(filepath.Join(dir, "ca"), "mail", time.Now()); err != nil {
		t.Fatal(err)
	}
	bubble.Test(t, func(t *testing.T) {
		if err := os.RemoveAll(filepath.Join(dir, "ca")); err != nil {
			t.Fatal(err)
		} else if err := ca.Init(filepath.Join(dir, "ca"), "mail", time.Now()); err != nil {
			t.Fatal(err)
		}
		s := &site{T: t, db: newDatabase(), dir: dir}
		s.log = slog.New(slog.NewTextHandler(&s.text, nil))
		test(s)
	})
}

// silence is a listener to which nobody comes.
type silence struct{ closed chan struct{} }

func (l silence) Accept() (net.Conn, error) { <-l.closed; return nil, net.ErrClosed }
func (l silence) Addr() net.Addr            { return nil }
func (l silence) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return nil
}

// open opens a relay's part in the cluster with a data directory.
func (s *site) open(number uint16, dir string, life uint64) (*Membership, error) {
	s.Helper()
	p, err := ca.Issue(filepath.Join(s.dir, "ca"), number, ca.NodeHolds, time.Now())
	if err != nil && !strings.Contains(err.Error(), "exists") {
		s.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(s.dir, dir), 0o700); err != nil {
		s.Fatal(err)
	}
	began, version := time.Now(), "1.0"
	if s.old[number%4] {
		version = "0.9"
	}
	return Open(Config{Part: s.part, Name: filepath.Base(dir), Address: fmt.Sprintf("10.0.0.%d:2571", number), Pair: p, CA: filepath.Join(s.dir, "ca", ca.Certificate),
		Path: filepath.Join(s.dir, dir, "cluster"), Version: version, Now: s.now, Log: s.log,
		writer: s.db, reader: s.db, boot: s.boot + uint64(number), life: life, listener: silence{make(chan struct{})},
		clock: func() time.Duration { return time.Hour + time.Since(began) },
		dial:  func(context.Context, string) (net.Conn, error) { return nil, errAway }})
}

// starts opens it and has it take part.
func (s *site) starts(number uint16, dir string, life uint64) *Membership {
	s.Helper()
	m, err := s.open(number, dir, life)
	if err != nil {
		s.Fatal(err)
	}
	m.Start()
	return m
}

// refused checks that a data directory can't take part, that the reason has these words, and that no service manager
// starts the relay again.
func (s *site) refused(number uint16, dir string, life uint64, words string) {
	s.Helper()
	s.refusedUntil(number, dir, life, words, false)
}

// refusedUntil is refused, where another start can mend it.
func (s *site) refusedUntil(number uint16, dir string, life uint64, words string, mends bool) {
	s.Helper()
	m, err := s.open(number, dir, life)
	if err == nil {
		m.Close()
	}
	if err == nil || !errors.As(err, new(Refusal)) || !strings.Contains(err.Error(), words) || errors.Is(err, format.ErrRefused) == mends {
		s.Errorf("the error of node %d is %v; want %q, and %t: another start can mend it", number, err, words, mends)
	}
}

func (s *site) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestARelayJoinsAndGoesOn(t *testing.T) {
	within(t, func(s *site) {
		m := s.starts(2, "a", 1)
		s.pass(20 * time.Second)
		st := m.Status()
		row := s.db.members[2]
		if row.Incarnation != 1 || row.Process != 1 || row.Address != "10.0.0.2:2571" || row.Version != "1.0" {
			t.Errorf("the row is %+v", row)
		}
		if len(st.Shards) != owner.Shards || !st.Takes || m.Node() == nil || m.Count() != 1 || st.Number != 2 {
			t.Errorf("the status is %+v", st)
		}
		if s.db.joins < 4 || s.db.joins > 6 {
			t.Errorf("%d writes of the row in 20 s", s.db.joins)
		}
		s.db.set(func() {
			s.db.members[3] = postgres.Member{Number: 3, Version: "0.9"}
			s.db.members[4] = postgres.Member{Number: 4, Version: "0.8", Forgotten: true}
			s.db.members[5] = postgres.Member{Number: 5, Version: "1.0"}
		})
		if s.pass(10 * time.Second); m.Mixed() != "node 3 has mta 0.9" {
			t.Errorf("of other versions: %q", m.Mixed())
		}
		s.db.set(func() { clear(s.db.members) })
		if s.pass(10 * time.Second); m.Mixed() != "" {
			t.Errorf("of other versions: %q", m.Mixed())
		}
		m.Close()
		if s.db.heads[0].Node != 0 {
			t.Error("the shards are not handed over")
		}
		m = s.starts(2, "a", 2)
		defer m.Close()
		if row := s.db.members[2]; row.Incarnation != 1 || row.Process != 2 {
			t.Errorf("the row of the next process is %+v", row)
		}
		if a, b, c, d := m.Trouble(); a+b+c+d != "" {
			t.Errorf("trouble: %q %q %q %q", a, b, c, d)
		}
	})
}

// TestANewNodeIsKnownWhenItIsMet: rows are read again soon if a node is asked for that they do not have, once a second
// at most.
func TestANewNodeIsKnownWhenItIsMet(t *testing.T) {
	within(t, func(s *site) {
		one := s.starts(1, "one", 1)
		s.pass(7 * time.Second)
		two := s.starts(2, "two", 2)
		if _, known := one.address(2); known {
			t.Error("node 2 is known before the rows were read again")
		}
		s.pass(1100 * time.Millisecond)
		if _, known := one.address(2); !known {
			t.Error("node 2 is not known after a second")
		}
		before := s.db.joins
		for range 100 { // a node that is no member
			one.address(3)
			s.pass(100 * time.Millisecond)
		}
		if n := s.db.joins - before; n < 9 || n > 13 { // two's among them
			t.Errorf("the rows were read %d times in 10 s", n)
		}
		one.Close()
		two.Close()
	})
}

func TestWhoMayNotTakePart(t *testing.T) {
	within(t, func(s *site) {
		s.db.standby = false
		s.refusedUntil(1, "a", 1, "no synchronous standby (none is synchronous and streaming: start it, ", true)
		s.db.standby = true
		m := s.starts(1, "a", 1)
		s.pass(10 * time.Second)
		s.refused(1, "b", 2, "belongs to the relay at 10.0.0.1:2571, seen 0s ago, and this data directory is not that relay's")
		text, err := os.ReadFile(filepath.Join(s.dir, "a", "cluster"))
		if err != nil {
			t.Fatal(err)
		}
		s.db.standby = false // is no reason for one that has joined
		m.Close()
		m = s.starts(1, "a", 3)
		s.pass(10 * time.Second)
		if err := os.MkdirAll(filepath.Join(s.dir, "copy"), 0o700); err != nil {
			t.Fatal(err)
		} else if err := os.WriteFile(filepath.Join(s.dir, "copy", "cluster"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		for range 3 { // a service that is started again and again
			s.refused(1, "copy", 4, "another process has joined at 10.0.0.1:2571")
		}
		m.Close()
		s.refused(2, "a", 5, "a/cluster belongs to node 1, and the certificate "+filepath.Join(s.dir, "ca", "node-2.pem")+" to node 2")
		s.db.forget(1)
		s.refused(1, "a", 5, "this node was forgotten, and may have been replaced: it is incarnation 1, and the database has 2")
		m = s.starts(1, "b", 6)
		defer m.Close()
		if row := s.db.members[1]; row.Incarnation != 2 || row.Process != 1 || row.Forgotten {
			t.Errorf("the row of the one in its place is %+v", row)
		}
		s.refused(1, "a", 7, "forgotten")
		row := s.db.members[1]
		row.Incarnation--
		s.db.members[1] = row
		waits := s.starts(1, "b", 6) // for a reset
		s.pass(10 * time.Second)
		if part, _, _, _ := waits.Trouble(); waits.Node() != nil || !strings.Contains(part, "has lost writes: it has incarnation 1 of this node") {
			t.Errorf("after a start it takes part: %q", part)
		}
		waits.Close()
		delete(s.db.members, 1)
		s.refused(1, "a", 7, "no row of this node any more")
		if err := os.WriteFile(filepath.Join(s.dir, "a", "cluster"), text[:40], 0o600); err != nil {
			t.Fatal(err)
		}
		s.refused(1, "a", 7, "'mta cluster rejoin' has this relay join anew")
		if err := os.MkdirAll(filepath.Join(s.dir, "unread", "cluster"), 0o700); err != nil { // as a failing disk
			t.Fatal(err)
		}
		s.refusedUntil(1, "unread", 7, "is a directory", true)
	})
}

// TestACopyTakesNoPart: a directory that lacks what the newest process of its node has noted is refused, and the relay of
// one that was copied a moment ago ends the other, whose mail it has. A volume goes on at another machine.
func TestACopyTakesNoPart(t *testing.T) {
	within(t, func(s *site) {
		copied := func(from, to string) {
			t.Helper()
			if err := os.MkdirAll(filepath.Join(s.dir, to), 0o700); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(filepath.Join(s.dir, from, "cluster"))
			if err == nil {
				err = os.WriteFile(filepath.Join(s.dir, to, "cluster"), text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		const words = "another process has joined at 10.0.0.1:2571"
		m := s.starts(1, "a", 1)
		s.pass(10 * time.Second)
		copied("a", "running")
		m.Close()
		copied("a", "stopped")
		m = s.starts(1, "a", 2)
		s.refused(1, "stopped", 3, words)
		s.pass(10 * time.Second)
		copied("a", "running")
		s.pass(2*look + retry)
		for range 3 {
			s.refused(1, "running", 4, words)
		}
		if m.Node() == nil || m.Ousted() != nil {
			t.Errorf("the relay that was copied is ousted: %v", m.Ousted())
		}
		m.Close()
		s.pass(72 * time.Hour)
		s.refused(1, "running", 5, words)

		// A volume that moves to another machine when its relay was seen a moment ago: after that has stopped in order, and
		// after it has died.
		m = s.starts(1, "a", 6)
		s.pass(10 * time.Second)
		m.Close()
		s.boot++
		m = s.starts(1, "a", 7)
		s.pass(10 * time.Second)
		s.db.set(func() { s.db.away = errAway })
		m.Close()
		s.db.set(func() { s.db.away = nil })
		s.boot++
		s.refusedUntil(1, "a", 8, "may start when that was not seen for 20 s", true)
		s.pass(absent)
		m = s.starts(1, "a", 8)
		s.pass(10 * time.Second)

		// Of a copy and what it was made of a moment ago the one goes on that starts, also without the database.
		copied("a", "now")
		copied("a", "later")
		other := s.starts(1, "now", 9)
		s.pass(look + retry)
		if err := m.Ousted(); err == nil || !strings.Contains(err.Error(), words) || other.Ousted() != nil || m.Node() != nil || other.Node() == nil {
			t.Errorf("of two copies of the moment, the first is ousted: %v, and the second: %v", err, other.Ousted())
		}
		m.Close()
		s.db.set(func() { s.db.away = errAway })
		m = s.starts(1, "later", 10)
		defer m.Close()
		s.pass(look)
		s.db.set(func() { s.db.away = nil })
		s.pass(look)
		if err := m.Ousted(); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("a copy that started without the database is ousted: %v", err)
		}
		other.Close()

		// Two machines that go on from one snapshot, memory and all, are one process.
		m = s.starts(1, "now", 11)
		defer m.Close()
		s.pass(look)
		s.db.set(func() {
			row := s.db.members[1]
			row.Noted += 2e6
			s.db.members[1] = row
		})
		s.pass(look)
		if err := m.Ousted(); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("one of two processes with one memory is ousted: %v", err)
		}
	})
}

// TestNodesWithOneNodeid: the second one is refused when it joins, and only has an alarm, as the first, when it is a
// member.
func TestNodesWithOneNodeid(t *testing.T) {
	within(t, func(s *site) {
		alarmed := func(m *Membership, words string) {
			t.Helper()
			if part, _, _, _ := m.Trouble(); words == "" && part != "" || !strings.Contains(part, words) || m.Node() == nil {
				t.Errorf("trouble is %q, want %q", part, words)
			}
		}
		one := s.starts(1, "mx", 1)
		s.pass(10 * time.Second)
		s.refused(2, "other/mx", 2, `node 2: node 1 at 10.0.0.1:2571 has the nodeid "mx" of this relay`)
		if _, err := os.Stat(filepath.Join(s.dir, "other", "mx", "cluster")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("it has joined: %v", err)
		}
		alarmed(one, "")
		if err := os.Mkdir(filepath.Join(s.dir, "new"), 0o700); err != nil {
			t.Fatal(err)
		}
		two := s.starts(2, "mx2", 3)
		s.pass(10 * time.Second)
		two.Close()
		if err := os.Rename(filepath.Join(s.dir, "mx2"), filepath.Join(s.dir, "new", "mx")); err != nil {
			t.Fatal(err)
		}
		two = s.starts(2, "new/mx", 4) // a member whose nodeid was changed
		s.pass(10 * time.Second)
		alarmed(one, `node 2 at 10.0.0.2:2571 has the nodeid "mx"`)
		alarmed(two, `node 1 at 10.0.0.1:2571 has the nodeid "mx"`)
		s.db.set(func() { delete(s.db.members, 2) }) // the database has lost writes
		s.pass(10 * time.Second)
		if err := one.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.pass(10 * time.Second)
		alarmed(two, "have nobody who decides: after 'mta cluster reset' nobody has any") // which hides nothing
		alarmed(two, `node 1 at 10.0.0.1:2571 has the nodeid "mx"`)
		s.pass(Term.Length + 10*time.Second)
		one.Close()
		s.db.forget(1)
		s.pass(10 * time.Second)
		alarmed(two, "")
		two.Close()
		s.refused(1, "again/mx", 5, "node 2 at 10.0.0.2:2571 has the nodeid")
		s.db.forget(2)
		one = s.starts(1, "again/mx", 5)
		s.pass(10 * time.Second)
		alarmed(one, "")
		one.Close()
	})
}

func TestAJoinWaitsForTheDatabase(t *testing.T) {
	within(t, func(s *site) {
		s.db.away = errAway
		m := s.starts(1, "a", 1)
		changes := 0
		m.OnChange(func(bool) { changes++ })
		s.pass(time.Minute)
		if _, away, _, _ := m.Trouble(); m.Node() != nil || !strings.Contains(away, "can't join the cluster yet: connection") {
			t.Errorf("the database is away: %q", away)
		}
		s.db.set(func() { s.db.away = nil })
		s.pass(2 * time.Second)
		if m.Node() == nil || changes != 1 {
			t.Errorf("it does not take part; %d changes", changes)
		}
		m.Close()
		s.db.away = errAway
		m = s.starts(1, "a", 2)
		defer m.Close()
		s.pass(time.Minute)
		s.db.set(func() { s.db.away = nil })
		if s.pass(2 * time.Second); m.Node() == nil {
			t.Error("one that has joined before does not take part")
		}
	})
}

func TestAnInterruptedJoinGoesOn(t *testing.T) {
	within(t, func(s *site) {
		if err := os.Mkdir(filepath.Join(s.dir, "a"), 0o700); err != nil {
			t.Fatal(err)
		} else if err := node.Create(filepath.Join(s.dir, "a", "cluster"), 1); err != nil {
			t.Fatal(err)
		}
		s.starts(1, "a", 1).Close()
		s.db.forget(1)
		if err := node.Create(filepath.Join(s.dir, "b"), 2); err != nil { // the directory that takes its place
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(s.dir, "b"), filepath.Join(s.dir, "a", "cluster")); err != nil {
			t.Fatal(err)
		}
		s.starts(1, "a", 2).Close()
		if row := s.db.members[1]; row.Incarnation != 2 || row.Process != 1 {
			t.Errorf("the row is %+v", row)
		}
	})
}

// TestAReset: the database goes back by ten seconds, in which a node has joined. All nodes take no part, over a restart,
// too. Nobody gets any of a limit that was granted before until a term after the reset, and then all is shared again.
func TestAReset(t *testing.T) {
	within(t, func(s *site) {
		limit := share.Limit{Name: "big", Connections: 7}
		one := s.starts(1, "a", 1) // owns all shards
		s.pass(30 * time.Second)
		two, three := s.starts(2, "b", 2), s.starts(3, "c", 3)
		shards := func(all ...*Membership) (n int) {
			for _, m := range all {
				n += len(m.Status().Shards)
			}
			return n
		}
		one.Node().Want(limit, 7)
		s.pass(10 * time.Second)
		three.Close()
		if n := one.Node().Open("big", 7); n != 7 || shards(one, two) != owner.Shards {
			t.Fatalf("node 1 has %d connections of 7, and %d shards are owned", n, shards(one, two))
		}
		var heads [owner.Shards]owner.Head
		s.db.set(func() { heads = s.db.heads })
		three = s.starts(3, "c", 4)
		s.pass(10 * time.Second)
		s.db.set(func() { s.db.heads = heads; delete(s.db.members, 3) })
		s.pass(10 * time.Second)
		for n, m := range []*Membership{one, two, three} {
			// A node that has neither shards nor grants has its row.
			if part, _, _, _ := m.Trouble(); !strings.Contains(part, "has lost writes") && n != 1 {
				t.Errorf("node %d has lost nothing: %q", n+1, part)
			}
		}
		one.Close()
		one = s.starts(1, "a", 5)
		one.Node().Want(limit, 7)
		s.pass(5 * time.Minute)
		if one.Status().Lost == nil || one.Node().Allowed("big") != 0 {
			t.Errorf("after a restart node 1 takes part, with %d", one.Node().Allowed("big"))
		}
		three.Close()
		if _, err := s.open(3, "c", 6); err == nil || !strings.Contains(err.Error(), "no row of this node any more") {
			t.Errorf("a start without a row: %v", err)
		}

		if err := one.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		reset := time.Now()
		three = s.starts(3, "c", 7) // the row that was lost is written again
		all := []*Membership{one, two, three}
		for time.Since(reset) < Term.Length {
			s.pass(time.Second)
			if n := one.Node().Allowed("big"); n != 0 || shards(all...) > 0 {
				t.Fatalf("%v after the reset node 1 may have %d connections, and %d shards are owned", time.Since(reset), n, shards(all...))
			}
		}
		s.pass(30 * time.Second)
		for n, m := range all {
			if part, database, _, _ := m.Trouble(); m.Status().Lost != nil || !m.Status().Takes || database != "" || strings.Contains(part, "lost") {
				t.Errorf("node %d takes no part: %q, %q", n+1, part, database)
			}
		}
		if shards(all...) != owner.Shards || s.db.members[3].Incarnation != 1 {
			t.Errorf("%d shards are owned; node 3 is %+v", shards(all...), s.db.members[3])
		}
		for _, m := range all { // the others are not reached
			if slices.Contains(m.Status().Shards, member.Shard("big")) {
				m.Node().Want(limit, 7)
				s.pass(5 * time.Second)
				if n := m.Node().Allowed("big"); n != 7 {
					t.Errorf("the limit is %d, want 7", n)
				}
			}
		}

		// A backup of before the reset.
		s.db.set(func() { s.db.heads, s.db.reset = heads, 0 })
		s.pass(10 * time.Second)
		for n, m := range all {
			if part, _, _, _ := m.Trouble(); !strings.Contains(part, fmt.Sprintf("node %d takes no part: the database has lost writes: its last reset is 0, and this node has followed ", n+1)) {
				t.Errorf("node %d: %q", n+1, part)
			}
		}
		if err := two.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.pass(4 * time.Minute); shards(all...) != owner.Shards {
			t.Errorf("%d shards are owned", shards(all...))
		}
		for _, m := range all {
			m.Close()
		}
	})
}

// TestOtherSettings is an alarm at all nodes when one that runs has other settings for longer than a reload of all takes.
func TestOtherSettings(t *testing.T) {
	within(t, func(s *site) {
		s.old[3] = true // its defaults may be others
		all := []*Membership{s.starts(3, "mx3", 3), s.starts(1, "mx1", 1), s.starts(2, "mx2", 2)}
		older, one, two := all[0], all[1], all[2]
		var users atomic.Value // the sum of those of one
		users.Store("~a")
		has := func(m *Membership, sums ...string) {
			m.Describe(func() map[string]string {
				by := map[string]string{"": "top"}
				for _, text := range sums {
					name, sum, _ := strings.Cut(text, "=")
					by[name] = sum
				}
				return by
			}, func() map[string]string {
				if m != one {
					return map[string]string{"users": "~a"}
				}
				return map[string]string{"users": users.Load().(string)}
			})
		}
		alarmed := func(when string, words ...string) {
			t.Helper()
			for i, m := range all {
				if what := m.settingsDiffer(); (words[i] == "") != (what == "") || !strings.Contains(what, words[i]) {
					t.Errorf("%s node %d has %q, want %q", when, m.number, what, words[i])
				}
			}
		}
		differ := func(m *Membership, of uint16, want ...string) {
			t.Helper()
			if names, known := m.Status().Differ[of]; !slices.Equal(names, want) || known != (want != nil) {
				t.Errorf("node %d has node %d differ in %q, known: %v; want %q", m.number, of, names, known, want)
			}
		}
		has(older, "plan=x")
		has(one, "plan=a", "tenant=a", "order=a", "~source=~a", "pool=a")
		s.pass(80 * time.Second)
		alarmed("before one has described its settings", "", "", "")
		differ(one, 2)
		differ(one, 3)
		has(two, "plan=b", "tenant=b", "order=b", "pool=a", "domain=b")
		s.pass(50 * time.Second)
		alarmed("before a minute has passed", "", "", "")
		differ(one, 2, "domain", "order", "plan", "tenant")
		differ(one, 1, []string{}...)
		s.pass(30 * time.Second)
		alarmed("then", "", `: node 2 (domain, order, plan, and 1 more). Give`, `: node 1 (domain, order, plan, and 1 more). Give`)
		has(two, "plan=a", "tenant=a", "order=a", "pool=a")
		s.pass(15 * time.Second)
		alarmed("after a reload", "", "", "")
		has(one, "plan=a", "tenant=a", "order=a", "pool=b")
		s.pass(80 * time.Second)
		alarmed("with another one", "", `node 2 (pool)`, `node 1 (pool)`)
		has(one, "plan=a", "tenant=a", "order=a", "pool=a")
		s.pass(15 * time.Second)
		differ(one, 2, []string{}...)
		users.Store("~b") // without a reload
		s.pass(15 * time.Second)
		differ(one, 2, "users")
		differ(two, 1, "users")
		two.Close()
		all = all[:2]
		s.pass(40 * time.Second)
		alarmed("when that node is gone", "", "")
		for _, m := range all {
			m.Close()
		}
	})
}

func TestAForgottenNodeTakesNoPart(t *testing.T) {
	within(t, func(s *site) {
		m := s.starts(1, "a", 1)
		defer m.Close()
		s.pass(10 * time.Second)
		changes := 0
		m.OnChange(func(members bool) {
			if !members {
				changes++
			}
		})
		s.db.forget(1)
		s.pass(10 * time.Second)
		if part, _, _, _ := m.Trouble(); m.Node() != nil || !strings.Contains(part, "forgotten") || changes != 1 {
			t.Errorf("it takes part: %q, %d changes", part, changes)
		}
		if m.Count() != 10 || s.db.heads[0].Node != 0 {
			t.Errorf("%d members; shard 0 is %+v", m.Count(), s.db.heads[0])
		}
		joins := s.db.joins
		if s.pass(time.Minute); s.db.joins != joins {
			t.Error("it writes its row")
		}
	})
}

func TestAlarms(t *testing.T) {
	within(t, func(s *site) {
		m := s.starts(1, "a", 1)
		defer m.Close()
		expect := func(what, got, words string) {
			t.Helper()
			if words == "" && got != "" || !strings.Contains(got, words) {
				t.Errorf("%s: %q; want %q", what, got, words)
			}
		}
		s.pass(10 * time.Second)
		const little, second = look / 10, 11 * look / 50 // the rows were read a moment ago, and are not within a second
		s.pass(little)
		s.db.set(func() { s.db.standby = false })
		s.pass(second)
		_, away, standby, end := m.Trouble()
		s.pass(look - little - second)
		expect("standby", standby, "no synchronous standby: none is")
		expect("database", away, "")
		expect("certificate", end, "")
		s.db.set(func() { s.db.away = errAway })
		s.pass(20 * time.Second)
		_, away, _, _ = m.Trouble()
		expect("database", away, "for 20s: this relay's share of the shared limits runs out in 2m40s; then mail under them waits "+
			"(connection refused)")
		s.pass(3 * time.Minute)
		_, away, _, _ = m.Trouble()
		expect("database", away, "share of the shared limits has run out: mail under them waits")
		s.db.set(func() { s.db.away, s.db.standby = nil, true })
		s.pass(look)
		_, away, standby, _ = m.Trouble()
		expect("database", away+standby, "")
		s.db.set(func() { s.db.origin.System++ })
		s.pass(look)
		part, _, _, _ := m.Trouble()
		expect("part", part, "node 1 takes no part: the database is another one")
		s.late.Store(int64(336 * 24 * time.Hour))
		_, _, _, end = m.Trouble()
		expect("certificate", end, "ends on 20")
	})
}

// TestANodeThatDoesNotAnswer decides about limits, and has the database: nobody takes over from it at once.
func TestANodeThatDoesNotAnswer(t *testing.T) {
	within(t, func(s *site) {
		s.db.members[2] = postgres.Member{Number: 2, Address: "10.0.0.2:2571", Incarnation: 1}
		for i := range s.db.heads {
			s.db.heads[i] = owner.Head{Node: 2, Incarnation: 1, Boot: 2, Epoch: 1, Beat: 1}
		}
		m := s.starts(1, "a", 1)
		defer m.Close()
		s.pass(2 * time.Second)
		m.Node().Want(share.Limit{Name: "big", Connections: 7}, 1)
		trouble := func(want string) {
			t.Helper()
			if part, database, _, _ := m.Trouble(); !strings.HasPrefix(part+database, want) || want == "" && part+database != "" {
				t.Errorf("trouble: %q, %q; want %q", part, database, want)
			}
		}
		beats := func(n int) {
			for range n {
				s.db.set(func() {
					for i := range s.db.heads {
						s.db.heads[i].Beat++
					}
				})
				s.pass(time.Second)
			}
		}
		beats(5)
		trouble("")
		if m.Away(2) != "" || !m.Own(1) || m.Own(2) {
			t.Error("node 2 is away, or not another one")
		}
		beats(15)
		s.db.set(func() {
			s.db.members[2] = postgres.Member{Number: 2, Address: "10.0.0.2:2571", Incarnation: 1, Ago: 21}
		})
		if beats(5); m.Away(2) != "it has not been seen lately" || m.Away(1) != "" {
			t.Errorf("node 2 is away: %q; node 1: %q", m.Away(2), m.Away(1))
		}
		trouble("node 2 at 10.0.0.2:2571, which decides about limits, has not answered for 27s what this relay has asked it")
		s.db.set(func() { s.db.away = errAway })
		if s.pass(time.Minute); m.Away(1) != "this node has not been able to read the cluster's database for 1m2s" || m.Node().Lacks("big") != "the cluster's database does not answer" {
			t.Errorf("node 1 is away: %q; a limit lacks %q", m.Away(1), m.Node().Lacks("big"))
		}
		s.db.set(func() { s.db.away = nil })
		beats(5)
		trouble("") // its answers wait for the database, too
		s.pass(20 * time.Second)
		trouble("the limits of 64 of 64 shards have nobody who decides: node 2 at 10.0.0.2:2571, which decides about them, does not reach the database, and has not stopped in order. Other nodes take them within 2m50s; mail")
		if got := m.Node().Lacks("big"); got != "no node decides about it yet: see 'mta cluster status'" {
			t.Errorf("the limit lacks %q", got)
		}
		s.db.forget(2)
		s.pass(look)
		trouble("the limits of 64 of 64 shards have nobody who decides: node 2 was forgotten, and what it had granted has not ended. Other nodes take them within 2m45s")
		s.pass(4 * time.Minute) // its beat stands still: it is gone
		if part, _, _, _ := m.Trouble(); part != "" || m.Node().Allowed("big") != 1 {
			t.Errorf("after a take-over: %q, %d allowed", part, m.Node().Allowed("big"))
		}
	})
}

// A member that hangs, or crashed, is named; one that has stopped in order is not.
func TestAMemberThatIsMissing(t *testing.T) {
	within(t, func(s *site) {
		sums := func() map[string]string { return map[string]string{"": "x"} }
		m, other := s.starts(1, "a", 1), s.starts(2, "b", 2)
		defer m.Close()
		m.Describe(sums, sums)
		other.Describe(sums, sums)
		s.pass(2 * look)
		hung := s.db.members[2]
		other.Close()
		s.pass(2 * time.Minute)
		if part, _, _, _ := m.Trouble(); part != "" {
			t.Errorf("a node has stopped: %q", part)
		}
		s.db.set(func() { s.db.members[2] = hung })
		s.pass(look)
		if part, _, _, _ := m.Trouble(); !strings.HasPrefix(part, "nodes that did not stop in order have not been seen: node 2 at 10.0.0.2:2571 for 2m") {
			t.Errorf("a node has crashed: %q", part)
		}
		s.db.set(func() { s.db.away = errAway })
		s.pass(time.Minute)
		s.db.set(func() { s.db.away = nil })
		s.pass(look)
		if part, _, _, _ := m.Trouble(); part != "" {
			t.Errorf("the database is back: %q", part)
		}
	})
}

// A limit that nodes have by several definitions is an alarm at the node that decides about it, once a reload of all
// would be over.
func TestSettingsThatDiffer(t *testing.T) {
	within(t, func(s *site) {
		s.db.members[2] = postgres.Member{Number: 2, Address: "10.0.0.2:2571", Incarnation: 1}
		m := s.starts(1, "a", 1)
		defer m.Close()
		s.pass(5 * time.Second)
		ours := share.Limit{Name: "provider big: connections", Connections: 7}
		theirs := func(seq uint64, n int64) {
			t.Helper()
			err := m.Node().Receive(link.Message{Message: member.Message{From: 2, To: 1, Shard: member.Shard(ours.Name),
				Ask: &member.Ask{Order: term.Order{Incarnation: 1, Process: 1, Seq: seq},
					Shares: []share.Item{{Limit: share.Limit{Name: ours.Name, Connections: n}, Want: 2}}}}})
			if err != nil {
				t.Fatal(err)
			}
			s.pass(lasting / 2)
		}
		m.Node().Want(ours, 2)
		s.pass(10 * time.Second) // it decides about the limit
		theirs(1, 5)
		if part, _, _, _ := m.Trouble(); part != "" {
			t.Errorf("after half a minute: %q", part)
		}
		theirs(2, 5)
		s.pass(look)
		if part, _, _, _ := m.Trouble(); !strings.Contains(part, "provider big: connections: 7 at node 1, 5 at node 2. ") {
			t.Errorf("after a minute: %q", part)
		}
		theirs(3, 7)
		if part, _, _, _ := m.Trouble(); part != "" {
			t.Errorf("when both have the same: %q", part)
		}
	})
}

// TestADeadNode: only the newest directory of a node of this cluster that does not answer is to be used, and then no
// process with it takes part.
func TestADeadNode(t *testing.T) {
	within(t, func(s *site) {
		dead := s.starts(1, "a", 1)
		m := s.starts(2, "b", 2)
		defer m.Close()
		s.pass(10 * time.Second)
		dead.Close()
		path := filepath.Join(s.dir, "a", "cluster")
		wants := func(words string, off bool) Dead {
			t.Helper()
			d, err := m.Dead(t.Context(), path, off)
			if words == "" && err != nil || words != "" && (!errors.As(err, new(Refusal)) || !strings.Contains(err.Error(), words)) {
				t.Errorf("the error is %v; want %q", err, words)
			}
			return d
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		write := func(text []byte, err error) {
			t.Helper()
			if err == nil {
				err = os.WriteFile(path, text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		row := s.db.members[1]
		set := func(change func(*postgres.Member)) {
			r := row
			change(&r)
			s.db.set(func() { s.db.members[1] = r })
		}
		wants("node 1 at 10.0.0.1:2571 answered ", false)
		if _, err := m.Dead(t.Context(), filepath.Join(s.dir, "b", "cluster"), true); err == nil || !strings.Contains(err.Error(), "it is this relay's") {
			t.Errorf("its own directory: %v", err)
		}
		if d := wants("", true); d.Number != 1 || d.Name != "a" {
			t.Errorf("it is %+v", d)
		}
		if err := m.Fence(t.Context(), wants("", true), false); err == nil {
			t.Error("a node that answers is forgotten")
		}
		set(func(r *postgres.Member) { r.Ago = 21; r.Process++ })
		wants("it is an old copy: node 1 has run with another one since. What has left since it was made would leave twice", true)
		m.mu.Lock()
		m.view.Members = append(m.view.Members, postgres.Member{Number: 1, Version: "0.8"}, postgres.Member{Number: 3, Version: "0.9"})
		m.mu.Unlock()
		wants("node 3 has mta 0.9, and this one 1.0: upgrade the nodes first", true)
		s.pass(10 * time.Second)
		set(func(r *postgres.Member) { r.Incarnation = 0 })
		wants("the database has lost writes", true)
		other := kept{Node: 1, Name: "a", Incarnation: 1}
		other.Memory.Origin.System = 8
		write(smallfile.Marshal(&other))
		wants("from another cluster", true)
		write(smallfile.Marshal(&kept{Incarnation: 1}))
		wants("it does not name its node", true)
		os.Remove(path)
		wants("it has joined no cluster", true)
		write(text[:len(text)/2], nil)
		wants("it names the node", true)

		write(text, nil)
		set(func(r *postgres.Member) { r.Ago = 21 })
		d := wants("", false)
		if err := m.Fence(t.Context(), d, false); err != nil || !s.db.members[1].Forgotten || s.db.members[1].Incarnation != 2 {
			t.Errorf("%v, and the row is %+v", err, s.db.members[1])
		}
		s.refused(1, "a", 3, "this node was forgotten")
		s.pass(10 * time.Second)
		anew := s.starts(1, "c", 4) // the number has another relay now, which is not forgotten
		defer anew.Close()
		s.pass(10 * time.Second)
		wants("it may be an old copy: node 1 was forgotten, and the database no longer has", false)
		if err := m.Fence(t.Context(), wants("", true), true); err != nil || s.db.members[1].Forgotten {
			t.Errorf("%v, and the row is %+v", err, s.db.members[1])
		}
	})
}

// TestAnOldCopyOfADeadNode, such as a snapshot of its volume, is known by the node's last reading of its row, also after
// the node was forgotten, and whether or not it decided about limits.
func TestAnOldCopyOfADeadNode(t *testing.T) {
	within(t, func(s *site) {
		m := s.starts(2, "b", 2) // decides
		defer m.Close()
		s.pass(10 * time.Second)
		dead := s.starts(1, "a", 1)
		s.pass(10 * time.Second)
		path, copied := filepath.Join(s.dir, "a", "cluster"), filepath.Join(s.dir, "snapshot")
		snapshot := func() {
			t.Helper()
			text, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(copied, text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		wants := func(path, words string, off bool) {
			t.Helper()
			_, err := m.Dead(t.Context(), path, off)
			if words == "" && err != nil || words != "" && (!errors.As(err, new(Refusal)) || !strings.Contains(err.Error(), words)) {
				t.Errorf("the error is %v; want %q", err, words)
			}
		}
		snapshot()
		s.pass(2*look + retry)
		wants(copied, "later. What has left since it was made would leave twice", true)
		s.pass(2 * time.Hour)
		dead.Close()
		s.pass(25 * time.Second)
		for _, off := range []bool{false, true} {
			wants(copied, "later. What has left since it was made would leave twice. If you have no newer copy, 'mta cluster forget 1' first", off)
			wants(path, "", off)
		}
		gone := false // as newest has found it
		newest := func(path string) (err error) {
			gone, err = Newest(t.Context(), s.db, path, 1)
			return err
		}
		if err := errors.Join(newest(path), newest(path+"-none")); err != nil || gone {
			t.Errorf("%v, forgotten: %t", err, gone)
		}
		if err := newest(copied); !errors.Is(err, format.ErrRefused) || !strings.Contains(err.Error(), "is an old copy of its data directory") {
			t.Errorf("an old copy goes on: %v", err)
		}
		if err := os.WriteFile(path+"-damaged", []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := newest(path + "-damaged"); !errors.Is(err, format.ErrRefused) || !strings.Contains(err.Error(), "'mta cluster rejoin'") {
			t.Errorf("a file that can't be read: %v", err)
		}
		s.db.forget(1)
		s.pass(time.Hour)
		wants(path, "", false)
		wants(copied, "If you have no newer copy, add --dead", false)
		wants(copied, "", true)
		for _, path := range []string{path, path + "-none"} {
			if err := newest(path); err != nil || !gone {
				t.Errorf("the node that was forgotten: %v, %t", err, gone) // see Open
			}
		}

		// What others have of its files becomes its directory.
		for number, words := range map[uint16]string{2: "it is this node", 7: "no row of node 7"} {
			if _, _, err := m.Gone(t.Context(), number, true, 0); !errors.As(err, new(Refusal)) || !strings.Contains(err.Error(), words) {
				t.Errorf("node %d: %v", number, err)
			}
		}
		for _, known := range []uint64{0, 1} { // it was taken before, and the number may have another relay since
			leave, of, err := m.Gone(t.Context(), 1, false, known)
			if err == nil {
				err = leave(copied)
			}
			if err != nil || of != 1 {
				t.Fatal(of, err)
			}
			wants(copied, "", false)
		}

		text, err := smallfile.Marshal(&kept{Node: 1, Name: "a", Incarnation: 1, Process: 1}) // an earlier program's
		if err == nil {
			err = os.WriteFile(copied, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		wants(copied, "a version before this one", false)
		delete(s.db.members, 1)
		wants(path, "node 1 was forgotten, and the database no longer has when it was last seen", false)
	})
}

// TestWhoWasForgottenIsOusted, whether it takes part or the database was away when it began.
func TestWhoWasForgottenIsOusted(t *testing.T) {
	within(t, func(s *site) {
		m := s.starts(1, "a", 1)
		s.pass(10 * time.Second)
		if m.Ousted() != nil {
			t.Errorf("ousted: %v", m.Ousted())
		}
		m.Close()
		s.db.set(func() { s.db.away = errAway })
		m = s.starts(1, "a", 2)
		s.pass(10 * time.Second)
		if m.Ousted() != nil {
			t.Errorf("ousted without the database: %v", m.Ousted())
		}
		s.db.forget(1)
		s.db.set(func() { s.db.away = nil })
		s.pass(10 * time.Second)
		if err := m.Ousted(); err == nil || !strings.Contains(err.Error(), "this node was forgotten") {
			t.Errorf("ousted: %v", err)
		}
		m.Close()
		m = s.starts(1, "b", 3)
		defer m.Close()
		s.pass(10 * time.Second)
		s.db.forget(1)
		s.pass(10 * time.Second)
		if err := m.Ousted(); err == nil || !strings.Contains(err.Error(), "this node was forgotten") {
			t.Errorf("ousted: %v", err)
		}
	})
}

// A node with on_loss = "part" has as much of each limit in reserve as the others, and goes on by that.
func TestANodeGoesOnByItsPart(t *testing.T) {
	within(t, func(s *site) {
		s.part = true
		one, two := s.starts(1, "one", 1), s.starts(2, "two", 2)
		defer one.Close()
		defer two.Close()
		s.pass(20 * time.Second)
		for _, m := range []*Membership{one, two} {
			if st := m.Status(); st.OnLoss != "part" || st.Reserve != 2 || s.db.members[m.number].OnLoss != "part" {
				t.Errorf("node %d has one in %d: %+v", m.number, st.Reserve, s.db.members[m.number])
			}
		}
		limit := share.Limit{Name: "ten", Connections: 10}
		one.Node().Want(limit, 10)
		is := func(allowed int64, words string) {
			t.Helper()
			s.pass(time.Second)
			_, away, _, _ := one.Trouble()
			if n := one.Node().Allowed(limit.Name); n != allowed || words == "" && away != "" ||
				!strings.Contains(away, words) {
				t.Errorf("%d connections, want %d; %q, want %q", n, allowed, away, words)
			}
		}
		s.db.set(func() { s.db.away = errAway })
		s.pass(500 * time.Millisecond)
		one.Node().Want(limit, 10)
		is(0, "runs out in 2m58s; in 3m14s mail under them goes on, by 1/2 of each")
		s.pass(3*time.Minute + 2*time.Second)
		is(0, "has run out; in 11s mail under them goes on, by 1/2 of each")
		s.pass(11 * time.Second)
		is(5, "this relay sends by 1/2 of each shared limit")
		s.db.set(func() { s.db.away = nil })
		s.pass(owner.Patience)
		is(0, "")
		s.pass(time.Minute)
		if st := two.Status(); st.Reserve != 2 {
			t.Errorf("afterwards node 2 has one in %d", st.Reserve)
		}
		two.Close()
		s.pass(5 * time.Second)
		if s.db.reserves[2] != nil || one.Status().Reserve != 1 {
			t.Errorf("after a shutdown: %+v, and one in %d", s.db.reserves[2], one.Status().Reserve)
		}
	})
}

// A node that can only not write its row says so before the others take it for gone.
func TestARowThatCannotBeWritten(t *testing.T) {
	within(t, func(s *site) {
		m := s.starts(1, "a", 1)
		defer m.Close()
		s.pass(20 * time.Second)
		s.db.set(func() { s.db.locked = errors.New("canceling statement due to lock timeout") })
		s.pass(16 * time.Second)
		if _, away, _, _ := m.Trouble(); !strings.Contains(away, "could not read and write its row in mta_cluster.members") ||
			!strings.Contains(away, "lock timeout") {
			t.Errorf("the alarm is %q", away)
		}
		s.pass(10 * time.Second)
		if text := s.text.String(); strings.Count(text, "is gone") != 1 || !strings.Contains(text, "lock timeout") {
			t.Errorf("the log has %s", text)
		}
		s.db.set(func() { s.db.locked = nil })
		s.pass(20 * time.Second)
		if _, away, _, _ := m.Trouble(); away != "" || !strings.Contains(s.text.String(), "members again") {
			t.Errorf("afterwards the alarm is %q, and the log has %s", away, s.text.String())
		}
		s.db.set(func() { s.db.fault = errors.New("the row of node 3") })
		s.pass(10 * time.Second)
		if part, _, _, _ := m.Trouble(); !strings.Contains(part, "is left out: the row of node 3") {
			t.Errorf("the alarm is %q", part)
		}
	})
}

// Nothing is written for nodes that wait; without a schema, or beside a program, that knows reserves, none has any.
func TestNobodyGoesOnUnlessAllKnow(t *testing.T) {
	within(t, func(s *site) {
		wait := s.starts(1, "wait", 1)
		s.pass(20 * time.Second)
		if s.db.wishes > 0 || wait.Status().OnLoss != "wait" {
			t.Errorf("%d wishes of a node that waits", s.db.wishes)
		}
		wait.Close()
	})
	within(t, func(s *site) {
		s.part, s.db.version = true, postgres.Reserves-1
		m := s.starts(1, "part", 1)
		defer m.Close()
		expect := func(reserve int64, words string) {
			t.Helper()
			s.pass(2 * time.Minute)
			part, _, _, _ := m.Trouble()
			if st := m.Status(); st.Reserve != reserve || words == "" && part != "" || !strings.Contains(part, words) {
				t.Errorf("one in %d, want %d: %q, want %q", st.Reserve, reserve, part, words)
			}
		}
		expect(0, "run 'mta cluster init'")
		if s.db.wishes > 0 || s.db.members[1].OnLoss != "" {
			t.Errorf("%d wishes; the row is %+v", s.db.wishes, s.db.members[1])
		}
		s.db.set(func() {
			s.db.version++
			s.db.members[3] = postgres.Member{Number: 3, Version: "0.9"}
		})
		expect(0, "node 3 has mta 0.9, which does not know it")
		s.db.forget(3)
		expect(1, "")
	})
}
