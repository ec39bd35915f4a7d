package queue

import (
	"fmt"
	"sync/atomic"
	"time"
)

// freeSpace is what is free on the disk, as it was a moment ago, and how much of that is promised.
type freeSpace struct {
	octets  atomic.Int64
	checked atomic.Int64 // unix nanoseconds
	// promised is the octets of large contents that are coming in and not written yet: what their
	// clients declared, or a bit more than has come.
	promised atomic.Int64
}

const (
	freeSpaceAge = 250 * time.Millisecond
	// promiseStep is what a content is promised at a time that outgrows what was declared, in units of
	// Config.LargeBody.
	promiseStep = 4
	// headerRoom is what this relay's own header fields may add to a content.
	headerRoom = 16 << 10
)

// freeOctets is what is free on the disk, up to a quarter of a second old.
func (q *Queue) freeOctets() int64 {
	now := q.now().UnixNano()
	last := q.free.checked.Load()
	if last != 0 && now-last < int64(freeSpaceAge) && now >= last || !q.free.checked.CompareAndSwap(last, now) {
		return q.free.octets.Load()
	}
	n, err := q.fs.Free(q.cfg.Dir)
	if err != nil {
		q.failures.space.Failed(troubleClass(err), "dir", q.cfg.Dir, "error", err)
		n = 0
	} else {
		q.failures.space.Well()
	}
	q.free.octets.Store(n)
	return n
}

// Ready returns the error that a message of so many octets would be refused with just now, nil when it
// would not be: a cheap question for before the content is taken. 0 stands for an unknown size.
func (q *Queue) Ready(size int64) error {
	q.mu.Lock()
	closed, stalled, fault := q.closed, q.stalled, q.fault
	q.mu.Unlock()
	switch {
	case closed:
		return ErrClosed
	case stalled != nil:
		return fault
	case size > q.cfg.LargeBody:
		return q.largeRoom(size)
	}
	return q.room(size)
}

// room returns an ErrDiskFull when n octets more would leave less than MinFree on the disk.
func (q *Queue) room(n int64) error { return q.keep(q.cfg.MinFree, n) }

// largeRoom is room for a content in a file of its own. Such contents can stay unfinished for as long as
// their clients are allowed to take, and must not fill the room that small mail needs meanwhile.
func (q *Queue) largeRoom(n int64) error { return q.keep(q.cfg.MinFree+q.cfg.MinFree/2, n) }

// keep returns an ErrDiskFull when n octets more would leave less than kept octets that are free and not
// promised.
func (q *Queue) keep(kept, n int64) error {
	free, promised := q.freeOctets(), q.free.promised.Load()
	if free-promised-n >= kept {
		return nil
	}
	const MiB = 1 << 20
	return fmt.Errorf("%w: %d MiB are free in %s; %d MiB of them are promised to messages that are coming in, and %d MiB are kept back (min_free)",
		ErrDiskFull, free/MiB, q.cfg.Dir, promised/MiB, kept/MiB)
}

// Expect reserves room on the disk for a content of about size octets, when that is more than is kept
// in memory. Without room the next Write fails with ErrDiskFull, and so does Commit. A content that
// turns out to be larger gets more room as it grows, or is refused then.
func (d *Draft) Expect(size int64) {
	if d.err == nil && size > d.q.cfg.LargeBody {
		d.err = d.promise(size + headerRoom)
	}
}

// promise reserves n octets more.
func (d *Draft) promise(n int64) error {
	d.q.free.promised.Add(n)
	if err := d.q.largeRoom(0); err != nil {
		d.q.free.promised.Add(-n)
		return err
	}
	d.promised += n
	return nil
}

// wrote notes that n octets of what was promised are on the disk.
func (d *Draft) wrote(n int64) {
	n = min(n, d.promised)
	d.promised -= n
	d.q.free.octets.Add(-n) // until it is looked at again
	d.q.free.promised.Add(-n)
}

// giveBack ends the reservation.
func (d *Draft) giveBack() {
	if d.promised != 0 {
		d.q.free.promised.Add(-d.promised)
		d.promised = 0
	}
}
