package warmup_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/format"
	"example.org/mta/warmup"
)

// engine is a store behind a network whose commits take time: a key is locked for 10 ms at least.
type engine struct {
	*warmup.Memory
	faults bool

	mu           sync.Mutex // guards the rest
	rand         *rand.Rand
	claims, busy int
	keys         int
	octets       int
}

const (
	trip   = time.Millisecond     // one way
	commit = 3 * time.Millisecond // with the standby
)

func (e *engine) draw() float64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rand.Float64()
}

func (e *engine) chance(part float64) bool { return e.faults && e.draw() < part }

// stall has the caller's process pause, in one of a hundred calls for longer than a lock lasts.
func (e *engine) stall() {
	if e.chance(.01) {
		time.Sleep(time.Duration(e.draw() * 20 * float64(time.Second)))
	}
}

func (e *engine) Claim(ctx context.Context, owner string, ttl time.Duration, keys []warmup.Key, dst []warmup.Record) (
	[]warmup.Record, warmup.Instant, error,
) {
	time.Sleep(trip)
	dst, now, err := e.Memory.Claim(ctx, owner, ttl, keys, dst)
	time.Sleep(commit + trip)
	e.stall()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.claims++
	for _, r := range dst {
		e.keys++
		if r.Busy {
			e.busy++
		}
		e.octets += len(r.Value)
	}
	return dst, now, err
}

func (e *engine) Write(ctx context.Context, changes []warmup.Change, dst []bool) ([]bool, error) {
	e.stall()
	time.Sleep(trip + commit)
	dst, err := e.Memory.Write(ctx, changes, dst)
	time.Sleep(trip)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range changes {
		e.octets += len(c.Value)
	}
	return dst, err
}

// fleet is nodes that send from one address, each offered its part of more than the caps.
type fleet struct {
	t      *testing.T
	engine *engine
	look   time.Duration // between two looks at what is queued
	plan   *warmup.Plan
	caps   warmup.Caps

	mu        sync.Mutex // guards the rest
	begin     time.Time
	hour, day map[int]int64
	sent      int64
}

func newFleet(t *testing.T, seed uint64, caps warmup.Caps, faults bool) *fleet {
	f := &fleet{t: t, look: 100 * time.Millisecond, caps: caps, hour: map[int]int64{}, day: map[int]int64{}}
	p := warmup.DefaultPlan()
	p.Stages = []warmup.Stage{{Caps: caps}}
	f.plan = &p
	f.engine = &engine{Memory: warmup.NewMemory(func() warmup.Instant { return warmup.Instant(time.Now().UnixMilli()) }),
		faults: faults, rand: rand.New(rand.NewPCG(seed, 1))}
	if faults {
		f.engine.Unsure(func() (apply, answer bool) { return !f.engine.chance(.02), !f.engine.chance(.02) })
	}
	return f
}

// node runs a process until ctx ends. It is offered so much a second.
func (f *fleet) node(ctx context.Context, name string, rate float64) {
	var mu sync.Mutex // guards queued
	queued := map[string]float64{"google": 0, "yahoo": 0, "other": 0}
	c := warmup.New(warmup.Config{Node: name, Store: f.engine,
		Rand: rand.New(rand.NewPCG(uint64(f.engine.draw()*(1<<60)), 1)),
		Waiting: func(_, provider string) int64 {
			mu.Lock()
			defer mu.Unlock()
			return int64(queued[provider])
		}})
	if err := c.Assign(map[string]*warmup.Plan{"ip": f.plan}); err != nil {
		f.t.Error(err)
	}
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	for ; ctx.Err() == nil; time.Sleep(f.look) {
		for provider := range queued {
			mu.Lock()
			before := int64(queued[provider])
			queued[provider] = min(queued[provider]+rate*f.look.Seconds()/3, 100*rate+1)
			n := int64(queued[provider])
			mu.Unlock()
			got, _ := c.Allowance("ip", warmup.Ask{Provider: provider, Recipients: n, Again: n == before})
			if got > 0 && c.Begin("ip", provider, got) {
				mu.Lock()
				queued[provider] -= float64(got)
				mu.Unlock()
				f.charged(c, got)
			}
		}
	}
	running.Wait()
}

// charged counts what has left by the hours and days of the plan.
func (f *fleet) charged(c *warmup.Controller, n int64) {
	s, _ := c.Status("ip")
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.begin.IsZero() {
		f.begin = s.Started
	}
	h := int(time.Since(f.begin) / time.Hour)
	f.hour[h], f.day[h/24], f.sent = f.hour[h]+n, f.day[h/24]+n, f.sent+n
	if f.hour[h] > f.caps.Hourly || f.day[h/24] > f.caps.Daily {
		f.t.Errorf("hour %d has %d, and day %d has %d", h, f.hour[h], h/24, f.day[h/24])
	}
}

