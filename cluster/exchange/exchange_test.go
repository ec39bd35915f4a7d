package exchange_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
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

// shelf is a store of values, whose ranks are in them.
type shelf struct {
	mu      sync.Mutex
	values  map[string][]byte
	note    func([]string) (func(), error)
	applied int
	fails   error
	age     func() time.Duration
	ages    []time.Duration // at each row
}

type value struct {
	Rank int
	Text string
}

// set changes a key as mail and operators do; "": there is nothing any more.
func (s *shelf) set(t *testing.T, key, text string, rank int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	done, err := s.note([]string{key, key})
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	delete(s.values, key)
	if text != "" {
		s.values[key], _ = json.Marshal(value{rank, text})
	}
}

func (s *shelf) All(_ context.Context, each func([]string) error) error {
	s.mu.Lock()
	var keys []string
	for key := range s.values {
		keys = append(keys, key)
	}
	s.mu.Unlock()
	return each(keys)
}

func (s *shelf) Get(_ context.Context, keys []string) (map[string][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.values), nil
}

func (s *shelf) Look(_ string, text []byte) (int, time.Time, error) {
	var v value
	err := json.Unmarshal(text, &v)
	return v.Rank, time.Time{}, err
}

func (s *shelf) Apply(_ context.Context, values map[string][]byte, stays func(string) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails != nil {
		return s.fails
	}
	for key, v := range values {
		if stays(key) {
			continue
		}
		s.applied++
		s.ages = append(s.ages, s.age())
		if delete(s.values, key); v != nil {
			s.values[key] = v
		}
	}
	return nil
}

// relay is a node, whose process can be ended and started.
type relay struct {
	t       *testing.T
	me      changes.Me
	path    string
	shelves map[string]*shelf
	lost    bool // its stores have lost something
	c       *exchange.Exchange
	end     func()
}

// house is a cluster.
type house struct {
	*testing.T
	relays []*relay

	mu      sync.Mutex // guards what follows
	away    error
	outcome func(changes.Call) error // of one that was carried out
	engine  *enginetest.Shared
}

var kinds = []string{"a", "b"}

// within has a test use some nodes in virtual time.
func within(t *testing.T, nodes int, test func(*house)) {
	t.Helper()
	dir := bubble.Folder(t)
	bubble.Test(t, func(t *testing.T) {
		h := &house{T: t}
		members := make(map[uint16]uint64)
		h.engine = enginetest.NewShared("era", func() map[uint16]uint64 { return members })
		for i := range nodes {
			r := &relay{t: t, me: changes.Me{Node: uint16(i + 1), Incarnation: 1},
				path: filepath.Join(dir, fmt.Sprint(i)), shelves: make(map[string]*shelf)}
			for _, kind := range kinds {
				r.shelves[kind] = &shelf{values: make(map[string][]byte)}
			}
			members[r.me.Node] = 1
			h.relays = append(h.relays, r)
			r.open()
		}
		test(h)
		for _, r := range h.relays {
			r.stop()
		}
	})
}

// flaky is the engine as a node reaches it.
type flaky struct{ h *house }

func (f flaky) Changes(ctx context.Context, c changes.Call) (r changes.Result, err error) {
	f.h.mu.Lock()
	if f.h.away == errHangs {
		f.h.mu.Unlock()
		<-ctx.Done()
		return r, errHangs
	}
	defer f.h.mu.Unlock()
	if err = f.h.away; err == nil {
		r, err = f.h.engine.Changes(ctx, c)
	}
	if err == nil && f.h.outcome != nil {
		err = f.h.outcome(c)
	}
	return r, err
}

func (f flaky) Readers(ctx context.Context, kind string) (map[uint16]uint64, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return f.h.engine.Readers(ctx, kind)
}

func (f flaky) Tidy(ctx context.Context, most int) (int, error) { return f.h.engine.Tidy(ctx, most) }

func (h *house) set(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

func (h *house) reach(err error) { h.set(func() { h.away = err }) }

// ends has calls that were carried out end so.
func (h *house) ends(f func(changes.Call) error) { h.set(func() { h.outcome = f }) }

var (
	errAway    = errors.New("connection refused")
	errHangs   = errors.New("no answer")
	errUnknown = errors.New("the outcome is unknown")
)

// open begins a process that does not take part yet.
func (r *relay) open() {
	c, err := exchange.Open(exchange.Config{Path: r.path, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		r.t.Fatal(err)
	}
	for kind, s := range r.shelves {
		s.age = c.Age
		s.note = func(keys []string) (func(), error) { return c.Note(kind, keys) }
		if err := c.Add(kind, s, r.lost); err != nil {
			r.t.Fatal(err)
		}
	}
	r.c, r.end = c, func() {}
}

// run has the process take part.
func (h *house) run(some ...*relay) {
	for _, r := range some {
		r.run(flaky{h})
	}
}

func (r *relay) run(e changes.Engine) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { r.c.Run(ctx, r.me, e) })
	r.end = func() { cancel(); all.Wait() }
}

