package owner

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/cluster/term"
)

var terms = term.Term{Length: 3 * time.Minute, Drift: 200e-6}

// table is an engine without faults.
type table struct {
	rows     [Shards]Head
	origin   Origin
	reserves map[uint16]*Reserve
}

func (e *table) do(c Call) Result {
	r := Result{Number: c.Number, Heads: new([Shards]Head), Origin: e.origin, Books: make(map[int][]Entry)}
	for i := range c.Parts {
		p := &c.Parts[i]
		ok := p.Fits(e.rows[p.Shard])
		if r.Done = append(r.Done, ok); ok {
			clock := e.rows[p.Shard].Clock + 1
			e.rows[p.Shard] = p.To
			e.rows[p.Shard].Clock = clock
		}
	}
	*r.Heads = e.rows
	e.wish(c.Wish)
	for _, x := range e.reserves {
		if c.Reserves && x != nil {
			r.Reserves = append(r.Reserves, *x)
		}
	}
	return r
}

func (e *table) wish(w *Wish) {
	if w == nil {
		return
	}
	var others []Reserve
	for node, x := range e.reserves {
		if x != nil && node != w.Node {
			others = append(others, *x)
		}
	}
	if e.reserves == nil {
		e.reserves = make(map[uint16]*Reserve)
	}
	e.reserves[w.Node], _ = w.Apply(e.reserves[w.Node], others, false)
}

// one is an engine at which node 1 owns all shards, except shard 0 of another one.
func one(zero Head) *table {
	e := &table{origin: Origin{7, 1}}
	for s := range e.rows {
		e.rows[s] = Head{Node: 1, Incarnation: 1, Boot: 1, Epoch: 1, Beat: 1}
	}
	e.rows[0] = zero
	return e
}

// beat has node 1 be heard of in all shards but 0.
func (e *table) beat() {
	for s := range e.rows[1:] {
		e.rows[s+1].Beat++
	}
}

func keeper(node uint16, m Memory) *Keeper {
	return New(Config{Node: node, Incarnation: 1, Boot: uint64(node), Term: terms, Rand: rand.New(rand.NewPCG(1, 1)),
		Memory: m})
}

func none(int) []Entry { return nil }

// call makes a call and brings its result.
func call(t *testing.T, k *Keeper, e *table, now time.Duration) (Call, Events) {
	t.Helper()
	c, ok := k.Call(now, none)
	if !ok {
		t.Fatalf("no call at %v", now)
	}
	return c, k.Result(now, e.do(c))
}

// takes reads each second from a moment on, and returns when the keeper takes shard 0.
func takes(t *testing.T, k *Keeper, e *table, from, until time.Duration) (time.Duration, bool) {
	t.Helper()
	for now := from; now <= until; now += time.Second {
		e.beat()
		if _, events := call(t, k, e, now); len(events.Taken) > 0 {
			return now, true
		}
	}
	return 0, false
}

var other = Head{Node: 2, Incarnation: 1, Boot: 2, Epoch: 5, Beat: 70}

func TestAShardIsTakenAfterATermOfSilence(t *testing.T) {
	k, e := keeper(3, Memory{}), one(other)
	at, ok := takes(t, k, e, 0, 10*time.Minute)
	if !ok || at < terms.Waits() || at > terms.Waits()+5*time.Second {
		t.Errorf("taken: %v, after %v, want %v", ok, at, terms.Waits())
	}
	if e.rows[0].Node != 3 || e.rows[0].Epoch != 6 || e.rows[0].Beat != 71 {
		t.Errorf("the row is %+v", e.rows[0])
	}
}

func TestABeatBeginsTheWaitAnew(t *testing.T) {
	k, e := keeper(3, Memory{}), one(other)
	takes(t, k, e, 0, 2*time.Minute)
	e.rows[0].Beat++
	if at, ok := takes(t, k, e, 2*time.Minute, 2*time.Minute+terms.Length); ok {
		t.Errorf("taken after %v", at)
	}
}

func TestAGapInReadingBeginsTheWaitAnew(t *testing.T) {
	k, e := keeper(3, Memory{}), one(other)
	takes(t, k, e, 0, time.Minute)
	if at, ok := takes(t, k, e, 4*time.Minute, 4*time.Minute+terms.Length); ok {
		t.Errorf("taken after %v, with a gap of three minutes", at)
	}
}

func TestATakeOverLosesToABeat(t *testing.T) {
	k, e := keeper(3, Memory{}), one(other)
	now := time.Duration(0)
	for ; ; now += time.Second {
		e.beat()
		c, _ := k.Call(now, none)
		if len(c.Parts) > 0 {
			e.rows[0].Beat++ // the owner's arrives first
			if events := k.Result(now, e.do(c)); len(events.Taken) > 0 || e.rows[0].Node != 2 {
				t.Errorf("taken from an owner that beats: %+v", e.rows[0])
			}
			return
		}
		k.Result(now, e.do(c))
	}
}

func TestTheNextProcessOfABootGoesOnAtOnce(t *testing.T) {
	k, e := keeper(2, Memory{}), one(other)
	if at, ok := takes(t, k, e, 0, 2*time.Second); !ok {
		t.Error("not taken at once")
	} else if at > time.Second {
		t.Errorf("taken after %v", at)
	}
	for _, changed := range []Head{{2, 1, 9, 5, 70, 0}, {2, 9, 2, 5, 70, 0}} {
		k, e = keeper(2, Memory{}), one(changed)
		if at, ok := takes(t, k, e, 0, terms.Length); ok {
			t.Errorf("%+v: taken after %v", changed, at)
		}
	}
}

