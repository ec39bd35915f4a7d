package destdb

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"example.org/mta/internal/reply"
)

var (
	t0      = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	addr    = netip.MustParseAddrPort("192.0.2.1:25")
	refused = reply.Local(451, reply.Enhanced{4, 4, 1}, "connect", "connection refused")
	backoff = Backoff{First: time.Minute, Max: 10 * time.Minute}
)

// open makes a connection that stands and has that backlog.
func open(db *DB, p *Path, made time.Time, backlog int) *Conn {
	c := db.Open(p, db.Site("site"), made)
	c.Phase, c.Backlog, c.Threshold, c.Limit = Open, backlog, 5, 10
	return c
}

func TestS6Classes(t *testing.T) {
	for _, x := range []struct {
		name    string
		prepare func(db *DB, p *Path)
		state   State
		working bool
	}{
		{"nothing is known", func(*DB, *Path) {}, Unused, true},
		{"being opened", func(db *DB, p *Path) { db.Open(p, db.Site("s"), t0) }, Active, true},
		{"busy", func(db *DB, p *Path) { open(db, p, t0, 1) }, Active, true},
		{"idle", func(db *DB, p *Path) { open(db, p, t0, 0) }, Idle, true},
		{"one busy, one idle", func(db *DB, p *Path) { open(db, p, t0, 0); open(db, p, t0, 1) }, Active, true},
		{"being closed", func(db *DB, p *Path) { open(db, p, t0, 1).Phase = Closing }, Closed, true},
		{"was closed", func(db *DB, p *Path) { db.Closed(open(db, p, t0, 0)) }, Closed, true},
		{"unreachable", func(db *DB, p *Path) { db.Unreachable(p.Host, t0, refused, backoff) }, Retry, false},
		{"turned this source away", func(db *DB, p *Path) { db.Refused(p, t0, refused, backoff) }, Retry, false},
		{"its time has come", func(db *DB, p *Path) { db.Refused(p, t0.Add(-time.Minute), refused, backoff) }, Retry, true},
		{"turned one away, serves another", func(db *DB, p *Path) { open(db, p, t0, 1); db.Refused(p, t0, refused, backoff) }, Active, true},
		{"works again", func(db *DB, p *Path) { db.Unreachable(p.Host, t0, refused, backoff); db.Works(p, t0) }, Unused, true},
	} {
		db := New(Lifetimes{})
		p := db.Path(PathKey{Source: "out1", Addr: addr}, "mx")
		x.prepare(db, p)
		if got := p.State(); got != x.state {
			t.Errorf("%s: %v, want %v", x.name, got, x.state)
		}
		if got := p.Working(t0); got != x.working {
			t.Errorf("%s: working %v, want %v", x.name, got, x.working)
		}
	}
}

func TestRefusalOfOneSourceIsNotTheOthers(t *testing.T) {
	db := New(Lifetimes{})
	a := db.Path(PathKey{Source: "out1", Addr: addr}, "mx")
	b := db.Path(PathKey{Source: "out2", Addr: addr}, "mx")
	db.Refused(a, t0, refused, backoff)
	if b.State() != Unused {
		t.Errorf("the other source's path is %v", b.State())
	}
	db.Unreachable(a.Host, t0, refused, backoff)
	if b.State() != Retry {
		t.Errorf("the host is unreachable, the other source's path is %v", b.State())
	}
}

func TestRetryTimesGrow(t *testing.T) {
	db := New(Lifetimes{})
	h := db.Host(addr, "mx")
	now := t0
	for i, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		db.Unreachable(h, now, refused, backoff)
		db.Unreachable(h, now.Add(time.Second), refused, backoff) // tried side by side
		if got := h.Broken.RetryAt.Sub(now); got != want*time.Minute || h.Broken.Failures != i+1 {
			t.Fatalf("failure %d: %v, %d in a row, want %v", i+1, got, h.Broken.Failures, want*time.Minute)
		}
		now = h.Broken.RetryAt
	}
}

