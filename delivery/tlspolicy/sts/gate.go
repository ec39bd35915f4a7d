package sts

import "sync"

// gate runs a limited number of functions at once, each on a goroutine. The others stand in line, and cost no goroutine
// there.
type gate struct {
	running *sync.WaitGroup

	mu     sync.Mutex // guards the rest
	free   int
	line   []func()
	closed bool
}

// do runs f when its turn comes. After close it does nothing.
func (g *gate) do(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
	case g.free == 0:
		g.line = append(g.line, f)
	default:
		g.free--
		g.running.Go(func() { g.work(f) })
	}
}

// work runs f and then those in line.
func (g *gate) work(f func()) {
	for f != nil {
		f()
		f = g.next()
	}
}

// next takes the first in line, nil when there is none: then the goroutine's place is free.
func (g *gate) next() (f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.line) == 0 || g.closed {
		g.free++
		g.line = nil
		return nil
	}
	f = g.line[0]
	g.line[0] = nil
	g.line = g.line[1:]
	return f
}

// close drops the line. What runs goes on.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.line = true, nil
}
