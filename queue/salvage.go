package queue

import (
	"cmp"
	"errors"
	"io"
	"slices"

	"example.org/mta/internal/envelope"
	"example.org/mta/queue/journal"
)

// remains are what is left of a message's record whose sum is wrong.
type remains struct {
	id      uint64 // 0 where neither prelude nor header give it
	moved   bool
	sound   bool // prelude, envelope and states are as they were written: the content is what is broken
	size    int64
	content // without the body; only rcpts where not sound, and 0 where not even that is known
}

// salvage reads what is left of the record at off in a segment. All is checked by sums of its own, but for
// records of old versions: their ids, and the states of moved ones, have none.
func salvage(f io.ReaderAt, seg journal.Segment, off, limit int64) (r remains, err error) {
	b, err := readUpTo(f, off, min(envelopeGuess, limit-off))
	if err != nil || len(b) < journal.HeaderSize {
		return r, err
	}
	h, inPlace := journal.Header(b, seg)
	if inPlace && (h.Kind == kindAccepted || h.Kind == kindMoved) {
		r.id, r.moved = h.ID, h.Kind == kindMoved
	}
	p, perr := parsePrelude(b[journal.HeaderSize:])
	if perr != nil || p.form < ownSums && r.id == 0 || p.form >= ownSums && !p.signed(b[journal.HeaderSize:]) {
		return r, nil
	}
	if p.form >= ownSums {
		r.id, r.moved = p.id, p.stateLen > 0
	}
	need := int64(journal.HeaderSize) + int64(p.size()) + int64(p.envLen) + int64(p.stateLen)
	if need > limit-off || p.envLen == 0 {
		return r, nil
	}
	r.rcpts = p.rcpts
	if need > int64(len(b)) {
		if b, err = readUpTo(f, off, need); err != nil || int64(len(b)) < need {
			return r, err
		}
	}
	r.prelude = p
	rest := b[journal.HeaderSize+p.size():]
	r.env, r.states = rest[:p.envLen], rest[p.envLen:need-int64(journal.HeaderSize)-int64(p.size())]
	r.sound = r.intact()
	r.size = journal.Size(int(need) - journal.HeaderSize)
	if p.large == 0 {
		r.size = journal.Size(int(need+p.bodyLen) - journal.HeaderSize)
	}
	return r, nil
}

// intact reports whether envelope and states are as they were written.
func (r *remains) intact() bool {
	if journal.Checksum(0, r.env) != r.envCRC || r.moved != (r.stateLen > 0) {
		return false
	}
	if r.form >= ownSums && journal.Checksum(0, r.states) != r.stateCRC {
		return false
	}
	if m, err := decodeEnvelope(r.env); err != nil || len(m.Recipients) != int(r.rcpts) {
		return false
	}
	if !r.moved {
		return true
	}
	_, _, err := decodeStates(r.states)
	return err == nil
}

// salvage takes note of the messages in damaged parts of a segment, so that they are in the queue as they
// would be if the index were still there: with a sound envelope to be reported to their senders, without
// one to be named.
func (ix *index) salvage(f io.ReaderAt, size int64) {
	before := len(ix.items)
	defer func() {
		if len(ix.items) > before { // in the order of the journal, for sort
			slices.SortStableFunc(ix.items, func(a, b item) int { return cmp.Compare(a.off, b.off) })
		}
	}()
	for _, d := range ix.damaged {
		if d.Err != nil {
			continue // octets that the disk did not give, and may give another day
		}
		for off := d.Offset; off < d.End; {
			r, err := salvage(f, ix.segment, off, min(d.End, size))
			if err != nil {
				break
			}
			if r.id != 0 {
				ix.addRemains(&r, off)
			}
			off = journal.Next(f, ix.segment, off+max(r.size, journal.Align), min(d.End, size))
		}
	}
}

func (ix *index) addRemains(r *remains, off int64) {
	it := item{id: r.id, off: uint32(off / journal.Align)}
	if r.sound {
		ix.addContent(it, r.moved, &r.content, r.size)
		return
	}
	ix.maxID = max(ix.maxID, r.id)
	it.kind, it.rcpt = itemAccepted, r.rcpts
	if r.rcpts == 0 { // how many it had is not known; at least as many as are spoken of, and one
		it.rcpt = 1
		for i := range ix.items {
			if other := &ix.items[i]; other.id == r.id && other.rcpt < maxRecipients {
				it.rcpt = max(it.rcpt, other.rcpt+1)
			}
		}
	}
	ix.items = append(ix.items, it)
}

// salvageMessage reads the envelope of a message whose record is damaged.
func (q *Queue) salvageMessage(p place, id uint64) (*envelope.Message, content, error) {
	f, release, err := q.files.get(p.id, q.segmentPath(p.id))
	if err != nil {
		return nil, content{}, err
	}
	defer release()
	r, err := salvage(f, p.id, p.off, 1<<62)
	if err != nil || !r.sound || r.id != id {
		return nil, content{}, errors.Join(err, ErrDamaged)
	}
	m, err := decodeEnvelope(r.env)
	if err != nil {
		return nil, content{}, err
	}
	m.ID, m.Size = envelope.ID(id), r.bodyLen
	return m, r.content, nil
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
