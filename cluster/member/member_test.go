package member

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"example.org/mta/cluster/owner"
	"example.org/mta/cluster/share"
	"example.org/mta/cluster/term"
)

var (
	terms = term.Term{Length: 3 * time.Minute, Drift: 200e-6}
	ten   = share.Limit{Name: "ten", Connections: 10}
	shard = Shard("ten")
)

func begin() time.Duration { return 0 }

// engine does what it is asked, without faults.
type engine struct {
	heads    [owner.Shards]owner.Head
	books    [owner.Shards]map[string]owner.Entry
	reserves []owner.Reserve
}

func (e *engine) do(c owner.Call) owner.Result {
	r := owner.Result{Number: c.Number, Heads: new([owner.Shards]owner.Head), Books: make(map[int][]owner.Entry),
		Origin: owner.Origin{System: 7, Timeline: 1}}
	for i := range c.Parts {
		p := &c.Parts[i]
		ok := p.Fits(e.heads[p.Shard])
		if r.Done = append(r.Done, ok); !ok {
			continue
		}
		e.heads[p.Shard] = p.To
		e.heads[p.Shard].Clock = int64(5*time.Hour + time.Minute)
		for _, c := range p.Changes {
			if e.books[p.Shard] == nil {
				e.books[p.Shard] = make(map[string]owner.Entry)
			}
			e.books[p.Shard][c.Name+string(rune(c.Node))] = c
		}
		for _, c := range e.books[p.Shard] {
			if p.Take {
				r.Books[p.Shard] = append(r.Books[p.Shard], c)
			}
		}
	}
	*r.Heads = e.heads
	if w := c.Wish; w != nil {
		after, _ := w.Apply(nil, nil, false)
		e.reserves = []owner.Reserve{*after}
	}
	if c.Reserves {
		r.Reserves = e.reserves
	}
	return r
}

func start(t *testing.T, node uint16, process uint64) *Member {
	return New(Config{Node: node, Incarnation: 1, Boot: uint64(node), Process: process, Term: terms, Turn: time.Minute,
		Rand: rand.New(rand.NewPCG(1, 1))}, func(err error) { t.Error(err) })
}

// owning gives a member that owns all shards, and the moment at which it does.
func owning(t *testing.T, m *Member, e *engine) time.Duration {
	now := time.Duration(0)
	for ; len(m.Owned()) < owner.Shards; now += time.Second {
		if now > time.Minute {
			t.Fatal("not all shards are owned after a minute")
		}
		c, _ := m.Call(now)
		m.Result(now, e.do(c), func(Message) {})
	}
	return now
}

// What an owner decides leaves it when the engine has it: an owner that is cut off grants nothing, and its own
// connections take a grant as those of others do.
func TestAnAnswerLeavesAfterItsWrite(t *testing.T) {
	m, e := start(t, 1, 1), &engine{}
	now := owning(t, m, e)
	m.Shares(shard).Want(ten, 4, begin)
	m.Asks(now, func(msg Message) { m.Receive(now, msg) })
	if n := m.Shares(shard).Open(now, "ten", 1); n != 0 {
		t.Errorf("%d connections of an owner without a grant", n)
	}
	lost, _ := m.Call(now) // never arrives
	if m.Shares(shard).Open(now, "ten", 1) != 0 {
		t.Error("an owner uses what the engine does not have")
	}
	now += owner.Patience
	m.Asks(now, func(msg Message) { m.Receive(now, msg) })
	c, ok := m.Call(now)
	if !ok || c.Number == lost.Number {
		t.Fatal("no second call")
	}
	var answers []Message
	m.Result(now, owner.Result{Number: lost.Number}, func(msg Message) { answers = append(answers, msg) })
	if len(answers) > 0 {
		t.Fatalf("answers without a write: %+v", answers)
	}
	r := e.do(c)
	if entry := e.books[shard]["ten\x01"]; entry.N[0] != 4 {
		t.Errorf("the engine has %+v", entry)
	}
	m.Result(now, r, func(msg Message) { m.Receive(now, msg) })
	if n := m.Shares(shard).Open(now, "ten", 9); n != 4 {
		t.Errorf("%d connections of four", n)
	}
}

