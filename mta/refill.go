package mta

import (
	"context"
	"sync"
)

// refiller takes parked mail out of the queue when delivery has room for it. That mail may have to be
// read from disk, and who tells of the room is delivery's clock, for whom every other site would wait
// meanwhile. It has one goroutine, run; a site that it is told of twice before it gets there is one.
// Sites take turns, as much as there is room for at a time.
type refiller struct {
	unpark func(site string) (more bool)
	wake   chan struct{} // has room for one: there are sites

	mu    sync.Mutex // guards the rest
	sites []string   // in the order in which they got room
	known map[string]bool
}

func newRefiller(unpark func(site string) (more bool)) *refiller {
	return &refiller{unpark: unpark, wake: make(chan struct{}, 1), known: make(map[string]bool)}
}

// room notes that delivery has room for a site's mail. It doesn't block.
func (f *refiller) room(site string) {
	f.mu.Lock()
	if !f.known[site] {
		f.known[site] = true
		f.sites = append(f.sites, site)
	}
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// run takes up the sites' mail until ctx ends.
func (f *refiller) run(ctx context.Context) {
	for {
		select {
		case <-f.wake:
		case <-ctx.Done():
			return
		}
		for site, ok := f.next(); ok && ctx.Err() == nil; site, ok = f.next() {
			if f.unpark(site) {
				f.room(site)
			}
		}
	}
}

// next gives the site that has waited longest. Room that comes from now on is told of anew.
func (f *refiller) next() (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.sites) == 0 {
		f.sites = nil
		return "", false
	}
	site := f.sites[0]
	f.sites = f.sites[1:]
	delete(f.known, site)
	return site, true
}
