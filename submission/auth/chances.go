package auth

import (
	"net/netip"
	"sync"
	"time"

	"example.org/mta/internal/gcra"
)

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
		for k, l := range of {
			if l.Paid(now) {
				delete(of, k)
			}
		}
		if len(of) >= maxChances {
			return nil
		}
	}
	l = new(gcra.Limiter)
	of[key] = l
	return l
}
