package dispatch

import (
	"maps"
	"slices"
	"testing"
	"time"

	"example.org/mta/destdb"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/lab/sink"
)

// known gives what is written down about hosts and sites.
func (p *pipeline) known() map[destdb.Key]destdb.Record {
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	return maps.Clone(p.store.records)
}

// kill stops the relay without a word: of what it knows, only what was written down is left.
func (p *pipeline) kill(written map[destdb.Key]destdb.Record) {
	p.stop()
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	p.store.records = written
}

// untilEmpty waits until the queue is empty, and returns how long that took.
func (p *pipeline) untilEmpty(most time.Duration) time.Duration {
	began := time.Now()
	for p.queue.Stats().Queued > 0 && time.Since(began) < most {
		time.Sleep(time.Second)
	}
	return time.Since(began)
}

// A backlog that piled up while the host was away amid restarts, for a site that has had little mail
// before, is gone within five minutes of the time that its connections would need.
func TestBacklogOfALittleUsedSiteDrains(t *testing.T) {
	const backlog = 15_800
	alone := backlogTakes(t, backlog, 0)
	took := backlogTakes(t, backlog, 6*time.Minute)
	t.Logf("%d recipients: %v, %v without an outage", backlog, took, alone)
	if took > alone+5*time.Minute {
		t.Errorf("took %v, want %v at most", took, alone+5*time.Minute)
	}
}

// backlogTakes is how long a backlog takes to leave after an outage with two restarts.
func backlogTakes(t *testing.T, n int, outage time.Duration) (took time.Duration) {
	bubble.Test(t, func(t *testing.T) {
		p := newPipeline(t)
		p.become(sink.Config{Latency: 50 * time.Millisecond})
		p.start()
		defer func() { p.end() }()
		for range 60 {
			p.accept(1)
			time.Sleep(2 * time.Second)
		}
		if outage > 0 {
			p.setDown(true)
			p.become(p.host)
			for range 2 {
				p.seconds(10, 1)
				time.Sleep(outage / 3)
				p.kill(p.known())
				time.Sleep(10 * time.Second)
				p.start()
			}
		}
		p.accept(n)
		time.Sleep(outage / 3)
		p.setDown(false)
		for began := time.Now(); time.Since(began) < 10*time.Minute; time.Sleep(time.Second) {
			if p.queue.Stats().Queued < int64(n) {
				break
			}
		}
		took = p.untilEmpty(6 * time.Hour)
	})
	return took
}

// What comes after some minutes without the relay leaves as it comes: that was no outage of the site.
func TestMailAfterAPauseOfTheRelay(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newPipeline(t)
		p.start()
		defer func() { p.end() }()
		for range 60 {
			p.accept(1)
			time.Sleep(2 * time.Second)
		}
		p.setDown(true) // what is queued when the relay stops
		p.become(p.host)
		p.accept(10)
		time.Sleep(10 * time.Second)
		p.setDown(false)
		p.kill(p.known())
		time.Sleep(2 * time.Minute)
		p.start()
		before, _, _ := p.counts()
		p.seconds(60, 10)
		p.doesNotDrain()
		time.Sleep(time.Minute)
		after, _, _ := p.counts()
		t.Logf("of 600 messages and 10 of before %d left in 120 s", after-before)
		if after-before < 600 {
			t.Errorf("%d of 600 messages left in 120 s", after-before)
		}
	})
}

// A relay that is killed again and again does not take its own absence for an outage of the site. Only
// mail that was accepted as the relay was killed may have had its transactions cut, and then waits for
// another attempt.
func TestMailAmidKills(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newPipeline(t)
		p.become(sink.Config{Latency: 20 * time.Millisecond})
		p.start()
		defer func() { p.end() }()
		for range 90 {
			p.accept(1)
			time.Sleep(2 * time.Second)
		}
		written := p.known() // nothing more, in the worst case: sites are written down once a minute
		var whole []envelope.ID
		for range 9 {
			whole = append(whole, p.seconds(19, 7)...)
			p.doesNotDrain()
			p.accept(40) // as it is killed
			p.kill(written)
			time.Sleep(time.Second)
			p.start()
		}
		p.seconds(5, 1) // all of the 40 may wait for another attempt: without mail the site would have no lane
		p.doesNotDrain()
		p.mu.Lock()
		defer p.mu.Unlock()
		late := slices.DeleteFunc(whole, func(id envelope.ID) bool { return !p.arrived[id].IsZero() })
		if len(late) > 0 {
			t.Errorf("%d of %d messages have not left 5 s after the last kill", len(late), 9*19*7)
		}
	})
}

// doesNotDrain checks that no limit for a backlog is in force.
func (p *pipeline) doesNotDrain() {
	p.t.Helper()
	site, ok := p.delivery.Site(p.rt.Site)
	if !ok || len(site.Lanes) == 0 {
		p.t.Fatal("the site has no lane")
	}
	for _, l := range site.Lanes {
		if l.Draining != nil {
			p.t.Errorf("from source %s a backlog drains at %v: the relay's absence counts as an outage of the site", l.Source, l.Draining.Rate)
		}
	}
}
