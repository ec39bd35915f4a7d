// Package pauses keeps the pauses of operators in a file in the data directory, and answers which pause
// applies to mail. It neither stops nor resumes mail: its callers do, by two hooks.
//
// Its only goroutine is that of [Pauses.Run].
package pauses

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/format"
	"example.org/mta/internal/parking"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/api"
)

// Format is what this program knows of the file's formats.
var Format = format.Store{Name: "pauses", Reads: 1, Writes: 1, Unstated: 1}

// FileName is the name of the file in the data directory.
const FileName = "pauses.json"

// Pauses are the tenants, sources, pools and domains whose mail an operator has stopped, or everything. Such
// mail waits in the queue, in a line for each pause, and expires as always.
//
// They have a separate file in data_dir, written before a pause is in force: destdb has only what the relay
// learned, and may lose it; the configuration is the operator's text, which no command changes.
type Pauses struct {
	path   string
	now    func() time.Time
	log    *slog.Logger
	policy func() *wiring.Policy
	// Taken has delivery give back jobs that are paused now; Resumed has mail taken up that waited for the
	// end of a pause. Neither may be nil.
	Taken   func()
	Resumed func(parking.Key)

	mu    sync.Mutex          // one change at a time
	inUse atomic.Pointer[Set] // nil: none
}

// Set is the pauses by key. It is not changed once it is in use.
type Set map[parking.Key]api.Pause

// Key is what the mail that a pause keeps waits for.
func Key(what api.PauseWhat, name string) parking.Key {
	if what == api.PauseEverything {
		return parking.Key{Kind: parking.Pause, Name: string(what)}
	}
	return parking.Key{Kind: parking.Pause, Name: string(what) + " " + name}
}

// Read reads the pauses in force when the relay stopped: see file.go for a file that is damaged.
func Read(dir string, now func() time.Time, policy func() *wiring.Policy, log *slog.Logger) (*Pauses, error) {
	p := &Pauses{path: filepath.Join(dir, FileName), now: now, policy: policy, log: log, Taken: func() {},
		Resumed: func(parking.Key) {}}
	list, err := p.read()
	if err != nil {
		return nil, fmt.Errorf("reading the pauses: %w", err)
	}
	p.use(list)
	return p, nil
}

func (p *Pauses) use(list []api.Pause) {
	if len(list) == 0 {
		p.inUse.Store(nil)
		return
	}
	set := make(Set, len(list))
	for _, x := range list {
		set[Key(x.What, x.Name)] = x
	}
	p.inUse.Store(&set)
}

// Current is the set in use, to see whether it has changed.
func (p *Pauses) Current() *Set {
	if p == nil {
		return nil
	}
	return p.inUse.Load()
}

// Get gives the pause of a key, if it is in force.
func (p *Pauses) Get(key parking.Key) (api.Pause, bool) {
	set := p.inUse.Load()
	if set == nil {
		return api.Pause{}, false
	}
	x, ok := (*set)[key]
	return x, ok && (x.Until.IsZero() || p.now().Before(x.Until))
}

// Has reports whether the pause of a key is in force.
func (p *Pauses) Has(key parking.Key) bool { _, ok := p.Get(key); return ok }

// List gives those in force, the most far-reaching first.
func (p *Pauses) List() []api.Pause { return slices.DeleteFunc(p.all(), p.over) }

// over reports whether a pause has ended by itself.
func (p *Pauses) over(x api.Pause) bool { return !p.Has(Key(x.What, x.Name)) }

// all is list with those whose end has come and whose mail is yet to be taken up.
func (p *Pauses) all() []api.Pause {
	out := []api.Pause{}
	set := p.inUse.Load()
	if set == nil {
		return out
	}
	for _, x := range *set {
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b api.Pause) int {
		return cmp.Or(slices.Index(api.PauseWhats, a.What)-slices.Index(api.PauseWhats, b.What),
			strings.Compare(a.Name, b.Name))
	})
	return out
}

// Of returns the key of the pause that applies to a tenant's mail from a pool to a domain, zero without one.
// Sources are checked when one is chosen.
func (p *Pauses) Of(tenant string, pool *config.Pool, domain string) parking.Key {
	if p.Current() == nil {
		return parking.Key{}
	}
	for _, key := range [...]parking.Key{
		Key(api.PauseEverything, ""), Key(api.PauseTenant, tenant),
		Key(api.PausePool, pool.Name), Key(api.PauseDomain, domain),
	} {
		if p.Has(key) {
			return key
		}
	}
	return parking.Key{}
}

// Source reports whether a source is paused.
func (p *Pauses) Source(name string) bool {
	return p.Current() != nil && p.Has(Key(api.PauseSource, name))
}

// SourceOf gives the key of a paused source of a pool, zero when none is.
func (p *Pauses) SourceOf(pool *config.Pool) parking.Key {
	if p.Current() == nil {
		return parking.Key{}
	}
	for _, name := range pool.Sources() {
		if p.Source(name) {
			return Key(api.PauseSource, name)
		}
	}
	return parking.Key{}
}

