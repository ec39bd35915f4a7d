package schedule

import (
	"encoding/binary"
	"math/rand"
	"slices"
	"testing"
	"unsafe"

	"example.org/mta/internal/envelope"
)

func tableKey(n int) (k envelope.RequestKey) {
	binary.LittleEndian.PutUint64(k[:], uint64(n)*0x9e3779b97f4a7c15+1)
	k[8] = byte(n)
	return k
}

// tableKeyOf is the key with a number of a tenant with a number; tenant 0 is none.
func tableKeyOf(tenant byte, n int) envelope.RequestKey {
	k := tableKey(n)
	if tenant == 0 {
		return k
	}
	return envelope.NewRequestKey([4]byte{tenant}, [10]byte(k[:]))
}

// TestKeyTable compares the table with a map while keys come, change, go, are forgotten, and make way for others.
func TestKeyTable(t *testing.T) {
	if size := unsafe.Sizeof(KeySlot{}); size != 32 {
		t.Errorf("a slot has %d octets", size)
	}
	const limit = 500
	rng := rand.New(rand.NewSource(1))
	table, model, ages := NewKeyTable(limit), map[envelope.RequestKey]uint32{}, []envelope.RequestKey{}
	ofTenant := func(tenant [4]byte) (keys []envelope.RequestKey) { // the oldest first
		for _, k := range ages {
			if of, _ := k.Tenant(); of == tenant {
				keys = append(keys, k)
			}
		}
		return keys
	}
	for step := range 200_000 {
		number := rng.Intn(3 * limit)
		key := tableKeyOf(byte(min(number%8, 3)), number) // most are of tenant 3
		if rng.Intn(4) == 0 {
			key[7] = 0xff // many have their home at the end
		}
		n := table.Find(key)
		if _, ok := model[key]; ok != (n != 0) || ok && table.Slot(n).Until != model[key] {
			t.Fatalf("step %d: found %v", step, n)
		}
		remove := func(n uint32) {
			key := table.Slot(n).key
			table.Remove(n)
			delete(model, key)
			ages = slices.DeleteFunc(ages, func(k envelope.RequestKey) bool { return k == key })
		}
		switch do := rng.Intn(10); {
		case do < 3 && n != 0:
			remove(n)
		case n == 0:
			if table.Full() {
				gone := table.Slot(table.Evictable()).key
				tenant, _ := gone.Tenant()
				mine := ofTenant(tenant)
				if mine[0] != gone {
					t.Fatalf("step %d: %x goes; the oldest of its tenant is %x", step, gone, mine[0])
				}
				for other := range byte(4) {
					if theirs := ofTenant([4]byte{other}); len(theirs) > len(mine) {
						t.Fatalf("step %d: a key goes of a tenant with %d, and another has %d", step, len(mine), len(theirs))
					}
				}
				remove(table.Evictable())
			}
			table.Add(key)
			ages = append(ages, key)
		}
		if n = table.Find(key); n != 0 {
			model[key] = 1 + uint32(rng.Intn(1000))
			table.Slot(n).Until = model[key]
			loc := LocOf(uint32(rng.Intn(MaxSegments)), int64(rng.Intn(MaxOffset))&^15)
			if table.Slot(n).SetLoc(loc); table.Slot(n).Loc() != loc {
				t.Fatalf("%v became %v", loc, table.Slot(n).Loc())
			}
		}
		if step%5000 == 0 {
			for table.Sweep(500, remove) {
			}
			for _, until := range model {
				if until <= 500 {
					t.Fatalf("step %d: a key is left after its time", step)
				}
			}
		}
		if table.Count != len(model) || table.Count > limit {
			t.Fatalf("step %d: %d keys, want %d", step, table.Count, len(model))
		}
	}
	full := NewKeyTable(100_000)
	for i := range 100_000 {
		full.Add(tableKey(i))
	}
	if each := float64(len(full.words)*4+len(full.chunks)*KeyChunk*32) / 100_000; each > 40 {
		t.Errorf("%.1f octets for each key", each)
	}
}

// TestKeyTableOrder: what compaction has carried is read behind younger keys, and is older all the same, for each tenant.
func TestKeyTableOrder(t *testing.T) {
	for _, spread := range []int{100, 10_000, 100_000_000} {
		rng := rand.New(rand.NewSource(2))
		table, at := NewKeyTable(1000), make([]uint32, 1002)
		for i := range 1000 {
			at[table.Add(tableKeyOf(byte(i%3), i))] = 1<<30 + uint32(rng.Intn(spread))
		}
		table.Order(at)
		before, count, step := map[[4]byte]uint32{}, 0, uint32(max(60, spread>>20+1))
		table.aged(func(n uint32) {
			tenant, _ := table.Slot(n).key.Tenant()
			if at[n]+step < before[tenant] {
				t.Fatalf("%d comes after %d", at[n], before[tenant])
			}
			before[tenant], count = max(before[tenant], at[n]), count+1
		})
		if count != 1000 {
			t.Fatalf("%d are left", count)
		}
	}
}
