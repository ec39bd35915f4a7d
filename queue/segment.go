package queue

import (
	"fmt"
	"math"
	"slices"
	"time"

	"example.org/mta/queue/journal"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
)

// segment is what is known of a segment file. All but id and handle is guarded by the
// queue's mutex.
type segment struct {
	id     journal.Segment
	handle uint32 // what a schedule.Loc calls it

	size     int64  // octets that are to be trusted; what is written so far of the active one
	live     int64  // octets of size that living recipients and keys need, by the estimate of SizeClass
	messages int    // with living recipients, whose data are here
	notes    int    // living recipients whose last reply is here
	keys     int    // of requests, whose latest record is here
	maxID    uint64 // the largest id in it, for keyed.bind; noBound when it was begun since Open

	sealed  bool      // nothing more is written to it
	trimmed bool      // nothing is behind size; until then the next segment says where it ends
	indexed bool      // the index file is there, or damage forbids one
	damaged bool      // is set aside and not deleted when nothing in it is needed any more
	unread  bool      // not all of it could be read: it stays, since a later start may read more
	stuck   bool      // has messages that can't be read, so that compaction can't empty it
	emptied bool      // by compaction, and waits to be deleted
	gone    bool      // its file is being deleted
	rest    time.Time // when the janitor tries again what failed

	// deps are the segments that must stay as long as this one does, since they have records that
	// settle, move or change messages whose data are here.
	deps     map[*segment]dependency
	neededBy int        // how many segments have this one in deps
	movedTo  []*segment // where compaction carried its messages
}

// dependency is why a segment needs another.
type dependency struct {
	tick    uint64 // when it was last added
	changed bool   // for a changed record, that a burial does not stand for
}

// noteOctets is what a deferred record is reckoned at.
const noteOctets = 160

// segments is the segment files by handle. It is guarded by the queue's mutex.
type segments struct {
	byHandle []*segment // 0 is none
	free     []uint32
	tick     uint64 // counts dependencies
}

// add gives a segment a handle. It reports false when there is none left.
func (s *segments) add(seg *segment) bool {
	if len(s.byHandle) == 0 {
		s.byHandle = append(s.byHandle, nil)
	}
	seg.deps = map[*segment]dependency{}
	if n := len(s.free); n > 0 {
		seg.handle, s.free = s.free[n-1], s.free[:n-1]
		s.byHandle[seg.handle] = seg
		return true
	}
	if len(s.byHandle) >= schedule.MaxSegments {
		return false
	}
	seg.handle = uint32(len(s.byHandle))
	s.byHandle = append(s.byHandle, seg)
	return true
}

// of is the segment that a Loc is in.
func (s *segments) of(l schedule.Loc) *segment { return s.byHandle[l.Segment()] }

// byID is nil where the segment is gone.
func (s *segments) byID(id journal.Segment) *segment {
	for seg := range s.all {
		if seg.id == id {
			return seg
		}
	}
	return nil
}

// all gives the segments in no order.
func (s *segments) all(yield func(*segment) bool) {
	for _, seg := range s.byHandle {
		if seg != nil && !yield(seg) {
			return
		}
	}
}

// depend notes that on has a record about a message whose data are, or lately were, in of. With
// changed it is a changed record.
func (s *segments) depend(of, on *segment, changed bool) {
	s.tick++
	s.dependOne(of, on, changed)
	for _, to := range of.movedTo {
		s.dependOne(to, on, changed)
	}
}

func (s *segments) dependOne(of, on *segment, changed bool) {
	if of == on || of.gone {
		return
	}
	d, ok := of.deps[on]
	if !ok {
		on.neededBy++
	}
	of.deps[on] = dependency{s.tick, d.changed || changed}
}

// buried drops the dependencies of a segment that were last added before a tick, now that a
// burial stands for them; all of them that are on v.
func (s *segments) buried(of, v *segment, before uint64) {
	for on, d := range of.deps {
		if d.tick < before && (!d.changed || on == v) {
			s.release(of, on)
		}
	}
}

func (s *segments) release(of, on *segment) {
	delete(of.deps, on)
	on.neededBy--
}

// remove forgets a segment whose file is durably gone.
func (s *segments) remove(seg *segment) {
	for on := range seg.deps {
		s.release(seg, on)
	}
	s.byHandle[seg.handle] = nil
	s.free = append(s.free, seg.handle)
}

// needless reports whether nothing would be lost with the segment's file.
func (seg *segment) needless() bool {
	return seg.sealed && !seg.gone && !seg.unread && seg.messages == 0 && seg.notes == 0 && seg.keys == 0 && seg.neededBy == 0
}

// addSegment makes a segment the active one.
func (q *Queue) addSegment(seg *segment) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.segs.add(seg) {
		return fmt.Errorf("%w: %d journal segments are in use, and that is as many as there can be", ErrStorage, schedule.MaxSegments-1)
	}
	return nil
}

// opening returns where the segments end that are not trimmed yet. Every new segment says so of all
// of them, so that the newest, which is never deleted, can be relied on for it.
func (q *Queue) opening(now time.Time) store.Opening {
	q.mu.Lock()
	defer q.mu.Unlock()
	o := store.Opening{Created: now, Marks: slices.Clone(q.s.Arrivals.Marks), LastID: uint64(q.ids.Next(now)), Allocated: q.cfg.SegmentSize}
	if left := q.clock.doubtful(time.Now()); left > 0 {
		o.Doubted, o.Ahead = now.Add(left), q.clock.ahead
	}
	for s := range q.segs.all {
		if s.sealed && !s.trimmed {
			o.Ends = append(o.Ends, store.SegmentEnd{Number: s.id.Number, End: s.size})
		}
	}
	return o
}

// sealSegment hands a segment to the janitor.
func (q *Queue) sealSegment(seg *segment) {
	q.mu.Lock()
	seg.sealed = true
	q.mu.Unlock()
	q.nudge(q.kick.janitor)
}

// noBound is the bound of a segment that was begun since Open: all that its keys name is there.
const noBound = math.MaxUint64
