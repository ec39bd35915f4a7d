package mta

import (
	"context"
	"sync"

	"mta/delivery"
)

// refiller takes parked mail out of the queue when delivery has room for it. That mail may have to be
// read from disk, and who tells of the room is delivery's clock, for whom every other site would wait
// meanwhile. It has one goroutine, run; a flow that it is told of twice before it gets there is one.
// Flows take turns, as much as there is room for at a time.
type refiller struct {
	unpark func(delivery.Flow) (more bool)
	pause  func(context.Context) error // waits while nothing more is to be taken up
	wake   chan struct{}               // has room for one: there are flows

	mu    sync.Mutex      // guards the rest
	flows []delivery.Flow // in the order in which they got room
	known map[delivery.Flow]bool
}

func newRefiller(unpark func(delivery.Flow) (more bool), pause func(context.Context) error) *refiller {
	return &refiller{unpark: unpark, pause: pause, wake: make(chan struct{}, 1), known: make(map[delivery.Flow]bool)}
}

// room notes that delivery has room for a flow. It doesn't block.
func (r *refiller) room(f delivery.Flow) {
	r.mu.Lock()
	if !r.known[f] {
		r.known[f] = true
		r.flows = append(r.flows, f)
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run takes up the flows' mail until ctx ends.
func (r *refiller) run(ctx context.Context) {
	for {
		select {
		case <-r.wake:
		case <-ctx.Done():
			return
		}
		for f, ok := r.next(); ok && r.pause(ctx) == nil; f, ok = r.next() {
			if r.unpark(f) {
				r.room(f)
			}
		}
	}
}

// next gives the flow that has waited longest. Room that comes from now on is told of anew.
func (r *refiller) next() (delivery.Flow, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.flows) == 0 {
		r.flows = nil
		return delivery.Flow{}, false
	}
	f := r.flows[0]
	r.flows = r.flows[1:]
	delete(r.known, f)
	return f, true
}
