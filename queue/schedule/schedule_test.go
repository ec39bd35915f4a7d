package schedule

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"unsafe"

	"example.org/mta/internal/parking"
)

func TestEntryIsSmall(t *testing.T) {
	if got := unsafe.Sizeof(Entry{}); got != 40 {
		t.Fatalf("an entry takes %d octets, want 40: ten million of them must fit in 400 MB", got)
	}
}

func TestTierAndAttempts(t *testing.T) {
	var e Entry
	for tier := range uint8(8) {
		want := min(tier, 5)
		e.SetTier(tier)
		for a := Nothing; a <= Transfer; a++ {
			if e.SetAction(a); e.Action() != a || e.Tier() != want {
				t.Fatalf("tier %d with action %d became tier %d with %d", tier, a, e.Tier(), e.Action())
			}
		}
		for _, n := range []uint16{0, 1, MaxAttempts - 1, MaxAttempts, 1<<16 - 1} {
			if e.SetAttempts(n); e.Attempts() != min(n, MaxAttempts) || e.Tier() != want || e.Action() != Transfer {
				t.Fatalf("tier %d with %d attempts became tier %d with %d", tier, n, e.Tier(), e.Attempts())
			}
		}
		if e.SetTier(tier); e.Attempts() != MaxAttempts {
			t.Fatalf("tier %d: %d attempts", tier, e.Attempts())
		}
	}
}

func TestSizeClass(t *testing.T) {
	for _, n := range []int64{0, 1, 63, 64, 65, 71, 72, 73, 127, 128, 129, 1000, 2112, 65535, 65536, 65537, 1 << 20, 25 << 20, 1 << 32} {
		got := Octets(SizeClass(n))
		if got < n || got > max(64, n+n/8+8) {
			t.Errorf("Octets(SizeClass(%d)) = %d", n, got)
		}
		if c := SizeClass(n); c > 0 && Octets(c-1) >= n {
			t.Errorf("SizeClass(%d) = %d is not the smallest", n, c)
		}
	}
}

func TestLoc(t *testing.T) {
	var e Entry
	data, note := LocOf(MaxSegments-1, MaxOffset), LocOf(1, 16)
	e.SetData(data)
	e.SetNote(note)
	if e.Data() != data || e.Note() != note {
		t.Fatalf("got %x and %x back, want %x and %x", e.Data(), e.Note(), data, note)
	}
	if data.Segment() != MaxSegments-1 || data.Offset() != MaxOffset {
		t.Fatalf("segment %d offset %d", data.Segment(), data.Offset())
	}
}

// TestTableAgainstModel does at random what the queue does to the table and compares it with a
// slice after each round.
func TestTableAgainstModel(t *testing.T) {
	for seed := range int64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { tableAgainstModel(t, rand.New(rand.NewSource(seed))) })
	}
}

type modelEntry struct {
	id   uint64
	rcpt uint16
	list int
}

func tableAgainstModel(t *testing.T, rng *rand.Rand) {
	tab := New()
	lists := []List{tab.NewList(), tab.NewList(), tab.NewList()}
	var model []modelEntry
	order := make([][]modelEntry, len(lists)) // what each list must have, in order
	id := uint64(0)
	for range 60 {
		for range rng.Intn(200) {
			id += uint64(1 + rng.Intn(3))
			n := 1
			if rng.Intn(50) == 0 {
				n = rng.Intn(3000)
			}
			for r := range n {
				l := rng.Intn(len(lists))
				m := modelEntry{id, uint16(r), l}
				model = append(model, m)
				order[l] = append(order[l], m)
				tab.Push(lists[l], tab.Append(Entry{ID: id, Rcpt: uint16(r)}, Names{}, Due))
			}
		}
		kill, dead := rng.Float64(), map[modelEntry]bool{}
		model = slices.DeleteFunc(model, func(m modelEntry) bool {
			if rng.Float64() > kill {
				return false
			}
			s, e := tab.Find(m.id, m.rcpt)
			if e == nil {
				t.Fatalf("message %d recipient %d is not found", m.id, m.rcpt)
			}
			tab.Free(s)
			dead[m] = true
			return true
		})
		for l := range order {
			order[l] = slices.DeleteFunc(order[l], func(m modelEntry) bool { return dead[m] })
		}
		tab.Tidy()
		compareTable(t, tab, model)
		for l := range lists {
			var got []modelEntry
			for s := tab.Front(lists[l]); s != None && s&headBit == 0; s = tab.At(s).next {
				got = append(got, modelEntry{tab.At(s).ID, tab.At(s).Rcpt, l})
			}
			if !slices.Equal(got, order[l]) {
				t.Fatalf("list %d has %d entries, want %d, or another order", l, len(got), len(order[l]))
			}
		}
		if have, least := tab.Bytes(), int64(len(model)*entryOctets); have > 8*least+6*chunkLen*entryOctets {
			t.Fatalf("%d octets for %d living entries", have, len(model))
		}
	}
}

