package warmup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// How often things are looked at, in real time.
const (
	period     = time.Second // an IP is looked at this often, and computed when it is due
	minPeriod  = 20 * time.Millisecond
	idlePeriod = idlePeriods * period
	lockTTL    = 3 * time.Second        // a node that dies holding a lock delays its IPs by this
	scanEvery  = 100 * time.Millisecond // at most; asks are answered in between without a scan
)

// Config is what a Controller needs.
type Config struct {
	Node  string // names this node among those that use the store; two with one name break locks
	Store Store

	// Waiting gives how many recipients wait for tokens of an IP for a provider. It is called with locks
	// held and must neither block nor call the Controller. nil: none ever does.
	Waiting func(ip, provider string) int64

	// OnTokens has mail tried again that waits for tokens of an IP for a provider: there are some, or the
	// store has answered mail that asked. It is called from the goroutine that steps and must not
	// block; it may call the Controller's methods but Step. nil: nobody waits.
	OnTokens func(ip, provider string)

	// Beside gives the other IPs of an IP's pools in its network, and the name of that: a provider that blocks
	// one of them is left alone by all. It is called from the goroutine that steps. nil: there are none.
	Beside func(ip string) (others []string, network string)

	// OnEvent is told what happens to warm-ups, once it is durable, by the goroutine that steps; it must
	// not call Step. nil: nobody.
	OnEvent func(Event)

	// Recall gives the state of an IP that the store has no record of, nil for one that begins its
	// warm-up. It is called from the goroutine that steps. nil: all begin.
	Recall func(ip string, p *Plan, now Instant) *State

	// StatsLag is how late this node reports demand, outcomes and counted mail. It is for the
	// simulator: the ledger keeps its caps under any lag. nil: at once.
	StatsLag func() time.Duration

	Now  func() time.Time // nil: time.Now
	Rand *rand.Rand       // nil: one with a random seed; used under a lock
	Log  *slog.Logger     // nil: nowhere
}

// Controller authorises mail to take warming IPs, for one node. Its methods may be called by many
// goroutines. New makes one; Assign says which IPs it has; Run or Step makes it work.
type Controller struct {
	cfg  Config
	poke chan struct{} // wakes Run, when an ask can't wait for the period

	clock atomic.Pointer[clock]
	down  atomic.Pointer[error] // why the store could not be reached at the last step, nil: it was

	mu        sync.RWMutex // guards what follows; never held across input and output
	ips       map[string]*address
	all       []*address    // by name
	scanEvery time.Duration // less than the constant where a test's plan has short hours

	askingMu sync.Mutex // guards asking
	asking   []*address // that have something to ask at once

	stepping sync.Mutex // held by Step, guards the rest
	scanned  time.Time  // when all IPs were last looked at
	soonest  time.Time  // when one wants to be computed next
	round    []*address
	ready    []*address // of the round, those that could be locked
	unsure   []*address // whose last write may or may not have happened
	repeat   time.Time  // of these: not before
	keys     []Key
	records  []Record
	changes  []Change
	written  []bool
	buf      []byte
	supplied []*lane // OnTokens is to be called when no lock is held
	events   []Event
}

// clock relates the store's clock to the local one.
type clock struct {
	local time.Time
	store Instant
}

// New makes a controller without IPs.
func New(cfg Config) *Controller {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	if cfg.OnEvent == nil {
		cfg.OnEvent = func(Event) {}
	}
	if cfg.Beside == nil {
		cfg.Beside = func(string) ([]string, string) { return nil, "" }
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Controller{cfg: cfg, poke: make(chan struct{}, 1), ips: make(map[string]*address), scanEvery: scanEvery}
}

// Assign sets which IPs warm up by which plans; what was assigned before and is not in plans is
// left alone from now on. An IP that the store does not know begins its warm-up. For one that it
// knows the stage and all counters stay; changed caps apply from the next hour and the next day.
// Nothing is changed when a plan is refused.
func (c *Controller) Assign(plans map[string]*Plan) error {
	if err := CheckPlans(plans); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.ips, func(ip string, _ *address) bool { return plans[ip] == nil })
	for ip, p := range plans {
		if a := c.ips[ip]; a != nil {
			a.setPlan(p)
		} else {
			c.ips[ip] = c.newAddress(ip, p)
		}
	}
	c.all, c.scanEvery = c.all[:0], scanEvery
	for _, a := range c.ips {
		c.all = append(c.all, a)
		c.scanEvery = min(c.scanEvery, a.period())
	}
	slices.SortFunc(c.all, func(a, b *address) int {
		if a.ip < b.ip {
			return -1
		}
		return 1
	})
	return nil
}

// CheckPlans returns the error with which Assign would refuse plans.
func CheckPlans(plans map[string]*Plan) error {
	for ip, p := range plans {
		if err := p.Check(); err != nil {
			return fmt.Errorf("warm-up of %s: plan %q: %w", ip, p.Name, err)
		}
	}
	return nil
}

func (c *Controller) newAddress(ip string, p *Plan) *address {
	a := &address{ip: ip, plan: p, state: &State{},
		rand: rand.New(rand.NewPCG(c.cfg.Rand.Uint64(), c.cfg.Rand.Uint64()))}
	// IPs without traffic are visited at different times, lest all come at once.
	h := fnv.New32a()
	h.Write([]byte(ip))
	a.offset = time.Duration(h.Sum32()%1000) * idlePeriod / 1000
	return a
}

func (c *Controller) address(ip string) *address {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.ips[ip]
}

// storeTime estimates the store's clock. It may be early by a round trip and is never late, so
// that a lease is not used after its window.
func (c *Controller) storeTime(local time.Time) Instant {
	k := c.clock.Load()
	if k == nil {
		return 0
	}
	return k.store + Instant(local.Sub(k.local)/time.Millisecond)
}

// Run steps until ctx ends: once a period, and sooner when something was asked. The end of ctx does not cut a step off:
// it would look like a store that has failed, and what a write had come to would be unknown.
func (c *Controller) Run(ctx context.Context) error {
	t := time.NewTimer(0)
	defer t.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		case <-c.poke:
		}
		next := c.Step(context.WithoutCancel(ctx))
		t.Reset(next)
	}
	return nil
}

func (c *Controller) lag() time.Duration {
	if c.cfg.StatsLag == nil {
		return 0
	}
	return c.cfg.StatsLag()
}

// wake has Run step soon.
func (c *Controller) wake(a *address) {
	c.askingMu.Lock()
	c.asking = append(c.asking, a)
	c.askingMu.Unlock()
	c.poked()
}

// poked has Run step at once.
func (c *Controller) poked() {
	select {
	case c.poke <- struct{}{}:
	default:
	}
}

// Asking reports whether a Step would answer something now. The simulator steps until nothing is.
func (c *Controller) Asking() bool {
	c.askingMu.Lock()
	defer c.askingMu.Unlock()
	return len(c.asking) > 0
}

// ErrNotWarming is what an operation on an IP gives that no plan was assigned to.
var ErrNotWarming = errors.New("no warm-up is configured for this IP")
