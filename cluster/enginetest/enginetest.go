// Package enginetest has the tests that every engine of a cluster passes: each rule of the statements of owner.Call,
// once.Call and changes.Call.
package enginetest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"example.org/mta/cluster/changes"
	"example.org/mta/cluster/once"
	"example.org/mta/cluster/owner"
	"example.org/mta/cluster/term"
)

// Engine is what the tests need.
type Engine interface {
	Shards(context.Context, owner.Call) (owner.Result, error)
	Keys(context.Context, once.Call) (once.Result, error)
	Unsettled(ctx context.Context, node uint16) ([]once.Row, error)
	changes.Engine
}

// Run tests an engine. fresh gives an empty one; join has a node join it with an incarnation.
func Run(t *testing.T, fresh func(*testing.T) (e Engine, join func(node uint16, incarnation uint64) error)) {
	tests := map[string]func(*tester){
		"64 heads": heads, "a beat": beat, "stale writes": stale, "a take-over compares the row": take,
		"books": books, "a hand-over": leave,
		"keys": keys, "a batch in order": order, "a large batch": batch, "incarnations": incarnations,
		"timelines": timelines, "unsettled rows": unsettled,
		"reserves": reserves, "late wishes": lateWishes,
	}
	maps.Copy(tests, sharing)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e, join := fresh(t)
			x := &tester{T: t, Engine: e}
			for node := range uint16(3) {
				x.ok(join(node+1, 1))
			}
			x.join = join
			x.line = x.call().Origin.Timeline
			test(x)
		})
	}
}

// wish makes a call with a node's wish for one in divisor, and returns the divisors of all that have a row.
func (x *tester) wish(node uint16, seq uint64, divisor int64, beats uint64) map[uint16]int64 {
	x.Helper()
	x.number++
	w := owner.Wish{Node: node, Order: term.Order{Incarnation: 1, Process: 1 << 40, Seq: seq}, Divisor: divisor,
		Heard: owner.Moment{Timeline: x.line, Beats: beats}}
	r, err := x.Shards(x.Context(), owner.Call{Number: x.number, Reserves: true, Wish: &w})
	x.ok(err)
	all := make(map[uint16]int64)
	for _, row := range r.Reserves {
		if all[row.Node] = row.Divisor; row.Divisor == divisor && row.Order == w.Order &&
			row.Heard != w.Heard {
			x.Errorf("the row is %+v after %+v", row, w)
		}
	}
	return all
}

// reserves are never more than all of a limit together.
func reserves(x *tester) {
	for n, c := range []struct {
		node    uint16
		divisor int64
		want    map[uint16]int64
	}{
		{1, 1, map[uint16]int64{1: 1}},
		{2, 2, map[uint16]int64{1: 1, 2: 0}}, // until there is room
		{1, 2, map[uint16]int64{1: 2, 2: 0}},
		{2, 2, map[uint16]int64{1: 2, 2: 2}},
		{1, 1, map[uint16]int64{1: 2, 2: 2}},
		{3, 3, map[uint16]int64{1: 2, 2: 2, 3: 0}},
		{1, 3, map[uint16]int64{1: 3, 2: 2, 3: 0}},
		{3, 3, map[uint16]int64{1: 3, 2: 2, 3: 6}},
		{2, 3, map[uint16]int64{1: 3, 2: 3, 3: 6}},
		{3, 3, map[uint16]int64{1: 3, 2: 3, 3: 3}},
		{2, 0, map[uint16]int64{1: 3, 3: 3}},
		{2, 0, map[uint16]int64{1: 3, 3: 3}},
		{1, 2, map[uint16]int64{1: 2, 3: 3}},
		{9, 1, map[uint16]int64{1: 2, 3: 3}}, // no member
	} {
		if got := x.wish(c.node, uint64(n+1), c.divisor, 1<<60); !maps.Equal(got, c.want) {
			x.Fatalf("%d: node %d gets %v, want %v", n, c.node, got, c.want)
		}
	}
	x.ok(x.join(3, 2))
	if got := x.wish(3, 100, 1, 1); got[3] == 2 {
		x.Errorf("a wish of an earlier incarnation: %v", got)
	}
	if r := x.call(); r.Reserves != nil {
		x.Errorf("a call that does not ask gets %+v", r.Reserves)
	}
}