// owning is a keeper that owns shard 0.
func owning(t *testing.T) (*Keeper, *table) {
	k, e := keeper(2, Memory{}), one(other)
	if _, ok := takes(t, k, e, 0, 2*time.Second); !ok {
		t.Fatal("not taken")
	}
	return k, e
}

func TestAnUnknownOutcomeIsNotDone(t *testing.T) {
	k, e := owning(t)
	first, _ := k.Call(10*time.Second, none)
	late := e.do(first)
	if _, ok := k.Call(11*time.Second, none); ok {
		t.Error("two calls at a time")
	}
	second, ok := k.Call(14*time.Second, none)
	if !ok {
		t.Fatal("no second call")
	}
	if events := k.Result(14*time.Second, late); len(events.Acked) > 0 || k.Acked(0) != first.Parts[0].Was.Beat {
		t.Error("the result of a call that was given up counts for the next one")
	}
	if events := k.Result(14*time.Second, e.do(second)); len(events.Acked) != 1 {
		t.Error("the second call is refused after the first was carried out")
	}
	if p := first.Parts[0]; p.Fits(e.rows[0]) {
		t.Error("the first write fits after the second")
	}
}

// A node that can read all answers but those of the calls that take shards leaves these to others.
func TestWhoCannotReadWhatItTakesStops(t *testing.T) {
	e, k := one(Head{Node: 1, Incarnation: 1, Boot: 1, Epoch: 1, Beat: 1}), keeper(1, Memory{})
	blind := func(from, until time.Duration) (n int) {
		for now := from; now < until; now += time.Second {
			c, ok := k.Call(now, none)
			if !ok {
				continue
			}
			r := e.do(c)
			if slices.ContainsFunc(c.Parts, func(p Part) bool { return p.Take }) {
				n++
			} else {
				k.Result(now, r)
			}
		}
		return n
	}
	if n := blind(0, terms.Waits()+time.Minute); n > 5 {
		t.Errorf("it takes shards %d times", n)
	}
	other := keeper(2, Memory{})
	other.look(0, 0, &e.rows)
	for now := time.Second; now < terms.Waits()+10*time.Second && other.count == 0; now += time.Second {
		call(t, other, e, now)
	}
	if other.count == 0 {
		t.Error("nobody else takes a shard")
	}
	if _, ok := takes(t, k, e, 3*terms.Waits(), 4*terms.Waits()); !ok && k.vain > 0 {
		t.Error("it never tries again")
	}
}

func TestAWriteOfAnEarlierEpochIsRefused(t *testing.T) {
	k, e := owning(t)
	c, _ := k.Call(10*time.Second, none)
	for _, row := range []Head{{3, 1, 3, 7, 72, 0}, {2, 1, 2, 7, 71, 0}, {2, 2, 2, 6, 71, 0}, {2, 1, 3, 6, 71, 0}} {
		e.rows[0] = row
		if c.Parts[0].Fits(row) {
			t.Errorf("a write of epoch 6 fits %+v", row)
		}
	}
	if events := k.Result(10*time.Second, e.do(c)); len(events.Gone) != 1 || k.Epoch(0) != 0 {
		t.Errorf("a refused owner keeps the shard")
	}
}

func TestAnEngineThatLostWritesIsLeftAlone(t *testing.T) {
	for name, lose := range map[string]func(*table){
		"went back":     func(e *table) { e.rows[0].Beat -= 2 },
		"lost writes":   func(e *table) { e.rows[0].Epoch -= 2 },
		"another one":   func(e *table) { e.origin.System++ },
		"from timeline": func(e *table) { e.origin.Timeline-- },
	} {
		k, e := owning(t)
		for now := 5 * time.Second; now < 10*time.Second; now += time.Second {
			e.beat()
			call(t, k, e, now)
		}
		lose(e)
		c, _ := k.Call(11*time.Second, none)
		if name == "went back" && c.Parts[0].Fits(e.rows[0]) {
			t.Error("a write fits a row that lacks the writes before it")
		}
		events := k.Result(11*time.Second, e.do(c))
		if k.Lost() == nil || len(events.Acked) > 0 || k.Epoch(0) != 0 {
			t.Errorf("%s: not noticed", name)
		} else if _, ok := k.Call(12*time.Second, none); ok {
			t.Errorf("%s: a call after %v", name, k.Lost())
		}
	}
	// A node that was granted under a later beat notices, too, and after a restart.
	m := Memory{Origin: Origin{7, 1}}
	m.Marks[0] = Mark{5, 71}
	k, e := keeper(3, m), one(other)
	if call(t, k, e, 0); k.Lost() == nil || !strings.Contains(k.Lost().Error(), "shard 0 is at epoch 5, beat 70") {
		t.Errorf("lost: %v", k.Lost())
	}
	// What it hears of while it reads is no reason.
	k, e = keeper(3, Memory{}), one(other)
	c, _ := k.Call(0, none)
	k.Granted(0, Mark{5, 71})
	if k.Result(0, e.do(c)); k.Lost() != nil {
		t.Error(k.Lost())
	}
}

func TestAShutdownHandsOverAtOnce(t *testing.T) {
	k, e := owning(t)
	k.Leave()
	_, events := call(t, k, e, 10*time.Second)
	if len(events.Acked) != 1 || len(events.Gone) != 1 || e.rows[0].Node != 0 {
		t.Fatalf("the row is %+v", e.rows[0])
	}
	if at, ok := takes(t, keeper(3, Memory{}), e, 0, 10*time.Second); !ok || at > 2*time.Second {
		t.Errorf("taken after %v: %v", at, ok)
	}
}