// TestNodesThatShareAnAddress measures how often an address is busy, and how much of its cap is used.
func TestNodesThatShareAnAddress(t *testing.T) {
	for _, nodes := range []int{3, 10, 20} {
		bubble.Test(t, func(t *testing.T) {
			f := newFleet(t, 1, warmup.Caps{Hourly: 3600, Daily: 86_400}, false)
			ctx, stop := context.WithCancel(t.Context())
			for i := range nodes {
				go f.node(ctx, fmt.Sprint(i), 1.3/float64(nodes))
			}
			time.Sleep(5 * time.Minute)
			e := f.engine
			f.mu.Lock()
			e.mu.Lock()
			sent, claims, busy, keys, octets := f.sent, e.claims, e.busy, e.keys, e.octets
			e.mu.Unlock()
			f.mu.Unlock()
			const length = 20 * time.Minute
			time.Sleep(length)
			stop()
			synctest.Wait()
			time.Sleep(time.Minute)
			f.mu.Lock()
			defer f.mu.Unlock()
			e.mu.Lock()
			defer e.mu.Unlock()
			per := func(n int) float64 { return float64(n) / length.Seconds() / float64(nodes) }
			share := 100 * float64(e.busy-busy) / float64(e.keys-keys)
			used := 100 * float64(f.sent-sent) / length.Seconds()
			t.Logf("%d nodes: %.1f claims and %.0f octets of states a second and node, %.1f %% of the claims busy, "+
				"%.1f %% of the cap used", nodes, per(e.claims-claims), per(e.octets-octets), share, used)
			if used < 97 || share > 60 {
				t.Errorf("%d nodes: %.1f %% used, %.1f %% busy", nodes, used, share)
			}
		})
	}
}

// TestNodesThatFailShareAnAddress: nodes crash and pause between a claim and its write, and outcomes are unknown. No
// hour and no day has more than its cap.
func TestNodesThatFailShareAnAddress(t *testing.T) {
	for seed := range uint64(2) {
		bubble.Test(t, func(t *testing.T) {
			f := newFleet(t, seed, warmup.Caps{Hourly: 360, Daily: 1000}, true)
			f.plan.DayStarts = "03:30 UTC"
			f.look = 2 * time.Second
			ctx, stop := context.WithCancel(t.Context())
			for i := range 4 {
				go func() {
					r := rand.New(rand.NewPCG(seed, uint64(i)))
					for ctx.Err() == nil { // a process at a time, each for some minutes
						life, end := context.WithTimeout(ctx, time.Duration(r.ExpFloat64()*5*float64(time.Minute)))
						f.node(life, fmt.Sprint(i), .05)
						end()
					}
				}()
			}
			time.Sleep(7 * time.Hour)
			stop()
			synctest.Wait()
			time.Sleep(time.Minute)
			t.Logf("seed %d: days %v", seed, f.day)
			if f.day[0] < 950 || f.day[1] < 950 {
				t.Errorf("only %v were sent", f.day)
			}
		})
	}
}

// A node that is not upgraded yet leaves alone what a newer one has written.
func TestAStateOfANewerNodeIsLeftAlone(t *testing.T) {
	w := newWorld(t, 100, 2400)
	rs, _, err := w.store.Claim(t.Context(), "new", time.Second, []warmup.Key{{Name: "ip"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	newer := []byte{99, 1, 2, 3}
	if _, err := w.store.Write(t.Context(), []warmup.Change{{Name: "ip", Fence: rs[0].Fence, Value: newer, Release: true}},
		nil); err != nil {
		t.Fatal(err)
	}
	c := w.node("old")
	if n := send(c, "google", 1); n > 0 || status(t, c).State != "corrupt" {
		t.Errorf("%d sent, and it is %s", n, status(t, c).State)
	}
	done := make(chan error)
	go func() { done <- c.Do(t.Context(), "ip", warmup.Start(1)) }()
	for err = nil; err == nil; {
		select {
		case err = <-done:
		default:
			c.Step(t.Context())
			w.pass(time.Second)
		}
	}
	if !errors.Is(err, format.ErrRefused) || string(w.store.Peek("ip", nil)) != string(newer) {
		t.Errorf("it is begun anew: %v", err)
	}
}
