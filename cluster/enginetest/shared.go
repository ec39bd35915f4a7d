package enginetest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/mta/cluster/changes"
)

// Shared is a simulated engine of changes. It is safe for concurrent use.
type Shared struct {
	Members func() map[uint16]uint64 // incarnations of those that are not forgotten

	mu      sync.Mutex // guards what follows
	origin  changes.Origin
	last    uint64
	rows    map[[2]string]changes.Row
	until   map[[2]string]time.Time
	serials map[changes.Me]uint64
	read    map[changes.Me]map[string]uint64
}

// NewShared makes an empty one of an era.
func NewShared(era string, members func() map[uint16]uint64) *Shared {
	s := &Shared{Members: members}
	s.origin = changes.Origin{Era: era, System: 7, Timeline: 1}
	s.rows, s.until = make(map[[2]string]changes.Row), make(map[[2]string]time.Time)
	s.serials, s.read = make(map[changes.Me]uint64), make(map[changes.Me]map[string]uint64)
	return s
}

// Serials shows the last serial of each node, as an editor of rows would have it.
func (s *Shared) Serials(f func(map[changes.Me]uint64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.serials)
}

// Do has f look at the rows, by kind and key, or edit them.
func (s *Shared) Do(f func(rows map[[2]string]changes.Row)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.rows)
}

// Advance has a number given already.
func (s *Shared) Advance(last uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = last
}

// Copy returns the state; Restore has the engine go on from it, on another timeline unless the server is the same.
func (s *Shared) Copy() (restore func(failover bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, rows, serials, read := s.last, maps.Clone(s.rows), maps.Clone(s.serials), maps.Clone(s.read)
	return func(failover bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.last, s.rows, s.serials, s.read = last, maps.Clone(rows), maps.Clone(serials), maps.Clone(read)
		if failover {
			s.origin.Timeline++
		}
	}
}

// Changes implements changes.Engine.
func (s *Shared) Changes(_ context.Context, c changes.Call) (r changes.Result, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r = changes.Result{Origin: s.origin, Last: s.last, Serial: s.serials[c.Me]}
	if is, there := s.Members()[c.Node]; !there || is != c.Incarnation {
		r.Forgotten = true
		return r, nil
	}
	if r.Stale = c.Stale(s.origin.Era, s.last, r.Serial); r.Stale {
		return r, nil
	}
	for _, p := range c.Parts {
		at := [2]string{p.Kind, p.Key}
		row := s.row(at)
		if p.Serial > s.serials[c.Me] && p.Fits(row, c.Me) {
			s.last++
			row = &changes.Row{Kind: p.Kind, Key: p.Key, Number: s.last, Node: c.Node, Incarnation: c.Incarnation,
				Rank: p.Rank, Value: p.Value, Size: len(p.Value)}
			s.rows[at], s.until[at] = *row, p.Until
		}
		s.serials[c.Me] = max(s.serials[c.Me], p.Serial)
		r.After = append(r.After, row)
	}
	s.read[c.Me] = maps.Clone(c.After)
	for _, row := range s.rows {
		if after, asked := c.After[row.Kind]; asked && row.Number > after {
			if row.Size > changes.MaxValue {
				row.Value = nil
			}
			r.Rows = append(r.Rows, row)
		}
	}
	slices.SortFunc(r.Rows, func(a, b changes.Row) int { return cmp.Compare(a.Number, b.Number) })
	r.Rows = r.Rows[:min(len(r.Rows), c.Most)]
	r.Last = s.last
	return r, nil
}

func (s *Shared) row(at [2]string) *changes.Row {
	if row, there := s.rows[at]; there {
		return &row
	}
	return nil
}

// Readers implements changes.Engine.
func (s *Shared) Readers(_ context.Context, kind string) (map[uint16]uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readers(kind), nil
}

func (s *Shared) readers(kind string) map[uint16]uint64 {
	read := make(map[uint16]uint64)
	for node, incarnation := range s.Members() {
		read[node] = s.read[changes.Me{Node: node, Incarnation: incarnation}][kind]
	}
	return read
}

// Tidy implements changes.Engine.
func (s *Shared) Tidy(_ context.Context, most int) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, row := range s.rows {
		least := slices.Min(slices.Collect(maps.Values(s.readers(row.Kind))))
		until := s.until[at]
		if n < most && row.Number <= least && (row.Value == nil && row.Size == 0 ||
			!until.IsZero() && time.Since(until) > 24*time.Hour) {
			delete(s.rows, at)
			n++
		}
	}
	return n, nil
}

// sharing tests the statement of changes.Call.
var sharing = map[string]func(*tester){
	"changes": shared, "changes of two nodes": both, "repeated changes": repeated, "many changes": many,
	"another engine of changes": another, "changes that nobody needs": tidied, "changes of a forgotten node": gone,
}

