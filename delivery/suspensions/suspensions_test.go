package suspensions_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/cluster/changes"
	"example.org/mta/cluster/enginetest"
	"example.org/mta/cluster/exchange"
	"example.org/mta/delivery"
	"example.org/mta/delivery/suspensions"
	"example.org/mta/destdb"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/route"
)

// node is a relay, whose process can be ended and started.
type node struct {
	*suspensions.Shared
	t      *testing.T
	at     int
	dir    string
	engine *enginetest.Shared
	known  *exchange.Exchange
	end    func()

	mu   sync.Mutex // guards what follows
	disk map[destdb.Key]destdb.Record
	full error
}

func (n *node) Load(learn func([]destdb.Record)) error { return nil }

func (n *node) Save(records []destdb.Record) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range records {
		if n.full == nil {
			n.disk[r.Key] = r
		}
	}
	return n.full
}

func (n *node) fill(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.full = err
}

func (n *node) open() {
	log := slog.New(slog.DiscardHandler)
	var err error
	n.known, err = exchange.Open(exchange.Config{Path: filepath.Join(n.dir, fmt.Sprint(n.at)), Now: time.Now, Log: log})
	if err != nil {
		n.t.Fatal(err)
	}
	db := destdb.New(destdb.Lifetimes{})
	for _, r := range n.disk {
		db.Learn([]destdb.Record{r})
	}
	n.Shared = &suspensions.Shared{Note: n.known.Of("suspension"), Scheduler: delivery.New(delivery.Config{
		Source: func(string) (delivery.Source, bool) { return delivery.Source{}, true }, DB: db, Store: n})}
	if err := n.known.Add("suspension", n.Shared, false); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { n.known.Run(ctx, changes.Me{Node: uint16(n.at), Incarnation: 1}, n.engine) })
	n.end = func() { cancel(); all.Wait(); n.end = func() {} }
}

func (n *node) stop() {
	n.end()
	n.Shared.Close()
	if err := n.known.Close(); err != nil {
		n.t.Error(err)
	}
}

// within has a test use two nodes that are one cluster.
func within(t *testing.T, test func(a, b *node)) {
	t.Helper()
	dir := t.TempDir()
	bubble.Test(t, func(t *testing.T) {
		engine := enginetest.NewShared("era", func() map[uint16]uint64 { return map[uint16]uint64{1: 1, 2: 1} })
		var nodes [2]*node
		for i := range nodes {
			nodes[i] = &node{t: t, at: i + 1, dir: dir, engine: engine, disk: make(map[destdb.Key]destdb.Record)}
			nodes[i].open()
			nodes[i].run()
		}
		pass(3 * time.Second)
		test(nodes[0], nodes[1])
		for _, n := range nodes {
			n.stop()
		}
	})
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// has checks what is suspended at a node, as "site/source: reason", those of hosts by address and name.
func (n *node) has(what string, want ...string) {
	n.t.Helper()
	var got []string
	for _, a := range n.Suspensions() {
		at := a.Site
		if a.Host.IsValid() {
			at = a.Name + "[" + a.Host.String() + "]"
		}
		got = append(got, at+"/"+a.Source+": "+a.Reason)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		n.t.Errorf("%s: node %d has %q; want %q", what, n.at, got, want)
	}
}

func (n *node) does(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Error(err)
	}
}

const site = "mx.big.example"

func in(d time.Duration) time.Time { return time.Now().Add(d) }

func TestSitesAreSuspendedAtAllNodes(t *testing.T) {
	within(t, func(a, b *node) {
		a.does(a.Suspend(site, "", "theirs", in(time.Hour)))
		a.does(a.Suspend(site, "out2", "ours", in(2*time.Hour)))
		pass(time.Second)
		b.has("two", site+"/: theirs", site+"/out2: ours")
		if behind := a.known.Behind(context.Background(), "suspension"); behind != "" {
			t.Error(behind)
		}
		b.does(b.Suspend(site, "", "longer", in(3*time.Hour)))
		b.does(b.Suspend(site, "", "shorter", in(time.Minute)))
		pass(time.Second)
		a.has("another reason", site+"/: longer", site+"/out2: ours")
		pass(2 * time.Minute)
		b.has("the shorter one has ended", site+"/: longer", site+"/out2: ours")
		pass(2 * time.Hour)
		a.has("one has ended", site+"/: longer")
		n, err := a.Resume(site)
		if a.does(err); n != 1 {
			t.Errorf("%d were ended", n)
		}
		pass(time.Second)
		b.has("ended")
		a.has("ended")
	})
}

func TestHostsAreSuspendedAtAllNodes(t *testing.T) {
	within(t, func(a, b *node) {
		addr := netip.MustParseAddrPort("192.0.2.1:25")
		a.Hear([]delivery.News{{Host: host("mx1.big.example", addr), Down: "timed out", Wait: time.Hour}}) // it is known now
		n, err := a.SuspendHosts([]netip.AddrPort{addr}, "out1", "it loses mail", in(time.Hour))
		if a.does(err); n != 1 {
			t.Errorf("%d hosts are known", n)
		}
		pass(time.Second)
		b.has("suspended", "mx1.big.example[192.0.2.1:25]/out1: it loses mail")
		_, n, err = b.ResumeHosts([]netip.AddrPort{addr})
		if b.does(err); n != 1 {
			t.Errorf("%d were ended", n)
		}
		pass(time.Second)
		a.has("ended")
	})
}