// The next process of an owner finds in the book what others hold.
func TestTheNextProcessReadsTheBook(t *testing.T) {
	first, e := start(t, 1, 1), &engine{}
	now := owning(t, first, e)
	ask := Message{From: 2, To: 1, Shard: shard, Ask: &Ask{Order: term.Order{Incarnation: 1, Process: 1, Seq: 1},
		Shares: []share.Item{{Limit: ten, Want: 7}}}}
	first.Receive(now, ask)
	c, _ := first.Call(now)
	granted := int64(0)
	first.Result(now, e.do(c), func(msg Message) { granted = msg.Answer.Shares[0].Units })
	second := start(t, 1, 2)
	now = owning(t, second, e)
	second.Shares(shard).Want(ten, 10, begin)
	second.Asks(now, func(msg Message) { second.Receive(now, msg) })
	second.Receive(now, ask) // once more, late
	c, _ = second.Call(now)
	second.Result(now, e.do(c), func(msg Message) {
		if msg.To == 1 && msg.Answer != nil {
			second.Receive(now, msg)
		}
	})
	if n := second.Shares(shard).Open(now, "ten", 10); granted != 7 || n != 3 {
		t.Errorf("%d connections beside %d", n, granted)
	}
}

func TestAnOwnerThatIsBehindAnswersNothing(t *testing.T) {
	m, e := start(t, 1, 1), &engine{}
	now, refused := owning(t, m, e), 0
	m.fault = func(error) { refused++ }
	m.Receive(now, Message{From: 2, Shard: shard, Ask: &Ask{Order: term.Order{Incarnation: 1, Seq: 1},
		Known: owner.Mark{Epoch: 1, Beat: 99}, Shares: []share.Item{{Limit: ten, Want: 7}}}})
	m.Receive(now, Message{From: 2, Shard: owner.Shards})
	c, _ := m.Call(now)
	m.Result(now, e.do(c), func(msg Message) { t.Errorf("answered %+v", msg) })
	if refused != 2 {
		t.Errorf("%d refused", refused)
	}
}

// Only the node that was asked can answer: another one could have this node halt, by a mark that the engine never had.
func TestAnAnswerOfAnotherNodeIsRefused(t *testing.T) {
	m, e := start(t, 1, 1), &engine{}
	now, refused := owning(t, m, e), ""
	m.fault = func(err error) { refused = err.Error() }
	m.Shares(shard).Want(ten, 4, begin)
	var order term.Order
	m.Asks(now, func(msg Message) { order = msg.Ask.Order })
	m.Receive(now, Message{From: 2, To: 1, Shard: shard, Answer: &Answer{Order: order, Mark: owner.Mark{Epoch: 1 << 40},
		Shares: []share.Grant{{Limit: ten, Units: 4}}}})
	if m.Shares(shard).Open(now, "ten", 1) != 0 || m.Keeper().Mark(shard).Epoch > 1 {
		t.Error("the answer counts")
	}
	if want := fmt.Sprintf("node 2 answers for shard %d, which node 1 was asked for", shard); refused != want {
		t.Errorf("refused: %q, want %q", refused, want)
	}
}

