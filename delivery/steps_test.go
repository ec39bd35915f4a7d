package delivery

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"example.org/mta/destdb"
	"example.org/mta/internal/reply"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// scene is a picture of one site, for the steps.
type scene struct {
	db    *destdb.DB
	paths []*destdb.Path
}

func newScene(hosts int) *scene {
	s := &scene{db: destdb.New(destdb.Lifetimes{})}
	for i := range hosts {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}), 25)
		s.paths = append(s.paths, s.db.Path(destdb.PathKey{Source: "out1", Addr: addr}, "mx"))
	}
	return s
}

// conn adds a connection to host i, made after so many seconds, with that backlog.
func (s *scene) conn(i, made, backlog int) *destdb.Conn {
	at := t0.Add(time.Duration(made) * time.Second)
	c := s.db.Open(s.paths[i], s.db.Site("a"), at)
	c.Phase, c.Backlog, c.Threshold, c.Limit = destdb.Open, backlog, 5, 10
	return c
}

func (s *scene) broken(i int, retryIn time.Duration) {
	s.db.Refused(s.paths[i], t0, reply.Local(451, reply.Enhanced{4, 4, 1}, "connect", "refused"), destdb.Backoff{First: retryIn, Max: retryIn})
}

func (s *scene) closed(i, made int) { s.db.Closed(s.conn(i, made, 0)) }

func TestS7NewestWithRoomFirst(t *testing.T) {
	s := newScene(2)
	old := s.conn(0, 1, 1)
	middle := s.conn(1, 2, 4)
	newest := s.conn(0, 3, 5)
	if got := newestWithSpace(s.paths); got != middle {
		t.Errorf("the newest is at its threshold: got the one made at %v, want the middle one", got.Made.Sub(t0))
	}
	middle.Backlog = 5
	if got := newestWithSpace(s.paths); got != old {
		t.Error("want the old one")
	}
	newest.Backlog = 4
	if got := newestWithSpace(s.paths); got != newest {
		t.Error("want the newest one")
	}
	newest.Backlog, old.Backlog = 0, 0
	if got := newestWithSpace(s.paths); got != nil {
		t.Error("an idle connection was taken for a busy one")
	}
	newest.Backlog, newest.Phase = 1, destdb.Closing
	if got := newestWithSpace(s.paths); got != nil {
		t.Error("a connection that is being closed was taken")
	}
}

func TestS8RideOnAShorterQueue(t *testing.T) {
	for _, x := range []struct {
		name     string
		backlogs []int // of connections made one after the other
		want     int   // -1 none
	}{
		{"all equal: the newest", []int{6, 6, 6}, 2},
		{"first one shorter than the newest", []int{5, 5, 6}, 1},
		{"an old one is shorter", []int{5, 7, 6}, 0},
		{"the newest is the shortest", []int{8, 7, 6}, 2},
		{"the newest is idle and doesn't count", []int{6, 7, 0}, 0},
		{"full ones are left out", []int{10, 10, 10}, -1},
		{"only one has room", []int{10, 9, 10}, 1},
		{"none is busy", []int{0, 0}, -1},
		{"none at all", nil, -1},
	} {
		s := newScene(2)
		var conns []*destdb.Conn
		for i, b := range x.backlogs {
			conns = append(conns, s.conn(i%2, i, b))
		}
		var want *destdb.Conn
		if x.want >= 0 {
			want = conns[x.want]
		}
		if got := ride(s.paths); got != want {
			t.Errorf("%s: got %+v", x.name, got)
		}
	}
}

func TestS9MostRecentIdle(t *testing.T) {
	s := newScene(2)
	a, b := s.conn(0, 1, 0), s.conn(1, 2, 0)
	s.conn(1, 3, 1)
	a.Since, b.Since = t0.Add(20*time.Second), t0.Add(10*time.Second)
	if got := newestIdle(s.paths); got != a {
		t.Error("want the one that was busy last, though it was made first")
	}
}

func TestS10WhereToOpen(t *testing.T) {
	all := func(*destdb.Path) bool { return true }
	rnd := rand.New(rand.NewPCG(1, 1))
	s := newScene(7)
	// 0 unused, 1 closed long ago, 2 closed lately, 3 retry whose time has come, 4 one connection,
	// 5 two connections, 6 retry later.
	s.closed(1, 10)
	s.closed(2, 20)
	s.broken(3, time.Second)
	s.conn(4, 30, 1)
	s.conn(5, 30, 1)
	s.conn(5, 31, 1)
	s.broken(6, time.Hour)
	now := t0.Add(time.Minute)
	left := map[*destdb.Path]bool{}
	for _, want := range []int{0, 1, 2, 3, 4, 5} {
		got := pathToOpen(s.paths, now, rnd, func(p *destdb.Path) bool { return !left[p] })
		if got != s.paths[want] {
			t.Fatalf("after %d others: got %v, want host %d", len(left), got.Addr, want)
		}
		left[got] = true
	}
	if got := pathToOpen(s.paths, now, rnd, func(p *destdb.Path) bool { return !left[p] }); got != nil {
		t.Errorf("got %v before its retry time", got.Addr)
	}
	if got := pathToOpen(nil, now, rnd, all); got != nil {
		t.Error("a host out of nothing")
	}
}

