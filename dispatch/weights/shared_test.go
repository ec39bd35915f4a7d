package weights

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/cluster/changes"
	"example.org/mta/cluster/enginetest"
	"example.org/mta/cluster/exchange"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/smallfile"
	"example.org/mta/mta/config"
	"example.org/mta/operator/api"
)

// node is a relay's weights, whose process can be ended and started.
type node struct {
	*Weights
	t       *testing.T
	at      int
	dir     string
	engine  *enginetest.Shared
	known   *exchange.Exchange
	end     func()
	changed int
}

func (n *node) open() {
	log := slog.New(slog.DiscardHandler)
	var err error
	if n.known, err = exchange.Open(exchange.Config{Path: filepath.Join(n.dir, "changes"), Now: time.Now, Log: log}); err != nil {
		n.t.Fatal(err)
	}
	if n.Weights, err = Read(n.dir, time.Now(), log); err != nil {
		n.t.Fatal(err)
	}
	n.Note, n.Where, n.Changed = n.known.Of("weight"), fmt.Sprintf(" at node %d", n.at), func() { n.changed++ }
	if err := n.known.Add("weight", Shared{n.Weights}, n.Lost); err != nil {
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
	if err := n.known.Close(); err != nil {
		n.t.Error(err)
	}
}

// set gives a source another weight; below 0 it returns to that of the configuration.
func (n *node) set(source string, weight int) {
	n.t.Helper()
	err := n.Weights.End("p", source)
	if weight >= 0 {
		err = n.Set(api.Weight{Pool: "p", Source: source, Weight: weight, By: "ann" + n.Where, Since: time.Now()})
	}
	if err != nil {
		n.t.Error(err)
	}
}

var pool = &config.Pool{Name: "p", Shared: []string{"a", "b"}, Weights: []config.SourceWeight{{Source: "a", Weight: 7}}}

// within has a test use two nodes that are one cluster. has checks the weights of the sources at both.
func within(t *testing.T, test func(a, b *node, has func(what string, wantA, wantB int))) {
	t.Helper()
	dirs := []string{t.TempDir(), t.TempDir()}
	bubble.Test(t, func(t *testing.T) {
		engine := enginetest.NewShared("era", func() map[uint16]uint64 { return map[uint16]uint64{1: 1, 2: 1} })
		var nodes []*node
		for i, dir := range dirs {
			nodes = append(nodes, &node{t: t, at: i + 1, dir: dir, engine: engine})
			nodes[i].open()
			nodes[i].run()
		}
		time.Sleep(3 * time.Second)
		test(nodes[0], nodes[1], func(what string, wantA, wantB int) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			for _, n := range nodes {
				if of := n.In(pool); of("a") != wantA || of("b") != wantB {
					t.Errorf("%s: node %d has %d and %d; want %d and %d", what, n.at, of("a"), of("b"), wantA, wantB)
				}
			}
		})
		for _, n := range nodes {
			n.stop()
		}
	})
}

func TestWeightsAreThoseOfAllNodes(t *testing.T) {
	within(t, func(a, b *node, has func(string, int, int)) {
		a.set("a", 0)
		has("set", 0, 1)
		if behind := a.known.Behind(context.Background(), "weight"); behind != "" || b.changed != 1 || a.changed != 0 {
			t.Errorf("behind: %q; changed %d times there, %d times here", behind, b.changed, a.changed)
		}
		if by := (*b.inUse.Load())[place{"p", "a"}].By; by != "ann at node 1" {
			t.Errorf("set by %q", by)
		}
		b.set("b", 3)
		has("both", 0, 3)
		b.set("a", -1)
		has("ended by another node", 7, 3)
		for _, n := range []*node{a, b} {
			n.stop()
			n.open()
			n.run()
		}
		has("after a restart", 7, 3)
		b.end()
		if behind := a.known.Behind(context.Background(), "weight"); behind != "" {
			t.Errorf("a node that is away knows: %q", behind)
		}
		a.set("b", 4)
		if behind := a.known.Behind(context.Background(), "weight"); !strings.HasPrefix(behind, "node 2 of the cluster: ") {
			t.Errorf("behind: %q", behind)
		}
		b.run()
		has("it is back", 7, 4)
	})
}

