package warmup_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/warmup"
)

// sea has many addresses, each at some of the nodes, and everything that goes wrong there.
type sea struct {
	*fleet
	rand     *rand.Rand // the test's own goroutine's
	machines []*machine
	away     int // failures of the engine under way

	late   sync.WaitGroup
	offset atomic.Int64 // of the engine's clock
	counts []count      // by address
	most   [2]warmup.Caps
}

// count is what has left an address, by hours and days, of all providers and of the first.
type count struct {
	begin     time.Time
	hour, day [2]map[int]int64
}

// machine is a node's. What stops it stops its process wherever that is.
type machine struct {
	*sea
	id, names int
	ips       []int

	mu          sync.Mutex // guards the rest
	wakes, back time.Time  // after a pause, from an island
	process     *process
}

// process is one on a machine, as the engine meets it.
type process struct {
	*machine
	end  context.CancelFunc
	dead bool
}

// runs waits until the machine runs, and reports whether the process is alive and, if so, whether it reaches the engine.
func (p *process) runs() (alive, reaches bool) {
	for {
		p.mu.Lock()
		wait, dead, cut := time.Until(p.wakes), p.dead, time.Now().Before(p.back)
		p.mu.Unlock()
		if dead || wait <= 0 {
			return !dead, !dead && !cut
		}
		time.Sleep(wait)
	}
}

func (p *process) Claim(ctx context.Context, owner string, ttl time.Duration, keys []warmup.Key, dst []warmup.Record) (
	[]warmup.Record, warmup.Instant, error,
) {
	if _, reaches := p.runs(); !reaches {
		return dst, 0, warmup.ErrDown
	}
	got, now, err := p.engine.Claim(ctx, owner, ttl, keys, dst)
	if _, reaches := p.runs(); !reaches {
		return dst, 0, warmup.ErrDown
	}
	return got, now, err
}

// Write may be lost, or carried out later, or once more.
func (p *process) Write(ctx context.Context, changes []warmup.Change, dst []bool) ([]bool, error) {
	if _, reaches := p.runs(); !reaches {
		return dst, warmup.ErrDown
	}
	late, twice := p.engine.chance(.01), p.engine.chance(.02)
	if late || twice {
		all := slices.Clone(changes)
		for i := range all {
			all[i].Value = bytes.Clone(all[i].Value)
		}
		p.late.Go(func() {
			time.Sleep(time.Duration(-math.Log(1-p.engine.draw()) * float64(time.Minute)))
			p.engine.Memory.Write(context.Background(), all, nil)
		})
	}
	if late {
		return dst, warmup.ErrUnknownOutcome
	}
	got, err := p.engine.Write(ctx, changes, dst)
	if _, reaches := p.runs(); !reaches {
		return dst, warmup.ErrUnknownOutcome
	}
	return got, err
}

const providers = 10

// begin starts a process, which offers mail for some of its addresses at a time.
func (m *machine) begin() {
	ctx, end := context.WithCancel(m.t.Context())
	p := &process{machine: m, end: end}
	m.mu.Lock()
	m.process = p
	name := fmt.Sprint(m.id, "-", m.names)
	m.mu.Unlock()
	clock := time.Duration((2*m.engine.draw() - 1) * float64(2*time.Second))
	c := warmup.New(warmup.Config{Node: name, Store: p,
		Now:  func() time.Time { return time.Now().Add(clock) },
		Rand: rand.New(rand.NewPCG(uint64(m.engine.draw()*(1<<60)), 1))})
	plans := make(map[string]*warmup.Plan)
	for _, ip := range m.ips {
		plans[fmt.Sprint(ip)] = m.plan
	}
	if err := c.Assign(plans); err != nil {
		m.t.Error(err)
	}
	m.late.Go(func() { c.Run(ctx) })
	m.late.Go(func() {
		for second := 0; ; second++ {
			time.Sleep(time.Second)
			if alive, _ := p.runs(); !alive {
				return
			}
			for i, at := range m.ips { // each in two of ten seconds, with another provider each minute
				if (second+i)%10 > 1 {
					continue
				}
				to := (second/60 + i) % providers
				ip, provider := fmt.Sprint(at), fmt.Sprint("p", to)
				n, _ := c.Allowance(ip, warmup.Ask{Provider: provider, Recipients: 2})
				if n == 0 {
					continue
				}
				if m.engine.chance(.001) {
					time.Sleep(time.Second) // on its way
				}
				if alive, _ := p.runs(); alive && c.Begin(ip, provider, n) {
					m.left(c, at, to, n)
				}
			}
		}
	})
}

