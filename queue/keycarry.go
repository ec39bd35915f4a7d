package queue

import (
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs"
)

// keyCarrier writes the keys again whose latest record lies in a segment that compaction empties.
type keyCarrier struct {
	*compaction
	f vfs.File
	// window is octets of the segment from off on. The records of keys lie close to each other or between messages that
	// are gone, and to read each by itself takes longer than to read all of it.
	window []byte
	off    int64
}

// keyWindow is what is read at once, in octets.
const keyWindow = 128 << 10

func (c *compaction) carryKeys(r *store.Run) error {
	if r.Keyed == 0 {
		return nil
	}
	f, release, err := c.q.dir.Files.Get(c.v.ID, c.q.dir.SegmentPath(c.v.ID))
	if err != nil {
		return err
	}
	defer release()
	k := keyCarrier{compaction: c, f: f}
	return r.EachKey(func(it *store.KeyItem) error {
		if err := k.carry(it); err != nil {
			return err
		}
		return c.pace()
	})
}

// carry writes one key again.
func (c *keyCarrier) carry(it *store.KeyItem) error {
	q, loc := c.q, schedule.LocOf(c.v.Handle, it.Offset())
	q.mu.Lock()
	t, n := q.findKey(it.Key)
	needed := n != 0 && t.Slot(n).Loc() == loc
	q.mu.Unlock()
	if !needed {
		return nil
	}
	k, err := c.read(it)
	if err != nil {
		if q.forgetDamaged(it.Key, c.v, err) {
			return nil
		}
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.w.note(store.KindKeyed, 0, c.v, 0, func(b []byte) []byte { return store.AppendKeyed(b, q.form(), &k) })
	c.moved += schedule.Octets(it.Size)
	return nil
}

// read reads the record of a key: from the window, or alone where that doesn't do.
func (c *keyCarrier) read(it *store.KeyItem) (store.Keyed, error) {
	size := schedule.Octets(it.Size)
	at := it.Offset() - c.off
	if at < 0 || at+size > int64(len(c.window)) {
		c.off, at = it.Offset(), 0
		c.window = c.window[:cap(c.window)]
		if c.window == nil {
			c.window = make([]byte, keyWindow)
		}
		n, _ := c.f.ReadAt(c.window, c.off) // what can't be read is found out below
		c.window = c.window[:n]
	}
	if rec, ok := store.ParseRecord(c.window[at:], c.v.ID, it.Offset()); ok && rec.Kind == store.KindKeyed &&
		len(rec.Payload) >= store.KeyHeadSize && store.KeyOf(rec.Payload) == it.Key {
		if k, err := store.DecodeKeyed(rec.Payload); err == nil {
			k.Bind(c.v.MaxID)
			return k, nil
		}
	}
	return c.q.readKeyed(store.Place{ID: c.v.ID, Off: it.Offset(), Size: size}, it.Key, c.v.MaxID)
}
