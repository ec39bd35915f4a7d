package waits

import (
	"fmt"
	"math"
	"math/rand"
	"testing"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/destdb"
	"example.org/mta/internal/parking"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
	"example.org/mta/queue/schedule"
)

var now = time.Date(2026, 11, 28, 3, 0, 0, 0, time.UTC)

// world is a queue, a delivery and providers.
type world struct {
	lines map[parking.Line]queue.LineCount
	sites map[string]delivery.SiteInfo
	asked int // of sites
}

func (w *world) EachLine(each func(parking.Line, *queue.LineCount)) {
	for line, c := range w.lines {
		each(line, &c)
	}
}

func (w *world) EachTenantLine(_ time.Duration, each func(queue.TenantLine, int)) bool {
	for line, c := range w.lines {
		for s, n := range c.States {
			if n > 0 {
				each(queue.TenantLine{Tenant: line.Tenant, Line: line, State: queue.State(s)}, int(n))
			}
		}
	}
	return true
}

func (w *world) Site(name string) (delivery.SiteInfo, bool) {
	w.asked++
	s, ok := w.sites[name]
	return s, ok
}

func (w *world) Provider(k parking.Key) (string, bool) {
	if k.Name == "gmail-smtp-in.l.google.com" {
		return "google", true
	}
	return "", true
}

func (w *world) waits() *Waits {
	return &Waits{Queue: w, Delivery: w, Providers: w, Now: func() time.Time { return now }}
}

func (w *world) add(line parking.Line, state queue.State, n uint32) {
	c := w.lines[line]
	c.States[state] += n
	c.Total += n
	w.lines[line] = c
}

func siteLine(name string, r parking.Reason) parking.Line {
	return parking.Line{Key: parking.Key{Name: name}, Reason: r}
}

// night is mail over the kinds of trouble that there are.
func night() *world {
	const d290, gmail, own = "mx.d290.example", "gmail-smtp-in.l.google.com", "mx.own.example"
	w := &world{lines: map[parking.Line]queue.LineCount{}, sites: map[string]delivery.SiteInfo{
		d290: {Lanes: []delivery.LaneInfo{{Source: "a", Waits: parking.Unreachable, Down: now.Add(-38 * time.Minute),
			Hosts: []destdb.HostKey{{Name: d290}}}, {Source: "b", Hosts: []destdb.HostKey{{Name: d290}, {Name: "mx2"}}}}},
		gmail: {SiteInfo: destdb.SiteInfo{Site: destdb.Site{Actions: []destdb.Action{{What: "suspended", Begin: now.Add(-time.Minute),
			End: now.Add(time.Minute), Waits: parking.Rate}}}}},
		own: {Lanes: []delivery.LaneInfo{
			{Source: "a", Waiting: 3, Carried: 40, CarriedOf: map[string]int{"": 40}, Waits: parking.Limit, Why: "connection_limit of site mx.own.example",
				Oldest: now.Add(-time.Minute)},
			{Source: "b", Waiting: 3, Waits: parking.Turn, Oldest: now}}},
	}}
	w.add(siteLine(d290, parking.Unreachable), queue.StateDeferred, 100_000)
	w.add(parking.Line{Key: parking.Key{Name: d290}, Source: "a", Tenant: "acme"}, queue.StateParked, 34_000)
	w.add(siteLine(gmail, parking.Greylisted), queue.StateDeferred, 40_000)
	w.add(parking.Line{Key: parking.Key{Name: gmail}, Source: "b"}, queue.StateParked, 1_000)
	for i := range 300 {
		w.add(siteLine(fmt.Sprintf("d%d.example", i), parking.DNS), queue.StateDeferred, 8)
	}
	w.add(parking.Line{Key: parking.Key{Name: own}, Source: "a"}, queue.StateParked, 500)
	w.add(parking.Line{Key: parking.Key{Name: own}, Source: "b"}, queue.StateParked, 7)
	w.add(parking.Line{Key: parking.Key{Name: own}, Source: "a"}, queue.StateLeased, 45)
	w.add(parking.Line{Key: parking.Key{Name: own}, Source: "b"}, queue.StateLeased, 3)
	w.add(siteLine(own, parking.Mailbox), queue.StateDue, 2)
	w.add(parking.Line{}, queue.StateDeferred, 6)
	w.add(parking.Line{}, queue.StateLeased, 3)
	w.add(parking.Line{Key: parking.Key{Name: "new.example"}, Route: true}, queue.StateParked, 4)
	w.add(parking.Line{Key: parking.Key{Kind: parking.Pause, Name: "tenant acme"}}, queue.StateParked, 9)
	w.add(parking.Line{Key: parking.Key{Kind: parking.Tokens, Name: "news", Provider: "google"}}, queue.StateParked, 8)
	w.add(siteLine(own, parking.Greylisted), queue.StateHeld, 5)
	return w
}

