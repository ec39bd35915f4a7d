package store

import (
	"cmp"
	"errors"
	"io"
	"slices"

	"example.org/mta/internal/envelope"
)

// remains are what is left of a message's record whose sum is wrong.
type remains struct {
	ID      uint64 // 0 where neither prelude nor header give it
	Moved   bool
	Sound   bool // prelude, envelope and states are as they were written: the content is what is broken
	size    int64
	Content // without the body; only rcpts where not sound, and 0 where not even that is known
}

// Salvage reads what is left of the record at off in a segment. All is checked by sums, except in records of old
// versions: their ids, and the states of moved ones, have none.
func Salvage(f io.ReaderAt, seg SegmentID, off, limit int64) (r remains, err error) {
	b, err := readUpTo(f, off, min(envelopeGuess, limit-off))
	if err != nil || len(b) < HeaderSize {
		return r, err
	}
	h, inPlace := claim(b, seg)
	if inPlace && (h.kind == KindAccepted || h.kind == KindMoved) {
		r.ID, r.Moved = h.id, h.kind == KindMoved
	}
	p, perr := parsePrelude(b[HeaderSize:])
	if perr != nil || p.Form < ownSums && r.ID == 0 || p.Form >= ownSums && !p.signed(b[HeaderSize:]) {
		return r, nil
	}
	if p.Form >= ownSums {
		r.ID, r.Moved = p.id, p.StateLen > 0
	}
	need := int64(HeaderSize) + int64(p.size()) + int64(p.EnvLen) + int64(p.StateLen)
	if need > limit-off || p.EnvLen == 0 {
		return r, nil
	}
	r.Rcpts = p.Rcpts
	if need > int64(len(b)) {
		if b, err = readUpTo(f, off, need); err != nil || int64(len(b)) < need {
			return r, err
		}
	}
	r.Prelude = p
	rest := b[HeaderSize+p.size():]
	r.Env, r.States = rest[:p.EnvLen], rest[p.EnvLen:need-int64(HeaderSize)-int64(p.size())]
	r.Sound = r.intact()
	r.size = RecordSize(int(need) - HeaderSize)
	if p.Large == 0 {
		r.size = RecordSize(int(need+p.BodyLen) - HeaderSize)
	}
	return r, nil
}

// intact reports whether envelope and states are as they were written.
func (r *remains) intact() bool {
	if Checksum(0, r.Env) != r.EnvCRC || r.Moved != (r.StateLen > 0) {
		return false
	}
	if r.Form >= ownSums && Checksum(0, r.States) != r.StateCRC {
		return false
	}
	if m, err := DecodeEnvelope(r.Env); err != nil || len(m.Recipients) != int(r.Rcpts) {
		return false
	}
	if !r.Moved {
		return true
	}
	_, _, err := DecodeStates(r.States)
	return err == nil
}

// salvage takes note of the messages in damaged parts of a segment, so that they are in the queue as they
// would be if the index were still there: with a sound envelope to be reported to their senders, without
// one to be named.
func (ix *Index) salvage(f io.ReaderAt, size int64) {
	before := len(ix.Items)
	defer func() {
		if len(ix.Items) > before { // in the order of the journal, for sort
			slices.SortStableFunc(ix.Items, func(a, b Item) int { return cmp.Compare(a.Off, b.Off) })
		}
	}()
	for _, d := range ix.Damaged {
		if d.Err != nil {
			continue // octets that the disk did not give, and may give another day
		}
		for off, end := d.Offset, min(d.End, size); off < end; {
			r, err := Salvage(f, ix.segment, off, end)
			if err != nil {
				break
			}
			if r.ID != 0 {
				ix.addRemains(&r, off)
			}
			off = NextRecord(f, ix.segment, off+max(r.size, Align), end)
		}
	}
}

func (ix *Index) addRemains(r *remains, off int64) {
	it := Item{ID: r.ID, Off: uint32(off / Align)}
	if r.Sound {
		ix.addContent(it, r.Moved, &r.Content, r.size)
		return
	}
	ix.MaxID = max(ix.MaxID, r.ID)
	it.Kind, it.Rcpt = ItemAccepted, r.Rcpts
	if r.Rcpts == 0 { // how many it had is not known; at least as many as are spoken of, and one
		it.Rcpt = 1
		for i := range ix.Items {
			if other := &ix.Items[i]; other.ID == r.ID && other.Rcpt < MaxRecipients {
				it.Rcpt = max(it.Rcpt, other.Rcpt+1)
			}
		}
	}
	ix.Items = append(ix.Items, it)
}

// SalvageMessage reads the envelope of a message whose record is damaged.
func (d *Dir) SalvageMessage(p Place, id uint64) (*envelope.Message, Content, error) {
	f, release, err := d.Files.Get(p.ID, d.SegmentPath(p.ID))
	if err != nil {
		return nil, Content{}, err
	}
	defer release()
	r, err := Salvage(f, p.ID, p.Off, 1<<62)
	if err != nil || !r.Sound || r.ID != id {
		return nil, Content{}, errors.Join(err, ErrDamaged)
	}
	m, err := DecodeEnvelope(r.Env)
	if err != nil {
		return nil, Content{}, err
	}
	m.ID, m.Size = envelope.ID(id), r.BodyLen
	return m, r.Content, nil
}
