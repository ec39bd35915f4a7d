package tally

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/route"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
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

// TestVoices: a network counts once, however many names its hosts have, by most of its answers, and if these were about
// mail of several tenants.
func TestVoices(t *testing.T) {
	for name, c := range map[string]struct {
		tenants int
		answers string // of networks 1 to 9: a digit, then T (taken) or B (blocks), by tenant a (capital) or b
		want    Standing
	}{
		"blocked":             {2, "1B1b 2B2b 3B3b 4T4t", Standing{4, 3}},
		"by one tenant's":     {2, "1B1B1B1B 2b2b2b 3T3t", Standing{1, 0}},
		"most answers count":  {2, "1B1T1t 2B2b2T", Standing{2, 1}},
		"a lone customer":     {2, "1T1t1B1B1B1B", Standing{0, 0}},
		"what it took before": {2, "1T1t1T1t1B1b", Standing{1, 1}},
		"no tenants":          {0, "1B1B1B1B1B1B1B1B1B1B 2T2T2T2T2T2T2T2T2T2T 3B3B", Standing{2, 1}},
	} {
		cfg := new(config.Config)
		cfg.Tenants = make([]*config.Tenant, c.tenants)
		x, now := New(func() *config.Config { return cfg }), time.Unix(1_000_000, 0)
		answer := func(n int, source string, class bounce.Class, tenant string, host int) {
			x.voices.hear(&Try{At: now, Source: source, Class: class,
				Host: route.Host{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, byte(n), byte(host)}), 25)}}, tenant)
		}
		for i, word := range strings.Fields(c.answers) {
			for k := 0; k < len(word); k += 2 {
				class, n := bounce.None, int(word[k]-'0')
				if word[k+1]|' ' == 'b' {
					class = bounce.SpamBlock
				}
				answer(n, "s", class, string(word[k+1]&' '), i+k)
				answer(n, "other", bounce.None, "a", 1)
			}
		}
		now = now.Add(voiceMemory - time.Second)
		if got := x.Standings(now)["s"]; got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if got := x.Standings(now.Add(time.Second)); len(got) > 0 || len(x.voices) > 0 {
			t.Errorf("%s: after an hour: %+v", name, got)
		}
	}
}
