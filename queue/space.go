package queue

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"example.org/mta/internal/fair"
	"example.org/mta/queue/store"
)

// freeSpace is what is free on the disk, as it was a moment ago, and how much of that is promised.
type freeSpace struct {
	octets  atomic.Int64
	checked atomic.Int64 // unix nanoseconds
	// promised is the octets of large contents that are coming in, which tenants and clients share: what they
	// declared, or a bit more than has come. written is how many of these are on the disk.
	promised *fair.Pool[fair.Party]
	written  atomic.Int64
}

// unwritten is what is promised and will still be taken from the disk.
func (f *freeSpace) unwritten() int64 { return f.promised.Used() - f.written.Load() }

// ErrSharedOut is an ErrDiskFull of one owner: it has its share of the disk for large messages that are coming in.
var ErrSharedOut = fmt.Errorf(
	"%w: this tenant or client has its share of the disk for large messages that are coming in", ErrDiskFull)

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
	n, err := q.dir.FS.Free(q.cfg.Dir)
	if err != nil {
		q.failures.Space.Failed(store.FailureClass(err), "dir", q.cfg.Dir, "error", err)
		n = 0
	} else {
		q.failures.Space.Well()
	}
	q.free.octets.Store(n)
	q.free.promised.Resize(n + q.free.written.Load() - q.largeKept())
	return n
}

// Ready returns the error that an owner's message of so many octets would be refused with just now, nil when it
// would not be: a cheap question for before the content is taken. 0 stands for an unknown size.
func (q *Queue) Ready(owner fair.Party, size int64) error {
	q.mu.Lock()
	closed, stalled, fault := q.closed, q.health.stalled, q.health.fault
	q.mu.Unlock()
	switch {
	case closed:
		return ErrClosed
	case stalled != nil:
		return fault
	case size > q.cfg.LargeBody:
		if err := q.largeRoom(size); err != nil {
			return err
		}
		if !q.free.promised.Fits(size, partOf(owner)) {
			return ErrSharedOut
		}
		return nil
	}
	return q.room(size)
}

// room returns an ErrDiskFull when n octets more would leave less than MinFree on the disk.
func (q *Queue) room(n int64) error { return q.keep(q.cfg.MinFree, n) }

// largeRoom is room for a content in a file of its own. Such contents can stay unfinished for as long as
// their clients are allowed to take, and must not fill the room that small mail needs meanwhile.
func (q *Queue) largeRoom(n int64) error { return q.keep(q.largeKept(), n) }

func (q *Queue) largeKept() int64 { return q.cfg.MinFree + q.cfg.MinFree/2 }

// keep returns an ErrDiskFull when n octets more would leave less than kept octets that are free and not
// promised.
func (q *Queue) keep(kept, n int64) error {
	free, promised := q.freeOctets(), q.free.unwritten()
	if free-promised-n >= kept {
		return nil
	}
	const MiB = 1 << 20
	return fmt.Errorf(
		"%w: %d MiB are free in %s; %d MiB of them are promised to messages that are coming in, and %d MiB are kept "+
			"back (min_free)",
		ErrDiskFull, free/MiB, q.cfg.Dir, promised/MiB, kept/MiB)
}

// Expect reserves room on the disk for a content of about size octets, when that is more than is kept
// in memory. It counts for its owner; the zero Party is the relay itself, which needs no share. Without room the next
// Write fails with ErrDiskFull, and so does Commit. A content that turns out to be larger gets more room as it grows,
// or is refused then.
func (d *Draft) Expect(owner fair.Party, size int64) {
	d.owner = owner
	if d.err == nil && size > d.q.cfg.LargeBody {
		d.err = d.promise(size + headerRoom)
	}
}

// partOf is an owner's part of the room for large contents.
func partOf(owner fair.Party) fair.Part[fair.Party] {
	times := float64(fair.Usual)
	if owner == (fair.Party{}) {
		times = math.Inf(1)
	}
	return fair.Part[fair.Party]{Key: owner, Times: times}
}

// promise reserves n octets more.
func (d *Draft) promise(n int64) error {
	q := d.q
	if err := q.largeRoom(n); err != nil {
		return err
	}
	if !q.free.promised.Take(n, partOf(d.owner)) {
		return ErrSharedOut
	}
	d.promised += n
	return nil
}

// wrote notes that n octets of what was promised are on the disk.
func (d *Draft) wrote(n int64) {
	n = min(n, d.promised-d.written)
	d.written += n
	d.q.free.octets.Add(-n) // until it is looked at again
	d.q.free.written.Add(n)
}

// giveBack ends the reservation.
func (d *Draft) giveBack() {
	d.q.free.promised.Give(d.promised, partOf(d.owner))
	d.q.free.written.Add(-d.written)
	d.promised, d.written = 0, 0
}
