package wiring

import (
	"slices"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/mta/config"
	"example.org/mta/warmup/simulate"
)

// Pool is a pool with dedicated sources. The warm-up knows a source with a plan by its address, since
// that is what providers know it by: a source keeps its warm-up when it is renamed.
type Pool struct {
	Name      string
	Of        *config.Pool
	Shared    []string
	Dedicated []Dedicated
	Hold      bool // overflow = "hold": mail that has no tokens waits
	selective bool // a dedicated source prefers or excepts some mail
	// Patience is how long mail waits for tokens before it takes a shared source.
	Patience func(tenant string, tier int) time.Duration
	Key      map[string]string // the warm-up's names of the dedicated sources
}

// Dedicated is a dedicated source of a pool: its name, the warm-up's name, and the mail that it prefers or excepts.
type Dedicated struct {
	Name, Key      string
	Prefer, Except Selectors
}

func newPool(cfg *config.Config, p *config.Pool) *Pool {
	patience := func(tenant string, tier int) time.Duration { return p.PatienceOf(cfg.Tenant(tenant), tier) }
	d := &Pool{Name: p.Name, Of: p, Shared: p.Shared, Hold: p.Overflow == "hold", Patience: patience,
		Key: make(map[string]string)}
	for _, s := range p.Dedicated {
		x := Dedicated{s.Name, WarmupKey(cfg, s), newSelectors(s.Prefer), newSelectors(s.Except)}
		d.Dedicated = append(d.Dedicated, x)
		d.selective = d.selective || len(x.Prefer)+len(x.Except) > 0
		d.Key[x.Name] = x.Key
	}
	return d
}

// WarmupKey is the warm-up's name of a dedicated source.
func WarmupKey(cfg *config.Config, d *config.Dedicated) string {
	if d.Plan == "" {
		return d.Name
	}
	return cfg.Source(d.Name).Address.String()
}

// Has reports whether the pool has a source, dedicated or shared.
func (d *Pool) Has(source string) bool {
	_, dedicated := d.Key[source]
	return dedicated || slices.Contains(d.Shared, source)
}

// Excepts reports whether a dedicated source excepts a message.
func (d *Pool) Excepts(source string, m *envelope.Message) bool {
	return d.selective && slices.ContainsFunc(d.Dedicated, func(x Dedicated) bool {
		return x.Name == source && x.Except.Has(m)
	})
}

// Takes reports whether any dedicated source takes a message.
func (d *Pool) Takes(m *envelope.Message) bool {
	return !d.selective || slices.ContainsFunc(d.Dedicated, func(x Dedicated) bool { return !x.Except.Has(m) })
}

// Prefers reports whether any dedicated source prefers a message.
func (d *Pool) Prefers(m *envelope.Message) bool {
	return d.selective && slices.ContainsFunc(d.Dedicated, func(x Dedicated) bool { return x.Prefer.Has(m) })
}

// At returns the place among the dedicated sources at which a number begins, by their weights, see Pick.
func (d *Pool) At(n uint64, weight func(source string) int) (at uint64) {
	names := make([]string, len(d.Dedicated))
	for i := range d.Dedicated {
		names[i] = d.Dedicated[i].Name
	}
	first, _ := Pick(names, n, weight)
	return uint64(slices.Index(names, first))
}

// Simulation returns how long mail of a tier waits for the sources of a plan, and when it expires, as in the relay.
func Simulation(cfg *config.Config, plan string, tier int) simulate.Options {
	return simulate.Options{
		Patience: cfg.PatienceOf(plan, tier),
		MaxAge:   func(provider string) time.Duration { return cfg.Traffic("", provider).MaxAge },
	}
}
