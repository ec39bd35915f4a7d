package store

import (
	"math"
	"time"

	"example.org/mta/queue/schedule"
)

// Segment is what is known of a segment file. All but id and handle is guarded by the
// queue's mutex.
type Segment struct {
	ID     SegmentID
	Handle uint32 // what a schedule.Loc calls it

	Size     int64  // octets that are to be trusted; what is written so far of the active one
	Live     int64  // octets of size that living recipients and keys need, by the estimate of SizeClass
	Messages int    // with living recipients, whose data are here
	Notes    int    // living recipients whose last reply is here
	Keys     int    // of requests, whose latest record is here
	MaxID    uint64 // the largest id in it, for keyed.bind; noBound when it was begun since Open

	Sealed  bool      // nothing more is written to it
	Trimmed bool      // nothing is behind size; until then the next segment says where it ends
	Indexed bool      // the index file is there, or damage forbids one
	Damaged bool      // is set aside and not deleted when nothing in it is needed any more
	Unread  bool      // not all of it could be read: it stays, since a later start may read more
	Stuck   bool      // has messages that can't be read, so that compaction can't empty it
	Emptied bool      // by compaction, and waits to be deleted
	Dropped bool      // a record says that its file may be gone
	Gone    bool      // its file is being deleted
	Rest    time.Time // when the janitor tries again what failed

	// Deps are the segments that must stay until this one's file is durably gone, since they have records that
	// settle, move or change messages whose data are here. Nil: it is.
	Deps     map[*Segment]dependency
	NeededBy int        // how many segments have this one in deps
	MovedTo  []*Segment // where compaction carried its messages
}

// dependency is why a segment needs another.
type dependency struct {
	tick    uint64 // when it was last added
	changed bool   // for a changed record, that a burial does not stand for
}

// NoteOctets is what a deferred record is reckoned at.
const NoteOctets = 160

// Segments is the segment files by handle. It is guarded by the queue's mutex.
type Segments struct {
	ByHandle []*Segment // 0 is none
	free     []uint32
	Tick     uint64 // counts dependencies
}

// Add gives a segment a handle. It reports false when there is none left.
func (s *Segments) Add(seg *Segment) bool {
	if len(s.ByHandle) == 0 {
		s.ByHandle = append(s.ByHandle, nil)
	}
	seg.Deps = map[*Segment]dependency{}
	if n := len(s.free); n > 0 {
		seg.Handle, s.free = s.free[n-1], s.free[:n-1]
		s.ByHandle[seg.Handle] = seg
		return true
	}
	if len(s.ByHandle) >= schedule.MaxSegments {
		return false
	}
	seg.Handle = uint32(len(s.ByHandle))
	s.ByHandle = append(s.ByHandle, seg)
	return true
}

// Of is the segment that a Loc is in.
func (s *Segments) Of(l schedule.Loc) *Segment { return s.ByHandle[l.Segment()] }

// ByID is nil where the segment is gone.
func (s *Segments) ByID(id SegmentID) *Segment {
	for seg := range s.All {
		if seg.ID == id {
			return seg
		}
	}
	return nil
}

// All gives the segments in no order.
func (s *Segments) All(yield func(*Segment) bool) {
	for _, seg := range s.ByHandle {
		if seg != nil && !yield(seg) {
			return
		}
	}
}

// Depend notes that on has a record about a message whose data are, or lately were, in of. With
// changed it is a changed record.
func (s *Segments) Depend(of, on *Segment, changed bool) {
	s.Tick++
	s.dependOne(of, on, changed)
	for _, to := range of.MovedTo {
		s.dependOne(to, on, changed)
	}
}

func (s *Segments) dependOne(of, on *Segment, changed bool) {
	if of == on || of.Deps == nil { // removed; one that is only Gone stays if its file can't be deleted
		return
	}
	d, ok := of.Deps[on]
	if !ok {
		on.NeededBy++
	}
	of.Deps[on] = dependency{s.Tick, d.changed || changed}
}

// Buried drops the dependencies of a segment that were last added before a tick, now that a
// burial stands for them; all of them that are on v.
func (s *Segments) Buried(of, v *Segment, before uint64) {
	for on, d := range of.Deps {
		if d.tick < before && (!d.changed || on == v) {
			s.release(of, on)
		}
	}
}

func (s *Segments) release(of, on *Segment) {
	delete(of.Deps, on)
	on.NeededBy--
}

// Remove forgets a segment whose file is durably gone.
func (s *Segments) Remove(seg *Segment) {
	for on := range seg.Deps {
		s.release(seg, on)
	}
	seg.Deps = nil
	s.ByHandle[seg.Handle] = nil
	s.free = append(s.free, seg.Handle)
}

// Share is how much of a segment is living.
func (seg *Segment) Share() float64 { return float64(seg.Live) / float64(max(seg.Size, 1)) }

// Needless reports whether nothing would be lost with the segment's file.
func (seg *Segment) Needless() bool {
	return seg.Sealed && !seg.Gone && !seg.Unread && seg.Messages == 0 && seg.Notes == 0 && seg.Keys == 0 &&
		seg.NeededBy == 0
}

// NoBound is the bound of a segment that was begun since Open: all that its keys name is there.
const NoBound = math.MaxUint64
