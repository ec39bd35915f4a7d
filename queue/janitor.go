package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
)

// The janitor is called when a segment is sealed or needless; tendAgain is when it tries again
// what it could not do, tendIdle when it looks whether a segment has become mostly dead.
const tendAgain, tendIdle = time.Second, 5 * time.Second

// runJanitor looks after the segments that nothing is written to any more.
func (q *Queue) runJanitor(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-q.kick.janitor:
		}
		if q.tend(ctx) {
			timer.Reset(tendAgain)
		} else {
			timer.Reset(tendIdle)
		}
	}
}

// tend does what there is to do, and reports whether something is left.
func (q *Queue) tend(ctx context.Context) (again bool) {
	q.failures.Look()
	q.loseSnapshots()
	q.dropLarge()
	q.forgetExpired()
	again = q.finishSealed()
	for q.dropNeedless() {
	}
	if q.activeIsNearlyFull() {
		q.w.makeSpare()
	}
	for ctx.Err() == nil {
		v := q.victim()
		if v == nil {
			if !again {
				q.failures.Compacting.Well()
			}
			return again
		}
		if err := q.compact(ctx, v); err != nil {
			if ctx.Err() == nil {
				q.failures.Compacting.Failed(store.FailureClass(err), "file", q.dir.SegmentPath(v.ID), "error", err)
				q.letRest(v)
			}
			again = true
			continue
		}
		q.failures.Compacting.Well()
		again = q.finishSealed() || again
		for q.dropNeedless() {
		}
	}
	return true
}

func (q *Queue) activeIsNearlyFull() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for seg := range q.segs.All {
		if !seg.Sealed {
			return seg.Size > q.cfg.SegmentSize*7/8
		}
	}
	return false
}

// dropLarge removes the files of contents whose messages are, durably, settled.
func (q *Queue) dropLarge() {
	q.mu.Lock()
	var numbers []uint64
	if len(q.files.snapshots) == 0 {
		numbers, q.files.done = q.files.done, nil
	}
	q.mu.Unlock()
	for _, n := range numbers {
		name := q.dir.LargePath(n)
		size := q.dir.SizeOf(name)
		if err := q.dir.FS.Remove(name); err != nil && !store.IsNotExist(err) {
			q.log.Warn("queue: removing the file of a content that is no longer needed; the next start tries again",
				"file", name, "error", err)
		}
		q.mu.Lock()
		q.count.largeOctets -= size
		q.mu.Unlock()
	}
}

// finishSealed gives sealed segments their index and cuts off what is behind their end. It
// reports whether something is left to be done.
func (q *Queue) finishSealed() (again bool) {
	now := q.now()
	q.mu.Lock()
	var todo []*store.Segment
	for seg := range q.segs.All {
		if !seg.Sealed || seg.Gone || seg.Trimmed && (seg.Indexed || seg.Needless()) {
			continue
		}
		if now.Before(seg.Rest) {
			again = true
		} else {
			todo = append(todo, seg)
		}
	}
	q.mu.Unlock()
	for _, seg := range todo {
		if err := q.finishSegment(seg); err != nil {
			q.failures.Finishing.Failed(store.FailureClass(err), "file", q.dir.SegmentPath(seg.ID), "after",
				restAfterFailure, "error", err)
			q.letRest(seg)
			again = true
		}
	}
	if !again {
		q.failures.Finishing.Well()
	}
	return again
}

// restAfterFailure is how long the janitor leaves a segment alone after something failed with it.
const restAfterFailure = 30 * time.Second

func (q *Queue) letRest(seg *store.Segment) {
	q.mu.Lock()
	defer q.mu.Unlock()
	seg.Rest = q.now().Add(restAfterFailure)
}

func (q *Queue) finishSegment(seg *store.Segment) error {
	if !seg.Trimmed { // only this goroutine changes it
		if err := q.dir.Trim(seg.ID, seg.Size); err != nil {
			return err
		}
		q.mu.Lock()
		seg.Trimmed = true
		q.mu.Unlock()
	}
	q.mu.Lock()
	skip := seg.Indexed || seg.Needless()
	q.mu.Unlock()
	if skip {
		return nil
	}
	ix, _, err := store.ScanIndex(q.dir.FS, q.dir.SegmentPath(seg.ID), seg.ID, seg.Size)
	if err != nil {
		return err
	}
	if ix.Unread() { // the disk may be in a better mood later
		return fmt.Errorf("not all of it could be read: %s", ix.Damaged[0])
	}
	if len(ix.Damaged) == 0 {
		if err := ix.Write(q.dir.FS, q.dir.IndexPath(seg.ID)); err != nil {
			return err
		}
	}
	q.scanned(seg, ix.Damaged)
	return nil
}

// scanned reports the damage of a segment that was read from end to end.
func (q *Queue) scanned(seg *store.Segment, damaged []store.Damage) {
	q.dir.ReportDamage(seg.ID, damaged, q.reportDamage)
	q.mu.Lock()
	seg.Indexed = true // a damaged one has no file with an index
	seg.Damaged = seg.Damaged || len(damaged) > 0
	q.mu.Unlock()
}

