package queue

import (
	"fmt"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
)

// Outcome is how it ended for a recipient.
type Outcome uint8

const (
	Delivered Outcome = 1 // a remote host took the message
	Bounced   Outcome = 2 // it can't be delivered, and that was reported
	Removed   Outcome = 4 // an operator removed it
)

var outcomes = []string{Delivered: "delivered", Bounced: "bounced", Expired: "expired", Removed: "removed"}

// String gives the word for a log.
func (o Outcome) String() string { return schedule.Word(outcomes, uint8(o)) }

// Settle ends leased recipients for good. It is written with the next group and synced within
// noteDelay and the time of a sync; it does not wait for that. ErrClosed says that it came too
// late, ErrUnknown that some were not leased, or were named twice; the others are settled all the
// same.
func (q *Queue) Settle(id envelope.ID, recipients []int, o Outcome) error {
	if o < Delivered || o > Removed {
		return fmt.Errorf("queue: %d is not a valid outcome (want %d to %d)", o, Delivered, Removed)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return ErrClosed
	}
	var room [8]uint16
	rcpts := room[:0]
	for _, r := range recipients {
		if _, e := q.find(id, r); e != nil && e.State() == schedule.Leased {
			rcpts = append(rcpts, e.Rcpt)
		}
	}
	rcpts = sorted(rcpts)
	if h := q.cache.hot[uint64(id)]; h != nil {
		h.leases -= len(rcpts)
	}
	q.settle(uint64(id), rcpts, o)
	q.cache.evict(uint64(id))
	q.s.Tidy()
	if len(rcpts) < len(recipients) {
		return fmt.Errorf("message %s: %d of %d recipients: %w", id, len(recipients)-len(rcpts),
			len(recipients), ErrUnknown)
	}
	return nil
}

// settle ends recipients, living and as sorted gives them, in any state, and has it written down.
func (q *Queue) settle(id uint64, rcpts []uint16, o Outcome) {
	if len(rcpts) == 0 {
		return
	}
	var data schedule.Loc
	var size uint8
	moved := int64(0)
	for _, r := range rcpts {
		s, e := q.s.Find(id, r)
		if o == Removed && (e.Action() == schedule.Transfer || e.Action().Leaves()) {
			moved++
		}
		data, size = e.Data(), e.Size
		q.setNote(e, 0)
		q.unlist(s, e)
		q.s.Keys.Release(e)
		q.forgetDetour(e)
		q.s.Free(s)
		delete(q.rcpts.replies, recipientKey{id, r})
		q.noteEnd(recipientKey{id, r}, o)
	}
	q.count.settle(o, int64(len(rcpts))-moved)
	q.count.Transferred += moved
	seg := q.segs.Of(data)
	large := uint64(0)
	if q.livingAfter(id, len(rcpts)) == 0 {
		q.cache.evict(id)
		large = q.messageDone(id, seg, size)
	}
	q.w.note(store.KindSettled, id, seg, large, func(b []byte) []byte {
		return store.AppendSettled(b, q.form(), uint8(o), rcpts)
	})
}

// livingAfter is how many recipients of a message are left after n have been freed.
func (q *Queue) livingAfter(id uint64, n int) int {
	if h := q.cache.hot[id]; h != nil {
		h.living -= n
		return h.living
	}
	living := 0
	q.s.Run(id, func(schedule.Slot, *schedule.Entry) bool { living++; return false })
	return living
}

// messageDone takes a message without living recipients off its segment's account. It returns
// the number of the file that its content has to itself, or 0.
func (q *Queue) messageDone(id uint64, seg *store.Segment, size uint8) (large uint64) {
	seg.Messages--
	seg.Live -= schedule.Octets(size)
	q.s.Starts.Remove(id)
	q.few.expiries.Remove(id)
	delete(q.few.waits.until, id)
	delete(q.few.recalled.until, id)
	delete(q.few.moves, id)
	q.s.Tenants.Remove(id)
	delete(q.few.broken, id)
	if seg.Sealed && seg.Messages == 0 {
		q.nudge(q.kick.janitor)
	}
	if l, ok := q.few.large[id]; ok {
		delete(q.few.large, id)
		q.count.largeLive -= l.size
		return l.number
	}
	return 0
}