func TestTheReasonsOfANight(t *testing.T) {
	p := night().waits().Picture()
	got := map[parking.Reason]api.WaitsFor{}
	for _, r := range p.ByReason() {
		got[r.Reason] = r
	}
	for reason, want := range map[parking.Reason]api.WaitsFor{
		parking.Unreachable: {Recipients: 134_000, Places: 1, Place: "mx.d290.example", AtPlace: 134_000,
			Since: now.Add(-38 * time.Minute)},
		parking.Rate: {Recipients: 41_000, Places: 1, Place: "google", AtPlace: 41_000, Since: now.Add(-time.Minute)},
		parking.DNS:  {Recipients: 2_404, Places: 301, Place: "d0.example", AtPlace: 8},
		parking.Limit: {Recipients: 505, Places: 1, Place: "connection_limit of site mx.own.example",
			AtPlace: 505}, // and 5 of 45 in delivery, where 40 are on connections
		parking.Turn:      {Recipients: 15, Places: 2, Place: "mx.own.example", AtPlace: 12},
		parking.Scheduled: {Recipients: 6, Places: 1, AtPlace: 6},
		parking.Paused:    {Recipients: 9, Places: 1, Place: "tenant acme", AtPlace: 9},
		parking.Warmup:    {Recipients: 8, Places: 1, Place: "google", AtPlace: 8},
		parking.Held:      {Recipients: 5, Places: 1, Place: "mx.own.example", AtPlace: 5},
	} {
		if want.Reason = reason; got[reason] != want {
			t.Errorf("%v: %+v, want %+v", reason, got[reason], want)
		}
		delete(got, reason)
	}
	if len(got) > 0 {
		t.Errorf("and %+v", got)
	}
	w := api.Waiting{Recipients: p.Total(), Reasons: p.ByReason(), Leave: 3.5, Median: 1800}
	if got, want := w.Line(now), "177,952 wait: 134,000 for unreachable hosts (mx.d290.example, for 38m), 41,000 for "+
		"hosts' rate limits (google, for 1m), 2,404 for the DNS (301 places), 548 for others; 3.5/s leave, half of them after 30m"; got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
	if got := (&api.Waiting{Median: api.Figure(math.NaN())}).Line(now); got != "nothing waits; 0/s leave" {
		t.Error(got)
	}
}

// TestTheReasonsOfNames: each provider, source, pool and tenant has its own reasons, most first.
func TestTheReasonsOfNames(t *testing.T) {
	w := night().waits()
	p := w.Picture()
	for what, c := range map[string]struct {
		list  []api.WaitsFor
		first parking.Reason
		worst int
	}{
		"google": {p.ByProvider["google"], parking.Rate, 41_008}, "no provider": {p.ByProvider[""], parking.Unreachable, 136_914},
		"a": {p.BySource["a"], parking.Unreachable, 34_505}, "b": {p.BySource["b"], parking.Rate, 1_000},
		"a host":               {p.ByHost[destdb.HostKey{Name: "mx.d290.example"}], parking.Unreachable, 134_000},
		"a host of one source": {p.ByHost[destdb.HostKey{Name: "mx2"}], parking.Unreachable, 134_000},
		"news":                 {p.ByPool["news"], parking.Warmup, 8},
		"news and its source":  {Merged(p.ByPool["news"], p.BySource["b"]), parking.Rate, 1_008}, "acme": {w.ByTenant()["acme"], parking.Unreachable, 34_000},
	} {
		if len(c.list) == 0 || c.list[0].Reason != c.first || api.Worst(c.list) != c.worst {
			t.Errorf("%s: %+v, want %v first, and %d", what, c.list, c.first, c.worst)
		}
	}
}