// An owner that is not reached is asked through another member, one after the other until one brings an answer, and
// directly as well: when it answers so, nobody else is asked.
func TestAnOwnerThatIsNotReached(t *testing.T) {
	e, refused := &engine{}, ""
	first, second := start(t, 1, 1), start(t, 2, 1)
	second.fault = func(err error) { refused = err.Error() }
	now := owning(t, first, e)
	second.Members([]uint16{1, 2, 3, 4}, nil)
	c, _ := second.Call(now)
	second.Result(now, e.do(c), func(Message) {})
	want := int64(0)
	// ask has the second node want one more, lets those of its asks pass that go through a node, and returns the others.
	ask := func(through uint16) (tried []uint16) {
		want++
		now += 2 * time.Second
		second.Shares(shard).Want(ten, want, begin)
		second.Asks(now, func(msg Message) {
			if msg.Shard == shard {
				tried = append(tried, msg.Via)
			}
			if msg.Via == through {
				first.Receive(now, msg)
			}
		})
		c, _ := first.Call(now)
		first.Result(now, e.do(c), func(msg Message) {
			if msg.Via != through {
				t.Errorf("the answer goes through node %d", msg.Via)
			}
			if forged := msg; through > 0 && msg.Shard == shard {
				forged.Via = 7 - through
				second.Receive(now, forged)
				if got := second.Shares(shard).Allowed(now, "ten"); got == want {
					t.Errorf("%d connections by an answer through node %d", got, forged.Via)
				}
			}
			second.Receive(now, msg)
		})
		return tried
	}
	if tried := ask(9); !slices.Equal(tried, []uint16{0}) {
		t.Fatalf("asked through %v at first", tried)
	}
	now += 2 * time.Second
	tried := ask(9)
	if len(tried) != 2 || tried[0] != 0 || tried[1] != 3 && tried[1] != 4 {
		t.Fatalf("asked through %v without an answer", tried)
	}
	now += 2 * time.Second
	works := 7 - tried[1]
	for range 3 { // from now on without a pause
		if tried := ask(works); !slices.Equal(tried, []uint16{0, works}) {
			t.Errorf("asked through %v, want directly and through %d", tried, works)
		}
		if got := second.Shares(shard).Allowed(now, "ten"); got != want {
			t.Errorf("%d connections, want %d", got, want)
		}
	}
	if want := fmt.Sprintf("node %d passes on an answer for shard %d, and was not asked to", 7-works, shard); refused != want {
		t.Errorf("refused: %q, want %q", refused, want)
	}
	ask(0)
	if tried := ask(0); !slices.Equal(tried, []uint16{0}) || second.Shares(shard).Allowed(now, "ten") != want {
		t.Errorf("asked through %v after an answer", tried)
	}
}

// Whoever takes the shards of a node that leaves finds in the book that it holds nothing.
func TestANodeThatLeavesGivesUpWhatItHas(t *testing.T) {
	first, e := start(t, 1, 1), &engine{}
	now := owning(t, first, e)
	deliver := func(msg Message) { first.Receive(now, msg) }
	first.Shares(shard).Want(ten, 10, begin)
	first.Asks(now, deliver)
	c, _ := first.Call(now)
	first.Result(now, e.do(c), deliver)
	if n := first.Shares(shard).Open(now, "ten", 3); n != 3 || e.books[shard]["ten\x01"].N[0] != 10 {
		t.Fatalf("%d connections, the book has %+v", n, e.books[shard])
	}
	first.Leave(now, deliver)
	first.Asks(now, deliver)
	c, _ = first.Call(now)
	first.Result(now, e.do(c), deliver)
	if left := len(first.Owned()); left != 0 || e.heads[shard].Node != 0 {
		t.Errorf("it has %d shards, and a row is %+v", left, e.heads[shard])
	}
	if held := e.books[shard]["ten\x01"].N[0]; held != 3 {
		t.Errorf("the book gives it %d units beside 3 open connections", held)
	}
	if c, _ := first.Call(now + time.Second); len(c.Parts) > 0 {
		t.Errorf("it takes shards again: %+v", c.Parts)
	}
}

// What a node has in reserve is used when the engine has been away for a term, and no longer.
func TestAReserveIsUsedWhileTheEngineIsAway(t *testing.T) {
	for name, end := range map[string]func(m *Member, e *engine, now time.Duration){
		"a result": func(m *Member, e *engine, now time.Duration) {
			c, _ := m.Call(now)
			if n := m.Shares(shard).Allowed(now, "ten"); n != 10 {
				t.Errorf("%d connections while a call is on its way", n)
			}
			m.Result(now, e.do(c), func(Message) {})
		},
		"lost writes": func(m *Member, _ *engine, _ time.Duration) { m.Lose(fmt.Errorf("lost")) },
		"a reset":     func(m *Member, _ *engine, _ time.Duration) { m.Reset(5) },
		"a shutdown":  func(m *Member, _ *engine, now time.Duration) { m.Leave(now, func(Message) {}) },
	} {
		m, e := New(Config{Node: 1, Incarnation: 1, Process: 1, Term: terms, Turn: time.Minute, Reserve: true,
			Rand: rand.New(rand.NewPCG(1, 1))}, func(err error) { t.Error(err) }), &engine{}
		m.Keeper().Knows()
		now := owning(t, m, e)
		h := m.Shares(shard)
		h.Want(ten, 10, begin)
		if n := h.Allowed(now, "ten"); n != 0 {
			t.Errorf("%d connections beside the engine", n)
		}
		now += 4 * time.Minute
		if n := h.Open(now, "ten", 10); n != 10 {
			t.Errorf("%d connections after a term without the engine", n)
		}
		end(m, e, now)
		if over, ended := h.Over(now, "ten"); over != 10 || !ended {
			t.Errorf("after %s %d connections must end; %v", name, over, ended)
		}
	}
}