// late is the engine whose answers take 3 s.
type late struct{ flaky }

func (l late) Changes(ctx context.Context, c changes.Call) (changes.Result, error) {
	r, err := l.flaky.Changes(ctx, c)
	time.Sleep(3 * time.Second)
	return r, err
}

func (r *relay) stop() {
	r.end()
	if err := r.c.Close(); err != nil {
		r.t.Error(err)
	}
}

func (r *relay) restart(h *house) {
	r.stop()
	r.open()
	h.run(r)
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// has checks what a node has of a key.
func (r *relay) has(kind, key, want string) {
	r.t.Helper()
	s := r.shelves[kind]
	s.mu.Lock()
	defer s.mu.Unlock()
	var v value
	_ = json.Unmarshal(s.values[key], &v)
	if v.Text != want {
		r.t.Errorf("node %d has %q of %s; want %q", r.me.Node, v.Text, key, want)
	}
}

func (h *house) all(kind, key, want string) {
	h.Helper()
	for _, r := range h.relays {
		r.has(kind, key, want)
	}
}

func (h *house) row(kind, key string) (row changes.Row) {
	h.engine.Do(func(rows map[[2]string]changes.Row) { row = rows[[2]string{kind, key}] })
	return row
}

func TestAllNodesKnowWithinASecond(t *testing.T) {
	within(t, 3, func(h *house) {
		h.run(h.relays...)
		pass(5 * time.Second)
		for step, text := range []string{"1", "2", ""} {
			h.relays[step%3].shelves["a"].set(t, "k", text, 1)
			pass(time.Second)
			h.all("a", "k", text)
		}
		row := h.row("a", "k")
		if pass(time.Minute); row.Number != 3 || h.row("a", "k").Number != 3 || row.Node != 3 {
			t.Errorf("the row is %+v: what is applied is not sent again", row)
		}
		for _, r := range h.relays {
			if why := r.c.Trouble(); why != "" {
				t.Error(why)
			}
		}
	})
}

// TestTheAgeOfRows: a node that reads all the time knows it within a second, and none knows less than it is.
func TestTheAgeOfRows(t *testing.T) {
	const forever = time.Duration(math.MaxInt64)
	within(t, 2, func(h *house) {
		a, b := h.relays[0], h.relays[1]
		age := func(what string, least, most time.Duration) {
			t.Helper()
			pass(3 * time.Second)
			s := b.shelves["a"]
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.ages) == 0 || slices.Min(s.ages) < least || slices.Max(s.ages) > most {
				t.Errorf("%s: the ages are %v; want from %v to %v", what, s.ages, least, most)
			}
			s.ages = nil
		}
		set := func(text string) { a.shelves["a"].set(t, "k", text, 1) }
		h.run(a)
		set("1")
		pass(time.Minute)
		h.run(b)
		age("to a node that joins", forever, forever)
		set("2")
		age("in time", 1, 1100*time.Millisecond)
		b.end()
		set("3")
		pass(time.Minute)
		h.run(b)
		age("to a node that took no part", time.Minute, 65*time.Second)
		set("4")
		pass(10 * time.Millisecond)
		b.stop()
		pass(time.Minute)
		b.open()
		h.run(b)
		age("to a new process", forever, forever)
		set("5")
		age("in time again", 1, 1100*time.Millisecond)
		b.end()
		b.run(late{flaky{h}})
		pass(18 * time.Second) // an answer is on its way
		set("6")
		pass(10 * time.Second)
		age("of late answers", 5*time.Second, 7*time.Second)
		h.engine.Copy()(true)
		pass(10 * time.Second)
		age("on another timeline", forever, forever)
	})
}

// TestTheAgeOfRowsOfAnotherEngine is not known.
func TestTheAgeOfRowsOfAnotherEngine(t *testing.T) {
	within(t, 1, func(h *house) {
		a := h.relays[0]
		h.run(a)
		pass(time.Minute)
		other := enginetest.NewShared("another", h.engine.Members)
		other.Do(func(rows map[[2]string]changes.Row) {
			rows[[2]string{"a", "k"}] = changes.Row{Kind: "a", Key: "k", Number: 1, Node: 9, Rank: 1, Value: []byte(`{"Rank":1}`)}
		})
		other.Advance(1)
		h.set(func() { h.engine = other })
		pass(5 * time.Second)
		s := a.shelves["a"]
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.ages) == 0 || slices.Min(s.ages) != math.MaxInt64 {
			t.Errorf("the ages are %v", s.ages)
		}
	})
}

