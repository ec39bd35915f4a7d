package weights

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"example.org/mta/operator/api"
)

// Shared is the weights as the nodes of a cluster share them: values of JSON by key, which names pool and source. A
// node that lacks the pool keeps them, too. It implements changes.Kind.
type Shared struct{ Weights *Weights }

// Most is how many weights of other nodes a node takes.
const Most = 10_000

// String is the key of a source of a pool.
func (p place) String() string {
	text, _ := json.Marshal(p) // strings are always valid JSON
	return string(text)
}

// All calls each with the keys of all weights.
func (s Shared) All(ctx context.Context, each func(keys []string) error) error {
	values, err := s.Get(ctx, nil)
	if err != nil {
		return err
	}
	return each(slices.Sorted(maps.Keys(values)))
}

// Get returns the weights that operators have set.
func (s Shared) Get(context.Context, []string) (map[string][]byte, error) {
	values := make(map[string][]byte)
	for p, x := range *s.Weights.inUse.Load() {
		text, err := json.Marshal(x)
		if err != nil {
			return nil, err
		}
		values[p.String()] = text
	}
	return values, nil
}

func parse(key string, value []byte) (x api.Weight, err error) {
	if err = json.Unmarshal(value, &x); err != nil {
		return x, err
	}
	if err = (&api.SetWeight{Source: x.Source, Weight: x.Weight}).Check(); err != nil {
		return x, err
	}
	if x.Pool == "" || (place{x.Pool, x.Source}).String() != key {
		err = errors.New("it is not the weight of its key")
	}
	return x, err
}

// Look returns the rank of a weight, which has no end.
func (Shared) Look(key string, value []byte) (rank int, until time.Time, err error) {
	_, err = parse(key, value)
	return 1, until, err
}

// Apply sets and ends weights, unless they stay.
func (s Shared) Apply(ctx context.Context, values map[string][]byte, stays func(key string) bool) error {
	w := s.Weights
	w.mu.Lock()
	defer w.mu.Unlock()
	there, err := s.Get(ctx, nil)
	if err != nil {
		return err
	}
	next, changed := maps.Clone(*w.inUse.Load()), false
	for _, key := range slices.Sorted(maps.Keys(values)) {
		value, was := values[key], there[key]
		if stays(key) || string(value) == string(was) {
			continue
		}
		var p place
		if err := json.Unmarshal([]byte(key), &p); err == nil && value == nil {
			changed = true
			delete(next, p)
			continue
		}
		x, err := parse(key, value)
		if err != nil {
			return err
		}
		if was == nil && len(next) >= Most {
			w.log.Error("a weight of another node is left out: there are too many", "pool", x.Pool, "source", x.Source,
				"by", x.By)
			continue
		}
		changed, next[p] = true, x
	}
	if !changed {
		return nil
	}
	if err := w.change(next); err != nil {
		return err
	}
	w.Changed()
	return nil
}
