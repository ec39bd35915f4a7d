package schedule

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"
)

// TestNamesAreBounded counts many more names than there are counters for, some of them with much mail, while mail
// comes and goes. Each row is off by no more than its error, the sum is exact, and the names with much mail have
// rows.
func TestNamesAreBounded(t *testing.T) {
	const most, large = 512, 40
	counts := []Count{{}}
	n := NewNumbering(func(string) string { return "" }, strings.Clone, func(i uint16) *Count { return &counts[i] },
		func() { counts = append(counts, Count{}) })
	n.Most = most
	rng := rand.New(rand.NewSource(1))
	type recipient struct {
		name   string
		number uint16
	}
	var queued []recipient
	truth := map[string]int{}
	for i := range 300_000 {
		name := fmt.Sprintf("small%d.example", rng.Intn(100_000))
		if rng.Intn(3) == 0 {
			name = fmt.Sprintf("large%d.example", rng.Intn(large))
		}
		number := n.Number(name, 1)
		counts[number].Total++
		queued = append(queued, recipient{name, number})
		truth[name]++
		for rng.Intn(2) == 0 && len(queued) > 20_000+i%30_000 {
			at := rng.Intn(len(queued))
			gone := queued[at]
			queued[at] = queued[len(queued)-1]
			queued = queued[:len(queued)-1]
			counts[gone.number].Total--
			truth[gone.name]--
		}
		if i%20_000 == 0 {
			checkNames(t, n, truth, len(queued))
		}
	}
	checkNames(t, n, truth, len(queued))
	if len(n.All) > most+1 || len(n.byName) > most {
		t.Errorf("%d counters for %d names, want at most %d", len(n.All), len(n.byName), most)
	}
	for i := range large {
		if name := fmt.Sprintf("large%d.example", i); counts[n.byName[name]].Total == 0 || n.byName[name] == 0 {
			t.Errorf("%s has %d recipients and no row", name, truth[name])
		}
	}
	for _, r := range queued {
		counts[r.number].Total--
	}
	if left := n.Leftover(n.FamilyOf("")); left != 0 || n.Scattered("large1.example") {
		t.Errorf("%d recipients of an empty queue may be counted under another name", left)
	}
}

func checkNames(t *testing.T, n *Numbering[string], truth map[string]int, queued int) {
	t.Helper()
	sum, leftover := 0, n.Leftover(n.FamilyOf(""))
	for number := 1; number < len(n.All); number++ {
		name, got := n.All[number].Name, int(n.counts(uint16(number)).Total)
		sum += got
		if number != int(n.byName[name]) {
			continue
		}
		over, under := int(n.Inherited(uint16(number))), int(min(*n.LostOf(name), leftover))
		if got-truth[name] > over || truth[name]-got > under {
			t.Fatalf("%s has %d recipients and is counted as %d, with errors of up to %d and %d", name, truth[name], got, over, under)
		}
	}
	if sum != queued {
		t.Fatalf("%d recipients are counted, want %d", sum, queued)
	}
}

// TestTenantsAreExact: however many campaigns there are, a tenant's counters go to its own mail only.
func TestTenantsAreExact(t *testing.T) {
	counts := []Count{{}}
	n := NewNumbering(func(o Origin) string { return o.Tenant }, Origin.Clone, func(i uint16) *Count { return &counts[i] },
		func() { counts = append(counts, Count{}) })
	n.Most = 300
	rng := rand.New(rand.NewSource(1))
	truth := map[string]uint32{}
	for range 100_000 {
		tenant := fmt.Sprint("tenant", rng.Intn(200))
		if rng.Intn(2) == 0 {
			tenant = "greedy"
		}
		number := n.Number(Origin{Tenant: tenant, Campaign: fmt.Sprint(rng.Intn(1000))}, 1)
		counts[number].Total++
		truth[tenant]++
	}
	got := map[string]uint32{}
	for number := 1; number < len(n.All); number++ {
		got[n.All[number].Name.Tenant] += counts[number].Total
	}
	for tenant, want := range truth {
		if got[tenant] != want {
			t.Errorf("%s has %d recipients and is counted as %d", tenant, want, got[tenant])
		}
	}
	if most := n.Most + 201*fewNames; len(n.All) > most {
		t.Errorf("%d counters, want at most %d", len(n.All), most)
	}
}
