package queue

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"example.org/mta/internal/envelope"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
)

// placeOf must be called with the lock.
func (q *Queue) placeOf(l schedule.Loc, size int64) store.Place {
	return store.Place{ID: q.segs.Of(l).ID, Off: l.Offset(), Size: size}
}

// inUse reports whether the queue uses a segment.
func (q *Queue) inUse(id store.SegmentID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.segs.ByHandle) == 0 {
		return true // before they are known
	}
	seg := q.segs.ByID(id)
	return seg != nil && !seg.Gone
}

// follow reads the last attempt at a recipient, looking again for where it lies when compaction was quicker.
func (q *Queue) follow(r *store.ReplyReader, p store.Place, id uint64, rcpt uint16) (Attempt, error) {
	last, err := r.Read(p, rcpt)
	if errors.Is(err, store.ErrGone) {
		last, _, err = q.lastAttempt(r, id, rcpt)
	}
	return last, err
}

// lastAttempt finds the last attempt at a recipient, in memory or on the disk; false when there was none.
func (q *Queue) lastAttempt(r *store.ReplyReader, id uint64, rcpt uint16) (last Attempt, tried bool, err error) {
	for was := (store.Place{}); ; {
		q.mu.Lock()
		last, known := q.rcpts.replies[recipientKey{id, rcpt}]
		now := store.Place{}
		if _, e := q.s.Find(id, rcpt); e != nil && e.Note() != 0 {
			now = q.placeOf(e.Note(), store.NoteGuess)
		}
		q.mu.Unlock()
		switch {
		case known || now == store.Place{}:
			return last, known, nil
		case now == was:
			return Attempt{}, true, q.dir.Gone(now, err)
		}
		was = now
		if last, err = r.Read(now, rcpt); !errors.Is(err, store.ErrGone) {
			return last, true, err
		}
	}
}

// envelopeOf reads a message's envelope, from memory if it is there. Compaction may move it meanwhile. ErrUnknown says that
// the message is gone.
func (q *Queue) envelopeOf(id uint64, ahead *store.ReadAhead) (*envelope.Message, error) {
	for was := (store.Place{}); ; {
		q.mu.Lock()
		h := q.cache.hot[id]
		q.mu.Unlock()
		if h != nil {
			return h.msg, nil
		}
		p, ok := q.whereIs(id)
		if !ok {
			return nil, ErrUnknown
		}
		m, err := q.readAhead(ahead, p)
		if err == nil {
			m.ID = envelope.ID(id)
			q.date(m, id)
			return m, nil
		}
		if !errors.Is(err, store.ErrGone) || p == was {
			return nil, q.dir.Gone(p, err)
		}
		was = p
	}
}

// readAhead reads an envelope, with those that follow if there is where to keep them.
func (q *Queue) readAhead(ahead *store.ReadAhead, p store.Place) (*envelope.Message, error) {
	if ahead != nil {
		if m := ahead.Envelope(q.dir, p); m != nil {
			return m, nil
		}
	}
	return q.dir.ReadEnvelope(p)
}

// whereIs looks a message's data up.
func (q *Queue) whereIs(id uint64) (p store.Place, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.s.Run(id, func(_ schedule.Slot, e *schedule.Entry) bool {
		p, ok = q.placeOf(e.Data(), schedule.Octets(e.Size)), true
		return false
	})
	return p, ok
}

// Body opens the content of a message that is in the queue, whatever its state. A content that
// is damaged ends with an error that is ErrDamaged, never with io.EOF.
func (q *Queue) Body(id envelope.ID) (io.ReadCloser, error) {
	for last := (store.Place{}); ; {
		q.mu.Lock()
		if h := q.cache.hot[uint64(id)]; h != nil && h.body != nil {
			body := h.body
			q.mu.Unlock()
			return io.NopCloser(bytes.NewReader(body)), nil
		}
		q.mu.Unlock()
		p, found := q.whereIs(uint64(id))
		if !found {
			return nil, fmt.Errorf("message %s: %w", id, ErrUnknown)
		}
		_, c, err := q.dir.ReadMessage(p)
		if errors.Is(err, store.ErrGone) && p != last {
			last = p
			continue
		}
		if err = q.dir.Gone(p, err); err == nil && c.Large != 0 {
			err = q.dir.CheckLarge(c.Prelude)
		}
		if err != nil {
			if damage := (*store.DamageError)(nil); errors.As(err, &damage) && !damage.Disk {
				q.contentBroken(uint64(id), err)
			}
			return nil, err
		}
		if c.Large != 0 {
			return q.dir.OpenLarge(c.Prelude)
		}
		return io.NopCloser(bytes.NewReader(c.Body)), nil
	}
}

// contentBroken notes that the content of a message is not what was written, and that it is never to be
// read again.
func (q *Queue) contentBroken(id uint64, err error) {
	q.mu.Lock()
	_, known := q.few.broken[id]
	if !known {
		q.few.broken[id] = false
	}
	q.mu.Unlock()
	if !known {
		q.reportDamage(err, "the content of message "+envelope.ID(id).String()+" is not what was written; it is not sent, and its sender gets a report")
	}
}
