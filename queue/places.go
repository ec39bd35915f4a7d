package queue

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"example.org/mta/internal/envelope"
	"example.org/mta/queue/journal"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
)

// placeOf must be called with the lock.
func (q *Queue) placeOf(l schedule.Loc, size int64) store.Place {
	return store.Place{ID: q.segs.of(l).id, Off: l.Offset(), Size: size}
}

// inUse reports whether the queue uses a segment.
func (q *Queue) inUse(id journal.Segment) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.segs.byHandle) == 0 {
		return true // before they are known
	}
	seg := q.segs.byID(id)
	return seg != nil && !seg.gone
}

// follow reads the last attempt at a recipient, looking again for where it lies when compaction
// was quicker.
func (q *Queue) follow(r *store.ReplyReader, p store.Place, id uint64, rcpt uint16) (Attempt, error) {
	for {
		last, err := r.Read(p, rcpt)
		if !errors.Is(err, store.ErrGone) {
			return last, err
		}
		q.mu.Lock()
		last, now := q.replies[recipientKey{id, rcpt}], store.Place{}
		if _, e := q.table.Find(id, rcpt); e != nil && e.Note() != 0 {
			now = q.placeOf(e.Note(), store.NoteGuess)
		}
		q.mu.Unlock()
		switch now {
		case store.Place{}:
			return last, nil
		case p:
			return last, q.dir.Gone(p, err)
		}
		p = now
	}
}

// Body opens the content of a message that is in the queue, whatever its state. A content that
// is damaged ends with an error that is ErrDamaged, never with io.EOF.
func (q *Queue) Body(id envelope.ID) (io.ReadCloser, error) {
	for last := (store.Place{}); ; {
		q.mu.Lock()
		if h := q.hot[uint64(id)]; h != nil && h.body != nil {
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
	_, known := q.broken[id]
	if !known {
		q.broken[id] = false
	}
	q.mu.Unlock()
	if !known {
		q.reportDamage(err, "the content of message "+envelope.ID(id).String()+" is not what was written; it is not sent, and its sender gets a report")
	}
}