// Keeps returns the key of the pause that stops a tenant's mail from a pool to a domain from any of its sources,
// zero without one.
func (p *Pauses) Keeps(tenant string, pool *config.Pool, domain string) parking.Key {
	if p.Current() == nil {
		return parking.Key{}
	}
	return cmp.Or(p.Of(tenant, pool, domain), p.KeepsPool(pool))
}

// KeepsPool is Keeps for all mail of a pool.
func (p *Pauses) KeepsPool(pool *config.Pool) parking.Key {
	if p.Current() == nil || pool == nil {
		return parking.Key{}
	}
	keys := []parking.Key{Key(api.PauseEverything, ""), Key(api.PausePool, pool.Name)}
	sources := pool.Sources()
	if len(sources) > 0 && !slices.ContainsFunc(sources, func(name string) bool { return !p.Source(name) }) {
		keys = append(keys, Key(api.PauseSource, sources[0]))
	}
	for _, key := range keys {
		if p.Has(key) {
			return key
		}
	}
	return parking.Key{}
}

// Why returns why and until when mail under a key waits. ok is false if the key is not that of a pause.
func (p *Pauses) Why(key parking.Key) (why string, until time.Time, ok bool) {
	if key.Kind != parking.Pause {
		return "", until, false
	}
	x, in := p.Get(key)
	if !in {
		return "the pause has ended: it is taken up now", until, true
	}
	return InWords(&x), x.Until, true
}

// First describes the pause of the first key that has one, "" without any.
func (p *Pauses) First(keys ...parking.Key) string {
	for _, key := range keys {
		if x, on := p.Get(key); on {
			return InWords(&x)
		}
	}
	return ""
}

// Domain reports whether mail for a domain is paused, whoever sends it.
func (p *Pauses) Domain(name string) bool {
	return p.Has(Key(api.PauseEverything, "")) || p.Has(Key(api.PauseDomain, name))
}

// InWords describes a pause: what it stops, who began it, and why.
func InWords(x *api.Pause) string {
	what := string(x.What)
	if x.Name != "" {
		what += " " + x.Name
	}
	if x.What == api.PauseEverything {
		what = "all delivery"
	}
	text := fmt.Sprintf("%s is paused by %s", what, x.By)
	if x.Reason != "" {
		text += ": " + x.Reason
	}
	return text
}

// change puts another list in force. It is durable first. Those whose end has come leave by expire only, which
// takes up their mail.
func (p *Pauses) change(list []api.Pause) error {
	if err := p.write(list); err != nil {
		return fmt.Errorf("writing down what is paused: %w", err)
	}
	p.use(list)
	return nil
}

// Begin pauses something, or gives a pause another reason and end.
func (p *Pauses) Begin(x api.Pause) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := Key(x.What, x.Name)
	err := p.change(append(without(p.all(), key), x))
	if err == nil {
		p.Taken()
	}
	return err
}

// End ends a pause; false when there is none.
func (p *Pauses) End(key parking.Key) (x api.Pause, found bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x, found = p.Get(key); !found {
		return x, false, nil
	}
	if err := p.change(without(p.all(), key)); err != nil {
		return x, true, err
	}
	p.takeUp(key, &x)
	return x, true, nil
}

// takeUp takes up the mail of a pause that has ended. A pool's mail waits for the first of its sources
// that was paused, and any other will do.
func (p *Pauses) takeUp(key parking.Key, x *api.Pause) {
	p.Resumed(key)
	if x.What == api.PauseSource {
		for _, s := range p.policy().Config.Sources {
			p.Resumed(Key(api.PauseSource, s.Name))
		}
	}
}

func without(list []api.Pause, key parking.Key) []api.Pause {
	return slices.DeleteFunc(slices.Clone(list), func(x api.Pause) bool { return Key(x.What, x.Name) == key })
}

// Run ends what has an end, until ctx does.
func (p *Pauses) Run(ctx context.Context) {
	each := time.NewTicker(time.Second)
	defer each.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-each.C:
			p.expire()
		}
	}
}

func (p *Pauses) expire() {
	if p.Current() == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var ended []api.Pause
	for _, x := range p.all() {
		if p.over(x) {
			ended = append(ended, x)
		}
	}
	if len(ended) == 0 {
		return
	}
	if err := p.change(p.List()); err != nil {
		p.log.Error("writing down that a pause has ended", "error", err)
		p.use(p.List()) // it has, whatever the file says: its time is in there
	}
	for i := range ended {
		p.log.Info("a pause has ended", "what", ended[i].What, "name", ended[i].Name)
		p.takeUp(Key(ended[i].What, ended[i].Name), &ended[i])
	}
}

// Stays reports whether a job that waits in delivery may leave.
func (p *Pauses) Stays(j *delivery.Job) bool {
	pol := p.policy()
	for _, i := range j.Recipients {
		if p.Of(j.Message.Tenant, pol.PoolOf(j.Message, j.Route),
			j.Message.Recipients[i].Address.Domain()) != (parking.Key{}) {
			return false
		}
	}
	return !p.Source(j.Source)
}

// Trouble is the alarm while everything is paused.
func (p *Pauses) Trouble() string {
	x, on := p.Get(Key(api.PauseEverything, ""))
	if !on {
		return ""
	}
	return InWords(&x) + "; to go on: mta resume everything"
}
