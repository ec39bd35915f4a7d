package store

import (
	"reflect"
	"testing"

	"example.org/mta/queue/vfs"
	"example.org/mta/queue/vfs/vfstest"
)

// TestIndexReadTwice: an index is read once to check it and again to use it. Whichever read gives a wrong bit, what is
// read is right or refused. Compaction took a living message for a settled one otherwise, and buried it.
func TestIndexReadTwice(t *testing.T) {
	seg := SegmentID{Number: 3, Salt: 7}
	ix := NewIndex(seg)
	ix.Form, ix.End = CodecVersion, 4096
	for i := range uint64(40_000) {
		ix.Items = append(ix.Items, Item{ID: i + 1, Off: uint32(i), Kind: ItemAccepted, Rcpt: 1})
		ix.byKey = append(ix.byKey, KeyItem{KeyHead: KeyHead{Key: recordKey(int(i)), At: 1, Until: 2}, Off: uint32(i)})
	}
	ix.key("key")
	ix.Buried = append(ix.Buried, Burial{Segment: 2, Stretches: []Stretch{{16, 32}}})
	disk := &vfstest.Faulty{FS: vfstest.Memory()}
	if err := ix.Write(disk, "/q/index"); err != nil {
		t.Fatal(err)
	}
	refused := 0
	for n := int64(1); ; n++ {
		reads := int64(0)
		disk.Decide(func(op vfstest.Op, _ string) *vfstest.Fault {
			if op == vfstest.Read {
				if reads++; reads == n {
					return &vfstest.Fault{Flip: true}
				}
			}
			return nil
		})
		items, keys, r, err := readIndex(disk, seg)
		switch {
		case err != nil:
			refused++
		case !reflect.DeepEqual(items, ix.Items) || !reflect.DeepEqual(keys, ix.byKey) || !reflect.DeepEqual(r.Buried, ix.Buried) || !reflect.DeepEqual(r.Keys, ix.Keys):
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

func readIndex(fs vfs.FS, seg SegmentID) (items []Item, keys []KeyItem, r *Run, err error) {
	if r, err = OpenIndex(fs, "/q/index", seg); err != nil {
		return nil, nil, nil, err
	}
	defer r.Close()
	for {
		var it Item
		ok, err := r.Read(&it, 64<<10)
		if err != nil {
			return nil, nil, nil, err
		}
		if !ok {
			break
		}
		items = append(items, it)
	}
	err = r.EachKey(func(it *KeyItem) error {
		keys = append(keys, *it)
		return nil
	})
	return items, keys, r, err
}