// A wish that comes late changes nothing.
func lateWishes(x *tester) {
	x.wish(1, 5, 2, 7)
	for _, seq := range []uint64{4, 5} {
		if got := x.wish(1, seq, 3, 9); got[1] != 2 {
			x.Errorf("wish %d after the fifth: %v", seq, got)
		}
		x.wish(1, seq, 0, 9)
	}
	if got := x.wish(1, 6, 3, 0); got[1] != 3 {
		x.Errorf("the next: %v", got)
	}
}

type tester struct {
	*testing.T
	Engine
	join   func(uint16, uint64) error
	number uint64
	line   uint64
	era    string
}

func (x *tester) ok(err error) {
	x.Helper()
	if err != nil {
		x.Fatal(err)
	}
}

func (x *tester) call(parts ...owner.Part) owner.Result {
	x.Helper()
	x.number++
	r, err := x.Shards(x.Context(), owner.Call{Number: x.number, Parts: parts})
	x.ok(err)
	if r.Number != x.number || len(r.Done) != len(parts) || r.Heads == nil || r.Origin.System == 0 ||
		r.Origin.Timeline == 0 {
		x.Fatalf("the result is %+v", r)
	}
	return r
}

// does makes a call of one part, and reports whether it was carried out.
func (x *tester) does(p owner.Part) bool {
	x.Helper()
	before := x.call().Heads[p.Shard]
	r := x.call(p)
	if fits := p.Fits(before); fits != r.Done[0] {
		x.Fatalf("%+v on %+v: done %v, want %v", p, before, r.Done[0], fits)
	}
	after := p.To
	if after.Clock = r.Heads[p.Shard].Clock; !r.Done[0] {
		after = before
	}
	if r.Heads[p.Shard] != after || after.Clock < before.Clock {
		x.Fatalf("%+v on %+v: the row is %+v", p, before, r.Heads[p.Shard])
	}
	return r.Done[0]
}

// taking is the part by which a node takes a shard as it stands.
func (x *tester) taking(node uint16, shard int) owner.Part {
	x.Helper()
	was := x.call().Heads[shard]
	return owner.Part{Shard: shard, Take: true, Was: was, To: owner.Head{Node: node, Incarnation: 1, Boot: 1<<64 - 1,
		Epoch: was.Epoch + 1, Beat: was.Beat + 1}}
}

// taken has node 1 own a shard, and returns its next beat.
func (x *tester) taken(shard int) owner.Part {
	x.Helper()
	p := x.taking(1, shard)
	if !x.does(p) {
		x.Fatal("not taken")
	}
	return next(p)
}

// next is the beat after a part.
func next(p owner.Part) owner.Part {
	n := owner.Part{Shard: p.Shard, Was: p.To, To: p.To}
	n.To.Beat++
	return n
}

func heads(x *tester) {
	if r := x.call(); *r.Heads != [owner.Shards]owner.Head{} {
		x.Errorf("a new cluster has %+v", r.Heads)
	}
	var parts []owner.Part
	for s := range owner.Shards {
		parts = append(parts, x.taking(uint16(1+s%3), s))
	}
	slices.Reverse(parts)
	r := x.call(parts...)
	for s, h := range r.Heads {
		if h.Node != uint16(1+s%3) || h.Epoch != 1 || h.Beat != 1 || h.Boot != 1<<64-1 || h.Clock == 0 ||
			!r.Done[s] {
			x.Errorf("shard %d is %+v", s, h)
		}
	}
	if again := x.call(); *again.Heads != *r.Heads || again.Origin != r.Origin {
		x.Errorf("read again: %+v", again)
	}
}

