package auth

import (
	"bytes"
	"context"
	"crypto/rand"
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
	"example.org/mta/submission/shared"
)

// node is a node of a cluster with a keys file, or with a users file. A secret is a token, or a user's name and password.
type node struct {
	*testing.T
	kind   string // "key" or "user"
	me     changes.Me
	dir    string
	engine *enginetest.Shared
	away   func() bool
	keys   *Keys
	users  *Service
	shared *SharedKeys
	also   *SharedUsers
	log    bytes.Buffer
	logs   *slog.Logger // into that
	x      *exchange.Exchange
	end    func()
}

// Changes implements changes.Engine, for a node that may not reach the engine.
func (n *node) Changes(ctx context.Context, c changes.Call) (changes.Result, error) {
	if n.away() {
		return changes.Result{}, errors.New("connection refused")
	}
	return n.engine.Changes(ctx, c)
}

func (n *node) Readers(ctx context.Context, kind string) (map[uint16]uint64, error) {
	return n.engine.Readers(ctx, kind)
}

func (n *node) Tidy(ctx context.Context, most int) (int, error) { return n.engine.Tidy(ctx, most) }

// path is that of the file of keys or users.
func (n *node) path() string { return n.dir + "/" + n.kind + "s" }

// file has what the nodes share changed.
func (n *node) file() File { return File{Path: n.path(), Keys: n.shared, Users: n.also} }

// sharing opens a kind.
func sharing[K comparable, E any](n *node, cluster bool, of *shared.Entries[K, E]) *shared.Store[K, E] {
	n.Helper()
	sc := shared.Config{Path: n.dir + "/shared-" + of.Kind, Now: time.Now, Log: n.logs}
	if cluster {
		sc.Sealer, sc.Note = n.sealer(), n.x.Of(of.Kind)
	}
	s, err := shared.Open(sc, of)
	if err == nil && cluster {
		err = n.x.Add(of.Kind, s, s.Empty())
	}
	must(n.T, err)
	return s
}

func (n *node) sealer() shared.Sealer {
	n.Helper()
	sealer, err := secrets.ReadKeys(n.dir + "/../secrets.key")
	must(n.T, err)
	return sealer
}

