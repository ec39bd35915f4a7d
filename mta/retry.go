package mta

import (
	"math"
	"time"

	"example.org/mta/mta/config"
)

// retrySchedule says how long a recipient waits after a temporary failure.
type retrySchedule struct {
	// list is the waits one after the other, the last of them for good; it goes before interval.
	list []time.Duration
	// interval is the first wait; each further one is twice as long, to at most max.
	interval, max time.Duration
}

// retryJitter is the part of a wait that is left to chance, so that what failed together does
// not come back together.
const retryJitter = 0.2

// after gives the wait after the given number of failed attempts, at least 1. chance is in
// [0, 1) and shifts the wait by up to a tenth of it in either direction.
func (s retrySchedule) after(attempts int, chance float64) time.Duration {
	wait := s.plain(max(attempts, 1))
	return time.Duration(float64(wait) * (1 + retryJitter*(chance-0.5)))
}

func (s retrySchedule) plain(attempts int) time.Duration {
	if n := len(s.list); n > 0 {
		return s.list[min(attempts, n)-1]
	}
	wait := float64(s.interval) * math.Pow(2, float64(attempts-1))
	if s.max > 0 {
		wait = min(wait, float64(s.max))
	}
	return time.Duration(min(wait, float64(maxWait)))
}

// maxWait keeps the doubling from overflowing when max_retry_interval is not set.
const maxWait = 30 * 24 * time.Hour

// retryOf gives the schedule of a destination's settings.
func retryOf(t *config.Traffic) retrySchedule {
	return retrySchedule{list: t.RetryInterval.List, interval: t.RetryInterval.First, max: t.MaxRetryInterval}
}
