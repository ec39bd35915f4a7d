// Package minheap is container/heap for values of one type that may know where in it they are.
package minheap

import "container/heap"

// Heap has its least value on top. New makes one; it is for one goroutine at a time.
type Heap[T any] struct{ all values[T] }

// New gives an empty heap. moved, which may be nil, gets each position that a value gets, as
// Fix and Remove take it, and -1 when the value is out.
func New[T any](less func(a, b T) bool, moved func(v T, i int)) Heap[T] {
	if moved == nil {
		moved = func(T, int) {}
	}
	return Heap[T]{values[T]{less: less, moved: moved}}
}

// Len is how many values there are.
func (h *Heap[T]) Len() int { return len(h.all.v) }

// Top is the least value; there must be one.
func (h *Heap[T]) Top() T { return h.all.v[0] }

// Push adds a value.
func (h *Heap[T]) Push(v T) { heap.Push(&h.all, v) }

// Pop takes the least value out; there must be one.
func (h *Heap[T]) Pop() T { return heap.Pop(&h.all).(T) }

// Fix finds the place of the value at i after it has changed.
func (h *Heap[T]) Fix(i int) { heap.Fix(&h.all, i) }

// Remove takes the value at i out.
func (h *Heap[T]) Remove(i int) { heap.Remove(&h.all, i) }

// Values gives what is in it, in no order. It is the heap's own: good until the next change, and not
// to be changed.
func (h *Heap[T]) Values() []T { return h.all.v }

// values is what container/heap works on.
type values[T any] struct {
	v     []T
	less  func(a, b T) bool
	moved func(v T, i int)
}

func (a *values[T]) Len() int           { return len(a.v) }
func (a *values[T]) Less(i, j int) bool { return a.less(a.v[i], a.v[j]) }
func (a *values[T]) Swap(i, j int) {
	a.v[i], a.v[j] = a.v[j], a.v[i]
	a.moved(a.v[i], i)
	a.moved(a.v[j], j)
}
func (a *values[T]) Push(x any) {
	v := x.(T)
	a.moved(v, len(a.v))
	a.v = append(a.v, v)
}
func (a *values[T]) Pop() any {
	last := len(a.v) - 1
	v := a.v[last]
	var none T
	a.v[last] = none // the array below must not keep it alive
	a.v = a.v[:last]
	a.moved(v, -1)
	return v
}
