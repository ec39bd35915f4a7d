package tally

import (
	"slices"

	"example.org/mta/operator/history"
)

// seen notes that a block or site had n recipients, under the lock.
func (t *Tallies) seen(c *Tally, scope Scope, name string, n int64) {
	if c.recent == 0 {
		if len(t.busy[scope]) >= maxSiteTallies { // nobody asks
			return
		}
		t.busy[scope] = append(t.busy[scope], name)
	}
	c.recent += n
}

// Busy calls each with the names of a scope that had recipients since it was called last, and how many; that of
// mail without a block is "". There is one caller.
func (t *Tallies) Busy(scope Scope, each func(name string, n int64)) {
	type recent struct {
		name string
		n    int64
	}
	t.mu.Lock()
	list := make([]recent, 0, len(t.busy[scope]))
	for _, name := range t.busy[scope] {
		if c := t.by[scope][name]; c != nil { // a site may have been forgotten
			list = append(list, recent{name, c.recent})
			c.recent = 0
		}
	}
	t.busy[scope] = slices.Delete(t.busy[scope], 0, len(t.busy[scope]))
	t.mu.Unlock()
	for _, r := range list {
		each(r.name, r.n)
	}
}

// Delays returns the delays of a block's or a site's deliveries since it was called first. They take half a kilobyte,
// until Unwatch.
func (t *Tallies) Delays(scope Scope, name string) history.Histogram {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.by[scope][name]
	switch {
	case c == nil && scope == Site: // strangers' names are remembered with mail only
		return history.Histogram{}
	case c == nil:
		c = t.of(scope, name)
	}
	if c.delays == nil {
		c.delays = new(history.Histogram)
	}
	return *c.delays
}

// Unwatch ends the count of delays that Delays has begun.
func (t *Tallies) Unwatch(scope Scope, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.by[scope][name]; c != nil {
		c.delays = nil
	}
}

// TotalDelays returns those of all deliveries.
func (t *Tallies) TotalDelays() history.Histogram {
	t.mu.Lock()
	defer t.mu.Unlock()
	return *t.total.delays
}
