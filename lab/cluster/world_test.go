// Package cluster runs the protocol of package cluster/member in virtual time: nodes that crash and pause, a network
// that loses and repeats, an engine that fails over, and a judge that sees only what hosts see.
package cluster

import (
	"math/rand/v2"
	"time"

	"example.org/mta/internal/minheap"
)

// world is virtual time: what happens, in order.
type world struct {
	now   time.Duration
	rand  *rand.Rand
	count uint64
	todo  minheap.Heap[event]
}

type event struct {
	at  time.Duration
	seq uint64
	run func()
}

func newWorld(seed uint64) *world {
	return &world{rand: rand.New(rand.NewPCG(seed, 31)), todo: minheap.New(func(a, b event) bool {
		return a.at < b.at || a.at == b.at && a.seq < b.seq
	}, nil)}
}

// after has f run when d has passed.
func (w *world) after(d time.Duration, f func()) {
	w.count++
	w.todo.Push(event{w.now + max(d, 0), w.count, f})
}

// run lets time pass until end.
func (w *world) run(end time.Duration) {
	for w.todo.Len() > 0 && w.todo.Top().at <= end {
		e := w.todo.Pop()
		w.now = e.at
		e.run()
	}
	w.now = end
}

// chance is true once in 1/p times.
func (w *world) chance(p float64) bool { return p > 0 && w.rand.Float64() < p }

// between is a duration from a to b.
func (w *world) between(a, b time.Duration) time.Duration {
	return a + time.Duration(w.rand.Int64N(int64(b-a)+1))
}

// now and then has f run at random moments, every mean on average.
func (w *world) often(mean time.Duration, f func()) {
	if mean <= 0 {
		return
	}
	w.after(time.Duration(w.rand.ExpFloat64()*float64(mean)), func() {
		f()
		w.often(mean, f)
	})
}
