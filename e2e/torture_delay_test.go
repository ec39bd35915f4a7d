package e2e

import (
	"fmt"
	"slices"
	"time"
)

// lateness is how long mail took from the begin of its submission to its host, sorted.
type lateness []time.Duration

// delays lists those of the first copies of the accepted messages that which names.
func (b *battlefield) delays(which func(id string, began time.Time) bool) lateness {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := make(map[string]bool)
	var all lateness
	for _, d := range b.taken.Deliveries() {
		key := d.ID + " " + d.Recipient
		began, ok := b.begun[d.ID]
		if ok && !seen[key] && which(d.ID, began) {
			all = append(all, d.At.Sub(began))
		}
		seen[key] = true
	}
	slices.Sort(all)
	return all
}

func (d lateness) String() string {
	round := func(share float64) time.Duration { return d.quantile(share).Round(time.Millisecond) }
	return fmt.Sprintf("p50 %v, p99 %v, worst %v (%d recipients)", round(0.5), round(0.99), round(1), len(d))
}

// quantile is 0 when nothing was delivered.
func (d lateness) quantile(share float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	return d[int(share*float64(len(d)-1))]
}