func TestS14Collect(t *testing.T) {
	db := New(Lifetimes{Closed: 10 * time.Minute, Retry: 10 * time.Minute, Facts: time.Hour})
	p := db.Path(PathKey{Source: "out1", Addr: addr}, "mx")
	db.Closed(open(db, p, t0, 0))
	q := db.Path(PathKey{Source: "out2", Addr: addr}, "mx")
	db.Refused(q, t0, refused, backoff)
	live := db.Path(PathKey{Source: "out3", Addr: addr}, "mx")
	c := open(db, live, t0, 0)
	states := func() [3]State { return [3]State{p.State(), q.State(), live.State()} }

	keep := func(*Path) bool { return true }
	db.Collect(t0.Add(9*time.Minute), keep, nil)
	if got := states(); got != [3]State{Closed, Retry, Idle} {
		t.Fatalf("after 9 min: %v", got)
	}
	db.Collect(t0.Add(10*time.Minute), keep, nil)
	if got := states(); got != [3]State{Unused, Retry, Idle} {
		t.Fatalf("after 10 min: %v", got)
	}
	// A retry record's time counts from when it comes.
	db.Collect(t0.Add(11*time.Minute), keep, nil)
	if got := states(); got != [3]State{Unused, Unused, Idle} {
		t.Fatalf("after 11 min: %v", got)
	}
	db.Collect(t0.Add(11*time.Minute), nil, nil)
	if len(db.paths) != 1 || len(db.ways) != 1 {
		t.Errorf("%d paths in the picture, want the live one", len(db.paths))
	}
	db.Closed(c)
	db.Collect(t0.Add(2*time.Hour), nil, nil)
	if len(db.paths)+len(db.ways)+len(db.hosts)+len(db.sites) != 0 {
		t.Errorf("left: %d paths, %d hosts, %d sites", len(db.paths), len(db.hosts), len(db.sites))
	}
	for _, r := range db.Changed(100) {
		if !r.Gone {
			t.Errorf("record %v is not to be removed", r.Key)
		}
	}
}

func TestConnectionsAreNewestFirstAndCounted(t *testing.T) {
	db := New(Lifetimes{})
	p := db.Path(PathKey{Source: "out1", Addr: addr}, "mx")
	a, b, c := open(db, p, t0, 0), open(db, p, t0.Add(1), 0), open(db, p, t0.Add(2), 0)
	if got := p.Conns(); !reflect.DeepEqual(got, []*Conn{c, b, a}) {
		t.Fatal("not newest first")
	}
	if p.Host.Live() != 3 || db.Site("site").Live() != 3 {
		t.Error("counts are off")
	}
	db.Closed(b)
	db.Closed(b)
	if got := p.Conns(); !reflect.DeepEqual(got, []*Conn{c, a}) || p.Host.Live() != 2 || db.Site("site").Live() != 2 {
		t.Errorf("after one end: %v", got)
	}
}

// What is kept comes back as it was; and what one node has learned, another knows (S15).
func TestS15RecordsReachAnotherPicture(t *testing.T) {
	db := New(Lifetimes{})
	p := db.Path(PathKey{Source: "out1", Addr: addr, Policy: "tls"}, "mx")
	db.Closed(open(db, p, t0, 0))
	db.Unreachable(p.Host, t0, refused, backoff)
	p.Host.Facts.WindowMessages = 32
	db.Taught(p.Host, t0)
	s := db.Site("site")
	s.Allowed, s.Actions = 7, []Action{{What: "suspended", Reason: "421 too many", Begin: t0, End: t0.Add(time.Minute)}}
	db.Touched(s, t0)
	records := db.Changed(100)
	if len(records) != 3 || len(db.Changed(100)) != 0 {
		t.Fatalf("%d records, want those of the host, the path and the site, once", len(records))
	}

	other := New(Lifetimes{})
	q := other.Path(PathKey{Source: "out1", Addr: addr, Policy: "tls"}, "mx")
	for range 2 { // to learn the same again is harmless
		other.Learn(records)
	}
	if _, retrying := q.Retrying(t0.Add(30 * time.Second)); !retrying || q.State() != Retry {
		t.Errorf("the other node would try a host that is down; its path is %v", q.State())
	}
	if !q.Made.Equal(t0) || q.Host.Facts.WindowMessages != 32 || other.Site("site").Allowed != 7 || len(other.Site("site").Actions) != 1 {
		t.Errorf("learned: %+v %+v %+v", q, q.Host.Facts, other.Site("site"))
	}
	if _, retrying := q.Retrying(t0.Add(2 * time.Minute)); retrying {
		t.Error("still waiting after the retry time")
	}
}

