package inbox

import (
	"maps"
	"sync"

	"example.org/mta/bounce/report"
)

// Counted is what mail has in common that is counted together.
type Counted struct {
	Kind    report.Kind
	Outcome Outcome
}

// counts counts inbound mail since the start.
type counts struct {
	mu sync.Mutex // guards by
	by map[Counted]int64
}

func (c *counts) add(k report.Kind, o Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = make(map[Counted]int64)
	}
	c.by[Counted{k, o}]++
}

// Counts returns how much mail came in since the start.
func (b *Inbox) Counts() map[Counted]int64 {
	b.counts.mu.Lock()
	defer b.counts.mu.Unlock()
	out := make(map[Counted]int64, len(b.counts.by))
	maps.Copy(out, b.counts.by)
	return out
}