// setNote notes where a recipient's last reply is, and for which segments that matters.
func (q *Queue) setNote(e *schedule.Entry, l schedule.Loc) {
	if old := e.Note(); old != 0 {
		seg := q.segs.Of(old)
		seg.Notes--
		seg.Live -= store.NoteOctets
		if seg.Sealed && seg.Notes == 0 {
			q.nudge(q.kick.janitor)
		}
	}
	if l != 0 {
		seg := q.segs.Of(l)
		seg.Notes++
		seg.Live += store.NoteOctets
	}
	e.SetNote(l)
}

func (c *counters) settle(o Outcome, n int64) {
	*[...]*int64{Delivered: &c.Delivered, Bounced: &c.Bounced, Expired: &c.Expired, Removed: &c.Removed}[o] += n
}

// Defer makes leased recipients wait until a time, after an attempt that failed with last. key
// and the attempt's Reason say what they wait for. It is written as Settle's outcome is, and ErrUnknown means the same.
// What was leased as expired, or to be bounced, is handed out as that again when the time has come.
func (q *Queue) Defer(id envelope.ID, recipients []int, until time.Time, last Attempt, key parking.Key) error {
	q.mu.Lock()
	notify := func() {}
	defer func() { q.mu.Unlock(); notify() }()
	if q.ended {
		return ErrClosed
	}
	tried := !last.Untried
	line := parking.Line{Key: key, Reason: last.Reason}
	last.Untried, last.Reason = false, parking.Unclassed
	now := q.now()
	q.lookAtClock(now) // it may have been set for a moment only, in which until was reckoned
	f := store.Deferral{At: uint32(now.Unix()), Due: store.SecondsOf(q.clock.corrected(until, now)),
		Key: line.Text(), Last: last}
	rest := q.deferEntry
	if handedOut, broken := q.few.broken[uint64(id)]; broken && !handedOut {
		at := f.At
		rest = func(s schedule.Slot, e *schedule.Entry) { q.makeDue(s, e, at) } // to be reported
	}
	var seg *store.Segment
	var gone, hurried []uint16 // that an operator wants removed, or attempted at once
	for _, r := range recipients {
		s, e := q.find(id, r)
		if e == nil || e.State() != schedule.Leased {
			continue
		}
		seg = q.segs.Of(e.Data())
		if tried {
			e.SetAttempts(e.Attempts() + 1)
		}
		e.Due = f.Due
		f.Rcpts = append(f.Rcpts, e.Rcpt)
		q.rcpts.replies[recipientKey{e.ID, e.Rcpt}] = q.keepsDetour(e, last)
		q.setNote(e, 0) // the record of the attempt before is needless from now on, see dropNeedless
		q.s.Keys.Set(e, q.s.Keys.Number(line))
		if q.settleDown(s, e, rest) {
			gone = append(gone, e.Rcpt)
		}
		if e.State() == schedule.Due {
			hurried = append(hurried, e.Rcpt)
		}
	}
	known := len(f.Rcpts)
	if known > 0 {
		f.Rcpts = sorted(f.Rcpts)
		for _, r := range f.Rcpts {
			_, e := q.s.Find(uint64(id), r)
			f.Attempts = append(f.Attempts, e.Attempts())
		}
		q.noteDeferral(uint64(id), seg, f)
		if len(hurried) > 0 {
			q.noteMarks(uint64(id), hurried, store.Change{Due: q.seconds()})
		}
		gone = sorted(gone)
		notify = q.removal(uint64(id), gone)
		q.cache.endLease(uint64(id), known, len(hurried) > 0)
	}
	q.s.Tidy()
	if known < len(recipients) {
		return fmt.Errorf("message %s: %d of %d recipients: %w", id, len(recipients)-known, len(recipients), ErrUnknown)
	}
	return nil
}