// A suspension holds over a restart, ends by itself, and keeps its host in the picture until then.
func TestSuspensionIsKept(t *testing.T) {
	db := New(Lifetimes{Closed: 10 * time.Minute, Facts: time.Hour})
	p := db.Path(PathKey{Source: "out1", Addr: addr}, "mx")
	open(db, p, t0, 1)
	db.Suspend(p.Host, Action{What: "suspended", Source: "out1", Reason: "a test", Begin: t0, End: t0.Add(24 * time.Hour)}, t0)
	db.Suspend(p.Host, Action{What: "suspended", Source: "out2", Begin: t0, End: t0.Add(48 * time.Hour)}, t0)
	other := New(Lifetimes{Closed: 10 * time.Minute, Facts: time.Hour})
	other.Learn(db.Changed(100))
	other.Collect(t0.Add(20*time.Hour), nil, nil)
	q := other.Path(PathKey{Source: "out1", Addr: addr}, "mx")
	for _, p := range []*Path{p, q} {
		at, waiting := p.Retrying(t0)
		if !waiting || !at.Equal(t0.Add(24*time.Hour)) || p.Working(t0) || p.Proven(t0) || p.Suspension(t0).Reason != "a test" || !p.DownSince(t0, t0).Equal(t0) {
			t.Errorf("until %v, waiting %v, working %v", at, waiting, p.Working(t0))
		}
		if late := t0.Add(24 * time.Hour); !p.Working(late) || p.Suspension(late) != nil {
			t.Error("it does not end")
		}
	}
	if n := other.Resume(q.Host, t0.Add(time.Hour)); n != 2 || !q.Working(t0.Add(time.Hour)) {
		t.Errorf("%d suspensions ended", n)
	}
}

// A record makes a path that stands in until one with a policy comes.
func TestRecordStandsIn(t *testing.T) {
	db := New(Lifetimes{})
	db.Learn([]Record{{Key: Key{Addr: addr, Source: "out1"}, Made: t0}})
	p := db.Path(PathKey{Source: "out1", Addr: addr, Policy: "tls"}, "mx")
	if !p.Made.Equal(t0) || len(db.paths) != 1 || len(db.Hosts(HostKey{}, 2)[0].Paths) != 1 {
		t.Errorf("%d paths, made %v", len(db.paths), p.Made)
	}
}

// A host of which only a source's path is remembered has its name after a restart, too.
func TestPathsKeepTheNameOfTheirHost(t *testing.T) {
	db := New(Lifetimes{})
	p := db.Path(PathKey{Source: "out1", Addr: addr}, "mx")
	db.Refused(p, t0, refused, backoff)
	records := db.Changed(10)
	if len(records) != 1 || records[0].Source == "" {
		t.Fatalf("records %+v, want that of the path alone", records)
	}
	other := New(Lifetimes{})
	other.Learn(records)
	if h := other.Hosts(HostKey{}, 2); len(h) != 1 || h[0].Name != "mx" {
		t.Errorf("hosts %+v", h)
	}
	other = New(Lifetimes{})
	other.Host(addr, "mx2")
	other.Learn(records)
	if h := other.Hosts(HostKey{}, 2); len(h) != 1 || h[0].Name != "mx2" {
		t.Errorf("an old name took the place of a newer one: %+v", h)
	}
}

func TestLaterRetryRecordCounts(t *testing.T) {
	db := New(Lifetimes{})
	h := db.Host(addr, "mx")
	db.Unreachable(h, t0, refused, Backoff{First: time.Hour, Max: time.Hour})
	db.Learn([]Record{{Key: Key{Addr: addr}, Broken: Broken{Failures: 1, RetryAt: t0.Add(time.Minute)}}})
	if got := h.Broken.RetryAt.Sub(t0); got != time.Hour {
		t.Errorf("an earlier record has shortened the wait to %v", got)
	}
}

