package sites

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"example.org/mta/operator/api"
	"example.org/mta/queue"
)

// However it is paged, each site comes once: those with mail first, the longest queue before, and then
// the others by name.
func TestSitesBySizeComeOnce(t *testing.T) {
	const n, mail = 2*someAtOnce + 7, 40
	q, err := queue.Open(queue.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	d := &Sites{Delivery: knowing(t, n), Queue: q, Now: time.Now}
	size := make(map[string]int)
	for i := range mail {
		name := fmt.Sprintf("mx.site%06d.example", 7*i)
		size[name] = 1 + i%5
	}
	for _, page := range []int{1, 3, 50, n + 1} {
		var all []sizedSite
		for from := (sizedSite{size: -1}); ; {
			got := 0
			for s := range d.bySize(nil, size, from) {
				if got++; got > page {
					break
				}
				all = append(all, s)
			}
			if got <= page {
				break
			}
			from = all[len(all)-1]
		}
		seen := make(map[string]bool)
		for _, s := range all {
			if seen[s.name] {
				t.Fatalf("pages of %d: %s comes twice", page, s.name)
			}
			seen[s.name] = true
			if s.size != size[s.name] {
				t.Errorf("pages of %d: %s has %d, want %d", page, s.name, s.size, size[s.name])
			}
		}
		if len(all) != n || !slices.IsSortedFunc(all, func(a, b sizedSite) int {
			if a.behind(b) {
				return 1
			}
			return -1
		}) {
			t.Errorf("pages of %d: %d sites, want %d in order", page, len(all), n)
		}
	}
	if _, err := d.sitesBySize(t.Context(), api.SiteFilter{Paging: api.Paging{After: "what is this"}}); err == nil {
		t.Error("a cursor that is none is taken")
	}
}

func BenchmarkSitesBySize(b *testing.B) {
	d := &Sites{Delivery: knowing(b, 100_000), Now: time.Now}
	size := make(map[string]int)
	for i := range 1000 {
		name := fmt.Sprintf("mx.site%06d.example", 7*i)
		size[name] = i
	}
	b.ReportAllocs()
	for b.Loop() {
		got := 0
		for range d.bySize(nil, size, sizedSite{size: -1}) {
			if got++; got == 50 {
				break
			}
		}
	}
}
