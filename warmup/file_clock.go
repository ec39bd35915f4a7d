package warmup

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"
)

const (
	// jump is how far the clock can go ahead between two runs before the records are kept as they were:
	// the relay may have been off for so long, or the clock may be wrong.
	jump = Instant(time.Hour / time.Millisecond)
	// kept is how many such copies there are.
	kept = 4
	// astray is how far behind the stored clock the machine's must be to be believed without a copy from
	// before: a clock that was set back by less reopens no window.
	astray = Instant(7 * 24 * time.Hour / time.Millisecond)
)

// setClock chooses where the store's clock goes on: with the machine's, or where it was when that is
// behind. Where the machine's shows that the stored one was wrong, it goes back with all records, and
// what they may send in the hour and the day in progress counts as sent: what was sent under the wrong
// clock is in windows that are gone.
func (s *File) setClock(tx *bolt.Tx, records, meta *bolt.Bucket) error {
	s.base = Instant(s.opened.UnixMilli())
	v := meta.Get(clockKey)
	if len(v) != 8 {
		return nil
	}
	stored := Instant(binary.BigEndian.Uint64(v))
	before, err := tx.CreateBucketIfNotExists(beforeBucket)
	switch {
	case err != nil:
		return err
	case s.base-stored > jump:
		return keep(before, records, stored)
	case s.base >= stored:
		return nil
	}
	copied := newestUntil(before, s.base)
	if copied == nil && stored-s.base <= astray {
		s.base = stored
		return nil
	}
	if err := heal(records, copied, stored-s.base); err != nil {
		return err
	}
	return meta.Put(clockKey, binary.BigEndian.AppendUint64(nil, uint64(s.base)))
}

// keep copies the records as they were at an instant. Only the newest copies stay.
func keep(before, records *bolt.Bucket, at Instant) error {
	copied, err := before.CreateBucketIfNotExists(binary.BigEndian.AppendUint64(nil, uint64(at)))
	if err != nil {
		return err
	}
	if err := records.ForEach(copied.Put); err != nil {
		return err
	}
	var names [][]byte
	if err := before.ForEachBucket(func(k []byte) error {
		names = append(names, bytes.Clone(k))
		return nil
	}); err != nil {
		return err
	}
	for ; len(names) > kept; names = names[1:] {
		if err := before.DeleteBucket(names[0]); err != nil {
			return err
		}
	}
	return nil
}

// newestUntil gives the newest copy from before an instant, nil when there is none. Newer ones are of
// times that have not come.
func newestUntil(before *bolt.Bucket, at Instant) (copied *bolt.Bucket) {
	c := before.Cursor()
	for k, _ := c.First(); len(k) == 8 && Instant(binary.BigEndian.Uint64(k)) <= at; k, _ = c.Next() {
		copied = before.Bucket(k)
	}
	return copied
}

// heal puts the copied records in the place of those that lived by a clock that was ahead; one that is
// not in the copy is moved back as it is.
func heal(records, copied *bolt.Bucket, ahead Instant) error {
	renewed := make(map[string][]byte)
	err := records.ForEach(func(k, v []byte) error {
		source, back := v, ahead
		if copied != nil {
			if old := copied.Get(k); sealed(old) {
				source, back = old, 0
			}
		}
		value, err := healed(source[header:], back)
		if err != nil {
			return fmt.Errorf("record of %q: %w", k, err)
		}
		r := append(bytes.Clone(v[:header]), value...) // fence and version stay the newest
		seal(r)
		renewed[string(k)] = r
		return nil
	})
	if err != nil {
		return err
	}
	for k, r := range renewed {
		if err := records.Put([]byte(k), r); err != nil {
			return err
		}
	}
	return nil
}
