// Package quota enforces the limits of tenants: a rate of messages, open connections, and space in the queue. It knows neither SMTP nor the queue.
//
// The order of use: Connect for each connection whose tenant is known, and Disconnect at its end; Begin for
// each message, and Accepted or Drop on the claim that it returned. It starts no goroutines.
package quota

import (
	"sync"
	"time"

	"example.org/mta/internal/gcra"
)

// Limits are the limits of one tenant. Zero means no limit.
type Limits struct {
	Rate        gcra.Rate // of messages that are accepted
	Connections int       // open at once
	Messages    int64     // in the queue
	Octets      int64     // of their contents
	// Lower accepts messages over Rate, Messages or Octets at the last tier, instead of refusing them.
	Lower bool
}

// Reason is the limit that a tenant exceeds.
type Reason uint8

const (
	Within Reason = iota
	Rate
	Messages
	Octets
	Connections
	Share // of the connections, which are scarce
	reasons
)

// Reasons is the number of reasons, Within included.
const Reasons = int(reasons)

// String returns the word for metrics and tables.
func (r Reason) String() string {
	return [Reasons]string{"", "rate", "messages", "bytes", "connections", "share"}[r]
}

// Usage is what a tenant has in the queue.
type Usage struct{ Messages, Octets int64 }

// Excess is the limit that something exceeds.
type Excess struct {
	Reason Reason // Within: it is not
	Limits Limits
	Wait   time.Duration // until the rate has room again
}

// Book counts what tenants use now. It is safe for use by many goroutines.
type Book struct {
	limits func(tenant string) (Limits, bool)
	queued func(tenant string) Usage
	now    func() time.Time

	mu    sync.Mutex // guards all below
	clock clock
	all   map[string]*account
	// forgetAt is the number of accounts at which those without a tenant are looked for.
	forgetAt int
}

// account is what a tenant uses, beside what is in the queue.
type account struct {
	connections int
	coming      Usage // messages that have begun and are not in the queue yet
	pace        gcra.Limiter
	refused     [Reasons]int64
	lowered     [Reasons]int64
}

// New makes an empty book. limits is asked at each call, so that a reload acts at once; false: there is no
// such tenant, and nothing is noted of it. queued returns what a tenant has in the queue. Neither may call
// the book.
func New(limits func(tenant string) (Limits, bool), queued func(tenant string) Usage, now func() time.Time) *Book {
	return &Book{limits: limits, queued: queued, now: now, all: make(map[string]*account)}
}

// of returns a tenant's account, nil for one that is not known. mu is held.
func (b *Book) of(tenant string) (*account, Limits) {
	l, known := b.limits(tenant)
	if !known {
		return nil, Limits{}
	}
	a := b.all[tenant]
	if a == nil {
		if len(b.all) >= b.forgetAt {
			b.forgetOthers()
			b.forgetAt = 2 * len(b.all) // each is looked at a few times, not once for each newcomer
		}
		a = new(account)
		b.all[tenant] = a
	}
	return a, l
}

// forgetOthers drops the accounts of tenants that a reload has taken away. mu is held.
func (b *Book) forgetOthers() {
	for name, a := range b.all {
		if _, known := b.limits(name); !known && a.connections == 0 && a.coming.Messages == 0 {
			delete(b.all, name)
		}
	}
}

// Connect counts an open connection. counted is false after an Excess, and when there is no such tenant; Disconnect is
// for what was counted.
func (b *Book) Connect(tenant string) (counted bool, _ Excess) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a, l := b.of(tenant)
	if a == nil {
		return false, Excess{}
	}
	if l.Connections > 0 && a.connections >= l.Connections {
		a.refused[Connections]++
		return false, Excess{Reason: Connections, Limits: l}
	}
	a.connections++
	return true, Excess{}
}

// Crowded notes that a connection was refused since the tenant has its share of them.
func (b *Book) Crowded(tenant string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a, _ := b.of(tenant); a != nil {
		a.refused[Share]++
	}
}

