package suppression

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// maxProviders bounds how many providers, and sites that have none, are watched.
const maxProviders = 20_000

// provider is a provider, or a site that has none, with its guard.
type provider struct {
	name  string
	known atomic.Int64 // recipients that it took since the guard last looked: all that a delivery costs

	mu    sync.Mutex // guards the rest
	guard guard
	dirty bool // the guard must be written
}

// look has the guard take in the recipients that the provider took. Callers hold p.mu.
func (p *provider) look(now time.Time, f *Flood) {
	n := p.known.Swap(0)
	if n == 0 && !p.guard.flood {
		return
	}
	p.guard.saw(now, n, f)
	p.dirty = true
}

// providers are those that are watched.
type providers struct {
	store Values

	mu   sync.RWMutex // guards the rest
	by   map[string]*provider
	gone []string // their values must be removed
}

func openProviders(store Values, now time.Time, f *Flood) (*providers, error) {
	ps := &providers{store: store, by: make(map[string]*provider)}
	return ps, store.Each(func(name string, value []byte) error {
		p, err := readProvider(name, value)
		if err != nil {
			return err
		}
		p.guard.weigh(now, f)
		ps.by[name] = p
		return nil
	})
}

// CheckProvider returns why a value of [FeederConfig.Providers] is not valid.
func CheckProvider(name string, value []byte) error {
	_, err := readProvider(name, value)
	return err
}

func readProvider(name string, value []byte) (*provider, error) {
	p := &provider{name: name}
	if err := p.guard.decode(value); err != nil {
		return nil, fmt.Errorf("reading what is usual at provider %q: %w", name, err)
	}
	return p, nil
}

// of gives the provider of a name.
func (ps *providers) of(name string) *provider {
	ps.mu.RLock()
	p := ps.by[name]
	ps.mu.RUnlock()
	if p != nil {
		return p
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.by[name]; p != nil {
		return p
	}
	if len(ps.by) >= maxProviders {
		ps.evict()
	}
	p = &provider{name: name}
	ps.by[name] = p
	return p
}

// evictFrom is among how many the least is chosen.
const evictFrom = 16

// evict forgets the provider with the least mail of some at random: a range over a map begins anywhere.
func (ps *providers) evict() {
	var least *provider
	fewest, seen := 0.0, 0
	for _, p := range ps.by {
		p.mu.Lock()
		n, flood := p.guard.known+float64(p.known.Load()), p.guard.flood
		p.mu.Unlock()
		if !flood && (least == nil || n < fewest) {
			least, fewest = p, n
		}
		if seen++; seen >= evictFrom && least != nil {
			break
		}
	}
	if least != nil {
		delete(ps.by, least.name)
		ps.gone = append(ps.gone, least.name)
	}
}

// all gives the providers that are watched.
func (ps *providers) all() []*provider {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	return slices.Collect(maps.Values(ps.by))
}

// look has all guards take in what has happened.
func (ps *providers) look(now time.Time, f *Flood) {
	for _, p := range ps.all() {
		p.mu.Lock()
		p.look(now, f)
		p.mu.Unlock()
	}
}

// flush writes what was learned.
func (ps *providers) flush() error {
	values := make(map[string][]byte)
	ps.mu.Lock()
	for _, name := range ps.gone {
		values[name] = nil
	}
	ps.gone = ps.gone[:0]
	ps.mu.Unlock()
	for _, p := range ps.all() {
		p.mu.Lock()
		if p.dirty {
			values[p.name], p.dirty = p.guard.encode(), false
		}
		p.mu.Unlock()
	}
	if len(values) == 0 {
		return nil
	}
	if err := ps.store.Put(values); err != nil {
		for name := range values {
			p := ps.of(name) // one that is gone begins anew
			p.mu.Lock()
			p.dirty = true
			p.mu.Unlock()
		}
		return fmt.Errorf("writing what is usual at providers: %w", err)
	}
	return nil
}

// saved is a guard in the store.
type saved struct {
	Version int       `json:"version"`
	Known   float64   `json:"known"`
	Unknown float64   `json:"unknown"`
	Learned time.Time `json:"learned,omitzero"`
	Sum     float64   `json:"sum,omitempty"`
	Rise    heard     `json:"rise,omitzero"`
	Flood   bool      `json:"flood,omitempty"`
	Moved   bool      `json:"moved,omitempty"`
	Last    heard     `json:"last,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
}

const guardVersion = 1

func (g *guard) encode() []byte {
	b, err := json.Marshal(saved{guardVersion, g.known, g.unknown, g.learned, g.sum, g.rise, g.flood, g.moved,
		g.last, g.ended})
	if err != nil {
		panic(err) // numbers and times
	}
	return b
}

func (g *guard) decode(b []byte) error {
	var s saved
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	if s.Version != guardVersion {
		return fmt.Errorf("it has version %d, this program knows %d", s.Version, guardVersion)
	}
	*g = guard{known: s.Known, unknown: s.Unknown, learned: s.Learned, sum: s.Sum, rise: s.Rise,
		flood: s.Flood, moved: s.Moved,
		last: s.Last, ended: s.Ended}
	return nil
}
