package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
)

// Compaction makes a sealed segment needless, so that it is deleted: it moves the living
// messages to the active segment, writes the last replies there again, and does away with what
// other segments need of this one, which are the records that settle their messages. All of
// that is ordinary records through the ordinary writer; the files change only by being deleted
// whole, after all this is durable. So a crash at any moment finds every message in one place at
// least, and the later place counts.

const (
	// compactStep is how much is moved before others get their turn, in octets.
	compactStep = 256 << 10
	// compactRest bounds the pause after a step.
	compactRest = 50 * time.Millisecond
)

// maxSmall is how many segments may be smaller than a quarter of their size: each restart leaves
// one.
const maxSmall = 8

// victim is the segment to be compacted next; nil while the disk is used well enough: sealed
// segments take less than one and a half times what is living, and a quarter of a segment, and
// few are small.
func (q *Queue) victim() *store.Segment {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.health.stalled != nil || len(q.files.snapshots) > 0 {
		return nil
	}
	var size, live int64
	var worst, smallest *store.Segment
	small, now := 0, q.now()
	for seg := range q.segs.All {
		if !seg.Sealed || seg.Gone || seg.Stuck || seg.Unread || seg.Emptied || now.Before(seg.Rest) {
			continue
		}
		size += seg.Size
		live += seg.Live
		if worst == nil || seg.Share() < worst.Share() ||
			seg.Share() == worst.Share() && seg.ID.Number < worst.ID.Number {
			worst = seg
		}
		if seg.Size < q.cfg.SegmentSize/4 {
			small++
			if smallest == nil || seg.Size < smallest.Size {
				smallest = seg
			}
		}
	}
	switch {
	case size > live+live/2+q.cfg.SegmentSize/4:
		return worst
	case small > maxSmall:
		return smallest
	}
	return nil
}

// compaction is one segment being emptied.
type compaction struct {
	q     *Queue
	ctx   context.Context
	v     *store.Segment
	moved int64 // octets since the last pause
	last  store.ReplyReader
}

// compact empties a segment of all that is needed.
func (q *Queue) compact(ctx context.Context, v *store.Segment) error {
	c := &compaction{q: q, ctx: ctx, v: v, last: store.ReplyReader{Dir: q.dir}}
	q.mu.Lock()
	start := q.segs.Tick + 1
	var dependents []*store.Segment
	for seg := range q.segs.All {
		if _, ok := seg.Deps[v]; ok && !seg.Gone {
			dependents = append(dependents, seg)
		}
	}
	q.mu.Unlock()
	if err := c.carry(); err != nil {
		return err
	}
	for _, of := range dependents {
		if err := c.bury(of); err != nil {
			return err
		}
	}
	if err := q.w.flush(); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count.Compacted++
	for _, of := range dependents {
		q.segs.Buried(of, v, start)
	}
	q.loseKeys(v)
	if v.Messages == 0 && v.Notes == 0 && v.Keys == 0 && v.NeededBy == 0 {
		v.Emptied = true
	} else if !v.Stuck {
		v.Stuck = true
		q.log.Error("queue: BUG: compaction did not empty a segment; it stays", "file", q.dir.SegmentPath(v.ID),
			"messages", v.Messages, "replies", v.Notes, "keys", v.Keys, "needed by", v.NeededBy)
	}
	return nil
}

// indexOf reads the index of a segment, or makes it.
func (q *Queue) indexOf(seg *store.Segment) (*store.Run, error) {
	r, err := store.OpenIndex(q.dir.FS, q.dir.IndexPath(seg.ID), seg.ID)
	if err == nil {
		return r, nil
	}
	ix, _, err := store.ScanIndex(q.dir.FS, q.dir.SegmentPath(seg.ID), seg.ID, seg.Size)
	if err != nil {
		return nil, err
	}
	return ix.Run(), nil
}

