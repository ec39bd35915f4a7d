package dispatch

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestThrottledMailOfManyProvidersLeaves: the ledger counts 63 providers by themselves and the others together;
// mail of each leaves as tokens come.
func TestThrottledMailOfManyProvidersLeaves(t *testing.T) {
	const providers = 80
	w := newWarmStage(t, strings.NewReplacer("hourly = 10", "hourly = 400", "daily = 15", "daily = 4000").Replace(holding))
	for i := range providers {
		rt := *w.routes["x.example"]
		rt.Domain, rt.Provider = fmt.Sprintf("p%d.example", i), fmt.Sprintf("p%d", i)
		rt.Site = "mx." + rt.Domain
		w.routes[rt.Domain] = &rt
		for range 2 {
			w.next++
			l := w.lease(w.next, 0, "r@"+rt.Domain)
			l.Message.Tenant, l.Message.Received = "acme", w.clock
			w.handle(l)
		}
	}
	w.pass(time.Hour)
	left := make(map[string]int)
	for _, j := range w.jobs {
		left[j.Route.Provider]++
	}
	for i := range providers {
		p := fmt.Sprintf("p%d", i)
		if left[p] != 2 {
			t.Errorf("%s: %d of 2 have left, %d wait", p, left[p], w.ParkedInLines(tokens("acme", p)))
		}
	}
}
