package suppression

import (
	"context"
	"fmt"
)

// tally counts entries.
type tally struct {
	all int
	own map[string]int // by tenant: those that it added itself
}

// add counts an entry n times.
func (t *tally) add(e *Entry, n int) {
	t.all += n
	if e.Source == Tenant {
		t.addOwn(e.Tenant, n)
	}
}

func (t *tally) addOwn(tenant string, n int) {
	if t.own == nil {
		t.own = make(map[string]int)
	}
	if t.own[tenant] += n; t.own[tenant] == 0 {
		delete(t.own, tenant)
	}
}

func (t *tally) merge(other *tally) {
	t.all += other.all
	for tenant, n := range other.own {
		t.addOwn(tenant, n)
	}
}

// stale reports whether most keys of the filter are of entries that are gone.
func (l *List) stale() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.filter.keys() > 2*(l.count.all+firstRoom)
}

// renew makes the filter anew if it is stale: a tenant that adds and removes would make it grow forever. Entries that
// are added meanwhile get into both. It takes about a second for a million.
func (l *List) renew(ctx context.Context) error {
	if !l.stale() {
		return nil
	}
	next := new(filter)
	l.setNext(next)
	err := l.store.Scan(ctx, Key{}, func(e Entry) bool {
		l.mu.Lock()
		next.add(e.Key)
		l.mu.Unlock()
		return true
	})
	if err != nil {
		l.setNext(nil)
		return fmt.Errorf("reading the suppression list: %w", err)
	}
	l.mu.Lock()
	l.filter, l.next = *next, nil
	l.mu.Unlock()
	return nil
}

// setNext waits for the change that may be between the filter and the store.
func (l *List) setNext(next *filter) {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	l.next = next
	l.mu.Unlock()
}