// carry moves the living messages, the last replies and the keys that lie in the segment.
func (c *compaction) carry() error {
	r, err := c.q.indexOf(c.v)
	if err != nil {
		return err
	}
	defer r.Close()
	if !c.v.Indexed && len(r.Damaged) > 0 && !r.Unread() { // it was sealed after the janitor had looked
		c.q.scanned(c.v, r.Damaged)
	}
	if err := c.carryKeys(r); err != nil {
		return err
	}
	var it store.Item
	for {
		ok, err := r.Read(&it, store.ReplayMemory/64)
		if err != nil {
			return err
		}
		if !ok {
			return nil
		}
		switch it.Kind {
		case store.ItemAccepted, store.ItemMoved:
			err = c.moveMessage(&it)
		case store.ItemDeferred, store.ItemState:
			err = c.carryReply(&it)
		case store.ItemChanged:
			c.carryMarks(&it)
		}
		if err == nil {
			err = c.pace()
		}
		if err != nil {
			return err
		}
	}
}

// pace makes durable what was moved, from time to time, and leaves the disk to others.
func (c *compaction) pace() error {
	if c.moved < compactStep {
		return c.ctx.Err()
	}
	c.moved = 0
	began := time.Now()
	if err := c.q.w.flush(); err != nil {
		return err
	}
	rest := time.NewTimer(min(2*time.Since(began), compactRest))
	defer rest.Stop()
	select {
	case <-c.ctx.Done():
		return c.ctx.Err()
	case <-rest.C:
		return nil
	}
}

// moving is a living recipient as it was when its message was read.
type moving struct {
	rcpt, attempts uint16
	note           schedule.Loc
	place          store.Place // of note
	last           Attempt
	lost           bool // last can't be read
}

// moveMessage writes a living message again, with the states of its recipients.
func (c *compaction) moveMessage(it *store.Item) error {
	loc := schedule.LocOf(c.v.Handle, it.Offset())
	for {
		rcpts := c.living(it.ID, loc)
		if len(rcpts) == 0 {
			return nil
		}
		p := store.Place{ID: c.v.ID, Off: it.Offset(), Size: schedule.Octets(it.Size)}
		rec, err := c.q.dir.ReadRecord(p)
		var body store.Content
		if err == nil {
			body, err = store.ParseContent(rec.Payload)
		}
		if err != nil {
			return c.leave(err)
		}
		if err := c.readReplies(rcpts); err != nil {
			return err
		}
		if c.noteMove(it.ID, loc, &body, rcpts) {
			c.moved += store.RecordSize(len(rec.Payload))
			return nil
		}
	}
}

// leave gives up emptying the segment because of damage in it; what is sound has been moved or
// will be.
func (c *compaction) leave(err error) error {
	c.q.reportDamage(err, "a message in a journal segment can't be moved; the segment stays")
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	c.v.Stuck, c.v.Damaged = true, true
	return nil
}

// living gives the living recipients of a message whose data are at loc.
func (c *compaction) living(id uint64, loc schedule.Loc) []moving {
	q := c.q
	q.mu.Lock()
	defer q.mu.Unlock()
	var list []moving
	q.s.Run(id, func(_ schedule.Slot, e *schedule.Entry) bool {
		if e.Data() == loc {
			m := moving{rcpt: e.Rcpt, attempts: e.Attempts(), note: e.Note()}
			if m.note != 0 {
				m.place = q.placeOf(m.note, store.NoteGuess)
			}
			list = append(list, m)
		}
		return true
	})
	return list
}

func (c *compaction) readReplies(rcpts []moving) error {
	for i := range rcpts {
		m := &rcpts[i]
		if m.note == 0 {
			continue
		}
		r, err := c.last.Read(m.place, m.rcpt)
		if errors.Is(err, ErrDamaged) {
			c.q.reportDamage(err, "the reply to the last attempt is lost; the message is not")
			m.lost = true
			continue
		}
		if err != nil && !errors.Is(err, store.ErrGone) {
			return err
		}
		m.last = r
	}
	return nil
}

