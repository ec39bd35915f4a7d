package inbox

import (
	"context"
	"slices"
	"sync"

	"example.org/mta/bounce"
	"example.org/mta/internal/envelope"
)

// repeat is what a report says. One that comes again, since the host got no answer to the first or somebody replays it,
// is not a second failure.
type repeat struct {
	kind      RecordKind
	message   envelope.ID
	recipient envelope.Address
	class     bounce.Class
	follows   bool
	unknown   bool // the message is not known: such reports are never repeats
}

// latelyKept is how many keys are remembered at least, and half of how many at most.
const latelyKept = 32 << 10

// lately remembers values of the last keys, in two generations.
type lately[K comparable, V any] struct {
	mu         sync.Mutex // guards the rest
	young, old map[K]V
}

func (l *lately[K, V]) of(k K) (v V, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v, known = l.young[k]; !known {
		v, known = l.old[k]
	}
	return v, known
}

func (l *lately[K, V]) note(k K, v V) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.young == nil || len(l.young) >= latelyKept {
		l.young, l.old = make(map[K]V), l.young
	}
	l.young[k] = v
}

// repeats remembers what the last reports said.
type repeats struct{ lately[repeat, struct{}] }

func (r *repeats) known(k repeat) bool {
	_, known := r.of(k)
	return known
}

func (r *repeats) note(k repeat) {
	if !k.unknown {
		r.lately.note(k, struct{}{})
	}
}

// pending is what is being written down.
type pending struct {
	mu sync.Mutex               // guards by
	by map[repeat]chan struct{} // closed when that has ended
}

// begin waits until no other report that says one of these things is being written down: then it is known, or that has
// failed. Others wait until end is called. A report waits before it has any of its keys, so none wait for each other.
// The error is that of ctx.
func (p *pending) begin(ctx context.Context, keys []repeat) (end func(), err error) {
	keys = slices.DeleteFunc(keys, func(k repeat) bool { return k.unknown })
	ended := make(chan struct{})
	for {
		other := p.take(keys, ended)
		if other == nil {
			return func() { p.give(keys, ended) }, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// take takes all keys until ended is closed, or none: then it returns what is closed when one of them is free.
func (p *pending) take(keys []repeat, ended chan struct{}) (other chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range keys {
		if other := p.by[k]; other != nil {
			return other
		}
	}
	if p.by == nil {
		p.by = make(map[repeat]chan struct{})
	}
	for _, k := range keys {
		p.by[k] = ended
	}
	return nil
}

// give gives back what take took.
func (p *pending) give(keys []repeat, ended chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range keys {
		delete(p.by, k)
	}
	close(ended)
}