// share makes a call of a node, from the positions given.
func (x *tester) share(node uint16, incarnation uint64, after map[string]uint64, parts ...changes.Part) changes.Result {
	x.Helper()
	r, err := x.Changes(x.Context(), changes.Call{Me: changes.Me{Node: node, Incarnation: incarnation}, Era: x.era,
		After: after, Most: 1000, Parts: parts})
	x.ok(err)
	if x.era == "" && r.Stale && r.Era != "" { // the first
		x.era = r.Era
		return x.share(node, incarnation, after, parts...)
	}
	if !r.Stale && !r.Forgotten && len(r.After) != len(parts) || r.System == 0 || r.Timeline == 0 {
		x.Fatalf("the result is %+v", r)
	}
	return r
}

// told is rows in short.
func told(rows ...changes.Row) string {
	var all []string
	for _, r := range rows {
		value := string(r.Value)
		if r.Value == nil {
			value = fmt.Sprintf("none of %d", r.Size)
		}
		all = append(all, fmt.Sprintf("%s %q %d/%d.%d/%d %s", r.Kind, r.Key, r.Number, r.Node, r.Incarnation, r.Rank,
			value))
	}
	return strings.Join(all, "\n")
}

func (x *tester) tells(got []changes.Row, want string) {
	x.Helper()
	if is := told(got...); is != want {
		x.Errorf("the rows are\n%s\nwant\n%s", is, want)
	}
}

func (x *tester) after(r changes.Result, want string) {
	x.Helper()
	var got []changes.Row
	for _, row := range r.After {
		if row == nil {
			row = new(changes.Row)
		}
		got = append(got, *row)
	}
	x.tells(got, want)
}

var start = map[string]uint64{"a": 0, "b": 0}

func shared(x *tester) {
	r := x.share(1, 1, start, changes.Part{Kind: "a", Key: "k\x00\xff", Serial: 3, Rank: 2, Value: []byte("1")},
		changes.Part{Kind: "b", Key: "k\x00\xff", Serial: 4, Rank: 1, Value: []byte("2"),
			Until: time.Now().Add(time.Hour)},
		changes.Part{Kind: "a", Key: "", Serial: 5},
		changes.Part{Kind: "a", Key: "k\x00\xff", Serial: 6, Rank: 1, Value: []byte("3")})
	if r.Serial != 0 || r.Last != 4 || r.Era == "" {
		x.Errorf("%+v", r)
	}
	x.after(r, `a "k\x00\xff" 1/1.1/2 1
b "k\x00\xff" 2/1.1/1 2
a "" 3/1.1/0 none of 0
a "k\x00\xff" 4/1.1/1 3`)
	all := `b "k\x00\xff" 2/1.1/1 2
a "" 3/1.1/0 none of 0
a "k\x00\xff" 4/1.1/1 3`
	x.tells(r.Rows, all)
	x.tells(x.share(2, 1, start).Rows, all)
	x.tells(x.share(2, 1, map[string]uint64{"a": 3}).Rows, `a "k\x00\xff" 4/1.1/1 3`)
	x.tells(x.share(2, 1, map[string]uint64{"a": 4, "b": 1, "c": 0}).Rows, `b "k\x00\xff" 2/1.1/1 2`)
	x.tells(x.share(2, 1, map[string]uint64{}).Rows, "")
	read, err := x.Readers(x.Context(), "a")
	if x.ok(err); !maps.Equal(read, map[uint16]uint64{1: 0, 2: 0, 3: 0}) {
		x.Errorf("read: %v", read)
	}
	x.share(2, 1, map[string]uint64{"a": 4, "b": 1})
	if read, err = x.Readers(x.Context(), "a"); err != nil || read[2] != 4 {
		x.Errorf("read: %v, %v", read, err)
	}
}

// both: of two changes that know nothing of each other the one of the higher rank counts, or the first.
func both(x *tester) {
	serial := uint64(0)
	put := func(node uint16, seen uint64, rank int, value string) string {
		serial++
		p := changes.Part{Kind: "a", Key: "k", Serial: serial, Seen: seen, Rank: rank, Value: []byte(value)}
		if value == "" {
			p.Value = nil
		}
		return told(*x.share(node, 1, start, p).After[0])
	}
	for _, step := range []struct {
		node  uint16
		seen  uint64
		rank  int
		value string
		want  string
	}{
		{1, 0, 1, "1", `a "k" 1/1.1/1 1`},
		{2, 0, 1, "2", `a "k" 1/1.1/1 1`}, // the first
		{2, 0, 0, "", `a "k" 1/1.1/1 1`},
		{2, 0, 2, "3", `a "k" 2/2.1/2 3`},        // the higher
		{2, 0, 0, "", `a "k" 3/2.1/0 none of 0`}, // its own
		{3, 2, 0, "", `a "k" 3/2.1/0 none of 0`},
		{3, 2, 1, "4", `a "k" 4/3.1/1 4`},
		{1, 4, 0, "", `a "k" 5/1.1/0 none of 0`}, // it knows
	} {
		if got := put(step.node, step.seen, step.rank, step.value); got != step.want {
			x.Errorf("%+v: %s", step, got)
		}
	}
}

