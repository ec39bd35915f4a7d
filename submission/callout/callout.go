// Package callout verifies mailboxes by asking the hosts that take their mail, and remembers the answers.
// It knows neither SMTP nor routes: the function given to New asks.
//
// Long-lived goroutines: one for each question that is open, Limit of them at most; each ends with its
// answer, or after Patience. Close ends them and waits for that.
package callout

import (
	"context"
	"maps"
	"sync"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

const (
	// Patience is the longest wait for an answer. Without one, the recipient passes.
	Patience = 5 * time.Second
	// keepYes and keepNo are how long answers are remembered: a mailbox may be created at any moment, and is
	// seldom deleted.
	keepYes = 2 * time.Hour
	keepNo  = 15 * time.Minute
	// Limit is the number of questions that can be open at a time. Further recipients pass unverified.
	Limit = 50
	// maxKept bounds the answers that are remembered.
	maxKept = 100_000
)

// Answer is what is known of a mailbox.
type Answer struct {
	// Known is false without an answer: the host could not be reached, had an error, or refused this relay.
	Known bool
	// Refusal is the host's reply if there is no such mailbox; zero if there is one.
	Refusal reply.Reply
}

// Missing reports whether the host has said that there is no such mailbox.
func (a *Answer) Missing() bool { return a.Known && a.Refusal.Code != 0 }

// Stats counts checks since the start.
type Stats struct {
	Asked    int64 // mailboxes that hosts were asked for
	Recalled int64 // checks that a remembered answer ended
	Shared   int64 // checks that joined one under way
	Refused  int64 // checks that refused a recipient
	Unknown  int64 // checks that passed since there was no answer
	Beyond   int64 // of those, checks beyond Limit
}

// Checker checks recipients. It is safe for use by many goroutines.
type Checker struct {
	ask func(context.Context, envelope.Address) Answer
	now func() time.Time

	ctx     context.Context // of all that is asked
	stop    context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex // guards all below
	closed bool
	kept   map[envelope.Address]memory
	asking map[envelope.Address]*question
	stats  Stats
}

// memory is an answer that is remembered.
type memory struct {
	answer Answer
	until  time.Time
}

// question is one that has no answer yet.
type question struct {
	answer Answer        // once done is closed
	done   chan struct{} // closed when it is there
}

// New makes a checker. ask is called by many goroutines; it has to return when its context ends.
func New(ask func(context.Context, envelope.Address) Answer, now func() time.Time) *Checker {
	c := &Checker{ask: ask, now: now, kept: make(map[envelope.Address]memory),
		asking: make(map[envelope.Address]*question)}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// Check reports whether a mailbox exists. It waits until ctx ends at most; the question stays open after that,
// and its answer serves the next caller.
func (c *Checker) Check(ctx context.Context, rcpt envelope.Address) Answer {
	// The case of a domain means nothing: each spelling would be another question.
	q, known := c.question(envelope.Join(rcpt.Local(), rcpt.Domain()))
	if q != nil {
		select {
		case <-q.done:
			known = q.answer
		case <-ctx.Done():
		}
	}
	c.count(&known)
	return known
}

func (c *Checker) count(a *Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !a.Known:
		c.stats.Unknown++
	case a.Missing():
		c.stats.Refused++
	}
}

// question joins the open question about a mailbox, or opens one. It returns nil, with the answer, if one is
// remembered or there will be none.
func (c *Checker) question(rcpt envelope.Address) (*question, Answer) {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if m, ok := c.kept[rcpt]; ok && m.fresh(now) {
		c.stats.Recalled++
		return nil, m.answer
	}
	if q := c.asking[rcpt]; q != nil {
		c.stats.Shared++
		return q, Answer{}
	}
	if c.closed || len(c.asking) >= Limit {
		c.stats.Beyond++
		return nil, Answer{}
	}
	q := &question{done: make(chan struct{})}
	c.asking[rcpt] = q
	c.stats.Asked++
	c.running.Go(func() { c.find(rcpt, q) })
	return q, Answer{}
}

// fresh reports whether an answer still counts. One from the future was given before the clock was set back.
func (m *memory) fresh(now time.Time) bool {
	left := m.until.Sub(now)
	return left > 0 && left <= keepYes
}

// Forget forgets all answers, and those of questions that are open: other hosts may take the mail from now on.
func (c *Checker) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.kept)
	clear(c.asking)
}

// find asks a question, and wakes all callers that wait for its answer.
func (c *Checker) find(rcpt envelope.Address, q *question) {
	ctx, cancel := context.WithTimeout(c.ctx, Patience)
	defer cancel()
	q.answer = c.ask(ctx, rcpt)
	c.mu.Lock()
	if c.asking[rcpt] == q {
		delete(c.asking, rcpt)
		if q.answer.Known {
			c.keep(rcpt, q.answer)
		}
	}
	c.mu.Unlock()
	close(q.done)
}

// keep remembers an answer. mu is held.
func (c *Checker) keep(rcpt envelope.Address, a Answer) {
	now, keep := c.now(), keepYes
	if a.Missing() {
		keep = keepNo
	}
	if len(c.kept) >= maxKept {
		c.evict(now)
	}
	c.kept[rcpt] = memory{a, now.Add(keep)}
}

// evict forgets answers that have expired and, if that is not enough, some others. mu is held.
func (c *Checker) evict(now time.Time) {
	maps.DeleteFunc(c.kept, func(_ envelope.Address, m memory) bool { return !m.fresh(now) })
	for rcpt := range c.kept {
		if len(c.kept) <= maxKept*3/4 {
			return
		}
		delete(c.kept, rcpt)
	}
}

// Stats returns the counts.
func (c *Checker) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Close ends the open questions. Recipients pass unverified from then on.
func (c *Checker) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
	c.running.Wait()
}
