package auth

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// Whoever guesses passwords is slowed down, by its network and by the user it tries: one attempt at a
// time, and after some failures a wait before each that doubles.
const (
	freeByNetwork = 10 // failures that cost nothing, since networks have many users
	freeByUser    = 5
	firstWait     = time.Second
	longestByNet  = 8 * time.Second // a network has users who do nothing wrong, too
	longestByUser = 16 * time.Second
	// patience is how long an attempt waits for its turn. Then the client is told to come again.
	patience = 30 * time.Second
	// forgetAfter is how long there must be no failure for those before to be forgotten.
	forgetAfter = 15 * time.Minute
	maxPaced    = 100_000
	// watched is from how many failures on somebody is named to the operator.
	watched = 20
)

// pace lets those who fail try again ever more slowly.
type pace[K comparable] struct {
	now     func() time.Time
	free    int
	longest time.Duration // wait

	mu sync.Mutex // guards by and what is in it, the turns apart
	by map[K]*turns
}

// turns is the attempts by one network, or at one user.
type turns struct {
	one      chan struct{} // has room for the one whose turn it is
	users    int           // attempts that wait or have their turn
	failures int
	last     time.Time // when the last of them was
}

func newPace[K comparable](now func() time.Time, free int, longest time.Duration) *pace[K] {
	return &pace[K]{now: now, free: free, longest: longest, by: make(map[K]*turns)}
}

// take waits for an attempt's turn. The caller ends it by done; after an error it has none.
func (p *pace[K]) take(ctx context.Context, key K) (*turns, error) {
	t := p.join(key)
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
	if err := sleep(ctx, p.wait(t)); err != nil {
		<-t.one
		p.leave(t)
		return nil, err
	}
	return t, nil
}

func (p *pace[K]) join(key K) *turns {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.by[key]
	if t == nil {
		if len(p.by) >= maxPaced {
			p.forget()
		}
		t = &turns{one: make(chan struct{}, 1)}
		p.by[key] = t
	}
	t.users++
	return t
}

// forget drops those who have not failed lately, or anybody when all have.
func (p *pace[K]) forget() {
	now := p.now()
	for key, t := range p.by {
		if t.users == 0 && now.Sub(t.last) > forgetAfter {
			delete(p.by, key)
		}
	}
	for key, t := range p.by {
		if len(p.by) < maxPaced/10*9 {
			return
		}
		if t.users == 0 {
			delete(p.by, key)
		}
	}
}

func (p *pace[K]) leave(t *turns) {
	p.mu.Lock()
	t.users--
	p.mu.Unlock()
}

// wait is how long the next attempt has to wait.
func (p *pace[K]) wait(t *turns) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	since := p.now().Sub(t.last)
	if since > forgetAfter {
		t.failures = 0
	}
	over := t.failures - p.free
	if over < 0 {
		return 0
	}
	return max(min(firstWait<<min(over, 10), p.longest)-since, 0)
}

// done ends a turn. Right ones forgive the failures before.
func (p *pace[K]) done(key K, t *turns, failed, forgive bool) {
	p.mu.Lock()
	switch {
	case failed:
		t.failures++
		t.last = p.now()
	case forgive:
		t.failures = 0
	}
	t.users--
	if t.users == 0 && t.failures == 0 {
		delete(p.by, key)
	}
	p.mu.Unlock()
	<-t.one
}

// worst gives who has failed most, and how often; 0 when nobody did often.
func (p *pace[K]) worst() (key K, failures int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	for k, t := range p.by {
		if t.failures >= max(watched, failures+1) && now.Sub(t.last) <= forgetAfter {
			key, failures = k, t.failures
		}
	}
	return key, failures
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
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

// guesses are the two paces of an attempt.
type guesses struct {
	networks *pace[netip.Prefix]
	users    *pace[string]
}

// turn is an attempt's with both.
type turn struct {
	g       *guesses
	place   place
	network *turns
	user    *turns
}

// take waits for both turns, always in this order.
func (g *guesses) take(ctx context.Context, p place) (*turn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	network, err := g.networks.take(ctx, p.network)
	if err != nil {
		return nil, err
	}
	user, err := g.users.take(ctx, p.user)
	if err != nil {
		g.networks.done(p.network, network, false, false)
		return nil, err
	}
	return &turn{g, p, network, user}, nil
}

// done ends a turn; nil is of an attempt that needed none. A right password says that whoever failed
// at this user was most likely the user. Of the network's others it says nothing.
func (t *turn) done(failed, right bool) {
	if t == nil {
		return
	}
	t.g.users.done(t.place.user, t.user, failed, right)
	t.g.networks.done(t.place.network, t.network, failed, false)
}

// trouble says who guesses, "" when nobody does much.
func (g *guesses) trouble() string {
	network, n := g.networks.worst()
	user, m := g.users.worst()
	switch {
	case n == 0 && m == 0:
		return ""
	case n >= m:
		return fmt.Sprintf("%d logins from %s have failed, and it goes on: they are slowed down; the log has 'login failed' with the address of each", n, network)
	}
	return fmt.Sprintf("%d logins as %q have failed, and it goes on: they are slowed down; the log has 'login failed' with the address of each", m, user)
}
