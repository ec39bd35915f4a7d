package everywhere

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

// item is a row of the listings here.
type item struct {
	Key string `json:"key"`
	n   int    // in its shelf
}

// shelf is a node's listing, in pages with cursors that are opaque.
type shelf struct {
	rows  []item
	asked int
	short bool // pages can be shorter than asked for, even empty
	fails error
	gone  map[int]bool // rows that have left
	leave float64      // the part of the rows that leaves before a page
}

func (s *shelf) page(after string, limit int) (rows []item, next string, err error) {
	s.asked++
	if s.fails != nil {
		return nil, "", s.fails
	}
	begin := 0
	if after != "" {
		fmt.Sscanf(after, "at :,%d", &begin)
	}
	if s.short {
		limit = rand.IntN(limit + 1)
	}
	for n := range s.rows {
		if rand.Float64() < s.leave {
			s.gone[n] = true
		}
	}
	for n := begin; n < len(s.rows); n++ {
		switch {
		case s.gone[n]:
		case len(rows) == limit:
			return rows, fmt.Sprintf("at :,%d", n), nil
		default:
			row := s.rows[n]
			row.n = n
			rows = append(rows, row)
		}
	}
	return rows, "", nil
}

func byKey(a, b *item) int { return cmp.Compare(a.Key, b.Key) }