// left counts what leaves, by the engine's hours. What leaves within some seconds of the turn of an hour is of either:
// nodes follow the engine's clock, which a failover may move.
func (s *sea) left(c *warmup.Controller, ip, provider int, n int64) {
	status, _ := c.Status(fmt.Sprint(ip))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent += n
	k := &s.counts[ip]
	if k.begin.IsZero() {
		k.begin = status.Started
		for i := range 2 {
			k.hour[i], k.day[i] = make(map[int]int64), make(map[int]int64)
		}
	}
	const turn = 5 * time.Second
	at := time.Since(k.begin)
	for _, h := range []int{int((at - turn) / time.Hour), int((at + turn) / time.Hour)} {
		kinds := 1
		if provider == 0 {
			kinds = 2
		}
		fits := true
		for i := range kinds {
			fits = fits && k.hour[i][h]+n <= s.most[i].Hourly && k.day[i][h/24]+n <= s.most[i].Daily
		}
		if !fits {
			continue
		}
		for i := range kinds {
			k.hour[i][h], k.day[i][h/24] = k.hour[i][h]+n, k.day[i][h/24]+n
		}
		return
	}
	s.t.Errorf("address %d: %d more for provider %d at %v: hours %v, days %v", ip, n, provider, at, k.hour, k.day)
}

// off has the engine not answer for a while.
func (s *sea) off(d time.Duration) {
	s.away++
	s.engine.SetDown(true)
	time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.away--; s.away == 0 {
			s.engine.SetDown(false)
		}
	})
}

// trouble has something fail in a second.
func (s *sea) trouble() {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rand
	between := func(a, b time.Duration) time.Duration { return a + time.Duration(r.Int64N(int64(b-a))) }
	m := s.machines[r.IntN(len(s.machines))]
	m.mu.Lock()
	if p := m.process; r.IntN(60) == 0 && !p.dead { // a crash
		p.dead = true
		p.end()
		back := between(5*time.Second, 30*time.Second)
		if r.IntN(2) == 0 {
			back = between(time.Minute, 10*time.Minute)
		}
		if r.IntN(4) == 0 {
			m.names++ // and of its disk: it joins anew
		}
		time.AfterFunc(back, m.begin)
	}
	if r.IntN(240) == 0 {
		m.wakes = time.Now().Add(between(time.Second, 10*time.Minute))
	}
	m.mu.Unlock()
	if r.IntN(720) == 0 {
		back := time.Now().Add(between(time.Second, 8*time.Minute))
		for _, i := range r.Perm(len(s.machines))[:min(10, (len(s.machines)+1)/2)] {
			s.machines[i].mu.Lock()
			s.machines[i].back = back
			s.machines[i].mu.Unlock()
		}
	}
	if r.IntN(720) == 0 { // a failover
		s.off(between(2*time.Second, 40*time.Second))
		s.offset.Store(int64(between(-2*time.Second, 2*time.Second)))
	}
}

// TestManyAddressesWhateverFails: no hour and no day of an address has more than its caps, of all providers and of one.
// MTA_CLUSTER=full is the large form.
func TestManyAddressesWhateverFails(t *testing.T) {
	addresses, length, away := 20, 3*time.Hour, 10*time.Minute
	nodes := []int{3, 10}
	if os.Getenv("MTA_CLUSTER") == "full" {
		addresses, length, away, nodes = 5000, 2*time.Hour, 30*time.Minute, []int{3, 10, 100}
	}
	for _, nodes := range nodes {
		begun := time.Now()
		var told string
		bubble.Test(t, func(t *testing.T) {
			s := &sea{rand: rand.New(rand.NewPCG(uint64(nodes), 3)), counts: make([]count, addresses),
				most: [2]warmup.Caps{{Hourly: 36, Daily: 60}, {Hourly: 10, Daily: 15}}}
			s.fleet = newFleet(t, uint64(nodes), s.most[0], true)
			s.plan.Stages[0].Providers = map[string]warmup.Caps{"p0": s.most[1]}
			s.plan.DayStarts = "01:30 UTC"
			s.engine.Memory = warmup.NewMemory(func() warmup.Instant {
				return warmup.Instant(time.Now().Add(time.Duration(s.offset.Load())).UnixMilli())
			})
			s.engine.Unsure(func() (apply, answer bool) { return !s.engine.chance(.02), !s.engine.chance(.02) })
			for i := range nodes {
				s.machines = append(s.machines, &machine{sea: s, id: i})
			}
			for ip := range addresses {
				for _, i := range s.rand.Perm(nodes)[:min(3, nodes)] {
					s.machines[i].ips = append(s.machines[i].ips, ip)
				}
			}
			for _, m := range s.machines {
				m.begin()
			}
			for at := time.Duration(0); at < length; at += time.Second {
				if s.trouble(); at == length/2 {
					s.mu.Lock()
					s.off(away)
					s.mu.Unlock()
				}
				time.Sleep(time.Second)
			}
			for range 2 { // again for those that were down
				for _, m := range s.machines {
					m.mu.Lock()
					m.process.dead = true
					m.process.end()
					m.mu.Unlock()
				}
				time.Sleep(11 * time.Minute)
			}
			s.late.Wait()
			synctest.Wait()
			used := 100 * float64(s.sent) / float64(2*int64(addresses)*s.caps.Daily)
			if told = fmt.Sprintf("%d nodes, %d addresses: %d recipients, %.1f %% of the caps of two days", nodes, addresses,
				s.sent, used); used < 40 {
				t.Error(told)
			}
		})
		t.Log(told, time.Since(begun).Round(time.Second))
	}
}
