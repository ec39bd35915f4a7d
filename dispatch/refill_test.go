package dispatch

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/queue"
)

// flowTo is a flow to a site.
func flowTo(site string) delivery.Flow { return delivery.Flow{Site: site, Source: "out1"} }

// Who tells of room never waits for the disk, each site is taken up after its last room, and a site
// that has much to read is behind those that waited before it.
func TestRefillerKeepsNobodyWaiting(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var taken []string
		disk := make(chan struct{})
		f := newRefiller(func(to delivery.Flow) bool {
			mu.Lock()
			taken = append(taken, to.Site)
			mu.Unlock()
			<-disk
			return false
		}, context.Context.Err)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { f.run(ctx) })
		f.call(flowTo("slow"))
		synctest.Wait() // it reads from the disk now
		for _, site := range []string{"b", "a", "b", "slow", "b"} {
			f.call(flowTo(site))
		}
		for range 4 {
			disk <- struct{}{}
		}
		synctest.Wait()
		mu.Lock()
		if want := []string{"slow", "b", "a", "slow"}; !slices.Equal(taken, want) {
			t.Errorf("taken up: %v, want %v", taken, want)
		}
		mu.Unlock()
		f.call(flowTo("c"))
		synctest.Wait()
		f.call(flowTo("d")) // comes too late
		cancel()
		disk <- struct{}{}
		running.Wait()
		if got := taken[len(taken)-1]; got != "c" {
			t.Errorf("%s was taken up after the end", got)
		}
	})
}

// A site whose mail leaves as fast as it is taken up has room for ever, and the others have their turns.
func TestRefillerGivesEachSiteItsTurn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var taken []string
		ctx, cancel := context.WithCancel(t.Context())
		f := newRefiller(func(to delivery.Flow) bool {
			if taken = append(taken, to.Site); len(taken) == 10 {
				cancel()
			}
			return to.Site == "fast"
		}, context.Context.Err)
		for _, site := range []string{"fast", "a", "b"} {
			f.call(flowTo(site))
		}
		f.run(ctx)
		if want := []string{"fast", "a", "b", "fast", "fast"}; !slices.Equal(taken[:5], want) {
			t.Errorf("taken up: %v, want to begin with %v", taken, want)
		}
	})
}

// unwritable is a queue whose journal can't be written until it is healed.
type unwritable struct {
	*stage
	healed chan struct{}
}

func (q unwritable) Writable(context.Context) error { <-q.healed; return nil }

// TestRefillerWaitsForTheJournal: what is taken up while it can't be written is done once more after a
// crash. The room that came meanwhile is not forgotten.
func TestRefillerWaitsForTheJournal(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newStage(t)
		q := unwritable{s, make(chan struct{})}
		s.Dispatcher.Queue = q
		to := flowTo("mx.x.example")
		line := lineOf(to)
		s.parked[line] = append(s.parked[line], s.lease(1, 0, "a@x.example"))
		ctx, cancel := context.WithCancel(t.Context())
		r := newRefiller(s.unpark, s.pause)
		var running sync.WaitGroup
		running.Go(func() { r.run(ctx) })
		defer running.Wait()
		defer cancel()
		r.call(to)
		synctest.Wait()
		if len(s.jobs) != 0 {
			t.Error("taken up while the journal can't be written")
		}
		close(q.healed)
		synctest.Wait()
		if len(s.jobs) != 1 {
			t.Error("not taken up when the journal can be written again")
		}
	})
}

// retriedOnTheWay is a queue whose operator asks for a retry of each message between the moment delivery
// has accepted it and the moment it is filed.
type retriedOnTheWay struct {
	Queue
	retry func()
}

func (q retriedOnTheWay) File(id envelope.ID, recipients []int, line parking.Line) bool {
	q.retry()
	return q.Queue.File(id, recipients, line)
}

// A retry that comes while mail is on its way to delivery leaves it there. Taken back, it would find the
// host broken again by the connection that is opened for it, and wait for the host's retry time untried.
func TestRetryLeavesMailOnItsWay(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newPipeline(t)
		p.start()
		defer p.end()
		p.setDown(true)
		p.accept(1)
		time.Sleep(time.Second)
		if _, attempts, dials := p.counts(); attempts != 1 || dials != 1 {
			t.Fatalf("%d attempts, %d dials for the first message", attempts, dials)
		}
		retry := func() {
			if _, err := p.queue.Change(queue.Selector{All: true}, queue.RetryNow, false); err != nil {
				t.Error(err)
			}
		}
		p.dispatcher.Queue = retriedOnTheWay{p.queue, retry}
		retry() // it is parked: the host is broken
		synctest.Wait()
		p.delivery.Unblock(pipelineSite)
		synctest.Wait()
		if _, attempts, dials := p.counts(); attempts != 2 || dials != 2 {
			t.Errorf("%d attempts, %d dials after the retry, want 2 of each", attempts, dials)
		}
	})
}