// Random among equals means uniform: chi-square with 4 degrees of freedom, 18.5 is p = 0.001.
func TestS10RandomIsUniform(t *testing.T) {
	now := t0.Add(time.Minute)
	for name, prepare := range map[string]func(s *scene, i int){
		"unused": func(*scene, int) {},
		"retry":  func(s *scene, i int) { s.broken(i, time.Second) },
		"least":  func(s *scene, i int) { s.conn(i, i, 1) },
	} {
		s := newScene(5)
		for i := range s.paths {
			prepare(s, i)
		}
		rnd := rand.New(rand.NewPCG(7, 7))
		counts := map[*destdb.Path]float64{}
		const n = 10_000
		for range n {
			counts[pathToOpen(s.paths, now, rnd, func(*destdb.Path) bool { return true })]++
		}
		chi := 0.0
		for _, p := range s.paths {
			chi += (counts[p] - n/5) * (counts[p] - n/5) / (n / 5)
		}
		if chi > 18.5 {
			t.Errorf("%s: chi-square %.1f, counts %v", name, chi, counts)
		}
	}
}

// A host that has failed is tried by one connection before more are opened to it.
func TestSuspectIsTriedByOne(t *testing.T) {
	s := newScene(1)
	s.broken(0, time.Second)
	now := t0.Add(time.Minute)
	rnd := rand.New(rand.NewPCG(1, 1))
	all := func(*destdb.Path) bool { return true }
	if pathToOpen(s.paths, now, rnd, all) == nil {
		t.Fatal("its time has come, yet it isn't tried")
	}
	s.db.Open(s.paths[0], s.db.Site("a"), now)
	if pathToOpen(s.paths, now, rnd, all) != nil {
		t.Error("a second connection while the first is on its way")
	}
	s.db.Works(s.paths[0], now)
	if pathToOpen(s.paths, now, rnd, all) == nil {
		t.Error("it works again, yet no second connection")
	}
}

func TestFirstToRetry(t *testing.T) {
	s := newScene(3)
	s.broken(0, time.Hour)
	s.broken(1, time.Minute)
	if got, at := firstToRetry([][]*destdb.Path{s.paths[:1], s.paths[1:]}, t0); got != s.paths[1] || !at.Equal(s.paths[1].RetryAt()) {
		t.Error("want the one whose time comes first, of any tier")
	}
}

// S3, S4: a hundred workers, messages that want all they can get.
func TestS3Allowance(t *testing.T) {
	const workers = 100
	a := Config{MaxMessageConcurrency: 2, ScaleMaxConcurrency: 10}
	running := []int{}
	free := func() int {
		n := workers
		for _, r := range running {
			n -= r
		}
		return n
	}
	grow := func() {
		for more := true; more; {
			more = false
			for i := range running {
				if free() > 0 && a.allows(running[i], free()) {
					running[i]++
					more = true
				}
			}
		}
	}
	running = append(running, 0)
	grow()
	if running[0] != 91 {
		t.Errorf("alone a message gets %d workers, want 91", running[0])
	}
	// The second takes what is left; jobs end at random, and who may takes the place.
	rnd := rand.New(rand.NewPCG(3, 3))
	settle := func(steps int) (mean []float64) {
		mean = make([]float64, len(running))
		for step := range 2 * steps {
			busy := workers - free()
			for i, k := 0, rnd.IntN(busy); i < len(running); i++ {
				if k -= running[i]; k < 0 {
					running[i]--
					break
				}
			}
			// The first allowed takes the place, and looking starts anywhere.
			from := rnd.IntN(len(running))
			for j := range running {
				if i := (from + j) % len(running); free() > 0 && a.allows(running[i], free()) {
					running[i]++
				}
			}
			if step >= steps {
				for i := range running {
					mean[i] += float64(running[i]) / float64(steps)
				}
			}
		}
		return mean
	}
	for n, want := range map[int]float64{2: 47.6, 3: 32.3} {
		running = make([]int, n)
		running[0] = 91
		if n == 3 {
			running[1] = 0
		}
		for i, got := range settle(200_000) {
			if math.Abs(got-want) > 1.5 {
				t.Errorf("%d messages: message %d has %.1f workers on average, want %.1f", n, i, got, want)
			}
		}
	}
}
