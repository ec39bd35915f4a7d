// Package gcra paces events exactly, by the generic cell rate algorithm: no windows, no clearing
// goroutine, one time stamp of state. Values only; the owner of a Limiter guards it.
package gcra

import (
	"fmt"
	"math"
	"time"
)

// Rate is how many events may happen. The zero Rate means no limit.
type Rate struct {
	Events int           // per Per; 0 or less means no limit
	Per    time.Duration // 0 is a second
	Burst  int           // how many may come at once after a pause; 0 is what a second holds, at least 1
}

// Unlimited reports whether r bounds nothing.
func (r Rate) Unlimited() bool { return r.Events <= 0 }

// Interval is the time from one event to the next in an even flow, 0 when unlimited.
func (r Rate) Interval() time.Duration {
	if r.Unlimited() {
		return 0
	}
	return max(r.per()/time.Duration(r.Events), 1)
}

// PerSecond is the rate in events a second, 0 when unlimited.
func (r Rate) PerSecond() float64 {
	if r.Unlimited() {
		return 0
	}
	return 1 / r.Interval().Seconds()
}

// Of is the rate of so many events a second, by the minute or by the hour, as an operator would write it, at least
// 1/h; 0 or less: no limit.
func Of(perSecond float64) Rate {
	if perSecond <= 0 {
		return Rate{}
	}
	n := math.Round(perSecond * 60)
	if n < 1 || math.Abs(perSecond*60-n) > n/1000 {
		return Rate{Events: max(int(math.Round(perSecond*3600)), 1), Per: time.Hour}
	}
	return Rate{Events: int(n), Per: time.Minute}
}

func (r Rate) per() time.Duration {
	if r.Per <= 0 {
		return time.Second
	}
	return r.Per
}

func (r Rate) burst() int {
	if r.Burst > 0 {
		return r.Burst
	}
	return max(1, int(time.Second/r.Interval()))
}

// String gives "100/s", "50/min", "5/2m0s".
func (r Rate) String() string {
	switch {
	case r.Unlimited():
		return "unlimited"
	case r.per() == time.Second:
		return fmt.Sprintf("%d/s", r.Events)
	case r.per() == time.Minute:
		return fmt.Sprintf("%d/min", r.Events)
	case r.per() == time.Hour:
		return fmt.Sprintf("%d/h", r.Events)
	case r.per() == 24*time.Hour:
		return fmt.Sprintf("%d/d", r.Events)
	}
	return fmt.Sprintf("%d/%s", r.Events, r.per())
}

// Limiter paces one stream of events. The zero value has its burst to give. The rate is given
// anew with each call, so that a reload acts at once.
type Limiter struct {
	due time.Time // the theoretical arrival time of the next event
}

// Next is the earliest time at which n events may happen; not after now means now. It charges
// nothing. More than a burst is let through when all of the burst is there, or it would never be.
func (l *Limiter) Next(now time.Time, r Rate, n int) time.Time {
	if r.Unlimited() || n <= 0 {
		return now
	}
	step := r.Interval()
	n = min(n, r.burst())
	return l.due.Add(-step * time.Duration(r.burst()-n))
}

// Take charges n events that happen now, allowed or not.
func (l *Limiter) Take(now time.Time, r Rate, n int) {
	if r.Unlimited() || n <= 0 {
		return
	}
	if l.due.Before(now) {
		l.due = now
	}
	l.due = l.due.Add(r.Interval() * time.Duration(n))
}

// GiveBack undoes a Take of n events that did not happen.
func (l *Limiter) GiveBack(r Rate, n int) {
	if !r.Unlimited() {
		l.due = l.due.Add(-r.Interval() * time.Duration(n))
	}
}

// Forgive forgets what was taken at a slower rate than r, if that is one, by events that were allowed.
func (l *Limiter) Forgive(now time.Time, r Rate) {
	if r.Unlimited() {
		return
	}
	if most := now.Add(r.Interval() * time.Duration(r.Depth())); l.due.After(most) {
		l.due = most
	}
}

// Change has what was taken at one rate count at another.
func (l *Limiter) Change(now time.Time, from, to Rate) {
	if owed := l.due.Sub(now); owed > 0 && !from.Unlimited() && !to.Unlimited() {
		owed := float64(owed) * float64(to.Interval()) / float64(from.Interval())
		l.due = now.Add(time.Duration(min(owed, math.MaxInt64/2)))
	}
}

// Paid reports whether nothing that was taken matters any more: l is as good as a new one.
func (l *Limiter) Paid(now time.Time) bool { return !l.due.After(now) }

// Left is how many events may happen now, at most r's burst.
func (l *Limiter) Left(now time.Time, r Rate) int {
	step := r.Interval()
	if step == 0 {
		return 0
	}
	ahead := l.due.Sub(now)
	if ahead <= 0 {
		return r.burst()
	}
	return max(0, r.burst()-int((ahead+step-1)/step))
}

// Whole is the time until all of r's burst may happen.
func (l *Limiter) Whole(now time.Time) time.Duration { return max(0, l.due.Sub(now)) }

// Depth is how many events may happen at once after a pause; 0 without a limit.
func (r Rate) Depth() int {
	if r.Unlimited() {
		return 0
	}
	return r.burst()
}
