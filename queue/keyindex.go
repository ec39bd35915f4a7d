package queue

import (
	"encoding/binary"
	"slices"

	"example.org/mta/queue/journal"
	"example.org/mta/queue/schedule"
)

// keyItem is what an index has of a keyed record.
type keyItem struct {
	keyHead        // needs is not in the file
	off     uint32 // of the record, in units of journal.Align
	size    uint8  // schedule.SizeClass of the record
}

const keyItemSize = 32

func (it *keyItem) offset() int64 { return int64(it.off) * journal.Align }

func (it *keyItem) put(b []byte) {
	le := binary.LittleEndian
	copy(b, it.key[:])
	le.PutUint32(b[16:], it.off)
	le.PutUint32(b[20:], it.until)
	le.PutUint32(b[24:], it.at)
	b[28], b[29], b[30], b[31] = it.size, 0, 0, 0
	if it.imported {
		b[29] = 1
	}
}

func (it *keyItem) get(b []byte) {
	le := binary.LittleEndian
	_ = b[keyItemSize-1]
	copy(it.key[:], b)
	it.off, it.until, it.at, it.size, it.imported = le.Uint32(b[16:]), le.Uint32(b[20:]), le.Uint32(b[24:]), b[28], b[29] != 0
}

// addKey takes note of a keyed record.
func (ix *index) addKey(rec journal.Record) error {
	h, err := decodeKeyHead(rec.Payload)
	if err == nil {
		ix.byKey = append(ix.byKey, keyItem{keyHead: h, off: uint32(rec.Offset / journal.Align), size: schedule.SizeClass(journal.Size(len(rec.Payload)))})
	}
	return err
}

// dropTornKeys leaves out the keys all of whose messages a power cut took away: the request was not answered,
// and nothing of it is there.
func (ix *index) dropTornKeys() {
	ix.byKey = slices.DeleteFunc(ix.byKey, func(it keyItem) bool { return it.needs > ix.maxID })
}

// keysAt is where the keys of requests begin in the index's file.
func (r *run) keysAt() int64 { return indexHeaderSize + int64(r.count)*itemSize }

// eachKey calls visit for each keyed record, in the order of the journal, until it returns an error.
func (r *run) eachKey(visit func(*keyItem) error) error {
	if r.file == nil {
		for i := range r.byKey {
			if err := visit(&r.byKey[i]); err != nil {
				return err
			}
		}
		return nil
	}
	const atOnce = 8 << 10
	b, sum := make([]byte, min(r.keyed, atOnce)*keyItemSize), r.sums[1]
	for from := 0; from < r.keyed; from += atOnce {
		b = b[:min(r.keyed-from, atOnce)*keyItemSize]
		if err := readFull(r.file, b, r.keysAt()+int64(from)*keyItemSize); err != nil {
			return err
		}
		if sum = journal.Checksum(sum, b); from+atOnce >= r.keyed && sum != r.sums[2] {
			return errIndex
		}
		for at := 0; at < len(b); at += keyItemSize {
			var it keyItem
			it.get(b[at:])
			if err := visit(&it); err != nil {
				return err
			}
		}
	}
	return nil
}

// countKeys counts the different keys in the runs.
func countKeys(runs []*run) (int, error) {
	records := 0
	for _, r := range runs {
		records += r.keyed
	}
	seen := schedule.NewKeyTable(records)
	for _, r := range runs {
		err := r.eachKey(func(it *keyItem) error {
			if seen.Find(it.key) == 0 && !seen.Full() {
				seen.Slot(seen.Add(it.key)).Until = it.until
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	return seen.Count, nil
}

// loadKeys brings back the keys of requests. The latest record of a key counts.
func (l *loader) loadKeys() error {
	q, records := l.q, 0
	for i := range l.list {
		records += l.list[i].run.keyed
	}
	if records == 0 {
		return nil
	}
	limit := q.keyTables[0].Limit
	ages := map[*schedule.KeyTable][]uint32{}
	for i := range q.keyTables {
		t := schedule.NewKeyTable(max(limit, records))
		q.keyTables[i], ages[t] = t, nil
	}
	now := l.now
	if q.clock.doubtful(q.clock.running) > 0 {
		now = 0
	}
	for i := range l.list {
		seg := l.list[i].seg
		err := l.list[i].run.eachKey(func(it *keyItem) error {
			if it.until > now {
				t, n := q.setKey(seg, *it)
				if ages[t] == nil {
					ages[t] = make([]uint32, min(records, schedule.MaxKeys)+2)
				}
				ages[t][n] = it.at
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for t, at := range ages {
		t.Order(at)
		for t.Limit = limit; t.Count > limit; {
			t.Evicted++
			q.dropKey(t, t.Evictable())
		}
	}
	return nil
}
