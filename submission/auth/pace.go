package auth

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"
)

const (
	firstWait = time.Second
	// ForgetAfter is how long there must be no failure for those before to be forgotten.
	ForgetAfter = 15 * time.Minute
	maxPaced    = 100_000
	// watched is the number of failures from which on a key is named to the operator.
	watched = 20
	// tick is the multiple of time at which failures are answered.
	tick = time.Second
)

// errTooManyWait is for an attempt beyond the number that may wait.
var errTooManyWait = errors.New("too many attempts wait for their turn")

// PaceConfig is how a Pace slows down.
type PaceConfig struct {
	Free    int           // failures that cost nothing
	Longest time.Duration // wait before an attempt
	Waiting int           // attempts of one key that may wait for their turn; 0: any number
	Now     func() time.Time
}

// Pace slows down those who guess secrets: one attempt at a time for each key, such as a network or a user's name, and
// after some failures a wait before each attempt that doubles. It has no goroutines. It is safe for concurrent use.
type Pace[K comparable] struct {
	cfg PaceConfig

	mu sync.Mutex // guards by and what is in it, the turns apart
	by map[K]*Turns
}

// Turns is the attempts of one key.
type Turns struct {
	one      chan struct{} // has room for the one whose turn it is
	users    int           // attempts that wait or have their turn
	failures int
	last     time.Time // when the last of them was
}

// NewPace makes a pace.
func NewPace[K comparable](cfg PaceConfig) *Pace[K] {
	return &Pace[K]{cfg: cfg, by: make(map[K]*Turns)}
}

// Take waits for an attempt's turn. The caller ends it by Done; after an error it has none.
func (p *Pace[K]) Take(ctx context.Context, key K) (*Turns, error) {
	t := p.join(key)
	if t == nil {
		return nil, errTooManyWait
	}
	select {
	case t.one <- struct{}{}:
	default: // not the first
		select {
		case t.one <- struct{}{}:
		case <-ctx.Done():
			p.leave(t)
			return nil, ctx.Err()
		}
	}
	if err := Sleep(ctx, p.wait(t)); err != nil {
		<-t.one
		p.leave(t)
		return nil, err
	}
	return t, nil
}

// join counts one more attempt, nil when too many wait.
func (p *Pace[K]) join(key K) *Turns {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.by[key]
	if t == nil {
		if len(p.by) >= maxPaced {
			p.forget()
		}
		t = &Turns{one: make(chan struct{}, 1)}
		p.by[key] = t
	}
	if p.cfg.Waiting > 0 && t.users > p.cfg.Waiting { // one of them has its turn
		return nil
	}
	t.users++
	return t
}

// forget drops those who have not failed lately, or anybody when all have.
func (p *Pace[K]) forget() {
	now := p.cfg.Now()
	maps.DeleteFunc(p.by, func(_ K, t *Turns) bool { return t.users == 0 && now.Sub(t.last) > ForgetAfter })
	for key, t := range p.by {
		if len(p.by) < maxPaced/10*9 {
			return
		}
		if t.users == 0 {
			delete(p.by, key)
		}
	}
}

func (p *Pace[K]) leave(t *Turns) {
	p.mu.Lock()
	t.users--
	p.mu.Unlock()
}

// wait is how long the next attempt has to wait.
func (p *Pace[K]) wait(t *Turns) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	since := p.cfg.Now().Sub(t.last)
	if since > ForgetAfter {
		t.failures = 0
	}
	over := t.failures - p.cfg.Free
	if over < 0 {
		return 0
	}
	return max(min(firstWait<<min(over, 10), p.cfg.Longest)-since, 0)
}

// Failures returns how many a key has had lately.
func (p *Pace[K]) Failures(key K) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.by[key]
	if t == nil || p.cfg.Now().Sub(t.last) > ForgetAfter {
		return 0
	}
	return t.failures
}

// Done ends a turn.
func (p *Pace[K]) Done(key K, t *Turns, failed bool) {
	p.mu.Lock()
	if failed {
		t.failures++
		t.last = p.cfg.Now()
	}
	t.users--
	if t.users == 0 && t.failures == 0 {
		delete(p.by, key)
	}
	p.mu.Unlock()
	<-t.one
}

// Worst gives the key that has failed most, and how often; 0 when none has often.
func (p *Pace[K]) Worst() (key K, failures int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Now()
	for k, t := range p.by {
		if t.failures >= max(watched, failures+1) && now.Sub(t.last) <= ForgetAfter {
			key, failures = k, t.failures
		}
	}
	return key, failures
}

// Sleep waits for d or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Late waits for a whole second after an attempt began, so that the time says nothing of why it failed.
func Late(ctx context.Context, took time.Duration) { _ = Sleep(ctx, (took/tick+1)*tick-took) }