// Hold has leased recipients held, as an operator's action does, unless an operator has asked for something else
// meanwhile. last is their last attempt from then on.
func (q *Queue) Hold(id envelope.ID, recipients []int, last Attempt) error {
	q.mu.Lock()
	var held []uint16
	for _, r := range recipients {
		if _, e := q.find(id, r); e != nil && e.State() == schedule.Leased && !e.Action().Asks() {
			e.SetAction(schedule.Hold)
			held = append(held, e.Rcpt)
		}
	}
	if len(held) > 0 && !q.ended {
		q.noteMarks(uint64(id), held, store.Change{}) // before the attempt: what has one is not held again
	}
	q.mu.Unlock()
	return q.Defer(id, recipients, q.now(), last, parking.Key{})
}

// noteDeferral has a deferral written down: a record for each detour that its recipients have, which is one nearly
// always.
func (q *Queue) noteDeferral(id uint64, seg *store.Segment, f store.Deferral) {
	for from, to := 0, 0; from < len(f.Rcpts); from = to {
		part := f
		part.Last = q.rcpts.replies[recipientKey{id, f.Rcpts[from]}]
		for to = from + 1; to < len(f.Rcpts) &&
			q.rcpts.replies[recipientKey{id, f.Rcpts[to]}].Detour == part.Last.Detour; to++ {
		}
		part.Rcpts, part.Attempts = f.Rcpts[from:to], f.Attempts[from:to]
		q.w.note(store.KindDeferred, id, seg, 0, func(b []byte) []byte {
			return store.AppendDeferral(b, q.form(), &part)
		})
	}
}

// deferEntry puts an entry that is on no list on the wheel.
func (q *Queue) deferEntry(s schedule.Slot, e *schedule.Entry) {
	q.s.SetState(s, schedule.Deferred)
	before, any := q.s.Wheel.Next()
	q.s.Wheel.Add(s)
	if after, _ := q.s.Wheel.Next(); !any || after < before {
		q.nudge(q.kick.clock)
	}
}

// Warned notes that the senders of recipients were notified of the delay, so that they are notified
// once. It is written as Settle's outcome is.
func (q *Queue) Warned(id envelope.ID, recipients []int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var warned []uint16
	for _, r := range recipients {
		if _, e := q.find(id, r); e != nil {
			e.SetWarning(false)
			e.SetWarned(true)
			warned = append(warned, e.Rcpt)
		}
	}
	q.noteMarks(uint64(id), warned, store.Change{})
}

// WarnLater notes that the senders of recipients could not be notified of the delay. Those that are still in
// the queue then, and have not expired, are handed out for that again at a time, or a sweep later. It is
// in memory only: after a restart they are handed out at once.
func (q *Queue) WarnLater(id envelope.ID, recipients []int, at time.Time) {
	q.warnAt(&q.ready.unsent, id, recipients, at, true)
}

// WarnAt is WarnLater for those whose senders are not to be notified before a time.
func (q *Queue) WarnAt(id envelope.ID, recipients []int, at time.Time) {
	q.warnAt(&q.ready.early, id, recipients, at, true)
}

// NotifyAt has those of some recipients handed out for a DelayWarning at a time whose senders were not notified, and
// are not about to be. Like WarnLater it is in memory only, and there is a limit: it can be repeated.
func (q *Queue) NotifyAt(id envelope.ID, recipients []int, at time.Time) {
	q.warnAt(&q.ready.early, id, recipients, at, false)
}