func (n *node) open(cluster bool) {
	n.Helper()
	x, err := exchange.Open(exchange.Config{Path: n.dir + "/changes", Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	must(n.T, err)
	n.x, n.logs = x, slog.New(slog.NewTextHandler(&n.log, nil))
	n.shared, n.also = sharing(n, cluster, KeyEntries), sharing(n, cluster, UserEntries)
	n.keys = OpenKeys(KeyConfig{File: n.dir + "/keys", Shared: n.shared, Now: time.Now, Log: n.logs})
	n.users = New(Config{File: n.dir + "/users", Shared: n.also, Scheme: SchemeSCRAM, Now: time.Now, Log: n.logs})
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { x.Run(ctx, n.me, n) })
	n.end = func() {
		n.users.Close()
		cancel()
		all.Wait()
		n.keys.Close()
		must(n.T, x.Close())
	}
}

// reread has the file read, as commands do.
func (n *node) reread() {
	n.keys.Reread()
	n.users.users(0)
}

// make adds a key, or a user with another password than any before.
func (n *node) make(f File, name string) (secret string) {
	n.Helper()
	if n.kind == "key" {
		token, _, err := f.AddKey(Key{Tenant: "acme", Name: name, Scopes: MayAll}, time.Now())
		must(n.T, err)
		return token
	}
	password := rand.Text()
	must(n.T, f.ChangeUsers("add", []string{name}, User{Tenant: "acme", Hash: hashed(n.T, password)}))
	return name + "\x00" + password
}

func hashed(t *testing.T, password string) Hash {
	t.Helper()
	h, err := NewHash(SchemeSCRAM, password)
	must(t, err)
	return h
}

// add adds one to the file alone, as a command does while the relay doesn't run.
func (n *node) add(name string) string { return n.make(File{Path: n.path()}, name) }

// replace gives a key's name another key, and for a while both, or a user another password.
func (n *node) replace(name string, overlap time.Duration) (secret string) {
	n.Helper()
	if n.kind == "key" {
		token, _, _, err := n.file().RotateKey(WhichKey{Name: name}, overlap, time.Time{}, time.Now())
		must(n.T, err)
		return token
	}
	password := rand.Text()
	must(n.T, n.file().ChangeUsers("password", []string{name}, User{Hash: hashed(n.T, password)}))
	return name + "\x00" + password
}

func (n *node) remove(f File, name string) {
	n.Helper()
	if n.kind == "key" {
		_, err := f.RemoveKeys(WhichKey{Name: name})
		must(n.T, err)
		return
	}
	must(n.T, f.ChangeUsers("remove", []string{name}, User{}))
}

// is checks whether secrets are valid.
func (n *node) is(valid bool, secrets ...string) {
	n.Helper()
	at := netip.MustParseAddr("192.0.2.1")
	for _, secret := range secrets {
		refused := ErrRefused
		_, err := n.keys.Check(context.Background(), secret, at)
		if name, password, is := strings.Cut(secret, "\x00"); is {
			refused = ErrDenied
			_, err = n.users.Password(context.Background(), from(at.String()), name, password)
		}
		if (err == nil) != valid || err != nil && !errors.Is(err, refused) {
			n.Errorf("node %d: %q: %v; want it valid: %v", n.me.Node, secret, err, valid)
		}
	}
}

func (n *node) lists(want ...string) {
	n.Helper()
	var names []string
	if n.kind == "key" {
		table, err := LoadKeys(n.path())
		must(n.T, err)
		for _, k := range n.shared.Over(table.Keys()) {
			names = append(names, k.Name)
		}
	} else {
		table, err := UsersOver(n.also, n.path())
		must(n.T, err)
		for _, u := range table.Users() {
			names = append(names, u.Name)
		}
	}
	if got := strings.Join(names, " "); got != strings.Join(want, " ") {
		n.Errorf("node %d lists %s; want %s", n.me.Node, got, want)
	}
}

// both has a test use nodes with keys, and with users.
func both(t *testing.T, count int, test func(e *enginetest.Shared, away *atomic.Bool, nodes []*node)) {
	for _, kind := range []string{"key", "user"} {
		t.Run(kind, func(t *testing.T) { house(t, kind, count, test) })
	}
}

// house is nodes that begin to run with what prepare has left in their files.
func house(t *testing.T, kind string, count int, test func(e *enginetest.Shared, away *atomic.Bool, nodes []*node)) {
	t.Helper()
	dir := bubble.Folder(t)
	if err := secrets.WriteKeys(dir + "/secrets.key"); err != nil {
		t.Fatal(err)
	}
	bubble.Test(t, func(t *testing.T) {
		members := make(map[uint16]uint64)
		e, away := enginetest.NewShared("era", func() map[uint16]uint64 { return members }), new(atomic.Bool)
		var nodes []*node
		for i := range count {
			n := &node{T: t, kind: kind, me: changes.Me{Node: uint16(i + 1), Incarnation: 1},
				dir: dir + "/" + string(rune('a'+i)), engine: e, end: func() {}, away: away.Load}
			if err := os.Mkdir(n.dir, 0o700); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"/keys", "/users"} {
				must(t, os.WriteFile(n.dir+name, nil, 0o600))
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
	house(t, "key", 3, func(e *enginetest.Shared, _ *atomic.Bool, nodes []*node) {
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
		a.reread()
		b.reread()
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

// TestSharedWithoutTheEngine: what a node has done alone is known later, after a restart too; and counts when the relay
// has left its cluster.
func TestSharedWithoutTheEngine(t *testing.T) {
	both(t, 2, func(e *enginetest.Shared, away *atomic.Bool, nodes []*node) {
		a, b := nodes[0], nodes[1]
		shop := b.add("shop")
		a.open(true)
		b.open(true)
		pass(time.Second)
		away.Store(true)
		pass(3 * time.Second)
		a.remove(a.file(), "shop")
		alone := a.make(a.file(), "alone")
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
		b.remove(b.file(), "again")
		b.reread()
		b.is(false, again)
	})
}

// TestBadShared: rows that were edited, exchanged, or made by somebody who can write the database; and a file that has
// lost its lines.
func TestBadShared(t *testing.T) {
	both(t, 2, func(e *enginetest.Shared, _ *atomic.Bool, nodes []*node) {
		a, b := nodes[0], nodes[1]
		t := a.T
		shop, web := a.add("shop"), a.add("web")
		a.open(true)
		b.open(true)
		pass(time.Second)
		forged, sum := newToken()
		name := func(s KeySum) string { return hex.EncodeToString(s[:]) }
		line := (&Key{Sum: sum, Tenant: "acme", Name: "forged", Scopes: MayAll, Created: time.Now()}).String()
		at, ofShop, ofWeb, other := name(sum), name(KeySumOf(shop)), name(KeySumOf(web)), "user/"
		if a.kind == "user" {
			forged, at, ofShop, ofWeb, other = "forged\x00x", "forged", "shop", "web", "key/"
			line = (&User{Name: "forged", Hash: hashed(t, "x"), Tenant: "acme"}).String()
		}
		text := []byte(`{"line":"` + line + `"}`)
		var webs []byte
		e.Do(func(rows map[[2]string]changes.Row) { webs = rows[[2]string{a.kind, ofWeb}].Value })
		for _, row := range []struct{ key, value string }{
			{at, string(text)},
			{ofShop, "x"},
			{strings.Repeat("y", 9), `{"key":"","data":""}`},
			{ofShop, string(webs)},
			{at, string(a.sealer().Seal(other+at, text))},
			{at, string(a.sealer().Seal("console-user/"+at, text))},
			{"A b", string(a.sealer().Seal(a.kind+"/A b", text))},
		} {
			last := uint64(0)
			e.Do(func(rows map[[2]string]changes.Row) {
				for _, row := range rows {
					last = max(last, row.Number)
				}
				last++
				rows[[2]string{a.kind, row.key}] = changes.Row{Kind: a.kind, Key: row.key, Number: last, Node: 1,
					Incarnation: 1, Rank: 9, Value: []byte(row.value), Size: len(row.value)}
			})
			e.Advance(last)
			pass(time.Second)
			if why := b.x.Trouble(); !strings.Contains(why, "of kind "+a.kind+" and node 1, is not applied: ") {
				t.Errorf("%s: %q", row.key, why)
			}
			b.is(false, forged)
			b.is(true, shop, web)
		}
		must(t, os.WriteFile(a.path(), nil, 0o600))
		a.reread()
		pass(time.Second)
		a.is(true, shop, web)
		b.is(true, shop, web)
		a.remove(a.file(), "web")
		pass(time.Second)
		b.is(false, web)
		a.end()
		must(t, os.WriteFile(a.dir+"/shared-"+a.kind, []byte("x"), 0o600))
		must(t, os.WriteFile(a.dir+"/shared-"+a.kind+".copy", []byte("x"), 0o600))
		a.open(true)
		pass(2 * time.Second)
		a.is(false, web)
	})
}

// TestEndsStay: a day after the end of a rotated key its row is there yet, so that nobody's older file, which has no end,
// brings the key back for good.
func TestEndsStay(t *testing.T) {
	house(t, "key", 2, func(e *enginetest.Shared, _ *atomic.Bool, nodes []*node) {
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
		for _, file := range []string{"/shared-key", "/shared-key.copy"} {
			must(t, os.Remove(b.dir+file))
		}
		must(t, os.WriteFile(b.dir+"/keys", old, 0o600))
		b.open(true)
		pass(5 * time.Second)
		a.is(false, shop)
		b.is(false, shop)
	})
}

// TestSharedAfterTheCluster: what was shared is removed and replaced when the relay has no cluster.
func TestSharedAfterTheCluster(t *testing.T) {
	both(t, 1, func(e *enginetest.Shared, _ *atomic.Bool, nodes []*node) {
		a := nodes[0]
		a.add("shop")
		a.open(true)
		web, app := a.make(a.file(), "web"), a.make(a.file(), "app")
		pass(time.Second)
		a.end()
		a.open(false)
		a.is(true, web, app)
		a.remove(a.file(), "web")
		next := a.replace("app", 0)
		a.end()
		a.open(false)
		a.is(false, web, app)
		a.is(true, next)
		a.lists("shop", "app")
	})
}

// TestRemovedStay: whatever a file has again, and another file has, changes nothing about what a command has removed or
// replaced; a file that was read half-written removes nothing for good.
func TestRemovedStay(t *testing.T) {
	both(t, 2, func(e *enginetest.Shared, _ *atomic.Bool, nodes []*node) {
		a, b := nodes[0], nodes[1]
		t := a.T
		gone, ends, cut := a.add("gone"), a.add("ends"), a.add("cut")
		old, err := os.ReadFile(a.path())
		must(t, err)
		for _, n := range nodes {
			n.open(true)
		}
		pass(time.Second)
		a.remove(a.file(), "gone")
		next := b.replace("ends", time.Minute)
		pass(2 * time.Minute)
		write := func(n *node, text []byte) {
			t.Helper()
			must(t, os.WriteFile(n.path(), text, 0o600))
			n.reread()
			pass(time.Second)
		}
		first, _, _ := bytes.Cut(old, []byte(map[string]string{"key": " name=ends", "user": "ends:"}[a.kind]))
		write(a, first[:bytes.LastIndexByte(first, '\n')+1]) // the removed one again, but not the others
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
			n.is(true, cut, next)
		}

		// At another path.
		a.end()
		must(t, os.Mkdir(a.dir+"/other", 0o700))
		for _, file := range []string{"shared-KIND", "shared-KIND.copy", "changes"} {
			file = strings.ReplaceAll(file, "KIND", a.kind)
			must(t, os.Rename(a.dir+"/"+file, a.dir+"/other/"+file))
		}
		a.dir += "/other"
		for _, file := range []string{"/keys", "/users"} {
			must(t, os.WriteFile(a.dir+file, nil, 0o600))
		}
		must(t, os.WriteFile(a.path(), old, 0o600))
		must(t, os.Symlink("../secrets.key", a.dir+"/../secrets.key"))
		a.open(true)
		pass(time.Second)
		for _, n := range nodes {
			n.is(false, gone, ends)
			n.is(true, cut, next)
		}
	})
}

// TestLostShared: a node whose file of what is shared is lost overrides nothing that it has removed itself.
func TestLostShared(t *testing.T) {
	both(t, 2, func(e *enginetest.Shared, _ *atomic.Bool, nodes []*node) {
		a, b := nodes[0], nodes[1]
		t := a.T
		shop := a.add("shop")
		old, err := os.ReadFile(a.path())
		must(t, err)
		for _, n := range nodes {
			n.open(true)
		}
		pass(time.Second)
		a.remove(a.file(), "shop")
		pass(time.Second)
		a.end()
		must(t, os.WriteFile(a.path(), old, 0o600))
		for _, end := range []string{"", ".copy"} {
			must(t, os.WriteFile(a.dir+"/shared-"+a.kind+end, []byte("x"), 0o600))
		}
		a.open(true)
		pass(5 * time.Second)
		a.is(false, shop)
		b.is(false, shop)
		late := a.add("late")
		a.reread()
		pass(time.Second)
		b.is(true, late)
	})
}
