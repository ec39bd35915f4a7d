package fairqueue

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestF1_TokensThatAreNotWhatTheyClaim(t *testing.T) {
	s := NewSigner(Key{"b", []byte("new secret")}, Key{"a", []byte("old secret")})
	now := epoch.Add(10 * time.Minute)
	bound := [16]byte{7}
	good := s.Token(Claim{First: epoch, Tenant: "acme", Bound: bound})
	if got := s.First(good, "acme", bound, now); !got.Equal(epoch) {
		t.Fatalf("a good token gives %v", got)
	}
	old := NewSigner(Key{"a", []byte("old secret")}).Token(Claim{First: epoch, Tenant: "acme", Bound: bound})
	if got := s.First(old, "acme", bound, now); !got.Equal(epoch) {
		t.Error("a token of the key before is not taken")
	}
	bad := map[string]string{
		"empty": "", "junk": "v1.b.!!.??", "too long": good + strings.Repeat("A", 300), "dots": "....",
		"another key's id": strings.Replace(good, "v1.b.", "v1.a.", 1),
		"an unknown key":   NewSigner(Key{"c", []byte("x")}).Token(Claim{First: epoch, Tenant: "acme", Bound: bound}),
		"a forged key":     NewSigner(Key{"b", []byte("x")}).Token(Claim{First: epoch, Tenant: "acme", Bound: bound}),
		"another tenant's": s.Token(Claim{First: epoch, Tenant: "other", Bound: bound}),
		"another message":  s.Token(Claim{First: epoch, Tenant: "acme", Bound: [16]byte{8}}),
		"of the future":    s.Token(Claim{First: now.Add(time.Second), Tenant: "acme", Bound: bound}),
		"expired":          s.Token(Claim{First: now.Add(-61 * time.Minute), Tenant: "acme", Bound: bound}),
	}
	for i := range good {
		changed := []byte(good)
		changed[i] ^= 1
		bad["octet "+string(rune('0'+i/10))+string(rune('0'+i%10))] = string(changed)
	}
	for name, token := range bad {
		if got := s.First(token, "acme", bound, now); !got.Equal(now) {
			t.Errorf("%s: taken for a first attempt %v ago", name, now.Sub(got))
		}
	}
	long := s.Token(Claim{First: now.Add(-50 * time.Minute), Tenant: "acme", Bound: bound})
	if got := s.First(long, "acme", bound, now); now.Sub(got) != MaxAge {
		t.Errorf("50 minutes of waiting are worth %v, want %v", now.Sub(got), MaxAge)
	}
	s.Rotate(Key{"c", []byte("newest")})
	if got := s.First(good, "acme", bound, now); !got.Equal(now) {
		t.Error("a token of a key that is gone is taken")
	}
}

func FuzzToken(f *testing.F) {
	s := NewSigner(Key{"k", []byte("secret")})
	f.Add(s.Token(Claim{First: epoch}))
	f.Add("v1.k..")
	f.Fuzz(func(t *testing.T, token string) {
		if got := s.First(token, "", [16]byte{}, epoch.Add(time.Minute)); got.Before(epoch.Add(time.Minute)) && !strings.HasPrefix(token, "v1.k.") {
			t.Errorf("%q was taken", token)
		}
	})
}

// client is somebody who polls until it is let through, or gives up.
type client struct {
	first, next time.Time
	token       string
	leaves      time.Time // zero: never
	served      time.Time
}

type agenda []*client

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].next.Before(a[j].next) }
func (a agenda) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)        { *a = append(*a, x.(*client)) }
func (a *agenda) Pop() any          { x := (*a)[len(*a)-1]; *a = (*a)[:len(*a)-1]; return x }

// sale lets clients come, over a time, to nodes that share a capacity, and returns when each was
// served. It ends when all are served or have left, or after an hour.
func sale(clients []*client, nodes int, perSecond float64, random *rand.Rand, each func(now time.Time, passed bool)) (end time.Time) {
	signer := NewSigner(Key{"k", []byte("secret")})
	gates := make([]*Gate, nodes)
	for i := range gates {
		gates[i] = NewGate(perSecond/float64(nodes), 0, epoch)
	}
	a := agenda(clients)
	heap.Init(&a)
	now := epoch
	for len(a) > 0 && now.Before(epoch.Add(time.Hour)) {
		c := a[0]
		now = c.next
		if !c.leaves.IsZero() && now.After(c.leaves) {
			heap.Pop(&a)
			continue
		}
		first := signer.First(c.token, "", [16]byte{}, now)
		passed := gates[random.IntN(nodes)].Pass(first, now)
		if each != nil {
			each(now, passed)
		}
		if passed {
			c.served = now
			heap.Pop(&a)
			continue
		}
		c.token = signer.Token(Claim{First: first})
		c.next = now.Add(RetryAfter(random.Float64()))
		heap.Fix(&a, 0)
	}
	return now
}

