package fair

// Shares work of which only so much is done at a time, such as searches of a log, among parties. A party
// does one piece of work at a time. Work is done in slices: after each, it gives way if another party waits. So a party
// that comes waits for a slice, however much work the others have, and those who wait get equal parts of the time.
//
// The order of use: Begin, Next now and then while the work is done, End.

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// slice is how long a party works until it gives way. Goroutines that are not work of Turns go first after each slice,
// too: those that take mail must not wait for a search.
const slice = 2 * time.Millisecond

// Turns is what parties share. It is safe for use by many goroutines.
type Turns struct {
	now func() time.Time

	mu      sync.Mutex // guards the rest
	free    int
	parties map[string]*party
	line    []*party // that have work and do none of it, the one whose turn comes first
}

// party has work, in the order in which it is done: the first piece is being done if the party isn't in line.
type party struct{ work []*Turn }

// Turn is a piece of work. It is for one goroutine.
type Turn struct {
	of      *Turns
	name    string
	granted chan struct{} // closed when it may go on
	since   time.Time     // when its slice began
	before  time.Duration // that it took until then
}

// New makes turns for so many parties at a time.
func New(atOnce int, now func() time.Time) *Turns {
	return &Turns{now: now, free: atOnce, parties: make(map[string]*party)}
}

// Begin waits for a party's turn. The error is that of ctx.
func (t *Turns) Begin(ctx context.Context, name string) (*Turn, error) {
	u := &Turn{of: t, name: name}
	t.mu.Lock()
	p := t.parties[name]
	if p == nil {
		p = new(party)
		t.parties[name] = p
		t.line = append(t.line, p)
	}
	u.granted = make(chan struct{})
	p.work = append(p.work, u)
	t.grant()
	t.mu.Unlock()
	return u, u.wait(ctx)
}

// grant lets those who are first in line begin. mu is held.
func (t *Turns) grant() {
	for ; t.free > 0 && len(t.line) > 0; t.free-- {
		close(t.line[0].work[0].granted)
		t.line = slices.Delete(t.line, 0, 1)
	}
}

// wait waits until the work may go on. After an error it is over.
func (u *Turn) wait(ctx context.Context) error {
	select {
	case <-u.granted:
		u.since = u.of.now()
		return nil
	case <-ctx.Done():
		u.End()
		return ctx.Err()
	}
}

// Next gives way when the slice is over, and returns when the work may go on. After an error, which is that of ctx, the
// work is over.
func (u *Turn) Next(ctx context.Context) error {
	took := u.of.now().Sub(u.since)
	if took < slice {
		return nil
	}
	u.before, u.since = u.before+took, u.since.Add(took)
	if !u.giveWay() {
		runtime.Gosched()
		return ctx.Err()
	}
	return u.wait(ctx)
}

// giveWay puts the party last in line, if there is one.
func (u *Turn) giveWay() bool {
	t := u.of
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.line) == 0 {
		return false
	}
	u.granted = make(chan struct{})
	t.line = append(t.line, t.parties[u.name])
	t.free++
	t.grant()
	return true
}

// Worked returns how long the work has taken so far, without waiting.
func (u *Turn) Worked() time.Duration { return u.before + u.of.now().Sub(u.since) }

// End ends the work. It does nothing the second time.
func (u *Turn) End() {
	t := u.of
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.parties[u.name]
	i := -1
	if p != nil {
		i = slices.Index(p.work, u)
	}
	if i < 0 {
		return
	}
	p.work = slices.Delete(p.work, i, i+1)
	at := slices.Index(t.line, p)
	if i == 0 && at < 0 { // it was being done
		t.free++
		t.line, at = append(t.line, p), len(t.line)
	}
	if len(p.work) == 0 {
		t.line = slices.Delete(t.line, at, at+1)
		delete(t.parties, u.name)
	}
	t.grant()
}