// TestCountsAreThoseOfALook: whatever waits, a count is what a look at each recipient finds.
func TestCountsAreThoseOfALook(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	for range 50 {
		w := night()
		for range 200 {
			line := parking.Line{Key: parking.Key{Kind: parking.Kind(rng.Intn(3)), Name: fmt.Sprint("mx", rng.Intn(9))},
				Source: []string{"", "a", "b"}[rng.Intn(3)], Route: rng.Intn(9) == 0}
			if line.Kind == parking.Site {
				line.Reason = parking.Reason(rng.Intn(len(parking.Reasons())))
			}
			lane := delivery.LaneInfo{Source: "a", Waits: parking.Reason(rng.Intn(len(parking.Reasons()))), Waiting: rng.Intn(2)}
			w.sites[line.Name] = delivery.SiteInfo{Lanes: []delivery.LaneInfo{lane}}
			if s := queue.State(1 + rng.Intn(schedule.States-1)); s != queue.StateLeased {
				w.add(line, s, uint32(rng.Intn(50)))
			}
		}
		want, look, total := map[Cause]int{}, w.waits().Look(), 0
		for line, c := range w.lines {
			for s, n := range c.States {
				for range n {
					if state := queue.State(s); state != queue.StateLeased {
						want[look.Cause(line, state)]++
					}
					total++
				}
			}
		}
		p, leased := w.waits().Picture(), 0
		p.Each(func(c Cause, n int) {
			leased += n - want[c]
			delete(want, c)
		})
		if len(want) > 0 || leased != 11 || p.Total() != total-40 {
			t.Fatalf("%d wait, want %d; not counted: %v; %d of those in delivery wait, want 11", p.Total(), total-40, want, leased)
		}
	}
}

// TestASiteIsAskedForOnce: what becomes of a site costs the same however much waits for it.
func TestASiteIsAskedForOnce(t *testing.T) {
	w := night()
	x := w.waits()
	if x.Picture(); w.asked != len(w.sites)+301 {
		t.Errorf("delivery was asked %d times for %d sites", w.asked, len(w.sites)+301)
	}
	if before := w.asked; x.Picture().Total() == 0 || w.asked != before {
		t.Error("a count is not shown again")
	}
}

// BenchmarkPicture is for 100,000 sites with two lines each.
func BenchmarkPicture(b *testing.B) {
	w := &world{lines: map[parking.Line]queue.LineCount{}}
	for i := range 100_000 {
		w.add(siteLine(fmt.Sprintf("mx.d%d.example", i), parking.Greylisted), queue.StateDeferred, 30)
		w.add(siteLine(fmt.Sprintf("mx.d%d.example", i), parking.Unreachable), queue.StateDeferred, 3)
	}
	for b.Loop() {
		w.waits().Picture()
	}
}

// TestWhatWaitsInDeliveryIsItsTenants: beside what is on connections, of that tenant.
func TestWhatWaitsInDeliveryIsItsTenants(t *testing.T) {
	const limit = "max_message_rate 20/s of provider big"
	w := &world{lines: map[parking.Line]queue.LineCount{}, sites: map[string]delivery.SiteInfo{"mx.own.example": {Lanes: []delivery.LaneInfo{
		{Source: "a", Waiting: 193, Carried: 12, CarriedOf: map[string]int{"acme": 10, "": 2}, Waits: parking.Limit, Why: limit}}}}}
	for tenant, n := range map[string]uint32{"": 105, "acme": 100} {
		w.add(parking.Line{Key: parking.Key{Name: "mx.own.example"}, Source: "a", Tenant: tenant}, queue.StateLeased, n)
	}
	of := w.waits().ByTenant()
	for tenant, n := range map[string]int{"": 103, "acme": 90} {
		if got := of[tenant]; len(got) != 1 || got[0].Reason != parking.Limit || got[0].Recipients != n || got[0].Place != limit {
			t.Errorf("%q waits for %+v, want %d for a limit", tenant, got, n)
		}
	}
}