// noteMove has a message written again as it is at this instant. It reports false when that has
// changed since it was read.
func (c *compaction) noteMove(id uint64, loc schedule.Loc, body *store.Content, rcpts []moving) bool {
	q := c.q
	q.mu.Lock()
	defer q.mu.Unlock()
	states := make([]store.RecipientState, 0, len(rcpts))
	for i := range rcpts {
		m := &rcpts[i]
		_, e := q.s.Find(id, m.rcpt)
		if e == nil {
			continue // settled meanwhile
		}
		if e.Data() != loc {
			return false
		}
		st := store.RecipientState{Rcpt: m.rcpt, Attempts: e.Attempts(), Due: e.Due, Marks: marksOf(e),
			Key: q.s.Keys.Line(e.Key).Text()}
		if r, ok := q.rcpts.replies[recipientKey{id, m.rcpt}]; ok {
			st.Replied, st.Last = true, r
		} else if e.Attempts() != m.attempts || e.Note() != m.note {
			return false
		} else if m.note != 0 && !m.lost {
			st.Replied, st.Last = true, m.last
		}
		states = append(states, st)
	}
	if len(states) == 0 {
		return true
	}
	if p, moved := q.few.moves[id]; moved {
		body = body.Released(q.form(), p)
	}
	q.w.note(store.KindMoved, id, c.v, 0, func(b []byte) []byte {
		return store.AppendMoved(b, q.form(), id, body, q.passed(), states)
	})
	return true
}

// moveWritten enters in the schedule that a message has a new place.
func (q *Queue) moveWritten(seg *store.Segment, n *note, loc schedule.Loc) {
	c, err := store.ParseContent(n.payload)
	var states []store.RecipientState
	if err == nil {
		_, states, err = store.DecodeStates(c.States)
	}
	if err != nil {
		panic("queue: a moved record of our own making: " + err.Error())
	}
	size, old, moved := schedule.SizeClass(store.RecordSize(len(n.payload))), uint8(0), false
	for i := range states {
		st := &states[i]
		_, e := q.s.Find(n.id, st.Rcpt)
		if e == nil || q.segs.Of(e.Data()) != n.of {
			continue
		}
		old, moved = e.Size, true
		e.SetData(loc)
		e.Size = size
		if st.Replied && e.Attempts() == st.Attempts && !q.replied(recipientKey{n.id, st.Rcpt}, &st.Last) {
			q.setNote(e, loc)
			delete(q.rcpts.replies, recipientKey{n.id, st.Rcpt})
		}
	}
	if !slices.Contains(n.of.MovedTo, seg) {
		n.of.MovedTo = append(n.of.MovedTo, seg)
	}
	if moved {
		n.of.Messages--
		n.of.Live -= schedule.Octets(old)
		seg.Messages++
		seg.Live += schedule.Octets(size)
	}
}

// carryReply writes a last reply again that lies in the segment, for recipients whose message
// lies elsewhere.
func (c *compaction) carryReply(it *store.Item) error {
	q := c.q
	loc := schedule.LocOf(c.v.Handle, it.Offset())
	q.mu.Lock()
	_, e := q.s.Find(it.ID, it.Rcpt)
	needed := e != nil && e.Note() == loc && q.segs.Of(e.Data()) != c.v
	q.mu.Unlock()
	if !needed {
		return nil
	}
	r, err := c.last.Read(store.Place{ID: c.v.ID, Off: it.Offset(), Size: store.NoteGuess}, it.Rcpt)
	lost := errors.Is(err, ErrDamaged)
	if lost {
		q.reportDamage(err, "the reply to the last attempt is lost; the message is not")
	} else if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	_, e = q.s.Find(it.ID, it.Rcpt)
	if e == nil || e.Note() != loc {
		return nil
	}
	if _, newer := q.rcpts.replies[recipientKey{it.ID, it.Rcpt}]; newer {
		return nil // and on its way to the journal
	}
	if lost {
		q.setNote(e, 0)
		c.v.Damaged = true
		return nil
	}
	f := store.Deferral{At: q.passed(), Due: e.Due, Key: q.s.Keys.Line(e.Key).Text(), Last: r, Rcpts: []uint16{e.Rcpt},
		Attempts: []uint16{e.Attempts()}}
	q.w.note(store.KindDeferred, it.ID, q.segs.Of(e.Data()), 0, func(b []byte) []byte {
		return store.AppendDeferral(b, q.form(), &f)
	})
	c.moved += store.NoteOctets
	return nil
}