func TestForget(t *testing.T) {
	db := New(Lifetimes{})
	p := db.Path(PathKey{Source: "out1", Addr: addr}, "mx")
	db.Refused(p, t0, refused, backoff)
	db.Unreachable(p.Host, t0, refused, backoff)
	if n := db.Forget([]netip.AddrPort{addr, netip.MustParseAddrPort("192.0.2.9:25")}); n != 1 || p.State() != Unused {
		t.Errorf("forgot %d hosts, the path is %v", n, p.State())
	}
}

func TestListings(t *testing.T) {
	db := New(Lifetimes{})
	p := db.Path(PathKey{Source: "out1", Addr: addr}, "mx")
	open(db, p, t0, 3)
	hosts, sites := db.Hosts(HostKey{}, 2), db.Sites("", 2)
	if len(hosts) != 1 || hosts[0].Name != "mx" || len(hosts[0].Paths) != 1 || hosts[0].Paths[0].State != Active ||
		hosts[0].Paths[0].Connections != 1 || hosts[0].Paths[0].Backlog != 3 {
		t.Errorf("hosts %+v", hosts)
	}
	if len(sites) != 1 || sites[0].Live != 1 {
		t.Errorf("sites %+v", sites)
	}
}

// A large picture is collected a part at a time, and wholly within a minute, whatever comes and goes
// meanwhile; who has another name by now is where that name is.
func TestCollectGoesOnWhereItWas(t *testing.T) {
	const n = 5000
	db := New(Lifetimes{Facts: time.Hour})
	at := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 25)
	}
	for i := range n {
		db.Taught(db.Host(at(i), fmt.Sprintf("mx%04d", i)), t0)
		db.Touched(db.Site(fmt.Sprintf("site%04d", i)), t0)
	}
	for i := range n { // half of them move to the end, the others are used again
		if h := db.Host(at(i), ""); i%2 == 0 {
			db.Host(at(i), fmt.Sprintf("ny%04d", i))
		} else {
			db.Taught(h, t0.Add(time.Hour))
		}
	}
	if first := db.Hosts(HostKey{}, 1)[0].Name; first != "mx0001" || len(db.Hosts(HostKey{Name: "ny"}, n)) != n/2 {
		t.Errorf("the first host is %s", first)
	}
	for i := range 60 {
		before := len(db.hosts) + len(db.sites)
		db.Collect(t0.Add(time.Hour), nil, nil)
		if gone := before - len(db.hosts) - len(db.sites); i == 0 && gone > 2*sweep(n) {
			t.Errorf("%d of %d went at once", gone, before)
		}
	}
	if len(db.hosts) != n/2 || len(db.Hosts(HostKey{}, n)) != n/2 || len(db.sites)+len(db.Sites("", n)) != 0 {
		t.Errorf("left: %d hosts, %d sites", len(db.hosts), len(db.sites))
	}
}

// BenchmarkCollect is what the picture of a hundred thousand sites holds its owner up for, each second.
func BenchmarkCollect(b *testing.B) {
	db := New(Lifetimes{})
	for i := range 100_000 {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 25)
		p := db.Path(PathKey{Source: "out1", Addr: at}, fmt.Sprintf("mx%06d", i))
		p.Made = t0
		db.Taught(p.Host, t0)
		db.Touched(db.Site(fmt.Sprintf("site%06d", i)), t0)
	}
	for b.Loop() {
		db.Collect(t0, nil, nil)
	}
}

// A host that failed once before the relay stopped may have been back a moment later. One that failed
// again has been away all the time.
func TestDownSinceOneFailureBeforeTheStart(t *testing.T) {
	started := t0.Add(time.Hour)
	db := New(Lifetimes{})
	p := db.Path(PathKey{Source: "out1", Addr: addr}, "mx")
	for _, x := range []struct {
		fails func(at time.Time)
		at    time.Time
		since time.Time
	}{
		{func(at time.Time) { db.Unreachable(p.Host, at, refused, backoff) }, t0, started},
		{func(at time.Time) { db.Unreachable(p.Host, at, refused, backoff) }, started, t0},
		{func(at time.Time) { db.Works(p, at); db.Refused(p, at, refused, backoff) }, started.Add(time.Second), started.Add(time.Second)},
	} {
		x.fails(x.at)
		if got := p.DownSince(x.at, started); !got.Equal(x.since) {
			t.Errorf("after a failure at %v: down since %v, want %v", x.at, got, x.since)
		}
	}
}

