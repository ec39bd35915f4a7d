package schedule

import "testing"

// The count of a tenant costs a few octets for a message, and what is gone gives its memory back.
func TestTenantsGiveMemoryBack(t *testing.T) {
	ts := NewTenants()
	const n = 100_000
	for id := range uint64(n) {
		ts.Add(id+1, "acme", 10)
	}
	for id := range uint64(n) {
		if id%50 != 0 {
			ts.Remove(id + 1)
			ts.Remove(id + 1) // twice is once
		}
	}
	room := 0
	for _, p := range ts.pages {
		room += cap(p.all)
	}
	if u := ts.Usage("acme"); u != (Usage{n / 50, n / 5}) || room > 4*n/50 {
		t.Errorf("%+v are left, with room for %d", u, room)
	}
}

func BenchmarkTenants(b *testing.B) {
	ts := NewTenants()
	const queued = 1_000_000
	for id := range uint64(queued) {
		ts.Add(id, "acme", 10)
	}
	b.ReportAllocs()
	for id := uint64(queued); b.Loop(); id++ {
		ts.Add(id, "acme", 10)
		ts.Remove(id - queued)
	}
}
