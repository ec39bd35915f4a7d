package tally

import (
	"fmt"
	"net/netip"
	"reflect"
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

// TestVoices: a network counts once, however many names its hosts have, by most of its answers, apart if these were about
// mail of several tenants, and with all that it was sent. Neither mail of a tenant nor what was said about it is in what
// counts without it.
func TestVoices(t *testing.T) {
	for name, c := range map[string]struct {
		answers             string // of networks 1 to 9: a digit, then T (taken) or B (blocks), by tenant a (capital) or b
		beside              bool   // another source takes what is blocked, of a
		first, any, several Votes
		without             map[string]Votes // Several's
	}{
		"blocked": {"1B1b 2B2b 3B3b 4T4t", true, Votes{4, 3, 16, 12}, Votes{4, 3, 16, 12}, Votes{4, 3, 16, 12},
			map[string]Votes{"a": {4, 3, 4, 3}, "b": {4, 3, 12, 9}}},
		"by one tenant's": {"1B1B1B1B 2b2b2b 3T3t", true, Votes{3, 2, 18, 14}, Votes{3, 2, 18, 14}, Votes{1, 0, 18, 0},
			map[string]Votes{"a": {1, 0, 4, 0}, "b": {1, 0, 14, 0}}},
		"a tenant's networks": {"1B1B1B1b 2B2B2B2b 3T3t", true, Votes{3, 2, 20, 16}, Votes{3, 2, 20, 16}, Votes{3, 2, 20, 16},
			map[string]Votes{"a": {3, 2, 3, 2}, "b": {3, 2, 17, 14}}},
		"answered differently": {"1B1B1B1b1t1t 2T2t", true, Votes{2, 1, 16, 12}, Votes{2, 1, 16, 12}, Votes{2, 1, 16, 12},
			map[string]Votes{"a": {2, 0, 4, 0}, "b": {2, 1, 12, 9}}},
		"by few": {"1B 2T2t", true, Votes{2, 1, 6, 2}, Votes{1, 0, 6, 0}, Votes{1, 0, 6, 0},
			map[string]Votes{"a": {1, 0, 1, 0}, "b": {1, 0, 5, 0}}},
		"most answers count": {"1B1T1t 2B2b2T", true, Votes{2, 1, 12, 6}, Votes{2, 1, 12, 6}, Votes{2, 1, 12, 6},
			map[string]Votes{"a": {2, 1, 2, 1}, "b": {2, 0, 10, 0}}},
		"a lone customer": {"1T1t1B1B1B1B", true, Votes{1, 1, 12, 12}, Votes{1, 1, 12, 12}, Votes{0, 0, 12, 0},
			map[string]Votes{"a": {0, 0, 1, 0}, "b": {0, 0, 11, 0}}},
		"what it took before": {"1T1t1T1t1B1b", true, Votes{1, 1, 12, 12}, Votes{1, 1, 12, 12}, Votes{1, 1, 12, 12},
			map[string]Votes{"a": {1, 1, 3, 3}, "b": {1, 1, 9, 9}}},
		"blocks all sources": {"1B1b", false, Votes{0, 0, 2, 0}, Votes{0, 0, 2, 0}, Votes{0, 0, 2, 0},
			map[string]Votes{"a": {0, 0, 1, 0}, "b": {0, 0, 1, 0}}},
		"the same mail again": {"1B1b1D1D1D1D1D 2T2t", true, Votes{2, 0, 8, 0}, Votes{2, 0, 8, 0}, Votes{1, 0, 8, 0},
			map[string]Votes{"a": {1, 0, 2, 0}, "b": {1, 0, 6, 0}}},
	} {
		cfg := new(config.Config)
		cfg.Pools = []*config.Pool{{Shared: []string{"s", "other"}}}
		x, now := New(func() *config.Config { return cfg }), time.Unix(1_000_000, 0)
		answer := func(n int, source string, kind accounting.Type, class bounce.Class, tenant string, host int) {
			x.voices.hear(&Try{At: now, Kind: kind, Source: source, Class: class,
				Host: route.Host{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, byte(n), byte(host)}), 25)}}, tenant, 1)
		}
		for i, word := range strings.Fields(c.answers) {
			for k := 0; k < len(word); k += 2 {
				kind, class, n, tenant := accounting.Delivery, bounce.None, int(word[k]-'0'), "a"
				if word[k+1] >= 'a' {
					tenant = "b"
				}
				switch word[k+1] | ' ' {
				case 'b':
					kind, class = accounting.Bounce, bounce.SpamBlock
				case 'd':
					kind = accounting.TransientFailure
				}
				answer(n, "s", kind, class, tenant, i+k)
				if c.beside && kind != accounting.TransientFailure {
					answer(n, "other", accounting.Delivery, bounce.None, "a", 1)
				}
			}
		}
		now = now.Add(voiceMemory - time.Second)
		want := &Standing{c.first, c.any, c.several, c.without}
		if got := x.Standings(now)["s"]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		cfg.Pools[0].Shared = cfg.Pools[0].Shared[:1]
		if got := x.Standings(now)["s"].Any.Networks; got != max(c.any.Networks, 1) {
			t.Errorf("%s: as the only source: %d networks", name, got)
		}
		if got := x.Standings(now.Add(time.Second)); len(got) > 0 || len(x.voices.all) > 0 || x.voices.n != 0 {
			t.Errorf("%s: after an hour: %+v", name, got)
		}
	}
}
