package queue

import (
	"fmt"
	"maps"
	"math/rand"
	"strings"
	"testing"

	"example.org/mta/internal/envelope"
	"example.org/mta/queue/vfs"
)

// What each tenant has in the queue is right after any history, and after a restart with indexes, without them
// and with those of an older program.
func TestUsageOfTenants(t *testing.T) {
	inTime(t, func(t *testing.T) {
		fs, rng := vfs.Memory(), rand.New(rand.NewSource(1))
		q := open(t, small(t, fs))
		defer func() { shut(t, q) }()
		type sent struct {
			tenant string
			octets int64
			left   int
		}
		living := map[envelope.ID]*sent{}
		want := func(when string) {
			t.Helper()
			model := map[string]Usage{}
			for _, s := range living {
				if u := model[s.tenant]; s.tenant != "" {
					model[s.tenant] = Usage{u.Messages + 1, u.Octets + s.octets}
				}
			}
			if got := q.Usages(); !maps.Equal(got, model) {
				t.Fatalf("%s: usage is %v, want %v", when, got, model)
			}
			if got := q.Usage("t1"); got != model["t1"] {
				t.Fatalf("%s: usage of t1 is %v, want %v", when, got, model["t1"])
			}
		}
		names := []string{"", "t1", "t2", strings.Repeat("long", 100)}
		for round := range 12 {
			for range 60 {
				m := message(1+rng.Intn(2), "box.example")
				m.Tenant = names[rng.Intn(len(names))]
				if rng.Intn(20) == 0 {
					m.Tenant = fmt.Sprintf("once%d", round)
				}
				size := rng.Intn(3 << 10) // the largest have their own file
				accept(t, q, m, strings.Repeat("x", size))
				living[m.ID] = &sent{m.Tenant, int64(size), len(m.Recipients)}
			}
			want(fmt.Sprintf("round %d, accepted", round))
			for range 50 {
				l := next(t, q)
				s := living[l.Message.ID]
				if err := q.Settle(l.Message.ID, indexes(l)[:1], Delivered); err != nil {
					t.Fatal(err)
				}
				if s.left--; s.left == 0 {
					delete(living, l.Message.ID)
				}
			}
			want(fmt.Sprintf("round %d, delivered", round))
			shut(t, q)
			files, _ := fs.List("/q")
			for _, f := range files {
				if name := "/q/" + f.Name; strings.HasSuffix(name, indexSuffix) && round%3 > 0 {
					fs.Remove(name)
					if round%3 == 2 {
						w, _ := fs.Create(name)
						w.WriteAt([]byte("mtaidx2\n"+strings.Repeat("\x00", 200)), 0)
						w.Close()
					}
				}
			}
			q = open(t, small(t, fs))
			want(fmt.Sprintf("round %d, opened", round))
		}
		if q.Stats().Compacted == 0 {
			t.Log("no segment was compacted")
		}
		for len(living) > 0 {
			l := next(t, q)
			q.Settle(l.Message.ID, indexes(l), Removed)
			delete(living, l.Message.ID)
		}
		want("emptied")
		if len(q.tenants.pages) != 0 || len(q.tenants.byName) != 0 {
			t.Errorf("%d pages and %d names are left of nothing", len(q.tenants.pages), len(q.tenants.byName))
		}
	})
}

// The count of a tenant costs a few octets for a message, and what is gone gives its memory back.
func TestTenantsGiveMemoryBack(t *testing.T) {
	ts := newTenants()
	const n = 100_000
	for id := range uint64(n) {
		ts.add(id+1, "acme", 10)
	}
	for id := range uint64(n) {
		if id%50 != 0 {
			ts.remove(id + 1)
			ts.remove(id + 1) // twice is once
		}
	}
	room := 0
	for _, p := range ts.pages {
		room += cap(p.all)
	}
	if u := ts.usage("acme"); u != (Usage{n / 50, n / 5}) || room > 4*n/50 {
		t.Errorf("%+v are left, with room for %d", u, room)
	}
}

func BenchmarkTenants(b *testing.B) {
	ts := newTenants()
	const queued = 1_000_000
	for id := range uint64(queued) {
		ts.add(id, "acme", 10)
	}
	b.ReportAllocs()
	for id := uint64(queued); b.Loop(); id++ {
		ts.add(id, "acme", 10)
		ts.remove(id - queued)
	}
}
