package web

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// view is what a page shows at one moment, made once for all who look at it.
type view struct {
	top  []byte
	live []byte
	part body // live with the time at its end, as the refresh gets it
	made time.Time
}

// Bounds of what is kept. Views that nobody looks at are kept for some time, since the relay may go away.
const (
	maxViews     = 256
	maxViewBytes = 16 << 20
	// fresh is how old a view may be that is shown as the newest.
	fresh = 1900 * time.Millisecond
	// askFor bounds the time that a page waits for the relay.
	askFor = 20 * time.Second
)

// views keeps the newest view of each URL and role. It is safe for concurrent use.
type views struct {
	now func() time.Time

	mu    sync.Mutex // guards what follows
	by    map[string]*kept
	order list.List // of *kept, the newest used first
	bytes int
	// changes counts the calls of outdate.
	changes int
}

type kept struct {
	key   string
	place *list.Element
	busy  chan struct{} // closed when the one under way is made; nil: none is
	view  *view         // the newest, nil: none yet
	tried time.Time     // when the relay was asked last
	err   error         // of that, nil: it is view
}

// get gives the view of a key: one that was made lately, or a new one by ask. A request that comes while it is made
// waits for it. ask's context does not end with who has asked first.
func (v *views) get(ctx context.Context, key string, ask func(context.Context) (*view, error)) (*view, error) {
	v.mu.Lock()
	k := v.of(key)
	if !k.tried.IsZero() && v.now().Sub(k.tried) < fresh {
		defer v.mu.Unlock()
		return k.view, k.err
	}
	if k.busy == nil {
		k.busy = make(chan struct{})
		go v.make(context.WithoutCancel(ctx), k, ask)
	}
	busy := k.busy
	v.mu.Unlock()
	select {
	case <-busy:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return k.view, k.err
}

// make makes a view and lets those who wait have it.
func (v *views) make(ctx context.Context, k *kept, make func(context.Context) (*view, error)) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	v.mu.Lock()
	began := v.changes
	v.mu.Unlock()
	next, err := make(ctx)
	v.mu.Lock()
	defer v.mu.Unlock()
	if k.err = err; v.changes == began {
		k.tried = v.now()
	}
	if err == nil {
		if v.by[k.key] == k {
			v.bytes += next.size() - k.view.size()
		} // else it was forgotten meanwhile
		k.view = next
		v.forget()
	}
	close(k.busy)
	k.busy = nil
}

// outdate gives the next request new views: something has changed.
func (v *views) outdate() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.changes++
	for _, k := range v.by {
		k.tried = time.Time{}
	}
}

// of gives the place of a key, with mu held.
func (v *views) of(key string) *kept {
	if v.by == nil {
		v.by = make(map[string]*kept)
	}
	k := v.by[key]
	if k == nil {
		k = &kept{key: key}
		k.place = v.order.PushFront(k)
		v.by[key] = k
		v.forget()
	}
	v.order.MoveToFront(k.place)
	return k
}

// forget drops what was not looked at for the longest time, with mu held.
func (v *views) forget() {
	for len(v.by) > 1 && (len(v.by) > maxViews || v.bytes > maxViewBytes) {
		k := v.order.Remove(v.order.Back()).(*kept)
		delete(v.by, k.key)
		v.bytes -= k.view.size()
	}
}

func (v *view) size() int {
	if v == nil {
		return 0
	}
	return len(v.top) + len(v.live) + len(v.part.plain) + len(v.part.gzip)
}
