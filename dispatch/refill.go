package dispatch

import (
	"context"
	"sync"
)

// refiller takes parked mail out of the queue when what it waited for has come: space in delivery for its
// flow, or the route of its domain. That mail may have to be read from disk, and those who bring the
// news are delivery's clock and the router's workers, for whom all else would wait meanwhile. It has one
// goroutine, run; a key that it is told of twice before it gets there is one. Keys take turns.
type refiller[K comparable] struct {
	unpark func(K) (more bool)
	pause  func(context.Context) error // waits while nothing more is to be taken up
	wake   chan struct{}               // has space for one: there are keys

	mu    sync.Mutex // guards the rest
	keys  []K        // in the order in which their news came
	known map[K]bool
}

func newRefiller[K comparable](unpark func(K) (more bool), pause func(context.Context) error) *refiller[K] {
	return &refiller[K]{unpark: unpark, pause: pause, wake: make(chan struct{}, 1), known: make(map[K]bool)}
}

// call notes that mail of a key can be taken up. It doesn't block.
func (r *refiller[K]) call(k K) {
	r.mu.Lock()
	if !r.known[k] {
		r.known[k] = true
		r.keys = append(r.keys, k)
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run takes up the keys' mail until ctx ends.
func (r *refiller[K]) run(ctx context.Context) {
	for {
		select {
		case <-r.wake:
		case <-ctx.Done():
			return
		}
		for k, ok := r.next(); ok && r.pause(ctx) == nil; k, ok = r.next() {
			if r.unpark(k) {
				r.call(k)
			}
		}
	}
}

// next gives the key that has waited longest. News that comes from now on counts anew.
func (r *refiller[K]) next() (k K, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.keys) == 0 {
		r.keys = nil
		return k, false
	}
	k = r.keys[0]
	r.keys = r.keys[1:]
	delete(r.known, k)
	return k, true
}
