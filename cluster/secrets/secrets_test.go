package secrets

import (
	"bytes"
	"context"
	"encoding/hex"
	"log/slog"
	"os"
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
	"example.org/mta/internal/bubble"
)

const links = "unsubscribe-secret"

func secret(n byte) []byte { return bytes.Repeat([]byte{n}, Size) }

// node is one, whose process can end and start.
type node struct {
	*testing.T
	me      changes.Me
	dir     string
	key     string // file
	own     byte
	engine  changes.Engine
	s       *Store
	x       *exchange.Exchange
	mu      sync.Mutex // guards accepts
	accepts [][]byte
	end     func()
}

func (n *node) open() {
	n.Helper()
	x, err := exchange.Open(exchange.Config{Path: n.dir + "/changes", Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		n.Fatal(err)
	}
	keys, err := ReadKeys(n.key)
	if err != nil {
		n.Fatal(err)
	}
	s, err := Open(Config{Path: n.dir + "/secrets", Keys: keys, Note: x.Of("secret"), Now: time.Now,
		Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		err = x.Add("secret", s, s.Empty())
	}
	if err == nil {
		err = s.Join(links, func(others [][]byte) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.accepts = others
			return nil
		}, secret(n.own))
	}
	if err != nil {
		n.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { x.Run(ctx, n.me, n.engine) })
	n.s, n.x, n.end = s, x, func() {
		cancel()
		all.Wait()
		if err := x.Close(); err != nil {
			n.Error(err)
		}
	}
}

func (n *node) restart() {
	n.Helper()
	n.end()
	n.open()
}

// has checks which secrets of others a node accepts.
func (n *node) has(want ...byte) {
	n.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	var got []byte
	for _, s := range n.accepts {
		got = append(got, s[0])
	}
	if slices.Sort(got); !bytes.Equal(got, want) {
		n.Errorf("node %d accepts the tokens of %v; want %v", n.me.Node, got, want)
	}
}

// within has some nodes run, each with a secret of its number.
func within(t *testing.T, count int, test func(t *testing.T, e *enginetest.Shared, nodes []*node)) {
	t.Helper()
	dir := t.TempDir()
	writeKey(t, dir+"/key", 200)
	bubble.Test(t, func(t *testing.T) {
		members := make(map[uint16]uint64)
		e := enginetest.NewShared("era", func() map[uint16]uint64 { return members })
		var nodes []*node
		for i := range count {
			n := &node{T: t, me: changes.Me{Node: uint16(i + 1), Incarnation: 1}, dir: t.TempDir(), key: dir + "/key",
				own: byte(i + 1), engine: e}
			members[n.me.Node] = 1
			nodes = append(nodes, n)
		}
		for _, n := range nodes {
			n.open()
		}
		pass(time.Second)
		test(t, e, nodes)
		for _, n := range nodes {
			n.end()
		}
	})
}

func writeKey(t *testing.T, path string, keys ...byte) {
	t.Helper()
	var text []byte
	for _, k := range keys {
		text = append(hex.AppendEncode(text, secret(k)), '\n')
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestAllAcceptTheTokensOfAll: at once, after a restart, after a node got a new secret, and when one is gone for good.
// The database has none of the secrets in clear.
func TestAllAcceptTheTokensOfAll(t *testing.T) {
	within(t, 3, func(t *testing.T, e *enginetest.Shared, nodes []*node) {
		a, b, c := nodes[0], nodes[1], nodes[2]
		a.has(2, 3)
		b.has(1, 3)
		c.has(1, 2)
		b.own = 20 // the file was damaged beyond its second copy
		b.restart()
		b.has(1, 2, 3)
		pass(time.Second)
		a.has(2, 3, 20)
		if err := a.s.Join("other", func([][]byte) error { return nil }, secret(4)); err != nil {
			t.Fatal(err)
		}
		c.end()
		for _, name := range []string{"/secrets", "/secrets.copy", "/changes"} { // its disk is gone
			os.Remove(c.dir + name)
		}
		c.own = 30
		c.open()
		pass(2 * time.Second)
		c.has(1, 2, 3, 20)
		a.has(2, 3, 20, 30)
		e.Do(func(all map[[2]string]changes.Row) {
			if len(all) != 6 {
				t.Errorf("there are %d rows; want 6", len(all))
			}
			for at, row := range all {
				for n := range 256 {
					s := secret(byte(n))
					if bytes.Contains(row.Value, s) || strings.Contains(string(row.Value)+at[1], hex.EncodeToString(s)) {
						t.Errorf("%s has a secret in clear", at)
					}
				}
			}
		})
		for _, n := range nodes {
			if why := n.x.Trouble(); why != "" {
				t.Error(why)
			}
		}
	})
}

// TestEditedRows: what somebody has edited is named and does nothing, removals are undone, and a restart replaces what
// is wrong.
func TestEditedRows(t *testing.T) {
	within(t, 2, func(t *testing.T, e *enginetest.Shared, nodes []*node) {
		a, b := nodes[0], nodes[1]
		forged, err := ReadKeys(a.key)
		if err != nil {
			t.Fatal(err)
		}
		at := Key(links, secret(1))
		for what, value := range map[string][]byte{
			"no JSON":                             []byte("x"),
			"too short":                           []byte(`{"key":"","data":"AAAA"}`),
			"a value of another key":              forged.Seal(Key(links, secret(2)), secret(2)),
			"another secret":                      forged.Seal(at, secret(9)),
			"a secret that is too short":          forged.Seal(at, secret(9)[:5]),
			"under a key that is none: edited it": []byte(`{"key":"` + strings.Repeat("x", 5000) + `","data":"` + strings.Repeat("A", 400) + `"}`),
			"of another file":                     []byte(`{"key":"00000000","data":"` + strings.Repeat("A", 400) + `"}`),
		} {
			edit(e, at, value)
			pass(2 * time.Second)
			why := b.x.Trouble()
			if !strings.Contains(why, "of kind secret and node 1, is not applied: ") || len(why) > 400 ||
				!strings.Contains(why, "edited it") && !strings.Contains(why, b.key) {
				t.Errorf("%s: %q", what, why)
			}
			b.has(1)
			a.restart()
			pass(2 * time.Minute)
			if why := b.x.Trouble(); why != "" {
				t.Errorf("%s: %q after a restart", what, why)
			}
		}
		edit(e, at, nil) // a removal
		pass(2 * time.Second)
		e.Do(func(all map[[2]string]changes.Row) {
			if all[[2]string{"secret", at}].Value == nil {
				t.Error("a secret is removed")
			}
		})
		b.has(1)
		a.has(2)
	})
}

func edit(e *enginetest.Shared, key string, value []byte) {
	last := uint64(0)
	e.Do(func(all map[[2]string]changes.Row) {
		for _, row := range all {
			last = max(last, row.Number)
		}
		last++
		row := all[[2]string{"secret", key}]
		row.Number, row.Value, row.Size = last, value, len(value)
		all[[2]string{"secret", key}] = row
	})
	e.Advance(last)
}

// TestWrongKey: a node with another key file shares nothing and breaks nothing, until it has the right one.
func TestWrongKey(t *testing.T) {
	within(t, 2, func(t *testing.T, e *enginetest.Shared, nodes []*node) {
		a, b := nodes[0], nodes[1]
		right := b.key
		b.end()
		for _, name := range []string{"/secrets", "/secrets.copy", "/changes"} {
			os.Remove(b.dir + name)
		}
		b.key, b.own = b.dir+"/wrong", 20
		writeKey(t, b.key, 100)
		b.open()
		pass(2 * time.Second)
		b.has()
		a.has(2)
		for i, n := range nodes {
			why, other := n.x.Trouble(), []string{"node 2", "node "}[i] // its own row, too, which was lost
			if !strings.Contains(why, "of kind secret and "+other) || !strings.Contains(why, n.key) ||
				!strings.Contains(why, ", is not applied: it is encrypted under key ") {
				t.Errorf("node %d: %q", n.me.Node, why)
			}
		}
		b.key = right
		b.restart()
		pass(2 * time.Minute)
		b.has(1, 2)
		a.has(2, 20)
		for _, n := range nodes {
			if why := n.x.Trouble(); why != "" {
				t.Error(why)
			}
		}
	})
}

// TestAnotherKeyTakesOver, in the steps of docs/cluster.md.
func TestAnotherKeyTakesOver(t *testing.T) {
	within(t, 3, func(t *testing.T, e *enginetest.Shared, nodes []*node) {
		for i, n := range nodes {
			n.key = filepath.Join(n.dir, "key")
			writeKey(t, n.key, 200)
			n.own += byte(10 * i)
		}
		for _, keys := range [][]byte{{200, 201}, {201, 200}, {201}} {
			for _, n := range nodes {
				writeKey(t, n.key, keys...)
				n.restart()
				pass(2 * time.Second)
				for _, n := range nodes {
					if why := n.x.Trouble(); why != "" {
						t.Error(why)
					}
				}
			}
		}
		k, err := ReadKeys(nodes[0].key)
		if err != nil {
			t.Fatal(err)
		}
		e.Do(func(all map[[2]string]changes.Row) {
			if len(all) != 5 { // 1, 2, 3, 12, 23
				t.Errorf("there are %d rows", len(all))
			}
			for at, row := range all {
				if _, err := k.Open(at[1], row.Value); err != nil {
					t.Error(err)
				}
			}
		})
		nodes[0].has(2, 3, 12, 23)
	})
}

// TestFiles: what is in the file is accepted without a cluster, and a file that can't be is refused or read again.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	log := new(strings.Builder)
	open := func() (*Store, error) {
		return Open(Config{Path: dir + "/secrets", Now: time.Now, Log: slog.New(slog.NewTextHandler(log, nil))})
	}
	s, err := open()
	if err != nil || !s.Empty() {
		t.Fatal(err)
	}
	if err := s.Join(links, func(o [][]byte) error { return nil }, secret(1)); err != nil || !s.Empty() {
		t.Errorf("%v; its own is kept without a cluster", err)
	}
	if err := s.set(map[string][]byte{Key(links, secret(2)): secret(2), Key("more", secret(3)): secret(3)}); err != nil {
		t.Fatal(err)
	}
	for _, damage := range []func(){
		func() {},
		func() { os.WriteFile(dir+"/secrets", []byte("x"), 0o600) },
		func() { os.Remove(dir + "/secrets") },
	} {
		damage()
		var got [][]byte
		if s, err = open(); err == nil {
			err = s.Join(links, func(o [][]byte) error { got = o; return nil }, secret(1))
		}
		if err != nil || len(got) != 1 || !bytes.Equal(got[0], secret(2)) {
			t.Errorf("%x, %v", got, err)
		}
	}
	if info, err := os.Stat(dir + "/secrets"); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	if all, err := Existing(dir+"/secrets", links); err != nil || len(all) != 1 {
		t.Error(all, err)
	}
	if all, err := Existing(dir+"/none", links); err != nil || len(all) != 0 {
		t.Error(all, err)
	}
	newer := contents{Format: 2, Secrets: map[string]string{"a": "b"}}
	if err := write(dir+"/secrets", newer); err != nil {
		t.Fatal(err)
	}
	if _, err := open(); err == nil || !strings.Contains(err.Error(), "it has format 2, and this program knows 1") {
		t.Error(err)
	}
	if err := os.Remove(dir + "/secrets.copy"); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(dir + "/secrets")
	if _, err := open(); err == nil {
		t.Error("a newer format is accepted")
	}
	if after, _ := os.ReadFile(dir + "/secrets"); !bytes.Equal(before, after) {
		t.Error("a file of a newer format is changed")
	}
	if err := write(dir+"/secrets", contents{Format: 1, Secrets: map[string]string{links + "/00": "00"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := open(); err == nil || !strings.Contains(err.Error(), `secret "unsubscribe-secret/00" is damaged`) {
		t.Error(err)
	}
	if strings.Contains(log.String(), hex.EncodeToString(secret(2))) {
		t.Error("a secret is in the log")
	}
}

func TestReadKeys(t *testing.T) {
	path := t.TempDir() + "/key"
	if _, err := ReadKeys(path); err == nil {
		t.Error("there is no file")
	}
	if err := WriteKeys(path); err != nil {
		t.Fatal(err)
	}
	k, err := ReadKeys(path)
	if err != nil || len(k.all) != 1 {
		t.Fatal(err)
	}
	if err := WriteKeys(path); err == nil {
		t.Error("a key is overwritten")
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadKeys(path); err == nil || !strings.Contains(err.Error(), "chmod 0640 ") {
		t.Error(err)
	}
	for _, keys := range [][]byte{nil, {1, 2, 3}} {
		os.Remove(path)
		writeKey(t, path, keys...)
		if _, err := ReadKeys(path); err == nil {
			t.Errorf("%d keys are read", len(keys))
		}
	}
}