func compareTable(t *testing.T, tab *Table, model []modelEntry) {
	t.Helper()
	if tab.Len() != len(model) || tab.Count(Due) != len(model) {
		t.Fatalf("table has %d entries, want %d", tab.Len(), len(model))
	}
	i := 0
	tab.Ascend(0, func(_ Slot, e *Entry) bool {
		if m := model[i]; m.id != e.ID || m.rcpt != e.Rcpt {
			t.Fatalf("entry %d is %d/%d, want %d/%d", i, e.ID, e.Rcpt, m.id, m.rcpt)
		}
		i++
		return true
	})
	if i != len(model) {
		t.Fatalf("Ascend gave %d, want %d", i, len(model))
	}
	tab.Descend(^uint64(0), func(_ Slot, e *Entry) bool {
		i--
		if m := model[i]; m.id != e.ID || m.rcpt != e.Rcpt {
			t.Fatalf("downwards, entry %d is %d/%d, want %d/%d", i, e.ID, e.Rcpt, m.id, m.rcpt)
		}
		return true
	})
	if i != 0 {
		t.Fatalf("Descend left %d out", i)
	}
	if len(model) == 0 {
		return
	}
	mid := model[len(model)/2].id
	want, got := 0, 0
	for _, m := range model {
		if m.id == mid {
			want++
		}
	}
	tab.Run(mid, func(Slot, *Entry) bool { got++; return true })
	if got != want {
		t.Fatalf("Run of %d gave %d, want %d", mid, got, want)
	}
	first := true
	tab.Descend(mid, func(_ Slot, e *Entry) bool {
		if first && e.ID != mid {
			t.Fatalf("Descend from %d began at %d", mid, e.ID)
		}
		first = false
		return false
	})
}

// TestWheelAgainstModel adds, takes off and advances at random; each entry must come out in its
// second, neither before nor after.
func TestWheelAgainstModel(t *testing.T) {
	for seed := range int64(5) {
		rng := rand.New(rand.NewSource(seed))
		tab := New()
		now := uint32(1_700_000_000 + rng.Intn(1<<25))
		w := NewWheel(tab, now)
		want := map[uint64]uint32{}
		id := uint64(0)
		for range 150 {
			for range rng.Intn(30) {
				id++
				due := now + uint32(rng.Int63n(1<<uint(1+rng.Intn(26))))
				if rng.Intn(20) == 0 {
					due = now - uint32(rng.Intn(1000))
				}
				want[id] = due
				w.Add(tab.Append(Entry{ID: id, Due: due}, Names{}, Deferred))
			}
			for victim := range want {
				if rng.Intn(10) == 0 {
					s, _ := tab.Find(victim, 0)
					tab.Free(s)
					delete(want, victim)
				}
				break
			}
			tab.Tidy()
			if rng.Intn(2) == 0 {
				now += uint32(rng.Intn(1 << uint(1+rng.Intn(20))))
			} else if at, ok := w.Next(); ok {
				now = max(now, at)
			}
			for w.Advance(now, 1+rng.Intn(100), func(s Slot, e *Entry) {
				if want[e.ID] != e.Due || e.Due > now {
					t.Fatalf("seed %d: entry %d due %d came out at %d", seed, e.ID, e.Due, now)
				}
				delete(want, e.ID)
				tab.Free(s)
			}) {
			}
			at, ok := w.Next()
			for id, due := range want {
				if due <= now {
					t.Fatalf("seed %d: entry %d due %d is late at %d", seed, id, due, now)
				}
				if !ok || at > due {
					t.Fatalf("seed %d: Next says %d %v, entry %d is due %d", seed, at, ok, id, due)
				}
			}
		}
	}
}

// site is the line of a site with nothing but the key.
func site(name string) parking.Line { return parking.Line{Key: parking.Key{Name: name}} }

func TestKeys(t *testing.T) {
	tab := New()
	keys := NewKeys(tab)
	a := tab.Append(Entry{ID: 1}, Names{}, Leased)
	keys.Hold(tab.At(a))
	keys.Set(tab.At(a), keys.Number(site("site a")))
	keys.Park(a)
	n, ok := keys.Lookup(site("site a"))
	if !ok || keys.Waiting(n) != 1 || keys.all[n].entries != 1 || keys.First(n) != a {
		t.Fatalf("key %d %v: %d waiting, %d entries", n, ok, keys.Waiting(n), keys.all[n].entries)
	}
	if keys.Last(n) != a {
		t.Fatal("the only one is not the last")
	}
	later := tab.Append(Entry{ID: 2}, Names{}, Leased)
	keys.Hold(tab.At(later))
	keys.Set(tab.At(later), n)
	keys.Park(later)
	if keys.First(n) != a || keys.Last(n) != later {
		t.Fatalf("first %d, last %d, want %d and %d", keys.First(n), keys.Last(n), a, later)
	}
	keys.Unpark(later)
	keys.Release(tab.At(later))
	tab.Free(later)
	keys.Unpark(a)
	keys.Set(tab.At(a), keys.Number(site("site b")))
	if _, ok := keys.Lookup(site("site a")); ok {
		t.Fatal("a key without entries is still there")
	}
	if b := keys.Number(site("site c")); keys.Line(b) != site("site c") || b != n {
		t.Fatalf("number %d was not used again, got %d", n, b)
	}
}

