package suppression

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Doubted is a provider in a flood, or whose last flood left entries behind.
type Doubted struct {
	Provider string
	Since    time.Time // the beginning of the flood
	Until    time.Time // its end; zero: it is under way
	Known    int64     // recipients that the provider took meanwhile
	Unknown  int64     // those that it called unknown
	Usual    float64   // the share of unknown ones that is usual
}

// Doubted returns the providers in a flood and, while entries are set aside, those whose flood ended within a week.
func (f *Feeder) Doubted() (all []Doubted) {
	now, left := f.Now(), f.pending.used.Load() > 0
	for _, p := range f.providers.all() {
		p.mu.Lock()
		p.look(now, &f.Settings().Flood)
		g := &p.guard
		d := Doubted{Provider: p.name, Usual: g.usual(now)}
		switch {
		case g.flood:
			d.Since, d.Known, d.Unknown = g.rise.Began, g.rise.Known, g.rise.Unknown
			all = append(all, d)
		case left && !g.ended.IsZero() && now.Sub(g.ended) < 7*day:
			d.Since, d.Until, d.Known, d.Unknown = g.last.Began, g.ended, g.last.Known, g.last.Unknown
			all = append(all, d)
		}
		p.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b Doubted) int { return cmp.Compare(a.Provider, b.Provider) })
	return all
}

// Accept puts the entries that were set aside and fit on the list, and says how many. When these are all of a provider
// that is in a flood, the flood was a mistake: what it says is usual from now on.
func (f *Feeder) Accept(ctx context.Context, q Query, agree func(n int) error) (int, error) {
	n, err := f.pending.take(ctx, f.List, q, agree)
	if err != nil || !whole(&q) {
		return n, err
	}
	now := f.Now()
	for _, p := range f.providers.all() {
		if q.Provider == "" || q.Provider == p.name {
			p.mu.Lock()
			if p.guard.flood {
				p.guard.believe(now, &f.Settings().Flood)
				p.dirty = true
			}
			p.mu.Unlock()
		}
	}
	return n, f.providers.flush()
}

// whole reports whether a query asks for all entries of a provider, or of all.
func whole(q *Query) bool { return *q == Query{Provider: q.Provider} }

// Drop forgets the entries that were set aside and fit, and says how many. agree is as for List.Take.
func (f *Feeder) Drop(ctx context.Context, q Query, agree func(n int) error) (int, error) {
	return f.pending.take(ctx, nil, q, agree)
}

// FeederStats is what a Feeder has done since it was opened, and what it keeps.
type FeederStats struct {
	Made       map[Source]int64 // entries put on the list
	SetAside   int64            // entries set aside when they were made
	Pending    int              // addresses that are set aside now
	Lost       int64            // entries for which there was no space beside those
	Counters   int64            // of refusals
	Uncounted  int64            // refusals for which there was no counter
	Duplicates int64            // complaints that had come before
	Floods     int              // providers in a flood
}

// Stats gives the numbers of this instant.
func (f *Feeder) Stats() FeederStats {
	s := FeederStats{Made: make(map[Source]int64, len(f.made)), SetAside: f.aside.Load(),
		Pending: int(f.pending.used.Load()), Lost: f.pending.lost.Load(),
		Counters: f.counters.used.Load(), Uncounted: f.counters.full.Load(), Duplicates: f.complaints.duplicates.Load()}
	for i, kind := range kinds {
		s.Made[kind] = f.made[i].Load()
	}
	for _, p := range f.providers.all() {
		p.mu.Lock()
		if p.guard.flood {
			s.Floods++
		}
		p.mu.Unlock()
	}
	return s
}

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