// TestWeightsWithoutTheDatabase are kept by their node, also over a restart. They override nothing that others have
// changed since.
func TestWeightsWithoutTheDatabase(t *testing.T) {
	within(t, func(a, b *node, has func(string, int, int)) {
		a.set("b", 2)
		has("set", 7, 2)
		b.end()
		b.set("a", 0)
		b.set("b", 9)
		b.stop()
		b.open()
		a.set("b", -1)
		time.Sleep(10 * time.Minute)
		if of := b.In(pool); of("a") != 0 || of("b") != 9 {
			t.Errorf("without the database the node has %d and %d", of("a"), of("b"))
		}
		b.run()
		has("an end that the node had not read goes behind its weight", 0, 9)
		b.end()
		b.set("b", 5)
		a.set("b", 4)
		time.Sleep(time.Minute)
		b.run()
		has("the later one in the database had not read the earlier", 0, 4)
	})
}

// TestLostWeights are read again from the database, also where the node's copy went back.
func TestLostWeights(t *testing.T) {
	within(t, func(a, b *node, has func(string, int, int)) {
		a.set("a", 0)
		has("set", 0, 1)
		b.stop()
		for _, name := range []string{FileName, FileName + smallfile.CopySuffix} {
			if err := os.WriteFile(filepath.Join(b.dir, name), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		b.open()
		if of := b.In(pool); of("a") != 7 || !b.Lost {
			t.Errorf("the damaged file has %d; lost: %v", of("a"), b.Lost)
		}
		b.run()
		has("read again", 0, 1)
	})
}

func TestRowsThatAreNoWeights(t *testing.T) {
	w, err := Read(t.TempDir(), time.Now(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	goes := func(string) bool { return false }
	const key, sound = `{"pool":"p","source":"a"}`, `{"pool":"p","source":"a","weight":3,"by":"ann","since":"2026-11-30T00:00:00Z"}`
	for _, row := range [][2]string{
		{key, `7`}, {key, `{}`}, {key, strings.Replace(sound, "3", "1001", 1)}, {key, strings.Replace(sound, "3", "-1", 1)},
		{key, strings.Replace(sound, `"a"`, `"b"`, 1)}, {`{"pool":"p","source":"b"}`, sound}, {`{ "pool":"p","source":"a"}`, sound},
		{`{"pool":"","source":"a"}`, strings.Replace(sound, `"p"`, `""`, 1)},
	} {
		if _, _, err := (Shared{w}).Look(row[0], []byte(row[1])); err == nil {
			t.Errorf("%v is sound", row)
		}
		if err := (Shared{w}).Apply(t.Context(), map[string][]byte{row[0]: []byte(row[1])}, goes); err == nil || w.In(pool)("a") != 7 {
			t.Errorf("%v is applied", row)
		}
	}
	rank, until, err := Shared{w}.Look(key, []byte(sound))
	if rank != 1 || !until.IsZero() || err != nil {
		t.Error(rank, until, err)
	}
	many := map[string][]byte{"{": nil}
	for i := range Most + 5 {
		text := strings.ReplaceAll(sound, `"p"`, fmt.Sprintf(`"p%d"`, i))
		many[place{fmt.Sprintf("p%d", i), "a"}.String()] = []byte(text)
	}
	if err := (Shared{w}).Apply(t.Context(), many, goes); err != nil || len(*w.inUse.Load()) != Most {
		t.Errorf("%d weights, %v", len(*w.inUse.Load()), err)
	}
	if err := (Shared{w}).Apply(t.Context(), map[string][]byte{key: []byte(sound)}, func(string) bool { return true }); err != nil {
		t.Error(err)
	}
	if _, there := (*w.inUse.Load())[place{"p", "a"}]; there {
		t.Error("a weight is applied that stays")
	}
}
