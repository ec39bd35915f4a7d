package mta

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mta/internal/bubble"
	"mta/internal/envelope"
	"mta/queue"
)

// expiring is a queue in which all has expired.
type expiring struct {
	*stage
	taken int
}

func (q *expiring) Next(context.Context) (*queue.Lease, error) {
	if q.taken++; q.taken > 1000 {
		return nil, queue.ErrClosed
	}
	l := q.lease(envelope.ID(q.taken), 48*time.Hour, "a@x.example")
	l.Why = queue.Expired
	return l, nil
}

// slowReports is a notifier that has none written until it is told to.
type slowReports struct{ done []func(error) }

func (r *slowReports) notify(_ notification, done func(error)) { r.done = append(r.done, done) }

// TestReportsBoundWhatIsTakenUp: what expires, or is given up, at once is leased as fast as it can be
// reported, however much it is.
func TestReportsBoundWhatIsTakenUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newStage(t)
		q, reports := &expiring{stage: s}, &slowReports{}
		s.dispatcher.queue, s.dispatcher.notifier = q, reports
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		s.dispatcher.reporting.limit = 100
		var running sync.WaitGroup
		running.Go(func() {
			if err := s.dispatcher.run(ctx); err != nil {
				t.Error(err)
			}
		})
		defer running.Wait()
		defer cancel()
		for turn := 1; turn <= 3; turn++ {
			synctest.Wait()
			if q.taken != 100*turn {
				t.Fatalf("turn %d: %d messages are leased", turn, q.taken)
			}
			durable := reports.done
			reports.done = nil
			for _, done := range durable[1:] {
				done(nil)
			}
			durable[0](nil)
		}
	})
}