// TestTheWayBack: a node goes back to a version that does not know a kind.
func TestTheWayBack(t *testing.T) {
	within(t, 2, func(h *house) {
		a, b := h.relays[0], h.relays[1]
		h.run(a, b)
		a.shelves["b"].set(t, "k", "1", 1)
		pass(2 * time.Second)
		h.all("b", "k", "1")
		shelf := b.shelves["b"]
		last := uint64(0)
		h.engine.Do(func(rows map[[2]string]changes.Row) { // a row that can't be applied
			at := [2]string{"b", "k"}
			row := rows[at]
			row.Number, row.Value = row.Number+1, []byte("edited")
			rows[at] = row
			last = row.Number
		})
		h.engine.Advance(last)
		pass(2 * time.Second)
		delete(b.shelves, "b")
		b.restart(h)
		pass(2 * time.Minute)
		a.shelves["b"].set(t, "k", "2", 1)
		a.shelves["a"].set(t, "k", "2", 1)
		pass(20 * time.Second)
		b.has("a", "k", "2")
		if why := b.c.Trouble(); why != "" {
			t.Error(why)
		}
		if why := a.c.Behind(context.Background(), "b"); !strings.Contains(why, "node 2 of the cluster") {
			t.Errorf("behind: %q", why)
		}
		b.shelves["b"] = shelf
		b.restart(h)
		pass(2 * time.Second)
		h.all("b", "k", "2")
	})
}

// TestWhatWaitsOverridesNothing: node 1 is cut off, as the others go on.
func TestWhatWaitsOverridesNothing(t *testing.T) {
	within(t, 2, func(h *house) {
		a, b := h.relays[0], h.relays[1]
		h.run(a, b)
		a.shelves["a"].set(t, "pause", "begun", 1)
		a.shelves["a"].set(t, "other", "begun", 1)
		pass(3 * time.Second)
		a.end()
		a.end = func() {}
		a.shelves["a"].set(t, "pause", "slower", 1)
		a.shelves["a"].set(t, "wish", "unsubscribed", 2)
		a.shelves["a"].set(t, "other", "", 0)
		b.shelves["a"].set(t, "pause", "", 0)
		b.shelves["a"].set(t, "pause", "anew", 1)
		b.shelves["a"].set(t, "wish", "added", 1)
		b.shelves["a"].set(t, "wish", "", 0)
		b.shelves["a"].set(t, "later", "1", 1)
		pass(3 * time.Second)
		a.restart(h)
		pass(3 * time.Second)
		h.all("a", "pause", "anew")
		h.all("a", "wish", "unsubscribed")
		h.all("a", "other", "")
		h.all("a", "later", "1")
	})
}

// TestTheEngineIsAway: both change the same keys meanwhile, and processes end.
func TestTheEngineIsAway(t *testing.T) {
	within(t, 3, func(h *house) {
		h.run(h.relays...)
		pass(3 * time.Second)
		h.reach(errAway)
		for i, r := range h.relays {
			r.shelves["a"].set(t, "k", fmt.Sprint("of ", i), 1)
			r.shelves["b"].set(t, fmt.Sprint(i), "1", 1)
			r.shelves["b"].set(t, fmt.Sprint(i), "2", 1)
		}
		pass(20 * time.Second)
		if why := h.relays[0].c.Trouble(); !strings.Contains(why, "not exchanged: connection refused") {
			t.Errorf("trouble: %q", why)
		}
		h.relays[1].restart(h)
		for _, r := range h.relays {
			if n := r.c.Waiting(); n != 2 {
				t.Errorf("%d changes of node %d wait; want 2", n, r.me.Node)
			}
		}
		h.reach(nil)
		pass(5 * time.Second)
		for _, r := range h.relays {
			if n := r.c.Waiting(); n != 0 {
				t.Errorf("%d changes of node %d wait at the end", n, r.me.Node)
			}
		}
		var v value
		_ = json.Unmarshal(h.row("a", "k").Value, &v)
		h.all("a", "k", v.Text)
		for i := range h.relays {
			h.all("b", fmt.Sprint(i), "2")
		}
		if why := h.relays[0].c.Trouble(); why != "" {
			t.Error(why)
		}
	})
}