// An owner that may not know of reserves answers nobody, and one that does gives the rest.
func TestOthersReservesAreSetAside(t *testing.T) {
	m, e := start(t, 1, 1), &engine{}
	m.Keeper().Knows()
	now := owning(t, m, e)
	seq := uint64(0)
	ask := func() (answers []int64) {
		seq++
		m.Receive(now, Message{From: 2, To: 1, Shard: shard, Ask: &Ask{Order: term.Order{Incarnation: 1, Process: 1,
			Seq: seq}, Shares: []share.Item{{Limit: ten, Want: 10}}}})
		c, _ := m.Call(now)
		m.Result(now, e.do(c), func(msg Message) {
			if msg.Answer != nil {
				answers = append(answers, msg.Answer.Shares[0].Units)
			}
		})
		now += time.Second
		return answers
	}
	if got := ask(); len(got) != 1 || got[0] != 10 {
		t.Fatalf("answered %v", got)
	}
	now += time.Minute
	e.reserves = []owner.Reserve{{Node: 3, Divisor: 2}}
	if got := ask(); got != nil {
		t.Errorf("answered %v without having read", got)
	}
	for range 4 {
		if got := ask(); got != nil {
			t.Errorf("answered %v before node 3 could show itself", got)
		}
	}
	for range 3 {
		if got := ask(); len(got) == 1 && got[0] == 5 {
			return
		}
	}
	t.Error("half of the limit was not granted")
}

// An owner that has used its reserve gives no burst that its reserve has had: neither what it has decided without the
// engine, nor what was saved up in its book meanwhile.
func TestAnOwnerThatHasUsedItsReserve(t *testing.T) {
	rate := share.Limit{Name: "rate", Rate: 10, Burst: 100}
	for _, decided := range []bool{true, false} {
		m, e := New(Config{Node: 1, Incarnation: 1, Boot: 1, Process: 1, Term: terms, Turn: time.Minute, Reserve: true,
			Rand: rand.New(rand.NewPCG(1, 1))}, func(err error) { t.Error(err) }), &engine{}
		m.Keeper().Knows()
		h := m.Shares(Shard(rate.Name))
		now := owning(t, m, e)
		now += terms.Length + time.Minute // the engine is away
		clock := func() time.Duration { return now }
		h.Want(rate, rate.Units(), clock)
		h.Left(now, rate.Name)
		now += 15 * time.Second // the reserve saves up
		if asked := now - 900*time.Millisecond; decided {
			m.Asks(asked, func(msg Message) { m.Receive(asked, msg) })
		}
		if n := h.Spend(now, rate.Name, 200); n != 100 {
			t.Fatalf("%d events of the reserve, which is all of the rate", n)
		}
		var all int64
		for i := range int64(10) {
			if c, ok := m.Call(now); ok {
				m.Result(now, e.do(c), func(msg Message) { m.Receive(now, msg) })
			}
			if all += h.Spend(now, rate.Name, 200); all > 10*i {
				t.Errorf("%d events in %d s at 10 a second, after a burst; decided before: %v", all, i, decided)
				break
			}
			now += time.Second
			m.Asks(now, func(msg Message) { m.Receive(now, msg) })
		}
		if all < 50 {
			t.Errorf("%d events in 10 s at 10 a second", all)
		}
	}
}
