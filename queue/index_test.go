package queue

import (
	"reflect"
	"testing"

	"example.org/mta/queue/journal"
	"example.org/mta/queue/vfs"
	"example.org/mta/queue/vfs/faulty"
)

// TestIndexReadTwice: an index is read once to check it and again to use it. Whichever read gives a wrong bit, what is
// read is right or refused. Compaction took a living message for a settled one otherwise, and buried it.
func TestIndexReadTwice(t *testing.T) {
	seg := journal.Segment{Number: 3, Salt: 7}
	ix := newIndex(seg)
	ix.form, ix.end = codecVersion, 4096
	for i := range uint64(40_000) {
		ix.items = append(ix.items, item{id: i + 1, off: uint32(i), kind: itemAccepted, rcpt: 1})
		ix.byKey = append(ix.byKey, keyItem{keyHead: keyHead{key: testKey(int(i)), at: 1, until: 2}, off: uint32(i)})
	}
	ix.key("key")
	ix.buried = append(ix.buried, burial{segment: 2, stretches: []stretch{{16, 32}}})
	disk := &faulty.FS{FS: vfs.Memory()}
	if err := ix.write(disk, "/q/index"); err != nil {
		t.Fatal(err)
	}
	refused := 0
	for n := int64(1); ; n++ {
		reads := int64(0)
		disk.Decide(func(op faulty.Op, _ string) *faulty.Fault {
			if op == faulty.Read {
				if reads++; reads == n {
					return &faulty.Fault{Flip: true}
				}
			}
			return nil
		})
		items, keys, r, err := readIndex(disk, seg)
		switch {
		case err != nil:
			refused++
		case !reflect.DeepEqual(items, ix.items) || !reflect.DeepEqual(keys, ix.byKey) || !reflect.DeepEqual(r.buried, ix.buried) || !reflect.DeepEqual(r.keys, ix.keys):
			t.Errorf("read %d gives a wrong bit, and nobody notices", n)
		}
		if reads < n {
			if err != nil {
				t.Error(err)
			}
			t.Logf("%d reads, %d refused", reads, refused)
			return
		}
	}
}

func readIndex(fs vfs.FS, seg journal.Segment) (items []item, keys []keyItem, r *run, err error) {
	if r, err = openIndex(fs, "/q/index", seg); err != nil {
		return nil, nil, nil, err
	}
	defer r.close()
	for {
		var it item
		ok, err := r.read(&it, 64<<10)
		if err != nil {
			return nil, nil, nil, err
		}
		if !ok {
			break
		}
		items = append(items, it)
	}
	err = r.eachKey(func(it *keyItem) error {
		keys = append(keys, *it)
		return nil
	})
	return items, keys, r, err
}