// dropNeedless deletes the segments that nothing needs any more, and reports whether there were
// any: others may be needless then. What needed them is forgotten only when they are durably
// gone; until then a power cut can bring them back, and what they need must be there too.
func (q *Queue) dropNeedless() bool {
	if !q.writeDropped() {
		return false
	}
	// What made them needless is to be durable first, and that they are dropped: a recipient that comes back after a
	// crash, since its outcome was not written yet, is to have its attempts, and no segment is to be missed. A full
	// disk needs the room.
	err := q.w.flush()
	full := errors.Is(err, ErrDiskFull)
	if err != nil && !full {
		return false
	}
	list := q.takeDropped()
	if err = nil; full {
		for _, seg := range list {
			err = errors.Join(err, q.dir.Trim(seg.ID, 0)) // its name stays until a record says that it may go
		}
	} else {
		for _, seg := range list {
			if err = q.removeFiles(seg); err != nil {
				break
			}
		}
		if err == nil {
			err = q.dir.FS.SyncDir(q.cfg.Dir)
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, seg := range list {
		if err != nil || full {
			seg.Gone = false
			if err == nil {
				seg.Size = store.Void
			}
			continue
		}
		q.segs.Remove(seg)
	}
	if err != nil {
		q.failures.Deleting.Failed(store.FailureClass(err), "error", err)
	} else {
		q.failures.Deleting.Well()
	}
	return err == nil && !full
}

// writeDropped has it written that the needless segments are dropped, and reports whether there are any. The newest
// stays: it says where those before it end, and which there are.
func (q *Queue) writeDropped() (any bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	newest := uint32(0)
	for seg := range q.segs.All {
		if seg.Size > 0 {
			newest = max(newest, seg.ID.Number)
		}
	}
	for seg := range q.segs.All {
		if !seg.Needless() || seg.Size > 0 && seg.ID.Number == newest || len(q.files.snapshots) > 0 {
			continue
		}
		if any = true; !seg.Dropped && seg.Size > 0 {
			seg.Dropped = true
			q.w.note(store.KindBuried, 0, nil, 0, func(b []byte) []byte {
				return store.AppendBurial(b, q.form(), store.Dropped(seg.ID.Number))
			})
		}
	}
	return any
}

// takeDropped returns the dropped segments, whose files go now.
func (q *Queue) takeDropped() (list []*store.Segment) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for seg := range q.segs.All {
		if seg.Needless() && (seg.Dropped || seg.Size == 0) && len(q.files.snapshots) == 0 {
			seg.Gone = true
			list = append(list, seg)
		}
	}
	return list
}

// removeFiles deletes the files of a segment. One with damage is set aside for the operator.
func (q *Queue) removeFiles(seg *store.Segment) error {
	idle := q.dir.Files.Drop(seg.ID)
	name := q.dir.SegmentPath(seg.ID)
	var err error
	switch {
	case idle && !seg.Damaged && q.w.recycle(name, seg.Size):
	case seg.Damaged:
		aside := q.dir.Path(store.DamagedDir, store.SegmentBase(seg.ID)+store.SegmentSuffix)
		if err = q.dir.FS.Rename(name, aside); err == nil {
			err = q.dir.FS.SyncDir(q.dir.Path(store.DamagedDir))
		}
		if err == nil {
			q.mu.Lock()
			q.count.damagedFiles++
			q.mu.Unlock()
			q.log.Warn("queue: a damaged journal segment is no longer needed and was set aside; delete it when you "+
				"have looked at it", "file", aside)
		}
	default:
		err = q.dir.FS.Remove(name)
	}
	if err != nil && !store.IsNotExist(err) {
		return err
	}
	if err := q.dir.FS.Remove(q.dir.IndexPath(seg.ID)); err != nil && !store.IsNotExist(err) {
		return err
	}
	return nil
}

// addSegment makes a segment the active one.
func (q *Queue) addSegment(seg *store.Segment) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.segs.Add(seg) {
		return fmt.Errorf("%w: %d journal segments are in use, and that is as many as there can be", ErrStorage,
			schedule.MaxSegments-1)
	}
	return nil
}

// opening returns where the segments end that are not trimmed yet. Every new segment says so of all
// of them, so that the newest, which is never deleted, can be relied on for it.
func (q *Queue) opening(now time.Time) store.Opening {
	q.mu.Lock()
	defer q.mu.Unlock()
	o := store.Opening{Created: now, Marks: slices.Clone(q.s.Arrivals.Marks), LastID: uint64(q.ids.Next(now)),
		Allocated: q.cfg.SegmentSize}
	if left := q.clock.doubtful(time.Now()); left > 0 {
		o.Doubted, o.Ahead = now.Add(left), q.clock.ahead
	}
	var numbers []uint32
	for s := range q.segs.All {
		if s.Sealed && !s.Trimmed {
			o.Ends = append(o.Ends, store.SegmentEnd{Number: s.ID.Number, End: s.Size})
		}
		if !s.Sealed || s.Size > 0 && !s.Dropped {
			numbers = append(numbers, s.ID.Number)
		}
	}
	slices.Sort(numbers)
	for i, n := range numbers {
		if i == 0 || n != numbers[i-1]+1 {
			o.Numbers = append(o.Numbers, store.Numbers{From: n})
		}
		o.Numbers[len(o.Numbers)-1].To = n
	}
	return o
}

// sealSegment hands a segment to the janitor.
func (q *Queue) sealSegment(seg *store.Segment) {
	q.mu.Lock()
	seg.Sealed = true
	q.mu.Unlock()
	q.nudge(q.kick.janitor)
}
