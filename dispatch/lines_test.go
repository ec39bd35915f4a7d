package dispatch

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/queue"
)

// turnstile counts the messages that the queue hands out.
type turnstile struct {
	Queue
	out atomic.Int64
}

func (q *turnstile) Next(ctx context.Context) (*queue.Lease, error) {
	l, err := q.Queue.Next(ctx)
	if err == nil {
		q.out.Add(1)
	}
	return l, err
}

func (q *turnstile) Take(line parking.Line, n int) []*queue.Lease {
	leases := q.Queue.Take(line, n)
	q.out.Add(int64(len(leases)))
	return leases
}

func (q *turnstile) TakeNewest(line parking.Line, n int) []*queue.Lease {
	leases := q.Queue.TakeNewest(line, n)
	q.out.Add(int64(len(leases)))
	return leases
}

// A source that is slow at a site, with a backlog of many times what there is room for, holds up no
// other: what the others have parked leaves at their own pace, what comes is sent at once, and no
// message is handed out again and again meanwhile.
func TestASlowSourceHoldsUpNoOther(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newPipeline(t)
		p.pol = parsePolicy(t, `
			source "slow" {
			  ehlo = "slow.example"
			  max_message_rate = "1/s"
			}
			source "free" { ehlo = "free.example" }
			pool "default" { shared = ["slow", "free"] }`)
		p.start()
		defer p.end()
		const backlog, fresh = 8000, 1000
		p.accept(backlog)
		time.Sleep(10 * time.Second)
		slow, free := p.bySource()
		if free < backlog*9/20 || slow > 12 {
			t.Errorf("of %d messages %d have left from the free source, %d from the slow one, after 10 s", backlog, free, slow)
		}
		p.seconds(fresh/10, 10)
		if _, now := p.bySource(); now < free+fresh*9/20 {
			t.Errorf("of %d messages %d have left from the free source, as they came", fresh, now-free)
		}
		time.Sleep(80 * time.Minute)
		if slow, free = p.bySource(); slow+free != backlog+fresh {
			t.Errorf("%d and %d of %d messages have arrived", slow, free, backlog+fresh)
		}
		out := p.turnstile.out.Load()
		t.Logf("%d messages, %d from the slow source, were handed out %d times", backlog+fresh, slow, out)
		if out > 2*(backlog+fresh) {
			t.Error("want once for each, and once more for what was parked")
		}
	})
}

// What waits for a source, in delivery and parked, leaves by another when a reload takes the source out of
// the pool: an operator moves so the mail of one that is suspended at a site.
func TestReloadMovesTheMailOfASourceOutOfThePool(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newPipeline(t)
		const sources = `
			source "slow" { ehlo = "slow.example" }
			source "free" { ehlo = "free.example" }
			`
		p.pol = parsePolicy(t, sources+`pool "default" { shared = ["slow", "free"] }`)
		p.start()
		defer p.end()
		p.delivery.Suspend(pipelineSite, "slow", "a test", time.Now().Add(24*time.Hour))
		const backlog = 8000
		p.accept(backlog)
		time.Sleep(time.Minute)
		if slow, free := p.bySource(); slow > 0 || free < backlog*9/20 {
			t.Errorf("%d have left from the suspended source, %d from the other", slow, free)
		}
		if n := p.queue.Parked(lineOf(delivery.Flow{Site: pipelineSite, Source: "slow"})); n < backlog/10 {
			t.Errorf("%d are parked: the test is of both", n)
		}
		before := p.pol
		p.pol = parsePolicy(t, sources+`pool "default" { shared = ["free"] }`)
		p.delivery.Reload(p.pol.Stays(before))
		time.Sleep(time.Minute)
		synctest.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.arrived) != backlog {
			t.Errorf("%d of %d have arrived a minute later", len(p.arrived), backlog)
		}
	})
}

// bySource counts what has arrived by the source that its id asks for.
func (p *pipeline) bySource() (slow, free int) {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.arrived {
		if s, _ := p.pol.SourceFor(&envelope.Message{ID: id}, p.rt, "", func(string) bool { return false }); s == "slow" {
			slow++
		} else {
			free++
		}
	}
	return slow, free
}