// carryMarks writes the marks of a recipient again that were changed by a record in the segment.
// Marks that are none matter too: an older record, elsewhere, can have set some.
func (c *compaction) carryMarks(it *store.Item) {
	q := c.q
	q.mu.Lock()
	defer q.mu.Unlock()
	_, e := q.s.Find(it.ID, it.Rcpt)
	if e == nil || q.segs.Of(e.Data()) == c.v {
		return
	}
	q.noteChange(it.ID, q.segs.Of(e.Data()),
		store.Change{Due: e.Due, Marks: marksOf(e), Rcpts: []uint16{it.Rcpt}, Release: q.few.moves[it.ID].Release})
	c.moved += store.NoteOctets
}

// bury writes down which messages of another segment are settled, so that the records that say
// so one by one are needed no longer.
func (c *compaction) bury(of *store.Segment) error {
	r, err := c.q.indexOf(of)
	if err != nil {
		return err
	}
	defer r.Close()
	// What an index lacks would be buried alive, and so would what the start could not read.
	c.q.mu.Lock()
	damaged := of.Damaged || len(r.Damaged) > 0
	c.q.mu.Unlock()
	if damaged {
		return fmt.Errorf("it says what is settled in %s, and that is damaged", c.q.dir.SegmentPath(of.ID))
	}
	var data []store.Item
	for {
		var it store.Item
		ok, err := r.Read(&it, store.ReplayMemory/64)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if it.Kind == store.ItemAccepted || it.Kind == store.ItemMoved {
			data = append(data, it)
		}
	}
	slices.SortFunc(data, func(a, b store.Item) int { return cmp.Compare(a.Off, b.Off) })
	g := store.Burial{Segment: of.ID.Number}
	joined := false // the last stretch ends with the message before
	for len(data) > 0 {
		n := min(len(data), atOnce/4)
		joined = c.buryPart(of, data[:n], &g, joined)
		data = data[n:]
	}
	if len(g.Stretches) > 0 {
		c.q.mu.Lock()
		c.q.w.note(store.KindBuried, 0, of, 0, func(b []byte) []byte { return store.AppendBurial(b, c.q.form(), &g) })
		c.q.mu.Unlock()
	}
	return nil
}

// buryPart looks at some messages and adds those that are settled to the burial. A stretch that
// ends with the message before grows, if joined says so.
func (c *compaction) buryPart(of *store.Segment, data []store.Item, g *store.Burial, joined bool) bool {
	q := c.q
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range data {
		it := &data[i]
		if living := c.restate(of, it); living {
			joined = false
			continue
		}
		if n := len(g.Stretches); joined {
			g.Stretches[n-1].To = it.Offset() + store.Align
		} else {
			g.Stretches = append(g.Stretches, store.Stretch{From: it.Offset(), To: it.Offset() + store.Align})
		}
		joined = true
	}
	return joined
}

// restate writes down, of a message that lives, which recipients do not. It reports false when the message does not
// live, or not at this place.
func (c *compaction) restate(of *store.Segment, it *store.Item) bool {
	q := c.q
	loc := schedule.LocOf(of.Handle, it.Offset())
	living := make(map[uint16]bool)
	q.s.Run(it.ID, func(_ schedule.Slot, e *schedule.Entry) bool {
		if e.Data() != loc {
			return false
		}
		living[e.Rcpt] = true
		return true
	})
	if len(living) == 0 {
		return false
	}
	var settled []uint16
	for r := range it.Rcpt {
		if !living[r] {
			settled = append(settled, r)
		}
	}
	if len(settled) > 0 {
		q.w.note(store.KindSettled, it.ID, of, 0, func(b []byte) []byte {
			return store.AppendSettled(b, q.form(), uint8(Delivered), settled)
		})
	}
	return true
}