// burst is that many clients who come within a time.
func burst(n int, within time.Duration, random *rand.Rand) (all []*client) {
	for range n {
		at := epoch.Add(time.Duration(random.Float64() * float64(within))).Truncate(time.Millisecond)
		all = append(all, &client{first: at, next: at})
	}
	return all
}

func TestF7_ABurstIsServedInOrder(t *testing.T) {
	for seed := range uint64(2) {
		random := rand.New(rand.NewPCG(seed, 7))
		clients := burst(15_000, time.Minute, random)
		all := slices.Clone(clients)
		sale(clients, 4, 50, random, nil)
		var bins [20][]float64 // of 30 s, by the time of being served
		unserved, last := 0, epoch
		for _, c := range all {
			if c.served.IsZero() {
				unserved++
				continue
			}
			bin := &bins[int(c.served.Sub(epoch)/(30*time.Second))]
			*bin = append(*bin, c.served.Sub(c.first).Seconds())
			if c.served.After(last) {
				last = c.served
			}
		}
		if unserved > 0 {
			t.Errorf("seed %d: %d are never served", seed, unserved)
		}
		for i, waits := range bins {
			if i == 0 || len(waits) < 500 { // the wait grows from nothing; the last ones
				continue
			}
			slices.Sort(waits)
			p95, median := waits[len(waits)*95/100], waits[len(waits)/2]
			if p95 > 1.5*median {
				t.Errorf("seed %d, those served from %d s: p95 of the wait %.0f s, median %.0f s", seed, i*30, p95, median)
			}
		}
		slices.SortFunc(all, func(a, b *client) int { return a.served.Compare(b.served) })
		if took := all[len(all)*9/10].served.Sub(epoch).Seconds(); took > .9*15_000/50/.95 {
			t.Errorf("seed %d: nine tenths are served after %.0f s; %.0f are possible", seed, took, .9*15_000/50.)
		}
		if share := inverted(all, random); share > .01 {
			t.Errorf("seed %d: %.4f of the pairs are served in the wrong order", seed, share)
		}
	}
}

// inverted is the share of pairs, drawn at random, of which the one that came 10 s later was served
// first.
func inverted(all []*client, random *rand.Rand) float64 {
	wrong := 0
	const drawn = 100_000
	for range drawn {
		a, b := all[random.IntN(len(all))], all[random.IntN(len(all))]
		if a.first.After(b.first) {
			a, b = b, a
		}
		if b.first.Sub(a.first) > 10*time.Second && b.served.Before(a.served) {
			wrong++
		}
	}
	return float64(wrong) / drawn
}

func TestF2_TheBucketHoldsWhateverTheThresholdLetsThrough(t *testing.T) {
	g := NewGate(50, 0, epoch)
	for second := range 60 {
		passed := 0
		for i := range 2000 { // all of them older than anything: the threshold stops nobody
			now := epoch.Add(time.Duration(second)*time.Second + time.Duration(i)*500*time.Microsecond)
			if g.Pass(epoch.Add(-time.Hour), now) {
				passed++
			}
		}
		most := 51
		if second == 0 {
			most = 151 // the bucket's depth, once
		}
		if passed > most {
			t.Errorf("second %d: %d passed", second, passed)
		}
	}
}

func TestF3_ANodeThatRestartsKnowsNothingAndRanks(t *testing.T) {
	old := NewGate(50, 0, epoch)
	fresh := NewGate(50, 0, epoch.Add(time.Minute))
	_ = old
	random := rand.New(rand.NewPCG(1, 1))
	late, early := 0, 0
	for i := range 20_000 { // 200 a second, half of them 5 minutes old
		now := epoch.Add(time.Minute + time.Duration(i)*5*time.Millisecond)
		first := now
		if i%2 == 0 {
			first = now.Add(-5 * time.Minute).Add(time.Duration(random.IntN(60)) * time.Second)
		}
		if fresh.Pass(first, now) && i > 2000 {
			if first.Equal(now) {
				late++
			} else {
				early++
			}
		}
	}
	if early < 20*late {
		t.Errorf("after 10 s a new node lets through %d who came early and %d who came late", early, late)
	}
}

func TestF4_WhoLeavesDoesNotHoldUpTheRest(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	clients := burst(15_000, time.Minute, random)
	staying := 0
	for _, c := range clients {
		if c.first.Before(epoch.Add(20*time.Second)) && random.Float64() < .3 {
			c.leaves = c.first.Add(30 * time.Second)
		} else {
			staying++
		}
	}
	passed := 0
	end := sale(clients, 4, 50, random, func(now time.Time, ok bool) {
		if ok && now.Before(epoch.Add(4*time.Minute)) {
			passed++
		}
	})
	if passed < 4*60*50*95/100 {
		t.Errorf("%d served in four minutes, want 95 %% of %d; all were done at %v", passed, 4*60*50, end.Sub(epoch))
	}
}