// TestHeard: what another relay knows of a host counts until this one knows something itself.
func TestHeard(t *testing.T) {
	theirs, end := reply.Local(451, reply.Enhanced{4, 4, 1}, "connect", "theirs"), t0.Add(time.Minute)
	db := New(Lifetimes{})
	if !db.Heard(addr, "mx.example", theirs, t0, end) || db.Heard(addr, "", theirs, t0, end.Add(time.Hour)) {
		t.Error("want the first failure heeded, and not the second")
	}
	h := db.Known(addr)
	if h.Name != "mx.example" || !h.Broken.Waiting(end.Add(-1)) || h.Broken.Waiting(end) {
		t.Errorf("the host is %+v", h)
	}
	if db.Unreachable(h, t0, refused, backoff); db.Recovered(addr, true) {
		t.Error("its own failure is forgotten")
	}
	if !db.Recovered(addr, false) || db.Recovered(addr, false) || h.Broken.Failures > 0 {
		t.Errorf("want the host sound: %+v", h.Broken)
	}
	if db.Heard(addr, "", theirs, t0, end); !db.Recovered(addr, true) {
		t.Error("want what was only heard forgotten")
	}
	db.Heard(addr, "", theirs, t0, end)
	for _, r := range db.Changed(10) {
		if r.Broken.Failures > 0 {
			t.Errorf("a restart would have it as its own failure: %+v", r)
		}
	}
	other := netip.MustParseAddrPort("192.0.2.2:25") // that nobody has sent to
	db.Heard(other, "", theirs, t0, end)
	db.Collect(end.Add(time.Hour), nil, nil)
	if db.Known(other) != nil || db.Known(addr) == nil {
		t.Error("want the host forgotten that was only heard of")
	}
}

// TestASuspendedSiteIsNotForgotten, however long nothing is sent to it.
func TestASuspendedSiteIsNotForgotten(t *testing.T) {
	db := New(Lifetimes{})
	s, end := db.Site("site"), t0.Add(30*24*time.Hour)
	s.Actions = []Action{{What: "suspended", Begin: t0, End: end}}
	db.Touched(s, t0)
	for now := t0; now.Before(end); now = now.Add(time.Hour) {
		if db.Collect(now, nil, nil); len(db.Site("site").Actions) != 1 {
			t.Fatalf("it is forgotten after %v", now.Sub(t0))
		}
	}
	if db.Collect(end.Add(time.Hour), nil, nil); len(db.sites) != 0 {
		t.Error("it is known for ever")
	}
}

// TestHasten: a wait is shortened to what it would be now, and never made longer.
func TestHasten(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, x := range []struct {
		failures     int
		first, most  time.Duration
		waits, after time.Duration
	}{
		{1, time.Minute, time.Hour, 3 * time.Hour, time.Minute},
		{3, time.Minute, time.Hour, 3 * time.Hour, 4 * time.Minute},
		{9, time.Minute, time.Hour, 3 * time.Hour, time.Hour},
		{1, time.Minute, time.Hour, 30 * time.Second, 30 * time.Second},
		{0, time.Minute, time.Hour, 3 * time.Hour, 3 * time.Hour},
	} {
		db := New(Lifetimes{})
		p := db.Path(PathKey{Source: "out1", Addr: netip.MustParseAddrPort("192.0.2.1:25")}, "mx")
		b := Broken{Failures: x.failures, RetryAt: now.Add(x.waits)}
		p.Broken, p.Host.Broken = b, b
		db.Hasten(p, now, Backoff{x.first, x.most})
		if a, b := p.Broken.RetryAt.Sub(now), p.Host.Broken.RetryAt.Sub(now); a != x.after || b != x.after {
			t.Errorf("after %d failures and with %v to go: %v and %v, want %v", x.failures, x.waits, a, b, x.after)
		}
		if n := len(db.Changed(10)); (n == 2) != (x.after != x.waits) {
			t.Errorf("%d records are to be written", n)
		}
	}
}