// warnAt is for recipients that were handed out for a DelayWarning, or for those that were not.
func (q *Queue) warnAt(list *[]warning, id envelope.ID, recipients []int, at time.Time, handed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := warning{id: uint64(id), from: store.SecondsOf(at)}
	for _, r := range recipients {
		if !handed && len(*list) >= maxEarly {
			break
		}
		if _, e := q.find(id, r); e != nil && e.Warning() == handed && !e.Warned() {
			e.SetWarning(true)
			w.rcpts = append(w.rcpts, e.Rcpt)
		}
	}
	if w.rcpts = sorted(w.rcpts); len(w.rcpts) > 0 {
		*list = append(*list, w)
	}
}

// noteMarks has a change of living recipients written down, with the marks that they have now.
func (q *Queue) noteMarks(id uint64, rcpts []uint16, c store.Change) {
	var seg *store.Segment
	byMarks := map[store.Marks][]uint16{}
	for _, r := range rcpts {
		_, e := q.s.Find(id, r)
		seg = q.segs.Of(e.Data())
		m := marksOf(e)
		byMarks[m] = append(byMarks[m], r)
	}
	for m, rcpts := range byMarks {
		c.Marks, c.Rcpts = m, sorted(rcpts)
		q.noteChange(id, seg, c)
	}
}

// noteChange has a change of recipients written down.
func (q *Queue) noteChange(id uint64, seg *store.Segment, c store.Change) {
	c.At = q.passed()
	q.w.note(store.KindChanged, id, seg, 0, func(b []byte) []byte { return store.AppendChange(b, q.form(), &c) })
}

// marksOf returns what must survive a restart of an entry, beside its times.
func marksOf(e *schedule.Entry) store.Marks {
	var m store.Marks
	if e.State() == schedule.Held || e.Action() == schedule.Hold || e.Action() == schedule.LeavingHeld {
		m |= store.MarkHeld
	}
	if e.Warned() {
		m |= store.MarkWarned
	}
	if e.Action() == schedule.Bounce || e.Action() == schedule.Bouncing {
		m |= store.MarkBounce
	}
	switch e.Action() {
	case schedule.Remove:
		m |= store.MarkRemove
	case schedule.Cancel:
		m |= store.MarkRemove | store.MarkCancel
	case schedule.Transfer:
		m |= store.MarkRemove | store.MarkTransfer
	}
	return m
}

// noteWritten enters a durable note in the accounts of the segments.
func (q *Queue) noteWritten(seg *store.Segment, n *note) {
	// which matter while they are the latest of a recipient or a key, and no longer
	if n.of != nil && n.kind != store.KindDeferred && n.kind != store.KindKeyed {
		q.segs.Depend(n.of, seg, n.kind == store.KindChanged)
	}
	loc := schedule.LocOf(seg.Handle, n.offset)
	switch n.kind {
	case store.KindDeferred:
		q.deferralWritten(n, loc)
	case store.KindMoved:
		q.count.Moved++
		q.moveWritten(seg, n, loc)
	case store.KindBuried:
		q.count.buried++
	case store.KindKeyed:
		q.keyNoteWritten(seg, n)
	}
	if n.large != 0 {
		q.files.done = append(q.files.done, n.large)
		q.nudge(q.kick.janitor)
	}
}

// replied reports whether another attempt than last is on its way to the journal: a reroute writes the last one again,
// with as many attempts as before.
func (q *Queue) replied(r recipientKey, last *Attempt) bool {
	newer, known := q.rcpts.replies[r]
	return known && newer != *last
}

// deferralWritten notes where the last reply to recipients lies, unless there is a newer one.
func (q *Queue) deferralWritten(n *note, loc schedule.Loc) {
	f, err := store.DecodeDeferral(n.payload)
	if err != nil {
		panic("queue: a deferral of our own making: " + err.Error())
	}
	for i, r := range f.Rcpts {
		_, e := q.s.Find(n.id, r)
		if e != nil && e.Attempts() == f.Attempts[i] && !q.replied(recipientKey{n.id, r}, &f.Last) {
			q.setNote(e, loc)
			delete(q.rcpts.replies, recipientKey{n.id, r})
		}
	}
}
