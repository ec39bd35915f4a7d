package auth

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/cluster/changes"
	"example.org/mta/cluster/enginetest"
	"example.org/mta/cluster/exchange"
	"example.org/mta/cluster/secrets"
	"example.org/mta/internal/bubble"
)

// keyNode is a node of a cluster with a keys file.
type keyNode struct {
	*testing.T
	me     changes.Me
	dir    string
	engine *enginetest.Shared
	away   func() bool
	keys   *Keys
	shared *SharedKeys
	x      *exchange.Exchange
	end    func()
}

// Changes implements changes.Engine, for a node that may not reach the engine.
func (n *keyNode) Changes(ctx context.Context, c changes.Call) (changes.Result, error) {
	if n.away() {
		return changes.Result{}, errors.New("connection refused")
	}
	return n.engine.Changes(ctx, c)
}

func (n *keyNode) Readers(ctx context.Context, kind string) (map[uint16]uint64, error) {
	return n.engine.Readers(ctx, kind)
}

func (n *keyNode) Tidy(ctx context.Context, most int) (int, error) { return n.engine.Tidy(ctx, most) }

func (n *keyNode) file() File { return File{Path: n.dir + "/keys", Keys: n.shared} }

func (n *keyNode) open(cluster bool) {
	n.Helper()
	log := slog.New(slog.DiscardHandler)
	x, err := exchange.Open(exchange.Config{Path: n.dir + "/changes", Now: time.Now, Log: log})
	if err != nil {
		n.Fatal(err)
	}
	sc := SharedConfig{Path: n.dir + "/shared", Now: time.Now, Log: log}
	if cluster {
		sealer, err := secrets.ReadKeys(n.dir + "/../secrets.key")
		if err != nil {
			n.Fatal(err)
		}
		sc.Sealer, sc.Note = sealer, x.Of("key")
	}
	if n.shared, err = OpenShared(sc, KeyEntries); err == nil && cluster {
		err = x.Add("key", n.shared, n.shared.Empty())
	}
	if err != nil {
		n.Fatal(err)
	}
	n.keys = OpenKeys(KeyConfig{File: n.dir + "/keys", Shared: n.shared, Now: time.Now, Log: log})
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { x.Run(ctx, n.me, n) })
	n.x, n.end = x, func() {
		cancel()
		all.Wait()
		n.keys.Close()
		if err := x.Close(); err != nil {
			n.Error(err)
		}
	}
}

// add adds a key to the file alone, as a command does while the relay doesn't run.
func (n *keyNode) add(name string) string {
	n.Helper()
	token, _, err := File{Path: n.dir + "/keys"}.AddKey(Key{Tenant: "acme", Name: name, Scopes: MayAll}, time.Now())
	if err != nil {
		n.Fatal(err)
	}
	return token
}

// is checks whether tokens are valid.
func (n *keyNode) is(valid bool, tokens ...string) {
	n.Helper()
	for _, token := range tokens {
		if _, err := n.keys.Check(context.Background(), token, netip.MustParseAddr("192.0.2.1")); (err == nil) != valid {
			n.Errorf("node %d: %v; want a valid key: %v", n.me.Node, err, valid)
		}
	}
}

func (n *keyNode) lists(want ...string) {
	n.Helper()
	table, err := LoadKeys(n.dir + "/keys")
	if err != nil && !os.IsNotExist(err) {
		n.Fatal(err)
	}
	if table == nil {
		table = new(KeyTable)
	}
	var names []string
	for _, k := range n.shared.Over(table.Keys()) {
		names = append(names, k.Name)
	}
	if got := strings.Join(names, " "); got != strings.Join(want, " ") {
		n.Errorf("node %d lists %s; want %s", n.me.Node, got, want)
	}
}