func TestACrashBetweenApplyAndPosition(t *testing.T) {
	within(t, 2, func(h *house) {
		a, b := h.relays[0], h.relays[1]
		h.run(a, b)
		pass(2 * time.Second)
		a.shelves["a"].set(t, "k", "1", 1)
		pass(2 * time.Second)
		b.stop()
		copied := readFile(t, b.path)
		b.open()
		h.run(b)
		a.shelves["a"].set(t, "k", "2", 1)
		pass(2 * time.Second)
		b.stop() // the file is as before the change, the shelf is not
		writeFile(t, b.path, copied)
		applied := b.shelves["a"].applied
		b.open()
		h.run(b)
		pass(2 * time.Second)
		h.all("a", "k", "2")
		if b.shelves["a"].applied != applied+1 {
			t.Errorf("it is applied %d times more", b.shelves["a"].applied-applied)
		}
	})
}

// TestACrashBeforeTheChange: a key was noted, and its change was not made, or was.
func TestACrashBeforeTheChange(t *testing.T) {
	within(t, 2, func(h *house) {
		a, b := h.relays[0], h.relays[1]
		h.run(a, b)
		pass(2 * time.Second)
		s := a.shelves["a"]
		done, err := s.note([]string{"k"})
		if err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second) // between the note and the change nothing is sent
		if row := h.row("a", "k"); row.Number != 0 {
			t.Errorf("sent before it was changed: %+v", row)
		}
		s.mu.Lock()
		s.values["k"], _ = json.Marshal(value{1, "1"})
		s.mu.Unlock()
		a.restart(h) // it never is done
		pass(2 * time.Second)
		h.all("a", "k", "1")
		done()
	})
}

func TestAnAnswerThatIsLost(t *testing.T) {
	within(t, 2, func(h *house) {
		a, b := h.relays[0], h.relays[1]
		h.run(a, b)
		pass(2 * time.Second)
		h.ends(func(c changes.Call) error {
			if c.Node == 1 && len(c.Parts) > 0 {
				return errUnknown
			}
			return nil
		})
		a.shelves["a"].set(t, "k", "wish", 2)
		pass(2 * time.Second)
		b.has("a", "k", "wish")
		b.shelves["a"].set(t, "k", "", 0) // an operator who knows of it
		pass(2 * time.Second)
		h.ends(nil)
		pass(5 * time.Second)
		h.all("a", "k", "")
	})
}

func TestANewNodeGetsAllAndGivesAll(t *testing.T) {
	within(t, 3, func(h *house) {
		a, b, c := h.relays[0], h.relays[1], h.relays[2]
		const many = 3500
		for i := range many {
			a.shelves["a"].values[fmt.Sprint(i)], _ = json.Marshal(value{1, "a"})
			b.shelves["a"].values[fmt.Sprint(i+many/2)], _ = json.Marshal(value{1, "b"})
		}
		h.run(a)
		pass(10 * time.Second)
		a.shelves["a"].set(t, "0", "", 0)
		pass(2 * time.Second)
		h.run(b, c)
		pass(20 * time.Second)
		h.all("a", "0", "")
		h.all("a", "1", "a")
		h.all("a", fmt.Sprint(many), "b")
		h.all("a", fmt.Sprint(many/2), "a") // which the engine had
		if n := len(c.shelves["a"].values); n != many+many/2-1 {
			t.Errorf("%d of %d", n, many+many/2-1)
		}
	})
}

// TestAllWasReadOnce is known when it was, and after a restart.
func TestAllWasReadOnce(t *testing.T) {
	within(t, 2, func(h *house) {
		a, b := h.relays[0], h.relays[1]
		const many = 3500
		for i := range many {
			a.shelves["a"].values[fmt.Sprint(i)], _ = json.Marshal(value{1, "a"})
		}
		h.run(a)
		pass(10 * time.Second)
		if b.c.Whole() {
			t.Error("all was read before there was a call")
		}
		h.run(b)
		for began := time.Now(); !b.c.Whole() && time.Since(began) < time.Minute; {
			time.Sleep(time.Millisecond)
		}
		b.shelves["a"].mu.Lock()
		n := len(b.shelves["a"].values)
		b.shelves["a"].mu.Unlock()
		if n != many || !b.c.Whole() {
			t.Errorf("%d of %d were read, %v", n, many, b.c.Whole())
		}
		b.restart(h)
		if !b.c.Whole() {
			t.Error("that is forgotten")
		}
	})
}

