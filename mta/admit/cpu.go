package admit

import "sync/atomic"

// quota knows whether the control group's quota of CPU is used up: accepting and refusing take it from each other
// then.
type quota struct {
	early, all int64 // periods that ended early, of all
	short      atomic.Bool
}

const usedUp = .8 // of the periods of a quota

// look takes in how many periods of the quota there were, and how many of them ended early because it was used up.
func (q *quota) look(early, all int64) {
	periods, ended := all-q.all, early-q.early
	q.short.Store(q.all > 0 && periods > 0 && float64(ended) >= usedUp*float64(periods))
	q.early, q.all = early, all
}
