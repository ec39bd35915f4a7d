package tally

import (
	"fmt"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/mta/accounting"
)

// TestRecentTriesAreBoundedAndInOrder: many sites share what there is, none loses its last error to deliveries, and each has
// its own tries with the newest first.
func TestRecentTriesAreBoundedAndInOrder(t *testing.T) {
	x := recents{by: make(map[string]*recent)}
	now := time.Unix(0, 0)
	const sites = 1000
	for i := range 200 * sites {
		kind := accounting.Delivery
		if i < sites {
			kind = accounting.Bounce
		}
		x.add(fmt.Sprint(i%sites), Try{At: now.Add(time.Duration(i) * time.Second), Kind: kind, Message: envelope.ID(i)})
	}
	if len(x.by) != sites || x.n > maxTries+2*sites {
		t.Errorf("%d sites with %d tries", len(x.by), x.n)
	}
	n := 0
	for name, r := range x.by {
		n += r.len()
		for i, try := range r.tries.newestFirst() {
			if fmt.Sprint(int(try.Message)%sites) != name || int(try.Message)/sites != 199-i {
				t.Fatalf("site %s: try %d is %d", name, i, try.Message)
			}
		}
		if len(r.errors.all) != 1 || len(r.tries.all) == 0 {
			t.Fatalf("site %s has %d errors and %d tries", name, len(r.errors.all), len(r.tries.all))
		}
	}
	if n != x.n {
		t.Errorf("%d tries are counted, and there are %d", x.n, n)
	}
	for i := range 3 * maxTries {
		x.add(fmt.Sprint("new", i), Try{At: now.Add(time.Hour * 10000), Kind: accounting.Bounce})
	}
	if x.n > 2*maxTries || len(x.by) > maxTries {
		t.Errorf("%d sites with %d tries", len(x.by), x.n)
	}
}