func beat(x *tester) {
	p := x.taken(5)
	if !x.does(p) {
		x.Error("a beat is refused")
	}
	if x.does(p) {
		x.Error("a beat is done twice")
	}
	// Three of unknown outcome, of which only the second has arrived.
	q := next(p)
	q.To.Beat += 2
	if !x.does(q) {
		x.Error("a beat that carries what others carried is refused")
	}
	late := next(p)
	if x.does(late) {
		x.Error("a beat that comes late is done")
	}
	fresh := next(p) // its first try is unknown to its sender
	fresh.To.Beat += 3
	if !x.does(fresh) {
		x.Error("the beat after one of unknown outcome is refused")
	}
}

func stale(x *tester) {
	p := x.taken(6)
	for name, change := range map[string]func(*owner.Head){
		"node":        func(h *owner.Head) { h.Node++ },
		"incarnation": func(h *owner.Head) { h.Incarnation++ },
		"boot":        func(h *owner.Head) { h.Boot-- },
		"epoch":       func(h *owner.Head) { h.Epoch++ },
		"lost beat":   func(h *owner.Head) { h.Beat++ },
	} {
		q := p
		change(&q.Was)
		q.To = q.Was
		q.To.Beat += 5
		if x.does(q) {
			x.Errorf("a write with another %s is done", name)
		}
	}
	if !x.does(p) {
		x.Error("the owner's is refused after those")
	}
}

func take(x *tester) {
	mine := x.taken(7)
	theirs := x.taking(2, 7)
	for name, change := range map[string]func(*owner.Head){
		"node":        func(h *owner.Head) { h.Node++ },
		"incarnation": func(h *owner.Head) { h.Incarnation++ },
		"boot":        func(h *owner.Head) { h.Boot-- },
		"epoch":       func(h *owner.Head) { h.Epoch++ },
		"beat":        func(h *owner.Head) { h.Beat-- },
		"clock":       func(h *owner.Head) { h.Clock++ },
	} {
		q := theirs
		change(&q.Was)
		if x.does(q) {
			x.Errorf("taken from another %s", name)
		}
	}
	x.does(mine)
	if x.does(theirs) {
		x.Error("taken beside a beat")
	}
	theirs = x.taking(2, 7)
	for try := range 2 {
		if !x.does(theirs) {
			x.Errorf("try %d: not taken", try+1)
		}
	}
	if x.does(next(mine)) {
		x.Error("the owner before goes on")
	}
	x.does(next(theirs))
	if x.does(theirs) {
		x.Error("taken again after the beat that followed")
	}
}

func sorted(book []owner.Entry) []owner.Entry {
	slices.SortFunc(book, func(a, b owner.Entry) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Node, b.Node))
	})
	return book
}

func books(x *tester) {
	p := x.taken(8)
	other := x.taken(9)
	book := []owner.Entry{
		{Name: "", Node: 0, N: [4]int64{0, -1, 0, 0}},
		{Name: "10.0.0.1\np", Node: 0, N: [4]int64{-1 << 63, 1<<63 - 1, 3, 4}},
		{Name: "limit", Node: 1, N: [4]int64{1, 0, 0, 0}},
		{Name: "limit", Node: 2, N: [4]int64{2, 2, 3, 4}},
		{Name: "quote\"\\\x00\xff", Node: 3, N: [4]int64{5, 0, 0, 0}},
	}
	p.Changes = append(slices.Clone(book), owner.Entry{Name: "never", Node: 4})
	other.Changes = []owner.Entry{{Name: "other", Node: 1, N: [4]int64{1, 1, 1, 1}}}
	if r := x.call(p, other); !r.Done[0] || !r.Done[1] || len(r.Books) > 0 {
		x.Fatalf("%+v", r)
	}
	late := p
	late.Changes = []owner.Entry{{Name: "late", Node: 1, N: [4]int64{1, 1, 1, 1}}}
	if x.does(late) {
		x.Error("a late write is done")
	}
	r := x.call(x.taking(2, 8))
	if got := sorted(r.Books[8]); !slices.Equal(got, book) || len(r.Books) != 1 {
		x.Errorf("the book is %+v, want %+v", got, book)
	}
	// Those of zeros are deleted, even if their last two numbers are not; the later of two changes counts.
	q := next(x.taking(2, 8))
	q.Was = x.call().Heads[8]
	q.To = q.Was
	q.To.Beat++
	q.Changes = []owner.Entry{{Name: "limit", Node: 1, N: [4]int64{0, 0, 7, 7}}, {Name: "limit", Node: 2},
		{Name: "limit", Node: 2, N: [4]int64{9, 9, 9, 9}}, {Name: ""}}
	if !x.does(q) {
		x.Fatal("refused")
	}
	want := []owner.Entry{book[1], {Name: "limit", Node: 2, N: [4]int64{9, 9, 9, 9}}, book[4]}
	if got := sorted(x.call(x.taking(3, 8)).Books[8]); !slices.Equal(got, want) {
		x.Errorf("the book is %+v, want %+v", got, want)
	}
}

