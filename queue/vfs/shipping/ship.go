package shipping

import (
	"context"
	"maps"
	"slices"
	"time"
)

// ship appends what waits, one entry at a time.
func (fs *FS) ship(ctx context.Context) {
	defer close(fs.ended)
	beat := time.NewTimer(Beat)
	defer beat.Stop()
	for {
		idle := false
		select {
		case <-fs.kick:
		case <-beat.C:
			idle = true
		case <-ctx.Done():
			return
		}
		for fs.next(idle) {
			idle = false
			beat.Reset(Beat)
			if err := fs.append(ctx); err != nil {
				fs.gone(err)
				return
			}
		}
	}
}

// next reports whether an entry can be appended, an empty one if none waits and idle is true.
func (fs *FS) next(idle bool) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for len(fs.waiting) > 0 && len(fs.waiting[0].all) == 0 {
		fs.waiting = fs.waiting[1:]
	}
	if len(fs.waiting) == 0 && !idle {
		return false
	}
	if len(fs.waiting) == 0 {
		fs.waiting = append(fs.waiting, new(entry))
	}
	return true
}

// append appends the first entry that waits.
func (fs *FS) append(ctx context.Context) error {
	fs.mu.Lock()
	e := fs.waiting[0]
	if len(fs.waiting) == 1 { // later changes don't come into this one
		fs.waiting = append(fs.waiting, new(entry))
	}
	fs.mu.Unlock()
	var changes []byte
	whole := fs.since >= max(leastImage, 16*fs.image.parts)
	if whole {
		changes = (&change{kind: opImage, all: fs.image}).append(changes)
		if fs.since = -len(changes); len(changes) > MaxChanges/2 { // the log goes on without one, and is long
			changes, whole = nil, false
		}
	}
	for i := range e.all {
		changes = e.all[i].append(changes)
	}
	number, sent := fs.number+1, fs.cfg.Clock()
	if err := fs.cfg.Log.Append(ctx, number, changes, e.data); err != nil {
		return err
	}
	if err := fs.image.apply(number, e.all); err != nil {
		panic("shipping: a change of our own making: " + err.Error())
	}
	fs.since += len(changes) + entryOctets
	fs.mu.Lock()
	fs.number, fs.beaten, fs.shipped, fs.size = number, sent, max(fs.shipped, e.made), fs.image.total
	fs.waiting, fs.octets = fs.waiting[1:], fs.octets-int64(len(e.data))
	close(fs.news)
	fs.news = make(chan struct{})
	fs.figures()
	fs.mu.Unlock()
	if whole {
		fs.drop(ctx, number)
	}
	return nil
}

// entryOctets is what an entry costs the log beside its changes.
const entryOctets = 32

// drop forgets the entries before an image that no file needs, also those that an earlier call has left.
func (fs *FS) drop(ctx context.Context, image uint64) {
	if err := fs.cfg.Log.Drop(ctx, image, slices.Sorted(maps.Keys(fs.image.live))); err != nil {
		fs.cfg.Slog.Warn("entries that nothing needs stay in the log of the queue for now", "error", err)
	}
}

// gone ends all that waits for the log.
func (fs *FS) gone(err error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.broken = err
	fs.figures()
	close(fs.news)
	fs.news = make(chan struct{})
}