func TestF5_TheThresholdFollowsItsError(t *testing.T) {
	g := NewGate(10, 0, epoch)
	at := func(second int) time.Time { return epoch.Add(time.Duration(second) * time.Second) }
	for i := range 30 {
		g.Pass(at(-30+i), at(0).Add(time.Duration(i)*time.Millisecond))
	}
	g.Pass(at(1), at(1))
	if g.mu.open || g.mu.threshold.After(at(-20)) {
		t.Errorf("30 for 10 places, and the threshold is %v (open: %v), want the tenth oldest", g.mu.threshold.Sub(epoch), g.mu.open)
	}
	share := g.mu.share
	g.Pass(at(2), at(2)) // a bucket in which one came and was refused: unused
	if g.mu.share <= share {
		t.Errorf("the bucket was not used, and the share went from %v to %v", share, g.mu.share)
	}
}

func TestF6_RoomForAll(t *testing.T) {
	g := NewGate(50, 0, epoch)
	random := rand.New(rand.NewPCG(6, 6))
	now := epoch
	for range 2000 { // a burst: many are refused
		now = now.Add(time.Millisecond)
		g.Pass(now, now)
	}
	now = now.Add(10 * time.Second)
	for range 40 * 60 { // then less than there is room for
		now = now.Add(time.Duration(random.ExpFloat64() * float64(time.Second) / 40))
		if !g.Pass(now, now) && now.After(epoch.Add(15*time.Second)) {
			t.Fatalf("refused at %v though there is room", now.Sub(epoch))
		}
	}
}

func TestAClockThatJumps(t *testing.T) {
	g := NewGate(10, 0, epoch)
	for _, d := range []time.Duration{0, 24 * time.Hour, 0, -time.Hour, 0} {
		now := epoch.Add(d)
		passed := 0
		for i := range 100 {
			if g.Pass(now, now.Add(time.Duration(i)*time.Millisecond)) {
				passed++
			}
		}
		if passed > 31 {
			t.Errorf("at %v %d pass in a tenth of a second", d, passed)
		}
	}
}

func TestMemoryIsBoundedAndForgets(t *testing.T) {
	m := NewMemory(1000)
	if at := m.First(epoch, "client", "a@b", "c@d"); !at.Equal(epoch) {
		t.Error("a first attempt is not now")
	}
	later := epoch.Add(10 * time.Minute)
	if at := m.First(later, "client", "a@b", "c@d"); !at.Equal(epoch) {
		t.Error("the second attempt does not find the first")
	}
	if at := m.First(later, "client", "a@b", "other"); !at.Equal(later) {
		t.Error("another recipient has the first one's time")
	}
	m.Forget("client", "a@b", "c@d")
	if at := m.First(later, "client", "a@b", "c@d"); !at.Equal(later) {
		t.Error("what was taken is still remembered")
	}
	for i := range 100_000 {
		m.First(later, "flood", string(rune(i)))
	}
	if n := m.Len(); n > 1000 {
		t.Errorf("%d are kept, 1,000 may be", n)
	}
}

func TestKeysOfADayOutliveIt(t *testing.T) {
	secret := []byte("secret")
	claim := Claim{First: epoch, Tenant: "acme"}
	token := NewSigner(Daily(secret, epoch)...).Token(claim)
	for after, good := range map[time.Duration]bool{0: true, 40 * time.Minute: true, 23 * time.Hour: false} {
		now := epoch.Add(after)
		s := NewSigner(Daily(secret, now)...)
		if got := s.First(token, "acme", [16]byte{}, now).Before(now); got != (good && after > 0) {
			t.Errorf("%v later: %v", after, got)
		}
	}
	midnight := epoch.Truncate(24 * time.Hour).Add(24 * time.Hour)
	token = NewSigner(Daily(secret, midnight.Add(-time.Second))...).Token(Claim{First: midnight.Add(-time.Second), Tenant: "acme"})
	s := NewSigner(Daily(secret, midnight.Add(time.Second))...)
	if got := s.First(token, "acme", [16]byte{}, midnight.Add(time.Second)); !got.Equal(midnight.Add(-time.Second)) {
		t.Errorf("across midnight: %v", got)
	}
	if s := NewSigner(Daily([]byte("other"), epoch)...); !s.First(token, "acme", [16]byte{}, midnight.Add(time.Second)).Equal(midnight.Add(time.Second)) {
		t.Error("a token of another secret is taken")
	}
}