// TestAnotherEngine: a schema made anew, a failover, and one that has lost changes.
func TestAnotherEngine(t *testing.T) {
	within(t, 2, func(h *house) {
		a, b := h.relays[0], h.relays[1]
		h.run(a, b)
		a.shelves["a"].set(t, "k", "1", 1)
		pass(2 * time.Second)
		restore := h.engine.Copy()
		b.shelves["a"].set(t, "j", "1", 1)
		pass(2 * time.Second)
		restore(false)
		a.shelves["a"].set(t, "k", "2", 1)
		pass(20 * time.Second)
		for _, r := range h.relays {
			if why := r.c.Trouble(); !strings.Contains(why, "has lost changes") {
				t.Errorf("trouble: %q", why)
			}
		}
		if row := h.row("a", "k"); row.Number != 1 {
			t.Errorf("it is written into: %+v", row)
		}
		h.set(func() { h.engine = enginetest.NewShared("another era", h.engine.Members) })
		pass(5 * time.Second)
		var v value
		_ = json.Unmarshal(h.row("a", "k").Value, &v)
		h.all("a", "k", v.Text)
		h.all("a", "j", "1")
		if why := a.c.Trouble(); why != "" {
			t.Error(why)
		}
	})
}

// TestAFailover: what a reader saw was never acknowledged, and its number belongs to another change now.
func TestAFailover(t *testing.T) {
	within(t, 3, func(h *house) {
		a, b, c := h.relays[0], h.relays[1], h.relays[2]
		h.run(a, b, c)
		pass(2 * time.Second)
		restore := h.engine.Copy()
		h.ends(func(c changes.Call) error {
			if c.Node == 1 {
				return errUnknown
			}
			return nil
		})
		c.stop()
		a.shelves["a"].set(t, "j", "1", 1)
		pass(2 * time.Second)
		b.has("a", "j", "1")
		for _, r := range []*relay{a, b} {
			r.end()
			r.end = func() {}
		}
		restore(true)
		h.ends(nil)
		c.open()
		h.run(c)
		c.shelves["a"].set(t, "first", "1", 1)
		pass(5 * time.Second)
		a.restart(h)
		pass(5 * time.Second)
		b.restart(h)
		pass(5 * time.Second)
		h.all("a", "j", "1")
		h.all("a", "first", "1")
		if row := h.row("a", "first"); row.Number != 1 {
			t.Errorf("it has another number than the one that was lost: %+v", row)
		}
	})
}

// TestAChangeWhileAllIsReadAnew: node 1 knows what it removes, though its position was set back.
func TestAChangeWhileAllIsReadAnew(t *testing.T) {
	within(t, 2, func(h *house) {
		a, b := h.relays[0], h.relays[1]
		h.run(a, b)
		pass(2 * time.Second)
		b.shelves["a"].set(t, "pause", "begun", 1)
		pass(2 * time.Second)
		a.has("a", "pause", "begun")
		set := false
		h.ends(func(c changes.Call) error {
			if c.Node == 1 && c.After["a"] == 0 && !set {
				set = true
				a.shelves["a"].set(t, "pause", "", 0)
			}
			return nil
		})
		h.engine.Copy()(true)
		pass(5 * time.Second)
		if !set {
			t.Error("nothing was read anew")
		}
		h.all("a", "pause", "")
	})
}

// TestAStoreThatWentBack: what it lost is in the engine, or in the outbox. That it was lost outlives the process.
func TestAStoreThatWentBack(t *testing.T) {
	within(t, 2, func(h *house) {
		a, b := h.relays[0], h.relays[1]
		h.run(a, b)
		s := a.shelves["a"]
		s.set(t, "k", "added", 1)
		b.shelves["a"].set(t, "j", "of 2", 1)
		pass(2 * time.Second)
		old := maps.Clone(s.values)
		s.set(t, "k", "unsubscribed", 2)
		pass(2 * time.Second)
		a.end()
		h.reach(errAway)
		s.set(t, "waits", "1", 1)
		a.end = func() {}
		old["waits"] = s.values["waits"]
		s.values, a.lost = old, true
		delete(s.values, "j")
		a.restart(h)
		pass(5 * time.Second)
		a.lost = false
		a.restart(h)
		h.reach(nil)
		pass(5 * time.Second)
		h.all("a", "k", "unsubscribed")
		h.all("a", "j", "of 2")
		h.all("a", "waits", "1")
	})
}

// TestAStopSendsWhatWaits, and waits a little for an engine that has answered, and not for one that is away.
func TestAStopSendsWhatWaits(t *testing.T) {
	within(t, 2, func(h *house) {
		a, b := h.relays[0], h.relays[1]
		stop := func(want time.Duration) {
			t.Helper()
			began := time.Now()
			a.end()
			if d := time.Since(began); d != want {
				t.Errorf("it takes %v; want %v", d, want)
			}
			a.end = func() {}
		}
		h.run(a, b)
		pass(2 * time.Second)
		for i := range 2500 {
			a.shelves["a"].set(t, fmt.Sprint(i), "1", 1)
		}
		stop(0)
		pass(5 * time.Second)
		b.has("a", "0", "1")
		b.has("a", "2499", "1")
		h.run(a)
		pass(2 * time.Second)
		a.shelves["a"].set(t, "0", "2", 1)
		h.reach(errHangs)
		stop(5 * time.Second)
		h.reach(errAway)
		h.run(a)
		pass(time.Second)
		h.reach(errHangs)
		stop(0)
		h.reach(nil)
		h.run(a)
		pass(20 * time.Second)
		b.has("a", "0", "2")
	})
}

