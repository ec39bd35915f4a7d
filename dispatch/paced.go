package dispatch

import (
	"context"
	"time"

	"example.org/mta/dispatch/rules"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/queue"
)

// paced is the mail that is beyond the pace of its campaign, in lines of the queue: in a campaign tiers take turns.
type paced struct {
	*throttled
	wake chan struct{} // has space for one: there is some
}

func newPaced(d *Dispatcher) *paced { return &paced{newThrottled(d), make(chan struct{}, 1)} }

// withoutPaced lets the recipients wait that are beyond the pace of their campaign, and gives the others, which are
// charged. Mail that comes does not pass what waits.
func (d *Dispatcher) withoutPaced(m *envelope.Message, recipients []queue.Pending, p *rules.Pace,
	expires time.Time) []queue.Pending {
	n := 0
	if recipients[0].Key == p.Key || d.Queue.ParkedInLines(p.Key) == 0 {
		n = d.Rules.Take(p, len(recipients))
	}
	if n < len(recipients) {
		c := choice{wait: p.Key, expires: expires, again: recipients[n].Attempts > 0}
		d.paced.park(m, indexes(recipients[n:]), &c, 1, false)
		select {
		case d.paced.wake <- struct{}{}:
		default:
		}
	}
	return recipients[:n:n]
}

// run takes up what may leave, until ctx ends.
func (t *paced) run(ctx context.Context) {
	defer t.ended.Store(true)
	for {
		var next <-chan time.Time
		if wait, more := t.takeUp(ctx); more {
			next = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-next:
		case <-t.wake:
		case <-t.again:
			t.takeAll(ctx)
		}
	}
}

// takeUp takes up mail of each campaign as far as its pace allows, and returns when there is more; false without any.
func (t *paced) takeUp(ctx context.Context) (wait time.Duration, more bool) {
	const soonest, latest = 50 * time.Millisecond, time.Second // by then a pace may have changed
	if wait = latest; t.d.Rules == nil {
		return wait, false
	}
	t.d.Rules.Forget(func(key parking.Key) bool { return t.d.Queue.ParkedInLines(key) > 0 })
	next := func(h *throttledLines) *throttledLine { return h.next("", t.d.Queue.Parked) }
	for h := range t.linesNow() {
		for n := 0; n < unparkAtOnce && t.d.pause(ctx) == nil && !t.d.Rules.Ready(h.Key).After(t.d.Now()); n++ {
			if !t.try(h.Key, next) {
				break
			}
		}
		wait, more = min(wait, t.d.Rules.Ready(h.Key).Sub(t.d.Now())), true
	}
	return max(wait, soonest), more
}
