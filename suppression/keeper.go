package suppression

import (
	"context"
	"fmt"
	"time"
)

// keep writes what is fed, and sweeps, until ctx ends.
func (l *List) keep(ctx context.Context) {
	defer close(l.ended)
	write, sweep := time.NewTimer(time.Hour), time.NewTicker(sweepEvery)
	write.Stop()
	defer write.Stop()
	defer sweep.Stop()
	waiting := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.kick:
			if !waiting {
				waiting = true
				write.Reset(feedDelay)
			}
		case <-write.C:
			waiting = false
			err := l.writeFed(ctx)
			if err == nil {
				err = l.renew(ctx)
			}
			if err != nil && ctx.Err() == nil {
				l.log.Error("suppression list could not be written; it is tried again", "error", err, "entries",
					l.Stats().Unwritten)
				waiting = true
				write.Reset(retryDelay)
			}
		case <-sweep.C:
			if err := l.sweep(ctx); err != nil && ctx.Err() == nil {
				l.log.Error("suppression list could not be swept; it is tried again in an hour", "error", err)
			}
		}
	}
}

// writeFed makes durable what was fed so far.
func (l *List) writeFed(ctx context.Context) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.writeAll(ctx)
}

// writeAll is writeFed for those who have l.writing.
func (l *List) writeAll(ctx context.Context) error {
	for {
		some := l.someFed()
		if len(some) == 0 {
			return nil
		}
		if _, err := l.merge(ctx, some); err != nil {
			return err
		}
		l.mu.Lock()
		for i := range some {
			if l.fed[some[i].Key] == some[i] { // not fed again meanwhile
				delete(l.fed, some[i].Key)
			}
		}
		l.mu.Unlock()
	}
}

func (l *List) someFed() []Entry {
	l.mu.RLock()
	defer l.mu.RUnlock()
	some := make([]Entry, 0, min(len(l.fed), batch))
	for _, e := range l.fed {
		if len(some) == batch {
			break
		}
		some = append(some, e)
	}
	return some
}

// keysOf returns the keys of entries or changes.
func keysOf[E interface{ key() Key }](all []E) []Key {
	keys := make([]Key, len(all))
	for i := range all {
		keys[i] = all[i].key()
	}
	return keys
}

// stored returns the entries of the store that have these keys.
func (l *List) stored(ctx context.Context, keys []Key) (map[Key]*Entry, error) {
	found, err := l.store.Get(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("reading the suppression list: %w", err)
	}
	there := make(map[Key]*Entry, len(found))
	for i := range found {
		there[found[i].Key] = &found[i]
	}
	return there, nil
}

// merge writes those of entries that no other entry stands against, and says how many. The caller has l.writing.
func (l *List) merge(ctx context.Context, entries []Entry) (merged int, err error) {
	there, err := l.stored(ctx, keysOf(entries))
	if err != nil {
		return 0, err
	}
	now, changes := l.now(), make([]Change, 0, len(entries))
	for i := range entries {
		if old := there[entries[i].Key]; old == nil || old.yields(&entries[i], now) {
			changes = append(changes, Change{Entry: entries[i]})
		}
	}
	_, err = l.apply(ctx, changes, anyNumber)
	return len(changes), err
}

// sweep removes what has ended, a batch at a time.
func (l *List) sweep(ctx context.Context) error {
	for after := (Key{}); ; {
		var ended []Key
		now, looks, done := l.now(), 0, true
		err := l.store.Scan(ctx, after, func(e Entry) bool {
			if looks++; len(ended) == batch || looks > maxLooks || ctx.Err() != nil {
				done = false
				return false
			}
			after = e.Key
			if e.Ended(now) {
				ended = append(ended, e.Key)
			}
			return true
		})
		if err == nil {
			err = l.removeEnded(ctx, ended)
		}
		if err != nil || done || ctx.Err() != nil {
			return err
		}
	}
}

// removeEnded removes those that have still ended: they may have been added anew meanwhile.
func (l *List) removeEnded(ctx context.Context, keys []Key) error {
	if len(keys) == 0 {
		return nil
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	found, err := l.store.Get(ctx, keys)
	if err != nil {
		return err
	}
	var changes []Change
	for i := range found {
		if found[i].Ended(l.now()) {
			changes = append(changes, Change{Entry: Entry{Key: found[i].Key}, Remove: true})
		}
	}
	if len(changes) == 0 {
		return nil
	}
	_, err = l.put(ctx, changes, anyNumber, nil)
	return err
}