// TestAKeyThatWaitsIsNotOverridden: node 2 reads about keys that it has changed and not sent yet.
func TestAKeyThatWaitsIsNotOverridden(t *testing.T) {
	within(t, 2, func(h *house) {
		a, b := h.relays[0], h.relays[1]
		h.run(a, b)
		pass(2 * time.Second)
		done, err := b.shelves["b"].note([]string{"another"}) // nothing behind it is sent
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"equal", "wish", "again"} {
			b.shelves["a"].set(t, key, "of 2", 1)
		}
		b.shelves["a"].set(t, "wish", "of 2", 2)
		for _, key := range []string{"equal", "wish", "again"} {
			a.shelves["a"].set(t, key, "of 1", 1)
		}
		pass(2 * time.Second)
		for _, key := range []string{"equal", "wish", "again"} {
			b.has("a", key, "of 2")
		}
		b.shelves["a"].set(t, "again", "of 2, again", 1)
		done()
		pass(3 * time.Second)
		h.all("a", "equal", "of 1")
		h.all("a", "wish", "of 2")
		h.all("a", "again", "of 1")
	})
}

// TestANodeKnowsItsOwnChanges, also before it has read them.
func TestANodeKnowsItsOwnChanges(t *testing.T) {
	within(t, 2, func(h *house) {
		a := h.relays[0]
		h.run(h.relays...)
		pass(2 * time.Second)
		again := true
		h.ends(func(c changes.Call) error {
			if again && c.Node == 1 && len(c.Parts) > 0 {
				again = false
				a.shelves["a"].set(t, "k", "2", 1)
			}
			return nil
		})
		a.shelves["a"].set(t, "k", "1", 1)
		pass(3 * time.Second)
		h.all("a", "k", "2")
	})
}

func TestRowsThatSomebodyEdited(t *testing.T) {
	within(t, 2, func(h *house) {
		a, b := h.relays[0], h.relays[1]
		h.run(a, b)
		pass(2 * time.Second)
		for i := range 5 {
			a.shelves["a"].set(t, fmt.Sprint(i), "1", 1)
		}
		pass(2 * time.Second)
		edit := func(key string, f func(*changes.Row)) {
			h.engine.Do(func(rows map[[2]string]changes.Row) {
				row := rows[[2]string{"a", key}]
				row.Number += 100
				f(&row)
				rows[[2]string{"a", key}] = row
			})
		}
		edit("0", func(r *changes.Row) { r.Value = []byte("{") })
		edit("1", func(r *changes.Row) { r.Size = 1 << 30 })
		edit("2", func(r *changes.Row) { r.Value = []byte(`{"Text": "2"}`) })
		h.engine.Do(func(rows map[[2]string]changes.Row) {
			rows[[2]string{"x", "y"}] = changes.Row{Kind: "x", Key: "y", Number: 200, Value: []byte("1")}
		})
		h.engine.Advance(300)
		pass(3 * time.Second)
		h.all("a", "0", "1")
		h.all("a", "1", "1")
		h.all("a", "2", "2")
		for _, r := range h.relays {
			if why := r.c.Trouble(); !strings.Contains(why, `row 101 of the cluster's database, of kind a and node 1`) {
				t.Errorf("trouble: %q", why)
			}
		}
		b.restart(h)
		pass(2 * time.Second)
		if why := b.c.Trouble(); !strings.Contains(why, "row 101 ") {
			t.Errorf("after a restart: %q", why)
		}
		edit("0", func(r *changes.Row) { r.Number, r.Value = 101, []byte(`{"Text": "mended"}`) })
		a.shelves["a"].set(t, "1", "3", 1)
		pass(3 * time.Minute)
		h.all("a", "0", "mended")
		h.all("a", "1", "3")
		for _, r := range h.relays {
			if why := r.c.Trouble(); why != "" {
				t.Error(why)
			}
		}
	})
}

