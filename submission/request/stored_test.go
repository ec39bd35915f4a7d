package request

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
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

// node is a node of a cluster, with a folder of templates or without one.
type node struct {
	*testing.T
	me     changes.Me
	dir    string
	folder string // "": none
	engine changes.Engine
	full   bool // its disk
	shared *SharedTemplates
	stored *Stored
	log    bytes.Buffer
	end    func()
}

func (n *node) open() {
	n.Helper()
	x, err := exchange.Open(exchange.Config{Path: n.dir + "/changes", Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	n.must(err)
	sealer, err := secrets.ReadKeys(n.dir + "/../secrets.key")
	n.must(err)
	logs := slog.New(slog.NewTextHandler(&n.log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	n.shared, err = shared.Open(shared.Config{Path: n.dir + "/shared", Sealer: sealer, Note: n.note(x.Of("template")), Now: time.Now,
		Log: logs}, TemplateEntries)
	n.must(err)
	n.must(x.Add("template", n.shared, n.shared.Empty()))
	n.stored, err = OpenStored(n.folder, n.shared, logs)
	n.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { x.Run(ctx, n.me, n.engine) })
	n.end = func() {
		if why := x.Trouble(); why != "" {
			n.Error(why)
		}
		cancel()
		all.Wait()
		n.must(x.Close())
	}
}

func (n *node) note(of func([]string) (func(), error)) func([]string) (func(), error) {
	return func(names []string) (func(), error) {
		if n.full {
			return nil, errors.New("the disk is full")
		}
		return of(names)
	}
}

// write changes files of the folder, and removes those that are to be empty; "" has no folder yet.
func (n *node) write(files map[string]string) {
	n.Helper()
	n.folder = n.dir + "/templates"
	for name, text := range files {
		path := filepath.Join(n.folder, name)
		n.must(os.MkdirAll(filepath.Dir(path), 0o700))
		if n.must(os.WriteFile(path, []byte(text), 0o600)); text == "" {
			n.must(os.Remove(path))
		}
	}
}

// reload changes files, and has the folder read.
func (n *node) reload(files map[string]string) {
	n.Helper()
	n.write(files)
	folder, err := ReadFolder(n.folder, n.shared)
	n.must(err)
	n.stored.Set(folder)
}

func (n *node) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

// makes checks what a template of acme makes; "": there is none.
func (n *node) makes(name, want string) {
	n.Helper()
	var m Mail
	t, is := n.stored.Stored("acme", name)
	if is {
		var err error
		m, err = t.Render(context.Background(), false)
		n.must(err)
	}
	if got := m.Subject + m.Text + m.HTML; got != want || is != (want != "") {
		n.Errorf("node %d: %s makes %.80q (%d octets); want %.80q (%d)", n.me.Node, name, got, len(got), want, len(want))
	}
}

// logged checks whether something was logged since it was asked last.
func (n *node) logged(want string) {
	n.Helper()
	if got := n.log.String(); want == "" && got != "" || !strings.Contains(got, want) {
		n.Errorf("node %d logs %s; want %q", n.me.Node, got, want)
	}
	n.log.Reset()
}

func house(t *testing.T, count int, test func(e *enginetest.Shared, nodes []*node)) {
	t.Helper()
	dir := bubble.Folder(t)
	if err := secrets.WriteKeys(dir + "/secrets.key"); err != nil {
		t.Fatal(err)
	}
	bubble.Test(t, func(t *testing.T) {
		members := make(map[uint16]uint64)
		e := enginetest.NewShared("era", func() map[uint16]uint64 { return members })
		var nodes []*node
		for i := range count {
			n := &node{T: t, me: changes.Me{Node: uint16(i + 1), Incarnation: 1}, dir: dir + "/" + string(rune('a'+i)), engine: e,
				end: func() {}}
			n.must(os.Mkdir(n.dir, 0o700))
			members[n.me.Node] = 1
			nodes = append(nodes, n)
		}
		test(e, nodes)
		for _, n := range nodes {
			n.end()
		}
	})
}

func pass() {
	time.Sleep(time.Second)
	synctest.Wait()
}

// TestTemplatesAreShared: a node has a folder and others have none, or an older one; the newest change counts, whoever
// makes it, after a restart too.
func TestTemplatesAreShared(t *testing.T) {
	house(t, 3, func(e *enginetest.Shared, nodes []*node) {
		a, b, c := nodes[0], nodes[1], nodes[2]
		long := strings.Repeat("<p>0123456789 ünï</p>\n", 3000) // 9 chunks
		a.write(map[string]string{"acme/welcome.text": "one", "acme/long.html": long, "acme/gone.text": "x",
			"acme/with.text": "with {{>footer}}", "acme/footer.text": "ACME"})
		a.open()
		b.open()
		pass()
		for _, n := range nodes[:2] {
			n.makes("welcome", "one")
			n.makes("long", long)
			n.makes("with", "with ACME")
		}
		a.reload(map[string]string{"acme/welcome.text": "two", "acme/long.html": long[:20000], "acme/gone.text": ""})
		a.makes("welcome", "two")
		pass()
		b.makes("welcome", "two")
		b.makes("long", long[:20000])
		b.makes("gone", "")
		a.logged("")
		b.logged("")

		// A reload lists what it changes, and what is not in force.
		b.write(map[string]string{"acme/welcome.text": "one", "acme/own.text": "own"})
		folder, err := ReadFolder(b.folder, b.shared)
		b.must(err)
		all, not := b.stored.Changes(folder)
		if len(all) != 1 || all[0] != "templates: acme/own.text is new" || len(not) != 1 || !strings.Contains(not[0], "welcome") {
			t.Errorf("a reload lists %q, %q", all, not)
		}

		// A folder that is read for the first time may be old. What is changed in it then is not.
		b.reload(map[string]string{"acme/welcome.text": "one", "acme/long.html": long, "acme/own.text": "own"})
		b.logged("that are not in force")
		pass()
		for _, n := range nodes[:2] {
			n.makes("welcome", "two")
			n.makes("long", long[:20000])
			n.makes("own", "own")
		}
		b.reload(map[string]string{"acme/welcome.text": "three", "acme/gone.text": "again"})
		pass()
		a.makes("welcome", "three")
		a.makes("gone", "again")
		b.reload(map[string]string{"acme/gone.text": ""})
		a.end()
		a.open()
		a.makes("welcome", "three")
		pass()
		a.makes("gone", "")

		// A folder whose files are gone may be a volume that is not mounted.
		b.reload(map[string]string{"acme/welcome.text": "", "acme/long.html": "", "acme/own.text": ""})
		b.logged("has lost all that it had")
		pass()
		a.makes("own", "own")

		// What others need goes: it stays as it was.
		a.reload(map[string]string{"acme/footer.text": "", "acme/with.text": "", "acme/welcome.text": "four"})
		b.logged("")
		pass()
		b.makes("welcome", "four")
		b.makes("with", "")

		// Commands look at what there is, also before a reload.
		a.write(map[string]string{"acme/late.text": "late", "acme/welcome.text": ""})
		known, err := shared.Read(a.dir+"/shared", TemplateEntries)
		a.must(err)
		looked, err := LoadTemplates(a.folder, known)
		a.must(err)
		if names := strings.Join(looked.Names("acme"), " "); names != "late long own" {
			t.Errorf("there are %s", names)
		}
		a.write(map[string]string{"acme/late.text": "", "acme/welcome.text": "four"})

		// One that joins with an old folder overrides nothing.
		c.write(map[string]string{"acme/welcome.text": "one", "acme/late.text": "late"})
		c.open()
		pass()
		pass()
		for _, n := range nodes {
			n.makes("welcome", "four")
			n.makes("late", "late")
		}
		e.Do(func(rows map[[2]string]changes.Row) {
			for at, row := range rows {
				if bytes.Contains(row.Value, []byte("01234567")) || len(row.Value) > changes.MaxValue {
					t.Errorf("%s has %d octets: %.100s", at, len(row.Value), row.Value)
				}
			}
		})
	})
}

// TestTemplatesThatBreak: a change elsewhere breaks a template, which keeps no node from starting; one here is refused.
func TestTemplatesThatBreak(t *testing.T) {
	house(t, 2, func(_ *enginetest.Shared, nodes []*node) {
		a, b := nodes[0], nodes[1]
		a.write(map[string]string{"acme/footer.text": "ACME", "acme/other.text": "x", "acme/own.text": "x"})
		a.open()
		b.open()
		pass()
		b.reload(map[string]string{"acme/with.text": "with {{>footer}}"})
		pass()
		a.reload(map[string]string{"acme/footer.text": ""})
		pass()
		for _, n := range nodes {
			n.makes("with", "with ACME")
			n.logged("a template has a fault")
		}
		a.reload(map[string]string{"acme/other.text": "y"})
		pass()
		b.makes("other", "y")
		b.logged("")
		b.end()
		b.open()
		b.makes("with", "")
		b.logged("it is left out, and requests that name it are refused")

		// A file that needs what another node has made while this one was down.
		b.end()
		a.reload(map[string]string{"acme/foot.text": "foot"})
		pass()
		b.write(map[string]string{"acme/late.text": "{{>foot}}", "acme/other.text": "z {{>foot}}"})
		b.open()
		b.makes("late", "")
		b.makes("other", "y")
		b.logged("is left out until a reload")
		pass()
		b.reload(nil)
		b.makes("late", "foot")
		b.makes("other", "z foot")
		pass()
		a.makes("other", "z foot")
		b.log.Reset()

		refused := func(n *node, files map[string]string, want string) {
			t.Helper()
			n.write(files)
			if _, err := ReadFolder(n.folder, n.shared); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("node %d reads a folder with a fault: %v", n.me.Node, err)
			}
		}
		refused(b, map[string]string{"acme/with.text": "with {{>footer}} and {{>missing}}"}, "acme/with.text")
		b.reload(map[string]string{"acme/with.text": "without"})
		pass()
		a.makes("with", "without")

		a.reload(map[string]string{"acme/sub.text": "sub", "acme/top.text": "{{>sub}}"})
		refused(a, map[string]string{"acme/sub.text": ""}, "acme/top.text")
		a.reload(map[string]string{"acme/top.text": "top"})

		// An older copy, which is not in force, has a fault now.
		pass()
		b.reload(map[string]string{"acme/top.text": "top"})
		a.reload(map[string]string{"acme/part.text": "part", "acme/top.text": "{{>part}}"})
		pass()
		b.reload(map[string]string{"acme/top.text": "new {{>part}}"})
		pass()
		b.makes("top", "new part")
		a.reload(map[string]string{"acme/part.text": "", "acme/top.text": "none"})
		pass()
		b.makes("top", "none")
		b.reload(nil)
		b.makes("top", "none")
	})
}

// away is an engine that a node does not always reach, and over a slow line.
type away struct {
	changes.Engine
	now  atomic.Bool
	rate int // octets a second; 0: any
}

func (a *away) Changes(ctx context.Context, c changes.Call) (changes.Result, error) {
	if a.now.Load() {
		return changes.Result{}, errors.New("connection refused")
	}
	for _, p := range c.Parts {
		if a.rate == 0 {
			break
		}
		select {
		case <-time.After(time.Duration(len(p.Value)) * time.Second / time.Duration(a.rate)):
		case <-ctx.Done():
			return changes.Result{}, ctx.Err()
		}
	}
	return a.Engine.Changes(ctx, c)
}

// TestTemplatesAtOnce: two nodes change a template at once, one starts again meanwhile, or one is cut off. The change
// that reaches the database first counts, in whole, and a node whose change does not has the log name it.
func TestTemplatesAtOnce(t *testing.T) {
	house(t, 2, func(e *enginetest.Shared, nodes []*node) {
		a, b := nodes[0], nodes[1]
		line := &away{Engine: e}
		b.engine = line
		a.write(map[string]string{"acme/both.text": "x", "acme/b.text": "b"})
		a.open()
		pass()
		b.write(map[string]string{"acme/both.text": "y", "acme/b.text": "b"})
		b.open()
		pass()
		b.logged("that are not in force")
		for i, both := range [][2]string{{"a", strings.Repeat("b", 20000)}, {strings.Repeat("a", 30000), "b"}} {
			a.reload(map[string]string{"acme/both.text": both[0]})
			b.reload(map[string]string{"acme/both.text": both[1]})
			pass()
			of, is := a.stored.Stored("acme", "both")
			if !is {
				t.Fatalf("%d: neither counts", i)
			}
			m, err := of.Render(context.Background(), false)
			if err != nil || m.Text != both[0] && m.Text != both[1] {
				t.Errorf("%d: it makes %.50q, %v", i, m.Text, err)
			}
			b.makes("both", m.Text)
			if !strings.Contains(a.log.String()+b.log.String(), "that are not in force") {
				t.Errorf("%d: nothing is logged", i)
			}
			a.log.Reset()
			b.log.Reset()
		}

		line.now.Store(true)
		b.reload(map[string]string{"acme/both.text": strings.Repeat("later", 5000), "acme/b.text": ""})
		a.end()
		a.open()
		pass()
		a.reload(map[string]string{"acme/b.text": "newer"})
		time.Sleep(time.Minute)
		line.now.Store(false)
		time.Sleep(5 * time.Second)
		for _, n := range nodes {
			n.makes("both", strings.Repeat("later", 5000))
			n.makes("b", "newer")
		}

		// An old copy is removed.
		b.reload(map[string]string{"acme/b.text": "newest"})
		pass()
		a.reload(map[string]string{"acme/b.text": ""})
		a.logged("that are not in force")
		pass()
		b.makes("b", "newest")

		a.full = true
		a.reload(map[string]string{"acme/late.text": "late"})
		a.makes("late", "late")
		a.full = false
		a.reload(nil)
		pass()
		b.makes("late", "late")

		// The last one is long.
		b.reload(map[string]string{"acme/b.text": ""})
		b.reload(map[string]string{"acme/both.text": ""})
		pass()
		a.makes("both", "")
	})
}

// TestManyTemplates: what is more than a slow line carries in the time of a call goes in several.
func TestManyTemplates(t *testing.T) {
	house(t, 2, func(e *enginetest.Shared, nodes []*node) {
		a, b := nodes[0], nodes[1]
		a.engine = &away{Engine: e, rate: 1 << 18}
		files := make(map[string]string)
		for i := range 40 {
			files["acme/t"+strconv.Itoa(i)+".text"] = strings.Repeat("x", 8*maxChunk-i)
		}
		a.write(files)
		b.open()
		a.open()
		time.Sleep(2 * time.Minute)
		for i := range 40 {
			b.makes("t"+strconv.Itoa(i), strings.Repeat("x", 8*maxChunk-i))
		}
		b.logged("")
	})
}

// TestChunks: a file is there when all its chunks are, and what can be no chunk is refused.
func TestChunks(t *testing.T) {
	text := strings.Repeat("x", 3*maxChunk)
	chunks := sources{"acme/a.html": text, "acme/a.text": "", "acme/b.text": "y"}.chunks()
	if all, faults := joined(chunks, nil); len(faults) > 0 || all["acme/a.html"] != text || len(all) != 3 {
		t.Errorf("%d files, %v", len(all), faults)
	}
	before, _ := sources{"acme/a.html": "before"}.templates(nil)
	other, _ := sources{"acme/a.text": "text"}.templates(nil)
	for at, c := range chunks[:3] {
		some := append(append([]*Chunk{}, chunks[:at]...), chunks[at+1:]...)
		first := c.id.n == 0
		all, faults := joined(some, before)
		if want := map[bool]string{true: "", false: "before"}[first]; all["acme/a.html"] != want || first != (len(faults) == 0) {
			t.Errorf("without chunk %d: %q, %v", at, all["acme/a.html"], faults)
		}
		if all, _ := joined(some, nil); !first && len(all) != 1 {
			t.Errorf("without chunk %d, %d files", at, len(all))
		}
		if all, _ := joined(some, other); len(all) != 2 {
			t.Errorf("without chunk %d of a new file, %d files", at, len(all))
		}
		id, err := parseChunkID(c.id.name())
		if err != nil || id != c.id {
			t.Errorf("%q is %v, %v", c.id.name(), id, err)
		}
	}
	for _, name := range []string{"", "acme/a.htm", "acme/a.html#x/0", "acme/a.html#x/-1", "acme/a.html#x/01", "acme/a.html/1",
		"a.html#x/1", "/a.html", "acme/b/a.html", "acme/.html", "acme/\xff.html", "acme/b/a.html#x/1"} {
		if _, err := parseChunkID(name); err == nil {
			t.Errorf("%q is a chunk", name)
		}
	}
	for _, line := range []string{"", "1", "1 x", "0 x eA==", "x x eA==", "1 x ?", "1 x " + strings.Repeat("AAAA", maxChunk)} {
		if _, err := parseChunk(ChunkID{file: "acme/a.html"}, shared.Line{Line: line}); err == nil {
			t.Errorf("%.50q is a chunk", line)
		}
	}
	if _, err := parseChunk(ChunkID{"acme/a.html", "y", 1}, shared.Line{Line: "2 x eA=="}); err == nil {
		t.Error("a chunk of another version is one")
	}
}