// Disconnect ends the count of a connection that Connect has counted.
func (b *Book) Disconnect(tenant string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.all[tenant]; a != nil && a.connections > 0 {
		a.connections--
	}
}

// Claim is a message's hold on its tenant's limits while it comes in. A nil claim holds nothing.
type Claim struct {
	b       *Book
	account *account // nil: it is over
	octets  int64
	rate    gcra.Rate
}

// Begin claims a place for one message of a tenant, of the given octets, 0 if not known. exempt has it
// counted and never refused or lowered. lower is to put it in the last tier; after another Excess it must be
// refused, and there is no claim.
func (b *Book) Begin(tenant string, octets int64, exempt bool) (_ *Claim, lower bool, _ Excess) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a, l := b.of(tenant)
	if a == nil {
		return nil, false, Excess{}
	}
	now := b.clock.at(b.now())
	over := b.excess(a, l, tenant, octets, now)
	switch {
	case over.Reason == Within || exempt:
	case l.Lower:
		a.lowered[over.Reason]++
		lower = true
	default:
		a.refused[over.Reason]++
		return nil, false, over
	}
	a.coming.Messages++
	a.coming.Octets += octets
	c := &Claim{b: b, account: a, octets: octets}
	if over.Reason != Rate { // mail beside the rate must not push it off for ever
		c.rate = l.Rate
		a.pace.Take(now, l.Rate, 1)
	}
	return c, lower, over
}

// excess returns which limit one message more is over. mu is held.
func (b *Book) excess(a *account, l Limits, tenant string, octets int64, now time.Time) Excess {
	if wait := a.pace.Next(now, l.Rate, 1).Sub(now); wait > 0 {
		return Excess{Rate, l, wait}
	}
	if l.Messages == 0 && l.Octets == 0 {
		return Excess{}
	}
	queued := b.queued(tenant)
	switch {
	case l.Messages > 0 && queued.Messages+a.coming.Messages >= l.Messages:
		return Excess{Reason: Messages, Limits: l}
	case l.Octets > 0 && queued.Octets+a.coming.Octets+max(octets, 1) > l.Octets:
		return Excess{Reason: Octets, Limits: l}
	}
	return Excess{}
}

// Accepted ends the claim: the message is in the queue.
func (c *Claim) Accepted() { c.end(false) }

// Drop ends the claim of a message that was not accepted, and gives its turn at the rate back. It does
// nothing after Accepted.
func (c *Claim) Drop() { c.end(true) }

func (c *Claim) end(giveBack bool) {
	if c == nil {
		return
	}
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	a := c.account
	if a == nil {
		return
	}
	c.account = nil
	a.coming.Messages--
	a.coming.Octets -= c.octets
	if giveBack {
		a.pace.GiveBack(c.rate, 1)
	}
}

// clock is a time that never falls: a clock that is set back would stop tenants for as long as it was.
type clock struct {
	read time.Time     // the last reading
	back time.Duration // by how much it was set back in all
}

func (c *clock) at(now time.Time) time.Time {
	if d := c.read.Sub(now); d > 0 {
		c.back += d
	}
	c.read = now
	return now.Add(c.back)
}

// State is what a tenant uses at an instant.
type State struct {
	Limits      Limits
	Connections int
	Coming      Usage
	Queued      Usage
	Refused     [Reasons]int64 // since the start
	Lowered     [Reasons]int64
	// Now is what a message without a declared size would meet.
	Now Excess
}

// State returns what a tenant uses; false: there is no such tenant.
func (b *Book) State(tenant string) (State, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a, l := b.of(tenant)
	if a == nil {
		return State{}, false
	}
	return State{l, a.connections, a.coming, b.queued(tenant), a.refused, a.lowered, b.excess(a, l, tenant, 0, b.clock.at(b.now()))}, true
}
