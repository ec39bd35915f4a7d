package destdb

import (
	"slices"
	"time"
)

// clockSlack is how far a time may lie ahead without the clock having been wrong when it was written.
const clockSlack = time.Minute

// longestWait is the longest that a host is left alone after a failure, whatever the settings.
const longestWait = 24 * time.Hour

// Judge repairs a record that was written while the clock was ahead, so that nothing waits for its times:
// what would hold mail back is dropped, and times of past events become now. Suspensions that began before
// now stay.
func (r *Record) Judge(now time.Time) {
	ahead := now.Add(clockSlack)
	if b := &r.Broken; b.Since.After(ahead) || b.RetryAt.After(now.Add(longestWait)) {
		*b = Broken{}
	}
	r.Actions = slices.DeleteFunc(r.Actions, func(a Action) bool { return a.Begin.After(ahead) })
	if r.Used.After(ahead) { // until then nothing newer would count
		r.Facts.PlainUntil = time.Time{}
		r.DrainBegan, r.DrainRate = time.Time{}, 0
	}
	for _, at := range []*time.Time{&r.Used, &r.Made, &r.Good, &r.Facts.OutOfStep} {
		if at.After(ahead) {
			*at = now
		}
	}
}