func leave(x *tester) {
	p := x.taken(10)
	p.To.Node, p.To.Incarnation, p.To.Boot = 0, 0, 0
	if !x.does(p) {
		x.Error("refused")
	}
	if x.does(next(x.taking(1, 10))) {
		x.Error("a write after it is done")
	}
	if !x.does(x.taking(2, 10)) {
		x.Error("nobody may take it")
	}
}

// request is one of a node's first process in its first incarnation.
func request(node uint16, number uint64) once.Request {
	return once.Request{Node: node, Incarnation: 1, Process: 1, Number: number}
}

func part(op once.Op, key string, r once.Request, note string) once.Part {
	return once.Part{Op: op, Row: once.Row{Key: key, Request: r, Note: note}, Keep: time.Hour}
}

func (x *tester) keys(node uint16, parts ...once.Part) once.Result {
	x.Helper()
	x.number++
	me := once.Request{Node: node, Incarnation: 1, Process: 1}
	if len(parts) > 0 {
		me.Incarnation = parts[0].Incarnation
	}
	r, err := x.Keys(x.Context(), once.Call{Number: x.number, Node: me, Timeline: x.line, Parts: parts})
	x.ok(err)
	if r.Number != x.number || !r.Forgotten && !r.Elsewhere && len(r.Rows) != len(parts) {
		x.Fatalf("the result is %+v", r)
	}
	return r
}

// row makes a call of one part, and compares the row after it.
func (x *tester) row(p once.Part, want *once.Row) {
	x.Helper()
	x.same(x.keys(p.Node, p).Rows[0], want)
}

func (x *tester) same(got, want *once.Row) {
	x.Helper()
	if (got == nil) != (want == nil) || got != nil && *got != *want {
		x.Errorf("the row is %+v, want %+v", got, want)
	}
}

func keys(x *tester) {
	const key = "tenant\x00\xffkey"
	first := part(once.Claim, key, request(1, 1), "note \xff")
	settled := once.Row{Key: key, Request: first.Request, Done: true, Note: "id \xfe"}
	second := part(once.Claim, key, request(2, 1), "other")
	x.row(part(once.Release, key, request(1, 1), ""), nil)
	x.row(part(once.Settle, key, request(1, 1), "nothing"), nil)
	x.row(first, &first.Row)
	x.row(first, &first.Row)
	x.row(second, &first.Row)
	for _, r := range []once.Request{{Node: 1, Incarnation: 1, Process: 2, Number: 1}, request(1, 2), request(2, 1)} {
		x.row(part(once.Settle, key, r, "other"), &first.Row)
		x.row(part(once.Release, key, r, ""), &first.Row)
	}
	x.row(part(once.Settle, key, first.Request, settled.Note), &settled)
	x.row(part(once.Settle, key, first.Request, settled.Note), &settled)
	x.row(second, &settled)
	x.row(first, &settled)
	x.row(part(once.Release, key, first.Request, ""), nil)
	x.row(part(once.Release, key, first.Request, ""), nil)
	x.row(second, &second.Row)
}

