package sites

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/delivery"
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
		var all []sized[string]
		for from := (sized[string]{size: -1}); ; {
			got := 0
			for s := range bySize(d, size, from) {
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
			if seen[s.key] {
				t.Fatalf("pages of %d: %s comes twice", page, s.key)
			}
			seen[s.key] = true
			if s.size != size[s.key] {
				t.Errorf("pages of %d: %s has %d, want %d", page, s.key, s.size, size[s.key])
			}
		}
		if len(all) != n || !slices.IsSortedFunc(all, func(a, b sized[string]) int {
			return cmp.Or(cmp.Compare(b.size, a.size), strings.Compare(a.key, b.key))
		}) {
			t.Errorf("pages of %d: %d sites, want %d in order", page, len(all), n)
		}
	}
	if _, err := d.sitesBySize(t.Context(), api.SiteFilter{Paging: api.Paging{After: "what is this"}}); err == nil {
		t.Error("a cursor that is none is taken")
	}
}

func bySize(d *Sites, sizes map[string]int, from sized[string]) iter.Seq[sized[string]] {
	return largestFirst(sizes, from, strings.Compare, func(after string) iter.Seq[string] {
		return keys(knownSites(d.Delivery, nil, after), func(s delivery.SiteInfo) string { return s.Name })
	})
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
		for range bySize(d, size, sized[string]{size: -1}) {
			if got++; got == 50 {
				break
			}
		}
	}
}
