package sites

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/delivery/suspensions"
	"example.org/mta/destdb"
	"example.org/mta/internal/bubble"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
)

// knowing makes a scheduler that knows n sites, and of each a host with two ports.
func knowing(tb testing.TB, n int) *suspensions.Shared {
	db := destdb.New(destdb.Lifetimes{})
	for i := range n {
		name := fmt.Sprintf("mx.site%06d.example", i)
		db.Site(name)
		for _, port := range []uint16{25, 587} {
			at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), port)
			db.Path(destdb.PathKey{Source: "out1", Addr: at}, name)
		}
		db.Learn([]destdb.Record{{Key: destdb.Key{Site: name}, Used: time.Now(), Allowed: 3}})
	}
	s := delivery.New(delivery.Config{DB: db, Source: func(string) (delivery.Source, bool) { return delivery.Source{}, false }})
	tb.Cleanup(s.Close)
	return &suspensions.Shared{Scheduler: s}
}

// However it is asked for, each that is meant comes once and in order: a listing of everything is
// the judge. In virtual time: the scheduler forgets hosts that nobody uses.
func TestKnownSitesAndHosts(t *testing.T) { bubble.Test(t, testKnownSitesAndHosts) }

func testKnownSitesAndHosts(t *testing.T) {
	const n = 2*someAtOnce + 7
	s := knowing(t, n)
	sites, hosts := s.Sites("", 2*n), s.Hosts(destdb.HostKey{}, 3*n)
	if len(sites) != n || len(hosts) != 2*n {
		t.Fatalf("%d sites, %d hosts", len(sites), len(hosts))
	}
	for _, x := range []struct {
		patterns     []string
		sites, hosts int
	}{
		{nil, n, 2 * n},
		{[]string{"MX.site000300.example"}, 1, 2},
		{[]string{"mx.site000300.example", "nobody", "mx.site000007.example", "mx.site000300.example"}, 2, 4},
		{[]string{".example"}, n, 2 * n},
		{[]string{".site000300.example", "mx.site000301.example"}, 2, 4},
		{[]string{"10.0.1.44"}, 0, 2},
		{[]string{"10.0.1.44:587"}, 0, 1},
		{[]string{"10.0.1.44:587", "10.0.1.44", "mx.site000300.example"}, 1, 2},
		{[]string{"10.0.1.44:26", "10.9.9.9", "nobody", ".elsewhere"}, 0, 0},
	} {
		for _, from := range []int{0, 1, 300, n - 1} {
			after := ""
			var place destdb.HostKey
			if from > 0 {
				after, place = sites[from-1].Name, hosts[2*from-1].Key()
			}
			var want, got []string
			for i := from; i < n; i++ {
				if api.Names(x.patterns, sites[i].Name) {
					want = append(want, sites[i].Name)
				}
			}
			for site := range knownSites(s, x.patterns, after) {
				got = append(got, site.Name)
			}
			if !slices.Equal(got, want) || from == 0 && len(got) != x.sites {
				t.Errorf("%q from %d: %d sites, want %d", x.patterns, from, len(got), len(want))
			}
			want, got = nil, nil
			for _, h := range hosts[2*from:] {
				if api.Names(x.patterns, h.Name, h.Addr.Addr().String(), h.Addr.String()) {
					want = append(want, cursorOf(h.Key()))
				}
			}
			for h := range knownHosts(s, x.patterns, place) {
				got = append(got, cursorOf(h.Key()))
				if hostCursor(cursorOf(h.Key())) != h.Key() {
					t.Errorf("the cursor %q is read as %+v", cursorOf(h.Key()), hostCursor(cursorOf(h.Key())))
				}
			}
			if !slices.Equal(got, want) || from == 0 && len(got) != x.hosts {
				t.Errorf("%q from %d: hosts %s, want %s", x.patterns, from, strings.Join(got, " "), strings.Join(want, " "))
			}
		}
	}
}

// BenchmarkKnown is what the relay asks of delivery for 'mta sites' and 'mta hosts' with a hundred
// thousand sites. While one page is copied, deliveries wait.
func BenchmarkKnown(b *testing.B) {
	s := knowing(b, 100_000)
	for _, x := range []struct {
		name string
		ask  func()
	}{
		{"page of sites", func() { s.Sites("mx.site050000.example", someAtOnce) }},
		{"page of hosts", func() { s.Hosts(destdb.HostKey{Name: "mx.site050000.example"}, someAtOnce) }},
		{"site by name", func() {
			for range knownSites(s, []string{"mx.site050000.example"}, "") {
			}
		}},
		{"hosts by name", func() {
			for range knownHosts(s, []string{"mx.site050000.example"}, destdb.HostKey{}) {
			}
		}},
		{"all sites", func() {
			for range knownSites(s, []string{".nobody"}, "") {
			}
		}},
	} {
		b.Run(strings.ReplaceAll(x.name, " ", "-"), func(b *testing.B) {
			for b.Loop() {
				x.ask()
			}
		})
	}
}

// A site that only the queue knows has its place among the others, and comes once.
func TestSitesWithMailInTheQueueOnly(t *testing.T) {
	for _, x := range []struct {
		known, keys string
		want        string
	}{
		{"b d", "a c e", "a b c d e"}, {"b", "b", "b"}, {"", "a b", "a b"}, {"a b", "", "a b"}, {"b d", "b c", "b c d"},
	} {
		known := func(yield func(delivery.SiteInfo) bool) {
			for _, name := range strings.Fields(x.known) {
				var s delivery.SiteInfo
				s.Name, s.Live = name, 1
				if !yield(s) {
					return
				}
			}
		}
		var got []string
		for s := range withQueued(known, strings.Fields(x.keys)) {
			if (s.Live == 1) != slices.Contains(strings.Fields(x.known), s.Name) {
				t.Errorf("%+v: what is known of %s is not told", x, s.Name)
			}
			got = append(got, s.Name)
		}
		if strings.Join(got, " ") != x.want {
			t.Errorf("%+v: got %v", x, got)
		}
		for range withQueued(known, strings.Fields(x.keys)) {
			break
		}
	}
}

// TestWaitingKeys: a site is listed by name for any mail that the queue has for it, though all of it be held.
func TestWaitingKeys(t *testing.T) {
	counts := make(map[string]*queue.Count)
	for name, state := range map[string]queue.State{"a": queue.StateHeld, "b": queue.StateDeferred, "c": queue.StateDue} {
		c := &queue.Count{Total: 1}
		c.States[state] = 1
		counts[name] = c
	}
	counts["empty"] = new(queue.Count)
	if got := waitingKeys(counts, nil, ""); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("listed are %q", got)
	}
	if got := waitingKeys(counts, nil, "a"); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("after a there are %q", got)
	}
}
