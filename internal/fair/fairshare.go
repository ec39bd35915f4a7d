// Package fair shares what is scarce: units of a Pool, slices of work (Turns), turns by weight (Ring).
//
// A Pool divides something of which there is little, such as connections or octets of memory, among all who
// comes: tenants, networks of clients. Each may have so many times the units that its taking leaves free, and has
// them only while it uses them. So one that is alone has most of the pool, two have less each, and something is left
// for the next one, however many there are: the dynamic thresholds of shared-memory switches (Choudhury and Hahne,
// 1998). It needs neither a clock nor the number of those who will come.
package fair

import (
	"net/netip"
	"sync"
)

// Usual is the multiple for one that may have three quarters of a pool when it is alone.
const Usual = 3

// Party is who counts as one: a tenant, or a client that has none. The zero Party is the relay itself.
type Party struct {
	Tenant  string
	Network netip.Prefix
}

// PartyOf returns the party of a client; tenant is "" where it has none.
func PartyOf(tenant string, network netip.Prefix) Party {
	if tenant != "" {
		return Party{Tenant: tenant}
	}
	return Party{Network: network}
}

// Part is one side of a claim: who has it, and how many times the free units it may have.
type Part[K comparable] struct {
	Key   K
	Times float64
}

// Pool is what is divided. It is safe for use by many goroutines. It remembers only those who have something. A nil
// Pool has no limit.
type Pool[K comparable] struct {
	mu   sync.Mutex
	size int64
	used int64
	by   map[K]int64
}

// NewPool makes a pool of so many units.
func NewPool[K comparable](size int64) *Pool[K] { return &Pool[K]{size: size, by: make(map[K]int64)} }

// Resize changes the number of units. What is taken stays taken.
func (p *Pool[K]) Resize(size int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.size = size
}

// Take takes n units, which count for each of the parts, and reports whether all of those may have them. The last
// units go to one that has none.
func (p *Pool[K]) Take(n int64, parts ...Part[K]) bool {
	if p == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.fits(n, parts) {
		return false
	}
	p.add(n, parts)
	return true
}

// Fits reports whether Take could take n units just now.
func (p *Pool[K]) Fits(n int64, parts ...Part[K]) bool {
	if p == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fits(n, parts)
}

func (p *Pool[K]) fits(n int64, parts []Part[K]) bool {
	left := p.size - p.used - n
	if left < 0 {
		return false
	}
	for _, part := range parts {
		if has := p.by[part.Key]; float64(has+n) > part.Times*float64(left) && (has > 0 || left > 0) {
			return false
		}
	}
	return true
}

// Give returns n units that were taken for these parts.
func (p *Pool[K]) Give(n int64, parts ...Part[K]) {
	if p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.add(-n, parts)
	}
}

// Pass gives n units of some to others, whatever these may have.
func (p *Pool[K]) Pass(n int64, from, to []Part[K]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(-n, from)
	p.add(n, to)
}

func (p *Pool[K]) add(n int64, parts []Part[K]) {
	if n == 0 || len(parts) == 0 {
		return
	}
	p.used += n
	for _, part := range parts {
		if p.by[part.Key] += n; p.by[part.Key] == 0 {
			delete(p.by, part.Key)
		}
	}
}

// Used returns how many units are taken.
func (p *Pool[K]) Used() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// Of returns how many units one has.
func (p *Pool[K]) Of(key K) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.by[key]
}