// repeated: a call whose answer was lost does nothing again.
func repeated(x *tester) {
	first := []changes.Part{{Kind: "a", Key: "k", Serial: 1, Rank: 2, Value: []byte("1")},
		{Kind: "a", Key: "j", Serial: 2, Rank: 2, Value: []byte("1")}}
	x.share(1, 1, start, first...)
	x.share(2, 1, start, changes.Part{Kind: "a", Key: "k", Serial: 1, Seen: 2, Rank: 1, Value: []byte("2")})
	third := changes.Part{Kind: "a", Key: "i", Serial: 3, Rank: 2, Value: []byte("1")}
	r := x.share(1, 1, start, append(first, third)...)
	x.after(r, `a "k" 3/2.1/1 2
a "j" 2/1.1/2 1
a "i" 4/1.1/2 1`)
	if r.Serial != 2 {
		x.Errorf("%+v", r)
	}
}

func many(x *tester) {
	var parts []changes.Part
	for i := range 1000 {
		parts = append(parts, changes.Part{Kind: "a", Key: fmt.Sprint(i), Serial: uint64(i + 1), Rank: 1,
			Value: []byte("1")})
	}
	x.share(1, 1, start, parts...)
	r, err := x.Changes(x.Context(), changes.Call{Me: changes.Me{Node: 2, Incarnation: 1}, Era: x.era,
		After: map[string]uint64{"a": 500}, Most: 300})
	if x.ok(err); len(r.Rows) != 300 || r.Rows[0].Number != 501 || r.Rows[299].Number != 800 {
		x.Errorf("%d rows", len(r.Rows))
	}
	long := []byte(strings.Repeat("x", changes.MaxValue))
	x.share(2, 1, start, changes.Part{Kind: "a", Key: "last", Serial: 1, Rank: 1, Value: long})
}

func another(x *tester) {
	x.share(1, 1, start, changes.Part{Kind: "a", Key: "k", Serial: 5, Rank: 1, Value: []byte("1")})
	p := changes.Part{Kind: "a", Key: "k", Serial: 6, Rank: 1, Value: []byte("2")}
	for name, c := range map[string]changes.Call{
		"era": {Era: "other", After: start}, "number": {Era: x.era, After: map[string]uint64{"a": 0, "b": 2}},
		"serial": {Era: x.era, Acknowledged: 6, After: start},
	} {
		c.Me, c.Parts, c.Most = changes.Me{Node: 1, Incarnation: 1}, []changes.Part{p}, 10
		r, err := x.Changes(x.Context(), c)
		if err != nil || !r.Stale || r.Serial != 5 || r.Last != 1 || len(r.Rows) > 0 || r.Era != x.era {
			x.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	x.tells(x.share(2, 1, start).Rows, `a "k" 1/1.1/1 1`)
}

func tidied(x *tester) {
	ended := func(hours time.Duration) time.Time { return time.Now().Add(-hours * time.Hour) }
	x.share(1, 1, start, changes.Part{Kind: "a", Key: "gone", Serial: 1},
		changes.Part{Kind: "a", Key: "there", Serial: 2, Rank: 1, Value: []byte("1")},
		changes.Part{Kind: "a", Key: "ended", Serial: 3, Rank: 1, Value: []byte("1"), Until: ended(25)},
		changes.Part{Kind: "a", Key: "ends", Serial: 4, Rank: 1, Value: []byte("1"), Until: ended(23)},
		changes.Part{Kind: "b", Key: "gone", Serial: 5})
	tidy := func(want int) {
		x.Helper()
		if n, err := x.Tidy(x.Context(), 10); n != want || err != nil {
			x.Errorf("%d rows are deleted, %v; want %d", n, err, want)
		}
	}
	for node := range uint16(3) {
		tidy(0)
		x.share(node+1, 1, map[string]uint64{"a": 4})
	}
	tidy(2)
	x.tells(x.share(1, 1, start).Rows, `a "there" 2/1.1/1 1
a "ends" 4/1.1/1 1
b "gone" 5/1.1/0 none of 0`)
}

func gone(x *tester) {
	p := changes.Part{Kind: "a", Key: "k", Serial: 5, Rank: 1, Value: []byte("1")}
	x.share(1, 1, map[string]uint64{"a": 0}, p)
	x.ok(x.join(1, 2))
	if r := x.share(1, 1, start, p); !r.Forgotten || len(r.Rows) > 0 {
		x.Errorf("a forgotten node: %+v", r)
	}
	if r := x.share(9, 1, start); !r.Forgotten {
		x.Errorf("a node that has not joined: %+v", r)
	}
	p.Serial = 1 // another process, which knows nothing of the first
	r := x.share(1, 2, start, p)
	if x.after(r, `a "k" 1/1.1/1 1`); r.Serial != 0 {
		x.Errorf("%+v", r)
	}
}