// A row of a node that can't be, or with a number that was not given yet, is named and left out, and hides no other.
func TestRowsThatNobodyWrote(t *testing.T) {
	within(t, 2, func(h *house) {
		a, b := h.relays[0], h.relays[1]
		h.run(a, b)
		pass(2 * time.Second)
		for i := range 3 {
			a.shelves["a"].set(t, fmt.Sprint(i), "1", 1)
		}
		pass(2 * time.Second)
		edit := func(key string, f func(*changes.Row)) {
			h.engine.Do(func(rows map[[2]string]changes.Row) {
				row := rows[[2]string{"a", key}]
				row.Value = []byte(`{"Rank": 5, "Text": "edited"}`)
				f(&row)
				rows[[2]string{"a", key}] = row
			})
		}
		edit("0", func(r *changes.Row) { r.Number, r.Node, r.Rank = 1_000_000, 2, 5 })
		edit("1", func(r *changes.Row) {
			r.Number, r.Node, r.Fault = 6, 0, errors.New("it has node 70000 and number 6")
		})
		h.engine.Advance(10)
		a.shelves["a"].set(t, "2", "2", 1)
		a.shelves["a"].set(t, "0", "2", 1) // the edited row is of a higher rank
		pass(3 * time.Second)
		h.all("a", "2", "2")
		a.has("a", "0", "2")
		b.has("a", "0", "1")
		b.has("a", "1", "1")
		for _, r := range h.relays {
			for _, want := range []string{"row 1000000 of the cluster's database, of kind a and node 2, is not applied: " +
				"the newest number is ", "row 6 of the cluster's database, of kind a and node 0, is not applied: it has " +
				"node 70000"} {
				if why := r.c.Trouble(); !strings.Contains(why, want) {
					t.Errorf("trouble: %q, want %q", why, want)
				}
			}
		}
		h.engine.Do(func(rows map[[2]string]changes.Row) {
			delete(rows, [2]string{"a", "0"})
			delete(rows, [2]string{"a", "1"})
		})
		pass(3 * time.Minute)
		a.shelves["a"].set(t, "2", "3", 1)
		pass(2 * time.Second)
		h.all("a", "2", "3")
		for _, r := range h.relays {
			if why := r.c.Trouble(); why != "" {
				t.Error(why)
			}
		}
	})
}

// TestASerialThatSomebodyRaised loses no change: by it the database would take those that follow for repeated ones.
func TestASerialThatSomebodyRaised(t *testing.T) {
	within(t, 2, func(h *house) {
		a, b := h.relays[0], h.relays[1]
		h.run(a, b)
		pass(2 * time.Second)
		a.shelves["a"].set(t, "k", "1", 1)
		pass(2 * time.Second)
		raise := func(by uint64) {
			h.engine.Serials(func(all map[changes.Me]uint64) {
				for me := range all {
					if me.Node == 1 {
						all[me] += by
					}
				}
			})
		}
		const by = 1 << 40
		raise(by)
		a.shelves["a"].set(t, "k", "2", 1)
		pass(20 * time.Second)
		b.has("a", "k", "1")
		if why := a.c.Trouble(); !strings.Contains(why, "the row of node 1 in mta_cluster.readers has the serial 10995") {
			t.Errorf("trouble: %q", why)
		}
		raise(math.MaxUint64 - by + 1)
		pass(time.Minute)
		h.all("a", "k", "2")
	})
}

// TestAChangeThatCannotBeSent is an alarm until a later one of its kind is sent. Its key may be an address.
func TestAChangeThatCannotBeSent(t *testing.T) {
	within(t, 2, func(h *house) {
		a := h.relays[0]
		h.run(h.relays...)
		pass(2 * time.Second)
		trouble := func(want string) {
			t.Helper()
			pass(2 * time.Second)
			if why := a.c.Trouble(); !strings.HasPrefix(why, want) || (why == "") != (want == "") ||
				strings.Contains(why, "@") {
				t.Errorf("trouble: %q; want %q", why, want)
			}
		}
		for serial, text := range []string{"", strings.Repeat("x", changes.MaxValue)} {
			a.end() // both go in one call
			a.shelves["a"].set(t, "first@x.example", text, 1)
			a.shelves["a"].set(t, "later@x.example", "1", 1)
			h.run(a)
			if text == "" {
				trouble("")
				continue
			}
			trouble(fmt.Sprintf("change %d of node 1, of kind a, is not sent to the others: it has 16", 2*serial+1))
		}
		a.shelves["b"].set(t, "k", "1", 1)
		trouble("change 3 of node 1, of kind a, is not sent")
		a.shelves["a"].set(t, "k", "1", 1)
		trouble("")
	})
}

