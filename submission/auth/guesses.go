package auth

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"example.org/mta/internal/gcra"
)

// A client that guesses passwords is slowed down, by its network and by the user it tries: see [Pace].
const (
	freeByNetwork = 10 // failures that cost nothing, since networks have many users
	freeByUser    = 5
	longestByNet  = 8 * time.Second // a network has users who do nothing wrong, too
	longestByUser = 16 * time.Second
	// patience is how long an attempt waits for its turn. Then the client has to come again.
	patience = 30 * time.Second
)

// guesses are the two paces of an attempt, and the chances of those that need no turn.
type guesses struct {
	networks *Pace[netip.Prefix]
	users    *Pace[string]
	chances  chances
}

// turn is an attempt's with both.
type turn struct {
	g       *guesses
	place   place
	network *Turns
	user    *Turns
}

// take waits for both turns, always in this order. Neither the many clients of a network who come back at once nor the
// user whom somebody else tries look like guessers: their error is ErrBusy.
func (g *guesses) take(ctx context.Context, p place) (*turn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	network, err := g.networks.Take(ctx, p.network)
	if err != nil {
		return nil, g.noTurn(p)
	}
	user, err := g.users.Take(ctx, p.user)
	if err != nil {
		g.networks.Done(p.network, network, false)
		return nil, g.noTurn(p)
	}
	return &turn{g, p, network, user}, nil
}

// noTurn is ErrTooMany for a network with as many failures as whoever guesses one password soon has, else ErrBusy.
func (g *guesses) noTurn(p place) error {
	if g.networks.Failures(p.network) >= freeByUser {
		return ErrTooMany
	}
	return ErrBusy
}

// done ends a turn; nil is of an attempt that needed none. A right password forgives nobody's failures: the
// user needs no turn from where it has logged in, and whoever guesses must not have as many tries again.
func (t *turn) done(failed bool) {
	if t == nil {
		return
	}
	t.g.users.Done(t.place.user, t.user, failed)
	t.g.networks.Done(t.place.network, t.network, failed)
}

// problem returns who guesses, "" when nobody does much.
func (g *guesses) problem() string {
	network, n := g.networks.Worst()
	user, m := g.users.Worst()
	switch {
	case n == 0 && m == 0:
		return ""
	case n >= m:
		return fmt.Sprintf(
			"%d logins from %s have failed, and it goes on: they are slowed down; the log has 'login failed' with "+
				"the address of each", n, network)
	}
	return fmt.Sprintf(
		"%d logins as %q have failed, and it goes on: they are slowed down; the log has 'login failed' with the "+
			"address of each", m, user)
}

// A right password must not wait behind wrong ones, and nobody knows that it is right before it is looked at.
// So the first attempts from a region are looked at before their turn; a wrong one then waits for it as
// any other, and is answered as late. A user's are limited, too: else many regions could guess as fast as
// this machine hashes. Beyond these limits an attempt is looked at in its turn.
var (
	chancesOfRegion = gcra.Rate{Events: 1, Per: 15 * time.Minute, Burst: 3}
	chancesAtUser   = gcra.Rate{Events: 1, Per: 5 * time.Second, Burst: 300}
)

// maxChances is how many regions, and how many users, are remembered for having had chances.
const maxChances = 100_000

// chances are those that regions and users have had lately.
type chances struct {
	now func() time.Time

	mu      sync.Mutex // guards what follows
	regions map[netip.Prefix]*gcra.Limiter
	users   map[string]*gcra.Limiter
}

func newChances(now func() time.Time) chances {
	return chances{now: now, regions: make(map[netip.Prefix]*gcra.Limiter), users: make(map[string]*gcra.Limiter)}
}

// region is what one party is likely to have: of IPv6 it can have many networks.
func region(network netip.Prefix) netip.Prefix {
	bits := 24
	if network.Addr().Is6() {
		bits = 48
	}
	return netip.PrefixFrom(network.Addr(), min(bits, network.Bits())).Masked()
}

// take reports whether an attempt is looked at before its turn.
func (c *chances) take(p place) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	r, u := limiter(c.regions, region(p.network), now), limiter(c.users, p.user, now)
	if r == nil || u == nil || r.Next(now, chancesOfRegion, 1).After(now) || u.Next(now, chancesAtUser, 1).After(now) {
		return false
	}
	r.Take(now, chancesOfRegion, 1)
	u.Take(now, chancesAtUser, 1)
	return true
}

// giveBack undoes take for a right password.
func (c *chances) giveBack(p place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.regions[region(p.network)]; r != nil {
		r.GiveBack(chancesOfRegion, 1)
	}
	if u := c.users[p.user]; u != nil {
		u.GiveBack(chancesAtUser, 1)
	}
}

// limiter gives that of a key, nil when there are too many.
func limiter[K comparable](of map[K]*gcra.Limiter, key K, now time.Time) *gcra.Limiter {
	l := of[key]
	if l != nil {
		return l
	}
	if len(of) >= maxChances {
		maps.DeleteFunc(of, func(_ K, l *gcra.Limiter) bool { return l.Paid(now) })
		if len(of) >= maxChances {
			return nil
		}
	}
	l = new(gcra.Limiter)
	of[key] = l
	return l
}

// slots bound how many passwords are hashed at once. Known users have theirs apart, so that a flood of
// guesses from everywhere holds them up by little more than the processor time that it takes.
type slots struct{ known, strange chan struct{} }

func newSlots() slots {
	n := max(1, runtime.GOMAXPROCS(0)/2)
	return slots{known: make(chan struct{}, n), strange: make(chan struct{}, n)}
}

// take waits for a slot. The caller gives it back.
func (s slots) take(ctx context.Context, known bool) (giveBack func(), err error) {
	of := s.strange
	if known {
		of = s.known
	}
	select {
	case of <- struct{}{}:
		return func() { <-of }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
