package queue

import (
	"fmt"
	"maps"
	"math/rand"
	"strings"
	"testing"

	"example.org/mta/internal/envelope"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs/vfstest"
)

// What each tenant has in the queue is right after any history, and after a restart with indexes, without them
// and with those of an older program.
func TestUsageOfTenants(t *testing.T) {
	inTime(t, func(t *testing.T) {
		fs, rng := vfstest.Memory(), rand.New(rand.NewSource(1))
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
			model := map[string]schedule.Usage{}
			for _, s := range living {
				if u := model[s.tenant]; s.tenant != "" {
					model[s.tenant] = schedule.Usage{Messages: u.Messages + 1, Octets: u.Octets + s.octets}
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
				if name := "/q/" + f.Name; strings.HasSuffix(name, store.IndexSuffix) && round%3 > 0 {
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
		if left := q.s.Tenants.Usages(); len(left) != 0 {
			t.Errorf("%v is left of nothing", left)
		}
	})
}
