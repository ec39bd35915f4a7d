// Package weights keeps the weights that operators have given to sources of pools, in a file in the data directory,
// and answers which weight counts. The nodes of a cluster share them.
package weights

import (
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/internal/format"
	"example.org/mta/internal/smallfile"
	"example.org/mta/mta/config"
	"example.org/mta/operator/api"
)

// Format is what this program knows of the file's formats.
var Format = format.Store{Name: "weights", Reads: 1, Writes: 1, Unstated: 1}

// FileName is the name of the file in the data directory.
const FileName = "weights.json"

// Weights are the weights that operators have set in place of those of the configuration.
type Weights struct {
	path string
	log  *slog.Logger
	// Note is called with the key of [Shared] before a weight changes, and what it returns after that; nil: nobody
	// shares the weights. Where follows the names of operators, as " at node 2". Changed is called after another node's
	// change.
	Note    func(keys []string) (done func(), err error)
	Where   string
	Changed func()
	Lost    bool // neither the file nor its copy could be read

	mu    sync.Mutex // one change at a time
	inUse atomic.Pointer[set]
}

type set map[place]api.Weight

// place is a source of a pool.
type place struct {
	Pool   string `json:"pool"`
	Source string `json:"source"`
}

// Read reads the weights that were in force when the relay stopped. Where the file is damaged, its second copy counts;
// without a sound one, the weights of the configuration.
func Read(dir string, now time.Time, log *slog.Logger) (*Weights, error) {
	w := &Weights{path: filepath.Join(dir, FileName), log: log, Changed: func() {}}
	f := smallfile.Twin[api.WeightList]{
		Path: w.path, Name: "the weights of sources", Write: w.write, Now: now, Log: log,
		Lost: func() (l api.WeightList, then, remedy string) {
			w.Lost = true
			return l, "those of the configuration count", "set them again: mta pools weight"
		},
	}
	l, err := f.Read()
	if err != nil {
		return nil, fmt.Errorf("reading the weights of sources: %w", err)
	}
	all := make(set, len(l.Weights))
	for _, x := range l.Weights {
		all[place{x.Pool, x.Source}] = x
	}
	w.inUse.Store(&all)
	return w, nil
}

// In returns the weights of a pool's sources, nil when all are equal.
func (w *Weights) In(pool *config.Pool) func(source string) int {
	all := *w.inUse.Load()
	if len(all) == 0 {
		return pool.WeightOf()
	}
	usual := pool.WeightOf()
	return func(source string) int {
		if x, ok := all[place{pool.Name, source}]; ok {
			return x.Weight
		}
		if usual == nil {
			return 1
		}
		return usual(source)
	}
}

// Set gives a source another weight, durably.
func (w *Weights) Set(x api.Weight) error {
	return w.noted(place{x.Pool, x.Source}, &x)
}

// End durably returns a source of a pool to the weight of the configuration.
func (w *Weights) End(pool, source string) error {
	return w.noted(place{pool, source}, nil)
}

// Kept returns, a sentence for each source, which weights overrule those of a pool in the configuration.
func (w *Weights) Kept(pool *config.Pool) (lines []string) {
	all := *w.inUse.Load()
	for _, s := range pool.Sources() {
		if x, ok := all[place{pool.Name, s}]; ok {
			lines = append(lines, fmt.Sprintf("pool %q: %s keeps the weight %d; to end that: mta pools weight "+
				"%[1]s %[2]s --own", pool.Name, s, x.Weight))
		}
	}
	return lines
}

// noted changes the weight of a source, nil ends it. Those that share the weights hear of it.
func (w *Weights) noted(p place, x *api.Weight) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.Note != nil {
		done, err := w.Note([]string{p.String()})
		if err != nil {
			return err
		}
		defer done()
	}
	all := maps.Clone(*w.inUse.Load())
	if delete(all, p); x != nil {
		all[p] = *x
	}
	return w.change(all)
}

// change puts other weights in force, durably. The caller has mu.
func (w *Weights) change(all set) error {
	var l api.WeightList
	for _, x := range all {
		l.Weights = append(l.Weights, x)
	}
	slices.SortFunc(l.Weights, func(a, b api.Weight) int { return a.Compare(&b) })
	if err := w.write(l); err != nil {
		return fmt.Errorf("writing down the weights of sources: %w", err)
	}
	w.inUse.Store(&all)
	return nil
}

func (w *Weights) write(l api.WeightList) error { return smallfile.WriteTwin(w.path, 0o640, l) }