// house is nodes that begin to run with what prepare has left in their files.
func house(t *testing.T, count int, test func(e *enginetest.Shared, away *atomic.Bool, nodes []*keyNode)) {
	t.Helper()
	dir := bubble.Folder(t)
	if err := secrets.WriteKeys(dir + "/secrets.key"); err != nil {
		t.Fatal(err)
	}
	bubble.Test(t, func(t *testing.T) {
		members := make(map[uint16]uint64)
		e, away := enginetest.NewShared("era", func() map[uint16]uint64 { return members }), new(atomic.Bool)
		var nodes []*keyNode
		for i := range count {
			n := &keyNode{T: t, me: changes.Me{Node: uint16(i + 1), Incarnation: 1}, dir: dir + "/" + string(rune('a'+i)),
				engine: e, end: func() {}, away: away.Load}
			if err := os.Mkdir(n.dir, 0o700); err != nil {
				t.Fatal(err)
			}
			members[n.me.Node] = 1
			nodes = append(nodes, n)
		}
		test(e, away, nodes)
		for _, n := range nodes {
			n.end()
		}
	})
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestKeysAreShared: nodes join with keys, of one name too; add, rotate and remove them by the relay and in the file.
func TestKeysAreShared(t *testing.T) {
	house(t, 3, func(e *enginetest.Shared, _ *atomic.Bool, nodes []*keyNode) {
		a, b, c := nodes[0], nodes[1], nodes[2]
		t := a.T
		tokens := []string{a.add("shop"), b.add("shop"), b.add("only-b")}
		old, err := os.ReadFile(b.dir + "/keys")
		must(t, err)
		for _, n := range nodes[:2] {
			n.open(true)
		}
		pass(time.Second)
		a.is(true, tokens...)
		b.is(true, tokens...)
		made, _, err := a.file().AddKey(Key{Tenant: "acme", Name: "made", Scopes: MaySend}, time.Now())
		must(t, err)
		a.is(true, made)
		pass(time.Second)
		b.is(true, made)

		// One of a is replaced and one of b removed at the other; b's file has that yet.
		rotated, _, _, err := b.file().RotateKey(WhichKey{Name: "made"}, 0, time.Time{}, time.Now())
		must(t, err)
		_, err = a.file().RemoveKeys(WhichKey{Name: "only-b"})
		must(t, err)
		a.is(false, tokens[2])
		pass(time.Second)
		a.is(true, rotated)
		for _, n := range nodes[:2] {
			n.is(false, made, tokens[2])
		}
		if text, err := os.ReadFile(b.dir + "/keys"); err != nil || string(text) != string(old) {
			t.Errorf("the file is changed: %s, %v", text, err)
		}

		// By hand, or by a command that knows no cluster.
		byHand := b.add("by-hand")
		_, err = File{Path: a.dir + "/keys"}.RemoveKeys(WhichKey{Name: "shop"})
		must(t, err)
		a.keys.Reread()
		b.keys.Reread()
		pass(time.Second)
		a.is(true, byHand, tokens[1])
		b.is(false, tokens[0])
		b.lists("shop", "made", "by-hand")

		// One that joins with an older file brings nothing back, but what it has alone.
		must(t, os.WriteFile(c.dir+"/keys", old, 0o600))
		late := c.add("late")
		c.open(true)
		pass(2 * time.Second)
		for _, n := range nodes {
			n.is(true, late, byHand, rotated, tokens[1])
			n.is(false, tokens[0], tokens[2], made)
			if why := n.x.Trouble(); why != "" {
				t.Error(why)
			}
		}
		e.Do(func(rows map[[2]string]changes.Row) {
			for at, row := range rows {
				if strings.Contains(string(row.Value), "acme") {
					t.Errorf("%s is in clear: %s", at, row.Value)
				}
			}
		})
	})
}

// TestKeysWithoutTheEngine: what a node has done alone is known later, after a restart too; and counts when the relay
// has left its cluster.
func TestKeysWithoutTheEngine(t *testing.T) {
	house(t, 2, func(e *enginetest.Shared, away *atomic.Bool, nodes []*keyNode) {
		a, b := nodes[0], nodes[1]
		t := a.T
		shop := b.add("shop")
		a.open(true)
		b.open(true)
		pass(time.Second)
		away.Store(true)
		pass(3 * time.Second)
		_, err := a.file().RemoveKeys(WhichKey{Name: "shop"})
		must(t, err)
		alone, _, err := a.file().AddKey(Key{Tenant: "acme", Name: "alone", Scopes: MayAll}, time.Now())
		must(t, err)
		pass(5 * time.Second)
		a.is(false, shop)
		b.is(true, shop)
		a.end()
		stopped := a.add("stopped")
		a.open(true)
		away.Store(false)
		pass(5 * time.Second)
		b.is(false, shop)
		b.is(true, alone, stopped)

		b.end()
		b.open(false)
		b.is(false, shop)
		b.is(true, alone)
		again := b.add("again")
		b.is(true, again)
		_, err = b.file().RemoveKeys(WhichKey{Name: "again"})
		must(t, err)
		b.keys.Reread()
		b.is(false, again)
	})
}

// TestBadSharedKeys: edited rows, keys of somebody who can write the database, a file that has lost its keys.
func TestBadSharedKeys(t *testing.T) {
	house(t, 2, func(e *enginetest.Shared, _ *atomic.Bool, nodes []*keyNode) {
		a, b := nodes[0], nodes[1]
		t := a.T
		shop, web := a.add("shop"), a.add("web")
		a.open(true)
		b.open(true)
		pass(time.Second)
		forged, sum := newToken()
		name := func(s KeySum) string { return hex.EncodeToString(s[:]) }
		line := (&Key{Sum: sum, Tenant: "acme", Name: "forged", Scopes: MayAll, Created: time.Now()}).String()
		for key, value := range map[string]string{
			name(sum):              `{"line":"` + line + `"}`,
			name(KeySumOf(shop)):   "x",
			strings.Repeat("y", 9): `{"key":"","data":""}`,
		} {
			last := uint64(0)
			e.Do(func(rows map[[2]string]changes.Row) {
				for _, row := range rows {
					last = max(last, row.Number)
				}
				last++
				rows[[2]string{"key", key}] = changes.Row{Kind: "key", Key: key, Number: last, Node: 1, Incarnation: 1, Rank: 9,
					Value: []byte(value), Size: len(value)}
			})
			e.Advance(last)
			pass(time.Second)
			if why := b.x.Trouble(); !strings.Contains(why, "of kind key and node 1, is not applied: ") {
				t.Errorf("%s: %q", key, why)
			}
			b.is(false, forged)
			b.is(true, shop, web)
		}
		must(t, os.WriteFile(a.dir+"/keys", nil, 0o600))
		a.keys.Reread()
		pass(time.Second)
		a.is(true, shop, web)
		b.is(true, shop, web)
		_, err := a.file().RemoveKeys(WhichKey{Name: "web"})
		must(t, err)
		pass(time.Second)
		b.is(false, web)
		a.end()
		must(t, os.WriteFile(a.dir+"/shared", []byte("x"), 0o600))
		must(t, os.WriteFile(a.dir+"/shared.copy", []byte("x"), 0o600))
		a.open(true)
		pass(2 * time.Second)
		a.is(false, web)
	})
}

// TestEndsStay: a day after the end of a rotated key its row is there yet, so that nobody's older file, which has no end,
// brings the key back for good.
func TestEndsStay(t *testing.T) {
	house(t, 2, func(e *enginetest.Shared, _ *atomic.Bool, nodes []*keyNode) {
		a, b := nodes[0], nodes[1]
		t := a.T
		shop := a.add("shop")
		old, err := os.ReadFile(a.dir + "/keys")
		must(t, err)
		a.open(true)
		b.open(true)
		pass(time.Second)
		_, _, _, err = a.file().RotateKey(WhichKey{Name: "shop"}, time.Minute, time.Time{}, time.Now())
		must(t, err)
		pass(time.Second)
		b.end()
		pass(25 * time.Hour)
		if n, err := e.Tidy(t.Context(), 10); n != 0 || err != nil {
			t.Errorf("%d rows are deleted, %v", n, err)
		}
		for _, file := range []string{"/shared", "/shared.copy"} {
			must(t, os.Remove(b.dir+file))
		}
		must(t, os.WriteFile(b.dir+"/keys", old, 0o600))
		b.open(true)
		pass(5 * time.Second)
		a.is(false, shop)
		b.is(false, shop)
	})
}

// TestKeysAfterTheCluster: keys that were shared are removed and replaced when the relay has no cluster.
func TestKeysAfterTheCluster(t *testing.T) {
	house(t, 1, func(e *enginetest.Shared, _ *atomic.Bool, nodes []*keyNode) {
		a := nodes[0]
		t := a.T
		a.add("shop")
		a.open(true)
		web, _, err := a.file().AddKey(Key{Tenant: "acme", Name: "web", Scopes: MayAll}, time.Now())
		must(t, err)
		app, _, err := a.file().AddKey(Key{Tenant: "acme", Name: "app", Scopes: MayAll}, time.Now())
		must(t, err)
		pass(time.Second)
		a.end()
		a.open(false)
		a.is(true, web, app)
		_, err = a.file().RemoveKeys(WhichKey{Name: "web"})
		must(t, err)
		next, _, _, err := a.file().RotateKey(WhichKey{Name: "app"}, 0, time.Time{}, time.Now())
		must(t, err)
		a.end()
		a.open(false)
		a.is(false, web, app)
		a.is(true, next)
		a.lists("shop", "app")
	})
}

// TestRemovedKeysStay: whatever a keys file has again, and another keys file has, changes nothing about keys that a
// command has removed or replaced; a file that was read half-written does not remove keys for good.
func TestRemovedKeysStay(t *testing.T) {
	house(t, 2, func(e *enginetest.Shared, _ *atomic.Bool, nodes []*keyNode) {
		a, b := nodes[0], nodes[1]
		t := a.T
		gone, ends, cut := a.add("gone"), a.add("ends"), a.add("cut")
		old, err := os.ReadFile(a.dir + "/keys")
		must(t, err)
		for _, n := range nodes {
			n.open(true)
		}
		pass(time.Second)
		_, err = a.file().RemoveKeys(WhichKey{Name: "gone"})
		must(t, err)
		_, _, _, err = b.file().RotateKey(WhichKey{Name: "ends"}, time.Minute, time.Time{}, time.Now())
		must(t, err)
		pass(2 * time.Minute)
		write := func(n *keyNode, text []byte) {
			t.Helper()
			must(t, os.WriteFile(n.dir+"/keys", text, 0o600))
			n.keys.Reread()
			pass(time.Second)
		}
		lines := strings.SplitAfter(string(old), "\n")
		write(a, []byte(strings.Join(lines[:2], ""))) // the removed one again, but not the others
		for _, n := range nodes {
			n.is(false, gone, ends, cut)
		}
		write(b, old) // never had them, and the removals are not its own
		for _, n := range nodes {
			n.is(false, gone, ends, cut)
		}
		write(a, old)
		for _, n := range nodes {
			n.is(false, gone, ends)
			n.is(true, cut)
		}

		// At another path.
		a.end()
		must(t, os.Mkdir(a.dir+"/other", 0o700))
		must(t, os.WriteFile(a.dir+"/other/keys", old, 0o600))
		for _, file := range []string{"shared", "shared.copy", "changes"} {
			must(t, os.Rename(a.dir+"/"+file, a.dir+"/other/"+file))
		}
		a.dir += "/other"
		must(t, os.Symlink("../secrets.key", a.dir+"/../secrets.key"))
		a.open(true)
		pass(time.Second)
		for _, n := range nodes {
			n.is(false, gone, ends)
			n.is(true, cut)
		}
	})
}

// TestLostSharedKeys: a node whose file of shared keys is lost overrides nothing that it has removed itself.
func TestLostSharedKeys(t *testing.T) {
	house(t, 2, func(e *enginetest.Shared, _ *atomic.Bool, nodes []*keyNode) {
		a, b := nodes[0], nodes[1]
		t := a.T
		shop := a.add("shop")
		old, err := os.ReadFile(a.dir + "/keys")
		must(t, err)
		for _, n := range nodes {
			n.open(true)
		}
		pass(time.Second)
		_, err = a.file().RemoveKeys(WhichKey{Name: "shop"})
		must(t, err)
		pass(time.Second)
		a.end()
		for file, text := range map[string]string{"shared": "x", "shared.copy": "x", "keys": string(old)} {
			must(t, os.WriteFile(a.dir+"/"+file, []byte(text), 0o600))
		}
		a.open(true)
		pass(5 * time.Second)
		a.is(false, shop)
		b.is(false, shop)
		late := a.add("late")
		a.keys.Reread()
		pass(time.Second)
		b.is(true, late)
	})
}
