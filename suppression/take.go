package suppression

import (
	"context"
	"slices"
)

// Count returns how many entries there are that fit.
func (l *List) Count(ctx context.Context, q Query) (n int, err error) {
	err = l.Each(ctx, q, func(page []Entry) error {
		n += len(page)
		return nil
	})
	return n, err
}

// Take takes the entries that fit off the list, some at a time, and says how many. If agree is not nil, it is called
// with their number first: after an error nothing is taken, and otherwise exactly the entries that were counted are.
// Before, to is called with them, nil: nothing is; if it fails, they stay, as does each that is changed meanwhile. What
// to does must bear to be done twice. It is durable on return.
func (l *List) Take(ctx context.Context, q Query, agree func(n int) error,
	to func(context.Context, []Entry) error) (taken int, err error) {
	take := func(some []Entry) error {
		if to != nil {
			if err := to(ctx, some); err != nil {
				return err
			}
		}
		n, err := l.removeSame(ctx, some)
		taken += n
		return err
	}
	if agree == nil {
		err = l.Each(ctx, q, take)
		return taken, err
	}
	var counted []Entry
	err = l.Each(ctx, q, func(page []Entry) error {
		counted = append(counted, page...)
		return nil
	})
	if err == nil {
		err = agree(len(counted))
	}
	for some := range slices.Chunk(counted, batch) {
		if err != nil {
			break
		}
		if err = take(some); err == nil {
			err = ctx.Err()
		}
	}
	return taken, err
}

// Each calls each with the entries that fit, some at a time.
func (l *List) Each(ctx context.Context, q Query, each func([]Entry) error) error {
	for after, more := (Key{}), true; more; {
		var page []Entry
		var err error
		if page, after, more, err = l.Page(ctx, q, after, batch); err != nil {
			return err
		}
		if len(page) > 0 {
			if err := each(page); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// removeSame removes those of entries that are still as given.
func (l *List) removeSame(ctx context.Context, entries []Entry) (removed int, err error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	if err := l.writeAll(ctx); err != nil {
		return 0, err
	}
	now, err := l.stored(ctx, keysOf(entries))
	if err != nil {
		return 0, err
	}
	var changes []Change
	for i := range entries {
		if e := now[entries[i].Key]; e != nil && e.same(&entries[i]) {
			changes = append(changes, Change{Entry: Entry{Key: e.Key}, Remove: true})
		}
	}
	n, err := l.apply(ctx, changes, anyNumber)
	return -n, err
}
