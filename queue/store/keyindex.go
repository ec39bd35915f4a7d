package store

import (
	"encoding/binary"
	"slices"

	"example.org/mta/queue/schedule"
)

// KeyItem is what an index has of a keyed record.
type KeyItem struct {
	KeyHead        // needs is not in the file
	Off     uint32 // of the record, in units of Align
	Size    uint8  // schedule.SizeClass of the record
}

const keyItemSize = 32

// Offset is where the record lies in its segment.
func (it *KeyItem) Offset() int64 { return int64(it.Off) * Align }

func (it *KeyItem) put(b []byte) {
	le := binary.LittleEndian
	copy(b, it.Key[:])
	le.PutUint32(b[16:], it.Off)
	le.PutUint32(b[20:], it.Until)
	le.PutUint32(b[24:], it.At)
	b[28], b[29], b[30], b[31] = it.Size, 0, 0, 0
	if it.Imported {
		b[29] = 1
	}
}

func (it *KeyItem) get(b []byte) {
	le := binary.LittleEndian
	_ = b[keyItemSize-1]
	copy(it.Key[:], b)
	it.Off, it.Until, it.At, it.Size, it.Imported = le.Uint32(b[16:]), le.Uint32(b[20:]), le.Uint32(b[24:]),
		b[28], b[29] != 0
}

// addKey takes note of a keyed record.
func (ix *Index) addKey(rec Record) error {
	h, err := DecodeKeyHead(rec.Payload)
	if err == nil {
		ix.byKey = append(ix.byKey,
			KeyItem{KeyHead: h, Off: uint32(rec.Offset / Align),
				Size: schedule.SizeClass(RecordSize(len(rec.Payload)))})
	}
	return err
}

// dropTornKeys leaves out the keys all of whose messages a power cut took away: the request was not answered,
// and nothing of it is there.
func (ix *Index) dropTornKeys() {
	ix.byKey = slices.DeleteFunc(ix.byKey, func(it KeyItem) bool { return it.needs > ix.MaxID })
}

// keysAt is where the keys of requests begin in the index's file.
func (r *Run) keysAt() int64 { return indexHeaderSize + int64(r.count)*ItemSize }

// EachKey calls visit for each keyed record, in the order of the journal, until it returns an error.
func (r *Run) EachKey(visit func(*KeyItem) error) error {
	if r.file == nil {
		for i := range r.byKey {
			if err := visit(&r.byKey[i]); err != nil {
				return err
			}
		}
		return nil
	}
	const atOnce = 8 << 10
	b, sum := make([]byte, min(r.Keyed, atOnce)*keyItemSize), r.sums[1]
	for from := 0; from < r.Keyed; from += atOnce {
		b = b[:min(r.Keyed-from, atOnce)*keyItemSize]
		if err := readFull(r.file, b, r.keysAt()+int64(from)*keyItemSize); err != nil {
			return err
		}
		if sum = Checksum(sum, b); from+atOnce >= r.Keyed && sum != r.sums[2] {
			return errIndex
		}
		for at := 0; at < len(b); at += keyItemSize {
			var it KeyItem
			it.get(b[at:])
			if err := visit(&it); err != nil {
				return err
			}
		}
	}
	return nil
}

// countKeys counts the different keys in the runs.
func countKeys(runs []*Run) (int, error) {
	records := 0
	for _, r := range runs {
		records += r.Keyed
	}
	seen := schedule.NewKeyTable(records)
	for _, r := range runs {
		err := r.EachKey(func(it *KeyItem) error {
			if seen.Find(it.Key) == 0 && !seen.Full() {
				seen.Slot(seen.Add(it.Key)).Until = it.Until
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	return seen.Count, nil
}