// list gives a page of the merged listing.
func list(t *testing.T, shelves map[int]*shelf, after string, limit int) (rows []string, next string, failed Failures) {
	t.Helper()
	nodes := []int{1, 2, 3}
	next, failed, err := Merge(t.Context(), nodes, after, limit, byKey, func(i *item) string { return strconv.Itoa(i.n) }, func(ctx context.Context, after string, limit int) ([]item, string, error) {
		return shelves[nodeOf(ctx)].page(after, limit)
	}, func(r Row[item]) error {
		rows = append(rows, fmt.Sprintf("%s@%d", r.Value.Key, r.Node))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows, next, failed
}

// TestMerge: pages of any size give the rows of all nodes once, in their order, as does one page of all.
func TestMerge(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		shelves := make(map[int]*shelf)
		var want []string
		for n := 1; n <= 3; n++ {
			s := &shelf{short: r.IntN(2) == 0}
			for range r.IntN(30) {
				s.rows = append(s.rows, item{Key: fmt.Sprintf("%02d", r.IntN(40))})
			}
			slices.SortFunc(s.rows, func(a, b item) int { return byKey(&a, &b) })
			for _, row := range s.rows {
				want = append(want, fmt.Sprintf("%s@%d", row.Key, n))
			}
			shelves[n] = s
		}
		slices.Sort(want)
		limit := 1 + r.IntN(12)
		var got []string
		for after, pages := "", 0; ; pages++ {
			rows, next, failed := list(t, shelves, after, limit)
			if got = append(got, rows...); len(failed) > 0 || len(rows) != limit && next != "" || pages > 100 {
				t.Fatalf("seed %d: page %d has %d of %d rows, %v", seed, pages, len(rows), limit, failed)
			}
			if after = next; next == "" {
				break
			}
		}
		all, next, _ := list(t, shelves, "", 0)
		if !slices.Equal(got, want) || !slices.Equal(all, want) || next != "" {
			t.Fatalf("seed %d:\n%v\n%v\n%v", seed, got, all, want)
		}
	}
}

// TestMergeOfWhatLeaves: a row that stays is on one page, whatever leaves between the pages and while they are read.
func TestMergeOfWhatLeaves(t *testing.T) {
	for seed := range 500 {
		shelves := make(map[int]*shelf)
		for n := 1; n <= 3; n++ {
			s := &shelf{short: seed%2 == 0, gone: map[int]bool{}, leave: 0.05}
			for i := range rand.IntN(40) {
				s.rows = append(s.rows, item{Key: fmt.Sprintf("%02d", i)})
			}
			shelves[n] = s
		}
		times := map[string]int{}
		for after, pages := "", 0; pages == 0 || after != "" && pages < 200; pages++ {
			rows, next, _ := list(t, shelves, after, 7)
			for _, row := range rows {
				times[row]++
			}
			after = next
		}
		for n, s := range shelves {
			for i, row := range s.rows {
				if seen := times[fmt.Sprintf("%s@%d", row.Key, n)]; seen > 1 || seen == 0 && !s.gone[i] {
					t.Fatalf("seed %d: row %s of node %d is on %d pages", seed, row.Key, n, seen)
				}
			}
		}
	}
}

// TestMergeWithoutANode: the others' rows are there, and the next page has those of the node that had failed.
func TestMergeWithoutANode(t *testing.T) {
	rows := func(keys string) (all []item) {
		for _, k := range strings.Fields(keys) {
			all = append(all, item{Key: k})
		}
		return all
	}
	shelves := map[int]*shelf{1: {rows: rows("a c e")}, 2: {rows: rows("b d")}, 3: {fails: errors.New("no answer")}}
	got, next, failed := list(t, shelves, "", 3)
	if fmt.Sprint(got) != "[a@1 b@2 c@1]" || next == "" || failed.Error() != "node 3: no answer" {
		t.Errorf("%v %q %v", got, next, failed)
	}
	shelves[3] = &shelf{rows: rows("f")}
	if got, next, failed := list(t, shelves, next, 10); fmt.Sprint(got) != "[d@2 e@1 f@3]" || next != "" || failed != nil {
		t.Errorf("%v %q %v", got, next, failed)
	}
	for _, cursor := range []string{"x", "9:", "1:%zz", "1:a,"} {
		if _, _, err := Merge(t.Context(), []int{1, 2, 3}, cursor, 1, byKey, nil, nil, nil); err == nil || !strings.Contains(err.Error(), "not a cursor") {
			t.Errorf("%q: %v", cursor, err)
		}
	}
}

// nodeOf is the node that a context asks.
func nodeOf(ctx context.Context) (node int) {
	c := api.NewLocalClient(asked(func(n int) { node = n }))
	_, _ = api.OpStatus.Call(ctx, c, api.None{})
	return node
}

// TestFirst: the node that knows gives the answer, with those that have failed; two that know are an error, and it is not
// found when all have answered so.
func TestFirst(t *testing.T) {
	unknown, silent := api.NotFound("", "it is not here"), errors.New("node 2: no answer within 5s")
	for _, test := range []struct {
		errs [3]error
		node int
		want string
	}{
		{[3]error{unknown, nil, silent}, 2, ""},
		{[3]error{nil, unknown, nil}, 0, "message k is at node 1 and at node 3"},
		{[3]error{unknown, unknown, unknown}, 0, "it is not here"},
		{[3]error{unknown, silent, unknown}, 0, "it is not here at the other nodes\nnode 2: no answer within 5s"},
		{[3]error{silent, silent, silent}, 0, "no answer within 5s"},
	} {
		row, err := First(t.Context(), []int{1, 2, 3}, "message k", func(ctx context.Context) (item, error) {
			return item{Key: "k"}, test.errs[nodeOf(ctx)-1]
		})
		if row.Node != test.node || (err == nil) != (test.want == "") || err != nil && !strings.HasSuffix(err.Error(), test.want) {
			t.Errorf("%+v: %+v, %v", test, row, err)
		}
		if found := test.node != 0; found != (len(row.Failed) == 1 && row.Failed[0].Node == 3) {
			t.Errorf("%+v: %v have failed", test, row.Failed)
		}
		if all := test.errs == [3]error{unknown, unknown, unknown}; api.IsNotFound(err) != (all || test.errs[1] == silent && test.errs[0] == unknown) {
			t.Errorf("%+v: not found: %v", test, err)
		}
	}
}

// TestRows: the node stands before the fields and the columns of a row.
func TestRows(t *testing.T) {
	row := Row[api.Site]{Node: 2, Value: &api.Site{Name: "mx.a.example", Queued: 7}}
	text, err := json.Marshal(row)
	if err != nil || !strings.HasPrefix(string(text), `{"node":2,"name":"mx.a.example",`) || !json.Valid(text) {
		t.Errorf("%s, %v", text, err)
	}
	if text, err := json.Marshal(Row[struct{}]{Node: 3, Value: &struct{}{}, Failed: Failures{{4, errors.New("node 4: gone")}}}); err != nil || string(text) != `{"node":3,"failed":[{"error":"gone","node":4}]}` {
		t.Errorf("%s, %v", text, err)
	}
	if _, err := json.Marshal(Row[string]{Node: 3, Value: new(string)}); err == nil {
		t.Error("a text has fields")
	}
	l := Listing(listing.Sites).For(listing.CLI)
	cells, plain := l.Cells(&row, listing.Look{Now: time.Now()}), listing.Sites.For(listing.CLI)
	if l.Columns[0].Title != "NODE" || cells[0].Text != "2" || cells[1].Text != "mx.a.example" || len(l.Columns) != len(plain.Columns)+1 || l.NoteTitle != plain.NoteTitle {
		t.Errorf("%+v", cells)
	}
	failed, _ := json.Marshal(Failures{{3, errors.New("node 3: gone")}})
	if string(failed) != `[{"error":"gone","node":3}]` {
		t.Error(string(failed))
	}
}
