package intake

import (
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/gcra"
)

// world is a book with a clock and a queue that the test sets.
type world struct {
	*Quotas
	limits map[string]QuotaLimits
	queued map[string]QuotaUsage
	now    time.Time
}

func newWorld(limits map[string]QuotaLimits) *world {
	w := &world{limits: limits, queued: map[string]QuotaUsage{}, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	w.Quotas = NewQuotas(func(t string) (QuotaLimits, bool) { l, ok := w.limits[t]; return l, ok },
		func(t string) QuotaUsage { return w.queued[t] }, func() time.Time { return w.now })
	return w
}

// submit begins a message and puts it into the queue, unless it is refused.
func (w *world) submit(tenant string, octets int64) (QuotaReason, bool) {
	c, lower, over := w.Begin(tenant, octets, false)
	if c != nil {
		u := w.queued[tenant]
		w.queued[tenant] = QuotaUsage{u.Messages + 1, u.Octets + octets}
		c.Accepted()
		c.Drop() // does nothing
	}
	return over.Reason, lower
}

func TestRateOfATenant(t *testing.T) {
	w := newWorld(map[string]QuotaLimits{"acme": {Rate: gcra.Rate{Events: 10, Per: time.Second, Burst: 3}}, "other": {}})
	for i := range 3 {
		if why, _ := w.submit("acme", 1); why != WithinQuota {
			t.Fatalf("message %d of the burst: %v", i, why)
		}
	}
	if _, _, over := w.Begin("acme", 1, false); over.Reason != OverRate || over.Wait != 100*time.Millisecond {
		t.Fatalf("the fourth: %+v, want to wait 100 ms", over)
	}
	if why, _ := w.submit("other", 1); why != WithinQuota {
		t.Fatalf("another tenant: %v", why)
	}
	accepted := 0
	for range 1000 {
		w.now = w.now.Add(10 * time.Millisecond)
		if why, _ := w.submit("acme", 1); why == WithinQuota {
			accepted++
		}
	}
	if accepted != 100 {
		t.Errorf("%d were accepted in 10 s at 10/s", accepted)
	}
	w.now = w.now.Add(time.Second)
	for _, c := range []struct {
		events int
		wait   time.Duration
	}{{1, 0}, {1, time.Hour}, {3600, time.Second}} { // nobody waits for what the rate was before
		w.limits["acme"] = QuotaLimits{Rate: gcra.Rate{Events: c.events, Per: time.Hour}}
		if _, _, over := w.Begin("acme", 1, false); over.Wait != c.wait {
			t.Errorf("at %d/h it waits for %v, want %v", c.events, over.Wait, c.wait)
		}
	}
}

// What is not accepted costs nothing of the rate.
func TestADroppedMessageGivesItsTurnBack(t *testing.T) {
	w := newWorld(map[string]QuotaLimits{"acme": {Rate: gcra.Rate{Events: 1, Per: time.Minute, Burst: 1}, Messages: 1}})
	for range 3 {
		c, _, over := w.Begin("acme", 1, false)
		if c == nil {
			t.Fatalf("refused after one that was dropped: %+v", over)
		}
		if _, _, second := w.Begin("acme", 1, false); second.Reason != OverRate {
			t.Fatalf("beside one that comes in: %+v", second)
		}
		c.Drop()
		c.Drop()
	}
}

// A message counts from its MAIL on, so that a thousand connections at once fit no more than a quota has.
func TestQuotasCountWhatIsComingIn(t *testing.T) {
	w := newWorld(map[string]QuotaLimits{"acme": {Messages: 10, Octets: 1000}})
	var claims []*QuotaClaim
	for {
		c, _, over := w.Begin("acme", 50, false)
		if c == nil {
			if over.Reason != OverMessages || len(claims) != 10 {
				t.Fatalf("%d were let in, then %+v", len(claims), over)
			}
			break
		}
		claims = append(claims, c)
	}
	for _, c := range claims {
		w.queued["acme"] = QuotaUsage{w.queued["acme"].Messages + 1, w.queued["acme"].Octets + 50}
		c.Accepted()
	}
	w.queued["acme"] = QuotaUsage{3, 900}
	if _, _, over := w.Begin("acme", 101, false); over.Reason != OverOctets {
		t.Errorf("900 and 101 of 1000 octets: %+v", over)
	}
	if c, _, over := w.Begin("acme", 100, false); c == nil {
		t.Errorf("900 and 100 of 1000 octets: %+v", over)
	}
}

func TestOverQuotaLowers(t *testing.T) {
	w := newWorld(map[string]QuotaLimits{"acme": {Messages: 1, Lower: true}})
	for i := range 3 {
		if why, lower := w.submit("acme", 1); lower != (i > 0) {
			t.Errorf("message %d: lowered is %v (%v)", i, lower, why)
		}
	}
	if s, _ := w.State("acme"); s.Lowered[OverMessages] != 2 || s.Refused != [QuotaReasons]int64{} || s.Now.Reason != OverMessages {
		t.Errorf("%+v", s)
	}
}

// Reports and postmasters' mail are beside the rate, and may fill the queue twice. They count.
func TestExemptMail(t *testing.T) {
	acme := QuotaLimits{Rate: gcra.Rate{Events: 1, Per: time.Hour, Burst: 1}, Messages: 3, Octets: 1000}
	w := newWorld(map[string]QuotaLimits{"acme": acme})
	var claims []*QuotaClaim
	for i := range 6 {
		c, lower, _ := w.Begin("acme", 1, true)
		if c == nil || lower {
			t.Fatalf("exempt message %d: claim %v, lowered %v", i, c, lower)
		}
		claims = append(claims, c)
	}
	if c, _, over := w.Begin("acme", 1, true); c != nil || over != (Excess{Reason: OverMessages, Limits: acme}) {
		t.Errorf("the seventh: %+v", over)
	}
	if s, _ := w.State("acme"); s.Coming.Messages != 6 || s.Now.Reason != OverMessages {
		t.Errorf("%+v: what is exempt counts", s)
	}
	for _, c := range claims {
		c.Drop()
	}
	for octets, want := range map[int64]QuotaReason{2000: WithinQuota, 2001: OverOctets} {
		c, _, over := w.Begin("acme", octets, true)
		if c.Drop(); over.Reason != want {
			t.Errorf("%d octets: %+v", octets, over)
		}
	}
	if c, _, over := w.Begin("acme", 1000, false); c == nil {
		t.Errorf("ordinary mail after that: %+v", over)
	}
	acme.Lower = true
	w.limits["acme"] = acme
	if c, lower, _ := w.Begin("acme", 2001, true); c == nil || !lower {
		t.Errorf("beyond that with over_quota = lower: %v, %v", c, lower)
	}
}

func TestConnectionsOfATenant(t *testing.T) {
	w := newWorld(map[string]QuotaLimits{"acme": {Connections: 2}, "other": {}})
	for i, want := range []QuotaReason{WithinQuota, WithinQuota, OverConnections} {
		if _, got := w.Connect("acme"); got.Reason != want {
			t.Errorf("connection %d: %v", i, got.Reason)
		}
	}
	w.Disconnect("acme")
	if _, got := w.Connect("acme"); got.Reason != WithinQuota {
		t.Errorf("after one has gone: %v", got.Reason)
	}
	w.limits["acme"] = QuotaLimits{Connections: 5} // a reload
	if _, got := w.Connect("acme"); got.Reason != WithinQuota {
		t.Errorf("after a reload: %v", got.Reason)
	}
}

// A clock that jumps makes no burst beyond the one that is allowed, and stops nobody.
func TestClockThatJumps(t *testing.T) {
	w := newWorld(map[string]QuotaLimits{"acme": {Rate: gcra.Rate{Events: 10, Per: time.Second, Burst: 2}}})
	count := func() (n int) {
		for {
			if why, _ := w.submit("acme", 1); why != WithinQuota {
				return n
			}
			n++
		}
	}
	count()
	w.now = w.now.Add(-time.Hour)
	w.now = w.now.Add(100 * time.Millisecond)
	w.submit("acme", 1)
	w.now = w.now.Add(100 * time.Millisecond)
	if n := count(); n != 1 {
		t.Errorf("%d are accepted in 100 ms after a jump back, want 1", n)
	}
	w.now = w.now.Add(24 * time.Hour)
	if n := count(); n != 2 {
		t.Errorf("%d are accepted at once after a jump ahead, want the burst of 2", n)
	}
}

// Tenants that a reload took away are forgotten, and their connections can still end.
func TestTenantsThatGo(t *testing.T) {
	w := newWorld(map[string]QuotaLimits{"acme": {}})
	w.Connect("acme")
	delete(w.limits, "acme")
	w.limits["new"] = QuotaLimits{}
	w.Connect("new")
	w.Disconnect("acme")
	w.limits["newer"] = QuotaLimits{}
	w.Connect("newer")
	if w.all["acme"] != nil || len(w.all) != 2 {
		t.Errorf("%d accounts", len(w.all))
	}
	if c, _, over := w.Begin("", 1, false); c != nil || over.Reason != WithinQuota {
		t.Error("mail without a tenant is noted")
	}
}

func BenchmarkBegin(b *testing.B) {
	w := newWorld(map[string]QuotaLimits{"acme": {Rate: gcra.Rate{Events: 1e9}, Messages: 1e9}})
	b.ReportAllocs()
	for b.Loop() {
		c, _, _ := w.Begin("acme", 100, false)
		c.Accepted()
	}
}

// TestWhatAClaimTakes of memory: itself alone, also where the message grows.
func TestWhatAClaimTakes(t *testing.T) {
	for _, share := range []bool{false, true} {
		w := newWorld(map[string]QuotaLimits{"acme": {Rate: gcra.Rate{Events: 1e9}, Messages: 1e9, Octets: 1e9}})
		if share {
			w.Share(&parts{rate: 1e9, messages: 1e9, octets: 1e9})
		}
		if n := testing.AllocsPerRun(100, func() {
			c, _, _ := w.Begin("acme", 100, false)
			c.Grow(200)
			c.Accepted()
		}); n > 1 {
			t.Errorf("%v allocations; the limits are shared: %v", n, share)
		}
	}
}

// A connection that came before its tenant was known is not taken for one that is counted.
func TestConnectionOfATenantThatBecomesKnown(t *testing.T) {
	w := newWorld(map[string]QuotaLimits{})
	if counted, over := w.Connect("acme"); counted || over.Reason != WithinQuota {
		t.Fatalf("of no known tenant: %v, %+v", counted, over)
	}
	w.limits["acme"] = QuotaLimits{Connections: 1}
	if counted, over := w.Connect("acme"); !counted || over.Reason != WithinQuota {
		t.Fatalf("the first: %v, %+v", counted, over)
	}
	if counted, over := w.Connect("acme"); counted || over.Reason != OverConnections {
		t.Fatalf("the second: %v, %+v", counted, over)
	}
}

// What comes counts as it comes, whatever size was declared, so that no number of connections brings more than the
// tenant may have. Refused messages hold nothing.
func TestContentCountsAsItComes(t *testing.T) {
	for name, c := range map[string]struct {
		declared int64
		sender   envelope.Address
		lower    bool
		taken    int // of ten messages
		last     int // tier 5
	}{
		"no size":           {0, "a@acme.example", false, 3, 0},
		"less than it is":   {10, "a@acme.example", false, 3, 0},
		"lowered":           {0, "a@acme.example", true, 10, 10},
		"a postmaster's":    {0, "postmaster@acme.example", false, 6, 0},
		"more than the one": {95_000, "a@acme.example", false, 1, 0},
	} {
		limits := QuotaLimits{Octets: 100_000, Lower: c.lower}
		book := NewQuotas(func(string) (QuotaLimits, bool) { return limits, true }, func(string) QuotaUsage { return QuotaUsage{} }, time.Now)
		d, _ := newDesk(Config{Quotas: book, Tier: 3, TierCeiling: 3})
		var all []*Message
		for range 10 {
			if m, r := d.Begin(t.Context(), webClient(), Envelope{Sender: c.sender, Size: c.declared}); r == nil {
				m.Recipient(t.Context(), envelope.Recipient{Address: "b@example.net"})
				m.Write([]byte("Subject: x\r\n\r\n"))
				all = append(all, m)
			}
		}
		for range 30 {
			for _, m := range all {
				m.Write([]byte(strings.Repeat(strings.Repeat("x", 98)+"\r\n", 10)))
			}
		}
		taken, last := 0, 0
		for _, m := range all {
			switch r := m.End(t.Context()); {
			case r == nil:
				taken++
				if tier, _, _ := m.tier(); tier == envelope.TierCount-1 {
					last++
				}
			case r.Code != 450 || !strings.Contains(r.Text, "tenant acme has its 100000 bytes"):
				t.Errorf("%s: %v", name, r)
			}
		}
		s, _ := book.State("acme")
		if taken != c.taken || last != c.last || s.Refused[OverOctets] != int64(10-taken) || s.Lowered[OverOctets] != int64(last) ||
			s.Coming.Octets < int64(taken)*30_000 || !c.lower && s.Coming.Octets > 2*limits.Octets {
			t.Errorf("%s: %d were taken, %d as the last, want %d and %d: %+v", name, taken, last, c.taken, c.last, s)
		}
		for _, m := range all {
			m.Drop()
		}
		if s, _ := book.State("acme"); s.Coming != (QuotaUsage{}) {
			t.Errorf("%s: %+v is held", name, s.Coming)
		}
	}
}