// TestANodeThatWasAway hears what is in force, and overrides nothing.
func TestANodeThatWasAway(t *testing.T) {
	within(t, func(a, b *node) {
		a.does(a.Suspend(site, "", "first", in(time.Hour)))
		pass(time.Second)
		b.end()
		b.does(b.Suspend("mx.other.example", "", "made there", in(time.Hour)))
		b.does(b.Suspend(site, "", "made there", in(2*time.Hour)))
		pass(time.Second)
		_, err := a.Resume(site)
		a.does(err)
		a.does(a.Suspend(site, "", "second", in(time.Hour)))
		pass(10 * time.Minute)
		b.run()
		pass(3 * time.Second)
		want := []string{site + "/: second", "mx.other.example/: made there"}
		a.has("what others did counts", want...)
		b.has("what others did counts", want...)
	})
}

// TestARestart right after a change, here or there, loses nothing.
func TestARestart(t *testing.T) {
	within(t, func(a, b *node) {
		a.does(a.Suspend(site, "", "theirs", in(time.Hour)))
		a.mu.Lock()
		if len(a.disk) != 1 {
			t.Errorf("the disk has %v", a.disk)
		}
		a.mu.Unlock()
		b.fill(errors.New("the disk is full"))
		pass(5 * time.Second)
		b.stop()
		b.fill(nil)
		b.open()
		b.run()
		pass(3 * time.Second)
		b.has("what was read without being written", site+"/: theirs")
		for _, n := range []*node{a, b} {
			n.stop()
			n.open()
			n.run()
			n.has("a new process", site+"/: theirs")
			n.does(n.Apply(context.Background(), map[string][]byte{`{"site":"mx.big.example"}`: nil},
				func(string) bool { return true }))
			n.has("what it has changed meanwhile stays", site+"/: theirs")
		}
		a.fill(errors.New("the disk is full"))
		if err := a.Suspend("mx.other.example", "", "theirs", in(time.Hour)); err == nil {
			t.Error("want an error")
		}
		a.fill(nil)
	})
}

// TestWhatARelayDoesByItself is not shared; what an operator ends is ended at all nodes.
func TestWhatARelayDoesByItself(t *testing.T) {
	within(t, func(a, b *node) {
		own := destdb.Action{What: "suspended", Reason: "blocked: 421", Begin: time.Now(), End: in(time.Hour), Waits: parking.Refused}
		for _, n := range []*node{a, b} {
			n.stop()
			n.disk[destdb.Key{Site: site}] = destdb.Record{Key: destdb.Key{Site: site}, Used: time.Now(), Actions: []destdb.Action{own}}
			if n == b {
				key := destdb.Key{Site: "mx.other.example"}
				own.Source = "out1"
				n.disk[key] = destdb.Record{Key: key, Used: time.Now(), Actions: []destdb.Action{own}}
			}
			n.open()
			n.run()
		}
		pass(3 * time.Second)
		if err := a.All(context.Background(), func(keys []string) error {
			if len(keys) > 0 {
				t.Errorf("shared are %q", keys)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		_, err := a.Resume(site)
		a.does(err)
		pass(time.Second)
		a.has("resumed")
		b.has("resumed, too", "mx.other.example/out1: blocked: 421")
		a.does(a.Suspend("mx.other.example", "out1", "theirs", in(2*time.Hour)))
		pass(time.Second)
		b.has("both", "mx.other.example/out1: blocked: 421", "mx.other.example/out1: theirs")
		_, err = a.Resume("mx.other.example")
		a.does(err)
		pass(time.Second)
		b.has("resumed")
	})
}

func TestRowsThatAreNone(t *testing.T) {
	s := new(suspensions.Shared)
	sound := `{"reason":"theirs","begin":"2026-01-01T00:00:00Z","until":"2026-01-02T00:00:00Z"}`
	for _, row := range [][2]string{
		{`{"site":"a"}`, `{}`}, {`{"site":"a"}`, `7`}, {`{}`, sound}, {`a`, sound}, {`{"site":"a","host":"192.0.2.1:25"}`, sound},
		{`{"host":"192.0.2.1"}`, sound}, {`{"site":"a","other":1}`, sound}, {`{ "site":"a"}`, sound},
		{`{"site":"a"}`, strings.Replace(sound, "2026-01-02", "2027-01-02", 1)},
		{`{"site":"a"}`, strings.Replace(sound, "theirs", "", 1)},
	} {
		if _, _, err := s.Look(row[0], []byte(row[1])); err == nil {
			t.Errorf("%v is sound", row)
		}
	}
	for _, key := range []string{`{"site":"a","source":"b"}`, `{"host":"[2001:db8::1]:25"}`} {
		if _, until, err := s.Look(key, []byte(sound)); err != nil || until.IsZero() {
			t.Error(key, until, err)
		}
	}
}

func host(name string, addr netip.AddrPort) route.Host { return route.Host{Name: name, Addr: addr} }
