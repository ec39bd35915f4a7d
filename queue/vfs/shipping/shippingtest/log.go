// Package shippingtest has a log for tests of what stands on a shipping file system.
package shippingtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"example.org/mta/queue/vfs/shipping"
)

// ErrCut is returned by Append once the log was cut.
var ErrCut = errors.New("the log is cut off")

// Log is a log in memory. It can be cut off: at an entry, which may be in it or not.
type Log struct {
	mu      sync.Mutex
	entries map[uint64]kept
	cutAt   int   // appends from now on; 0: never
	kept    bool  // what is cut off is in it
	tried   bool  // an append was cut off
	Octets  int64 // that were appended
	Dropped int
}

type kept struct{ changes, data []byte }

// New makes an empty log.
func New() *Log { return &Log{entries: make(map[uint64]kept)} }

// CutAt has the n-th append from now on fail, and those after it. It may be carried out all the same.
func (l *Log) CutAt(n int, carriedOut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cutAt, l.kept, l.tried = n, carriedOut, false
}

// Append implements shipping.Log.
func (l *Log) Append(_ context.Context, entry uint64, changes, data []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tried = l.tried || l.cutAt == 1; l.cutAt == 1 && !l.kept {
		return ErrCut
	}
	if _, is := l.entries[entry]; is {
		return fmt.Errorf("entry %d is taken", entry)
	}
	l.entries[entry] = kept{slices.Clone(changes), slices.Clone(data)}
	l.Octets += int64(len(changes) + len(data))
	if l.cutAt == 1 {
		l.kept = false
		return ErrCut
	}
	if l.cutAt > 1 {
		l.cutAt--
	}
	return nil
}

// IsCut reports whether the log was cut off.
func (l *Log) IsCut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cutAt == 1 && l.tried
}

// Data implements shipping.Log.
func (l *Log) Data(_ context.Context, entry uint64) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, is := l.entries[entry]
	if !is {
		return nil, fmt.Errorf("there is no entry %d", entry)
	}
	return e.data, nil
}

// Drop implements shipping.Log.
func (l *Log) Drop(_ context.Context, image uint64, kept []uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range kept {
		if _, is := l.entries[n]; !is {
			return fmt.Errorf("entry %d is kept, and not there", n)
		}
	}
	if !shipping.HasImage(l.entries[image].changes) {
		return fmt.Errorf("entry %d has no image", image)
	}
	for n := range l.entries {
		if n < image && !slices.Contains(kept, n) {
			delete(l.entries, n)
			l.Dropped++
		}
	}
	return nil
}

// Read returns the image of what is in the log.
func (l *Log) Read() (*shipping.Image, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return shipping.Read(func(each func(uint64, []byte, int64) error) error {
		numbers := slices.Sorted(maps.Keys(l.entries))
		from := 0
		for i, n := range numbers {
			if shipping.HasImage(l.entries[n].changes) {
				from = i
			}
		}
		for _, n := range numbers[from:] {
			if err := each(n, l.entries[n].changes, int64(len(l.entries[n].data))); err != nil {
				return err
			}
		}
		return nil
	})
}

// Size is how many octets the log has.
func (l *Log) Size() (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		n += int64(len(e.changes) + len(e.data))
	}
	return n
}
