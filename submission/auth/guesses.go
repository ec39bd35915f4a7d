package auth

import (
	"context"
	"fmt"
	"net/netip"
	"time"
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
