package everywhere

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"example.org/mta/operator/api"
)

// place is a cursor of a node's listing.
type place struct {
	node  int
	after string
}

// cursors are written as node:cursor, with commas between them.
func writeCursor(places []place) string {
	var parts []string
	for _, p := range places {
		parts = append(parts, fmt.Sprintf("%d:%s", p.node, url.QueryEscape(p.after)))
	}
	return strings.Join(parts, ",")
}

func readCursor(text string, nodes []int) (places []place, err error) {
	if text == "" {
		for _, n := range nodes {
			places = append(places, place{node: n})
		}
		return places, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		var p place
		number, cursor, _ := strings.Cut(part, ":")
		p.node, err = strconv.Atoi(number)
		if err == nil {
			p.after, err = url.QueryUnescape(cursor)
		}
		if err != nil || !slices.Contains(nodes, p.node) {
			return nil, api.Invalid("take it from the page before", "%.60q is not a cursor of this cluster", text)
		}
		places = append(places, p)
	}
	return places, nil
}

// reader reads the listing of a node.
type reader[T any] struct {
	place
	page  []T // behind after
	shown int // rows of the page that are done
	next  string
	read  bool // page and next are there
	over  bool // there is no more
}

// fill reads pages until there is a row that is not shown, or no more.
func (r *reader[T]) fill(size int, ask func(after string, limit int) ([]T, string, error)) error {
	for !r.over && (!r.read || r.shown >= len(r.page)) {
		if r.read {
			if r.over = r.next == ""; r.over {
				return nil
			}
			r.after, r.shown, r.read = r.next, 0, false
		}
		page, next, err := ask(r.after, size)
		if err != nil {
			return err
		}
		r.page, r.next, r.read = page, next, true
	}
	return nil
}

// settle moves the cursor behind the rows that were shown, but not behind others: a node whose rows have left meanwhile
// is asked again, for fewer.
func (r *reader[T]) settle(key func(*T) string, ask func(after string, limit int) ([]T, string, error)) error {
	shown := make(map[string]bool)
	for i := range r.page[:r.shown] {
		shown[key(&r.page[i])] = true
	}
	for limit := r.shown; limit > 0; {
		page, next, err := ask(r.after, limit)
		if err != nil {
			return err
		}
		done := len(page)
		for done > 0 && !shown[key(&page[done-1])] {
			done--
		}
		switch {
		case done < len(page):
			limit = done
		case next == "":
			r.over = true
			return nil
		default:
			r.after, limit = next, limit-done
		}
	}
	return nil
}

// Merge calls each with the rows of all nodes' listings, in an order that each of them has, behind a cursor of it and
// up to a limit; 0 is all. next is the cursor of what follows, "" if nothing does. A node that fails is passed over
// from then on; the next page begins with the row that it has failed at, or repeats some. Rows that leave meanwhile,
// which have other keys than those that stay, hide none. An error is one of each, or of the cursor.
func Merge[T any](ctx context.Context, nodes []int, after string, limit int, compare func(a, b *T) int,
	key func(*T) string,
	ask func(ctx context.Context, after string, limit int) (rows []T, next string, err error),
	each func(Row[T]) error) (next string, failed Failures, err error) {
	places, err := readCursor(after, nodes)
	if err != nil {
		return "", nil, err
	}
	readers := make([]*reader[T], len(places))
	at := make(map[int]*reader[T], len(places))
	asked := make([]int, len(places))
	for i, p := range places {
		readers[i] = &reader[T]{place: p}
		at[p.node], asked[i] = readers[i], p.node
	}
	size := api.MaxLimit
	if limit > 0 {
		size = min(limit, size)
	}
	by := func(ctx context.Context) func(string, int) ([]T, string, error) {
		return func(after string, limit int) ([]T, string, error) { return ask(ctx, after, limit) }
	}
	fill := func(ctx context.Context, node int) (none struct{}, err error) {
		return none, at[node].fill(size, by(ctx))
	}
	live := slices.Clone(readers)
	drop := func(failures Failures) {
		failed = append(failed, failures...)
		live = slices.DeleteFunc(live, func(r *reader[T]) bool {
			return r.over || slices.ContainsFunc(failures, func(f Failure) bool { return f.Node == r.node })
		})
	}
	_, failures := Ask(ctx, asked, fill)
	drop(failures)
	for shown := 0; len(live) > 0 && (limit == 0 || shown < limit); shown++ {
		first := slices.MinFunc(live, func(a, b *reader[T]) int {
			return cmp.Or(compare(&a.page[a.shown], &b.page[b.shown]), cmp.Compare(a.node, b.node))
		})
		if err := each(Row[T]{Node: first.node, Value: &first.page[first.shown]}); err != nil {
			return "", failed, err
		}
		if first.shown++; first.shown == len(first.page) {
			_, failures := Ask(ctx, []int{first.node}, fill)
			drop(failures)
		}
	}
	if len(live) == 0 {
		return "", failed, nil
	}
	open := make([]int, len(live))
	for i, r := range live {
		open[i] = r.node
	}
	Ask(ctx, open, func(ctx context.Context, node int) (none struct{}, err error) {
		return none, at[node].settle(key, by(ctx))
	})
	var rest []place
	for _, r := range readers {
		if !r.over {
			rest = append(rest, r.place)
		}
	}
	return writeCursor(rest), failed, nil
}
