package dispatch

import (
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/lab/sink"
)

// TestNoMessageIsEndedThatMayNot: a host gets none, in whatever way it takes content, and each arrives once when they
// may.
func TestNoMessageIsEndedThatMayNot(t *testing.T) {
	for _, without := range []sink.Extension{0, sink.Chunking, sink.Chunking | sink.Pipelining} {
		bubble.Test(t, func(t *testing.T) {
			p := newPipeline(t)
			var began, may atomic.Bool
			p.become(sink.Config{Without: without, Hook: func(c sink.Command) sink.Answer {
				began.Store(began.Load() || c.Phase == sink.Rcpt)
				return sink.Answer{}
			}})
			p.start()
			defer p.end()
			p.dispatcher.MayEnd = may.Load
			p.accept(5)
			time.Sleep(time.Minute)
			if n, failed, _ := p.counts(); n != 0 || failed == 0 || p.server.Stats().Messages != 0 || !began.Load() {
				t.Errorf("without %b %d messages are delivered, %d attempts failed", without, n, failed)
			}
			may.Store(true)
			time.Sleep(time.Hour)
			if n, _, _ := p.counts(); n != 5 || p.server.Stats().Messages != 5 {
				t.Errorf("without %b %d messages are delivered, the host has %d", without, n, p.server.Stats().Messages)
			}
		})
	}
}