// order: the parts about one key are done as they stand.
func order(x *tester) {
	a, b := request(1, 1), request(1, 2)
	r := x.keys(1, part(once.Claim, "k", a, ""), part(once.Claim, "j", request(1, 3), ""),
		part(once.Claim, "k", b, ""), part(once.Release, "k", a, ""), part(once.Claim, "k", b, ""),
		part(once.Settle, "k", b, "answer"))
	want := []*once.Row{{Key: "k", Request: a}, {Key: "j", Request: request(1, 3)}, {Key: "k", Request: a}, nil,
		{Key: "k", Request: b}, {Key: "k", Request: b, Done: true, Note: "answer"}}
	for i, row := range r.Rows {
		x.same(row, want[i])
	}
}

func batch(x *tester) {
	var parts []once.Part
	for i := range 1000 {
		parts = append(parts, part(once.Claim, fmt.Sprintf("key-%d", i), request(1, uint64(i)), ""))
	}
	for range 2 {
		for i, row := range x.keys(1, parts...).Rows {
			x.same(row, &parts[i].Row)
		}
	}
	x.keys(1)
}

func incarnations(x *tester) {
	lost, again, open := request(1, 1), request(2, 1), request(1, 2)
	x.row(part(once.Claim, "k", lost, ""), &once.Row{Key: "k", Request: lost})
	x.row(part(once.Claim, "open", open, ""), &once.Row{Key: "open", Request: open})
	x.row(part(once.Settle, "k", lost, "id"), &once.Row{Key: "k", Request: lost, Done: true, Note: "id"})
	x.ok(x.join(1, 2))
	x.row(part(once.Claim, "k", again, ""), &once.Row{Key: "k", Request: again})
	for _, op := range []once.Op{once.Claim, once.Settle, once.Release} {
		if r := x.keys(1, part(op, "open", open, ""), part(once.Claim, "new", request(1, 3), "")); !r.Forgotten {
			x.Errorf("a forgotten node's call: %+v", r)
		}
	}
	later := request(1, 1)
	later.Incarnation = 2
	x.row(part(once.Claim, "new", later, ""), &once.Row{Key: "new", Request: later})
	x.row(part(once.Claim, "open", later, ""), &once.Row{Key: "open", Request: later})
	if r := x.keys(9, part(once.Claim, "k", request(9, 1), "")); !r.Forgotten {
		x.Errorf("a call of a node that has not joined: %+v", r)
	}
}

func timelines(x *tester) {
	p := part(once.Claim, "k", request(1, 1), "")
	for _, line := range []uint64{x.line - 1, x.line + 1} {
		r, err := x.Keys(x.Context(), once.Call{Number: 1, Node: request(1, 0), Timeline: line, Parts: []once.Part{p}})
		if x.ok(err); !r.Elsewhere {
			x.Errorf("timeline %d: %+v", line, r)
		}
	}
	x.row(part(once.Claim, "k", request(2, 1), ""), &once.Row{Key: "k", Request: request(2, 1)})
}

func unsettled(x *tester) {
	x.keys(1, part(once.Claim, "a", request(1, 1), ""), part(once.Claim, "b", request(1, 2), ""),
		part(once.Claim, "c", request(1, 3), ""), part(once.Settle, "b", request(1, 2), "id"))
	x.keys(2, part(once.Claim, "d", request(2, 1), ""))
	for node, want := range map[uint16][]string{1: {"a", "c"}, 2: {"d"}, 3: nil} {
		rows, err := x.Unsettled(x.Context(), node)
		x.ok(err)
		got := make(map[string]bool)
		for _, r := range rows {
			if got[r.Key] = true; r.Node != node || r.Done {
				x.Errorf("of node %d: %+v", node, r)
			}
		}
		if keys := slices.Sorted(maps.Keys(got)); !slices.Equal(keys, want) {
			x.Errorf("of node %d: %q, want %q", node, keys, want)
		}
	}
}
