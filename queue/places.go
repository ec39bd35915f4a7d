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
	return seg != nil && !seg.Dropped && !seg.Gone
}

// follow reads the last attempt at a recipient, looking again for where it lies when compaction was quicker.
func (q *Queue) follow(r *store.ReplyReader, p store.Place, id uint64, rcpt uint16) (Attempt, error) {
	last, err := r.Read(p, rcpt)
	if errors.Is(err, store.ErrGone) {
		last, _, err = q.lastAttempt(r, id, rcpt)
	}
	return last, err
}

// chase reads what lies where it says, and looks there again when compaction has moved it meanwhile. It reports false
// where there is nothing.
func chase[T any](q *Queue, where func() (store.Place, bool),
	read func(store.Place) (T, error)) (v T, there bool, err error) {
	for was := (store.Place{}); ; {
		p, ok := where()
		if !ok {
			return v, false, nil
		}
		if v, err = read(p); p == was || !errors.Is(err, store.ErrGone) {
			return v, true, q.dir.Gone(p, err)
		}
		was = p
	}
}

// lastAttempt finds the last attempt at a recipient, in memory or on the disk; false when there was none.
func (q *Queue) lastAttempt(r *store.ReplyReader, id uint64, rcpt uint16) (Attempt, bool, error) {
	var last Attempt
	known := false
	where := func() (p store.Place, noted bool) {
		q.mu.Lock()
		defer q.mu.Unlock()
		if last, known = q.rcpts.replies[recipientKey{id, rcpt}]; known {
			return p, false
		}
		if _, e := q.s.Find(id, rcpt); e != nil && e.Note() != 0 {
			return q.placeOf(e.Note(), store.NoteGuess), true
		}
		return p, false
	}
	read, noted, err := chase(q, where, func(p store.Place) (Attempt, error) { return r.Read(p, rcpt) })
	if !noted {
		return last, known, nil
	}
	return read, true, err
}

// envelopeOf reads a message's envelope, from memory if it is there. ErrUnknown says that the message is gone.
func (q *Queue) envelopeOf(id uint64, ahead *store.ReadAhead) (*envelope.Message, error) {
	var h *hot
	where := func() (store.Place, bool) {
		q.mu.Lock()
		defer q.mu.Unlock()
		if h = q.cache.hot[id]; h != nil {
			return store.Place{}, false
		}
		return q.whereIs(id)
	}
	m, there, err := chase(q, where, func(p store.Place) (*envelope.Message, error) { return q.readAhead(ahead, p) })
	switch {
	case h != nil:
		return h.msg, nil
	case !there:
		return nil, ErrUnknown
	case err != nil:
		return nil, err
	}
	m.ID = envelope.ID(id)
	q.date(m, id)
	return m, nil
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

// whereIs looks a message's data up. The caller has q.mu.
func (q *Queue) whereIs(id uint64) (p store.Place, ok bool) {
	q.s.Run(id, func(_ schedule.Slot, e *schedule.Entry) bool {
		p, ok = q.placeOf(e.Data(), schedule.Octets(e.Size)), true
		return false
	})
	return p, ok
}

// Body opens the content of a message that is in the queue, whatever its state. A content that
// is damaged ends with an error that is ErrDamaged, never with io.EOF.
func (q *Queue) Body(id envelope.ID) (io.ReadCloser, error) {
	var body []byte
	where := func() (store.Place, bool) {
		q.mu.Lock()
		defer q.mu.Unlock()
		if h := q.cache.hot[uint64(id)]; h != nil && h.body != nil {
			body = h.body
			return store.Place{}, false
		}
		return q.whereIs(uint64(id))
	}
	c, there, err := chase(q, where, func(p store.Place) (c store.Content, err error) {
		_, c, err = q.dir.ReadMessage(p)
		return c, err
	})
	switch {
	case body != nil:
		return newInMemory(body), nil
	case !there:
		return nil, fmt.Errorf("message %s: %w", id, ErrUnknown)
	case err == nil && c.Large != 0:
		err = q.dir.CheckLarge(c.Prelude)
	}
	if damage := (*store.DamageError)(nil); errors.As(err, &damage) && !damage.Disk {
		q.contentBroken(uint64(id), err)
	}
	if err != nil {
		return nil, err
	}
	if c.Large != 0 {
		return q.dir.OpenLarge(c.Prelude)
	}
	return newInMemory(c.Body), nil
}

// inMemory is a content in memory.
type inMemory struct{ bytes.Reader }

func newInMemory(body []byte) *inMemory {
	m := new(inMemory)
	m.Reset(body)
	return m
}

// Close does nothing.
func (*inMemory) Close() error { return nil }

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
		q.reportDamage(err, "the content of message "+envelope.ID(id).String()+
			" is not what was written; it is not sent, and its sender gets a report")
	}
}