// A line is its key's, which is there as long as a line is, and has entries of its own that wait.
func TestLinesOfAKey(t *testing.T) {
	tab := New()
	keys := NewKeys(tab)
	park := func(id uint64, line parking.Line) Slot {
		s := tab.Append(Entry{ID: id}, Names{}, Leased)
		keys.Hold(tab.At(s))
		keys.Set(tab.At(s), keys.Number(line))
		keys.Park(s)
		return s
	}
	drop := func(s Slot) {
		keys.Unpark(s)
		keys.Release(tab.At(s))
		tab.Free(s)
	}
	fromX, fromY := site("site"), site("site")
	fromX.Source, fromY.Source = "x", "y"
	x, y, plain := park(1, fromX), park(2, fromY), park(3, site("site"))
	n, ok := keys.Lookup(site("site"))
	if !ok || keys.First(n) != plain || keys.Waiting(n) != 1 || keys.Count() != 3 {
		t.Errorf("key %d %v has %d waiting; there are %d names", n, ok, keys.Waiting(n), keys.Count())
	}
	drop(plain)
	for s, line := range map[Slot]parking.Line{x: fromX, y: fromY} {
		k := tab.At(s).Key
		if keys.Line(k) != line || keys.Of(k) != n || keys.First(k) != s {
			t.Errorf("line %+v is %+v of key %d, and %d waits in it", line, keys.Line(k), keys.Of(k), keys.First(k))
		}
	}
	drop(x)
	if m, ok := keys.Lookup(site("site")); !ok || m != n {
		t.Error("a key is gone that has a line")
	}
	drop(y)
	if _, ok := keys.Lookup(site("site")); ok || keys.Count() != 0 {
		t.Errorf("%d names are left without entries", keys.Count())
	}
	for n := range uint32(keys.Len()) {
		if line := keys.Line(n); line != (parking.Line{}) {
			t.Errorf("number %d is still %+v", n, line)
		}
	}
}

func BenchmarkWheel(b *testing.B) {
	tab := New()
	w := NewWheel(tab, 1000)
	now := uint32(1000)
	rng := rand.New(rand.NewSource(1))
	b.ReportAllocs()
	for i := range b.N {
		w.Add(tab.Append(Entry{ID: uint64(i), Due: now + uint32(rng.Intn(20000))}, Names{}, Deferred))
		if i%100 == 0 {
			now++
			w.Advance(now, 1<<30, func(s Slot, _ *Entry) { tab.Free(s) })
			tab.Tidy()
		}
	}
}

// TestRewind: after the clock was set back, entries are due at their new times and not before, and an empty wheel
// has nothing to do.
func TestRewind(t *testing.T) {
	const ahead, right = 2_000_000_000, 1_700_000_000
	tab := New()
	w := NewWheel(tab, ahead)
	var slots []Slot
	for i, wait := range []uint32{5, 100, 5000, 1 << 20} {
		s := tab.Append(Entry{ID: uint64(i + 1), Due: ahead + wait}, Names{}, Deferred)
		w.Add(s)
		slots = append(slots, s)
	}
	for _, s := range slots {
		tab.Unlink(s)
		tab.At(s).Due -= ahead - right
	}
	w.Rewind(right)
	if at, ok := w.Next(); ok {
		t.Errorf("an empty wheel has something to do at %d", at)
	}
	for _, s := range slots {
		w.Add(s)
	}
	if at, ok := w.Next(); !ok || at <= right || at > right+5 {
		t.Errorf("the next step is at %d, %v, want within 5 s of %d", at, ok, right)
	}
	came := 0
	for now := uint32(right); came < len(slots); {
		for w.Advance(now, 10, func(_ Slot, e *Entry) {
			came++
			if e.Due != now {
				t.Errorf("entry %d, due at %d, came out at %d", e.ID, e.Due, now)
			}
		}) {
		}
		at, ok := w.Next()
		if !ok {
			break
		}
		now = at
	}
	if came != len(slots) {
		t.Errorf("%d came out, want %d", came, len(slots))
	}
}

// BenchmarkCopy is how long the owner's lock is held for a stretch.
func BenchmarkCopy(b *testing.B) {
	s := NewSchedule(0)
	for id := range uint64(10 * stretchLen) {
		s.Keys.Hold(s.At(s.Append(Entry{ID: id, Key: s.Keys.Number(site(fmt.Sprint("site", id%50)))}, Names{}, Due)))
	}
	var to Stretch
	p := Part{Top: 1 << 63}
	p.States[Due] = true
	b.ReportAllocs()
	for b.Loop() {
		s.Copy(&to, stretchLen, &p)
	}
}