// TestWhatIsNotSentHasNoSerial: a call that has nothing else, before and after a restart.
func TestWhatIsNotSentHasNoSerial(t *testing.T) {
	within(t, 2, func(h *house) {
		a := h.relays[0]
		h.run(h.relays...)
		pass(2 * time.Second)
		for i := range 4 {
			if i == 2 {
				a.restart(h)
			}
			a.shelves["a"].set(t, "long", strings.Repeat("x", changes.MaxValue), 1)
			pass(2 * time.Second)
			a.shelves["a"].set(t, "k", fmt.Sprint(i), 1)
			pass(2 * time.Second)
			h.all("a", "k", fmt.Sprint(i))
			if why := a.c.Behind(context.Background(), "a"); why != "" {
				t.Errorf("behind: %q", why)
			}
		}
	})
}

func TestAStoreThatFails(t *testing.T) {
	within(t, 2, func(h *house) {
		a, b := h.relays[0], h.relays[1]
		h.run(a, b)
		pass(2 * time.Second)
		fail := func(err error) {
			b.shelves["a"].mu.Lock()
			defer b.shelves["a"].mu.Unlock()
			b.shelves["a"].fails = err
		}
		fail(errors.New("disk full"))
		a.shelves["a"].set(t, "k", "1", 1)
		pass(30 * time.Second)
		if why := b.c.Trouble(); !strings.Contains(why, "a: disk full") {
			t.Errorf("trouble: %q", why)
		}
		b.has("a", "k", "")
		fail(nil)
		pass(5 * time.Second)
		b.has("a", "k", "1")
	})
}

func TestWhoHasNotReadIsNamed(t *testing.T) {
	within(t, 3, func(h *house) {
		a, c := h.relays[0], h.relays[2]
		h.run(h.relays...)
		pass(3 * time.Second)
		behind := func() string { return a.c.Behind(context.Background(), "a") }
		a.shelves["a"].set(t, "k", "1", 1)
		began := time.Now()
		if why := behind(); why != "" || time.Since(began) > 2*time.Second {
			t.Errorf("%q after %v", why, time.Since(began))
		}
		c.end()
		c.end = func() {}
		a.shelves["a"].set(t, "k", "2", 1)
		began = time.Now()
		if why := behind(); !strings.HasPrefix(why, "node 3 of the cluster: ") || time.Since(began) > 6*time.Second {
			t.Errorf("%q after %v; want node 3", why, time.Since(began))
		}
		h.reach(errAway)
		a.shelves["a"].set(t, "k", "3", 1)
		if why := behind(); !strings.Contains(why, "other nodes yet: the cluster's database has not taken it") {
			t.Errorf("%q", why)
		}
	})
}

// TestWhatAllHaveReadIsDeleted is about removed keys.
func TestWhatAllHaveReadIsDeleted(t *testing.T) {
	within(t, 2, func(h *house) {
		a, b := h.relays[0], h.relays[1]
		h.run(a, b)
		a.shelves["a"].set(t, "k", "1", 1)
		pass(2 * time.Second)
		b.end()
		b.end = func() {}
		a.shelves["a"].set(t, "k", "", 0)
		pass(2 * time.Hour)
		if row := h.row("a", "k"); row.Number == 0 {
			t.Error("it is deleted before node 2 has read it")
		}
		b.restart(h)
		pass(2 * time.Hour)
		if row := h.row("a", "k"); row.Number != 0 {
			t.Errorf("it is there: %+v", row)
		}
		h.all("a", "k", "")
	})
}

// TestAnySchedule has nodes change few keys at random, while the engine is away, answers are lost, processes end and the
// engine fails over; then all have what the engine has, and no wish was lost but by somebody who knew of it.
func TestAnySchedule(t *testing.T) {
	for seed := range uint64(6) {
		within(t, 3, func(h *house) {
			random, chance := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
			h.ends(func(changes.Call) error {
				if chance.IntN(5) == 0 {
					return errUnknown
				}
				return nil
			})
			h.run(h.relays...)
			for range 150 {
				r := h.relays[random.IntN(3)]
				switch what := random.IntN(20); what {
				case 0:
					r.restart(h)
				case 1:
					h.reach(errAway)
				case 2, 3:
					h.reach(nil)
				default:
					kind, key := kinds[random.IntN(2)], fmt.Sprint(random.IntN(4))
					if rank := random.IntN(3); rank == 0 {
						r.shelves[kind].set(t, key, "", 0)
					} else {
						r.shelves[kind].set(t, key, fmt.Sprint(random.IntN(1000)), rank)
					}
				}
				pass(time.Duration(random.IntN(800)) * time.Millisecond)
			}
			h.reach(nil)
			h.ends(nil)
			pass(20 * time.Second)
			for _, kind := range kinds {
				for i := range 4 {
					key := fmt.Sprint(i)
					var v value
					_ = json.Unmarshal(h.row(kind, key).Value, &v)
					h.all(kind, key, v.Text)
				}
			}
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		})
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func writeFile(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
