package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// buyers are the clients of one tenant that submit by HTTP. Each has one message and submits it until it is taken, as
// the answers ask: with the token, after Retry-After.
type buyers struct {
	crowd
	url, key    string
	connections int           // that they share
	first       time.Duration // in which all of them come; 0: until the end

	http   *http.Client
	began  time.Time
	came   int
	served []purchase // guarded by crowd.mu
}

type purchase struct{ first, served time.Time }

// openWebShop is openShopOf with an API in place of listeners.
func openWebShop(t *testing.T, writeRate int64, core int, all ...*buyers) *shop {
	t.Helper()
	addr := "127.0.0.1:" + commonPort(t, "127.0.0.1")
	settings := fmt.Sprintf("keys { file = %q }\napi \"web\" {\n  address         = [%q]\n  max_connections = 2000\n}\n", scratch(t)+"/keys", addr)
	for _, b := range all {
		settings += fmt.Sprintf("tenant %q {\n  tier    = %d\n  senders = [\"example.org\"]\n}\n", b.tenant, b.tier)
	}
	s := openShopOf(t, writeRate, core, settings)
	for _, b := range all {
		out := runClient(t, "", binary, "--config", s.relay.config, "key", "add", "--tenant", b.tenant, "--name", "shop")
		b.key, _, _ = strings.Cut(out, "\n")
		b.url = "http://" + addr
		b.http = &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxConnsPerHost: b.connections, MaxIdleConnsPerHost: b.connections}}
		b.refused = make(map[string]int)
		t.Cleanup(b.http.CloseIdleConnections)
		s.crowds = append(s.crowds, &b.crowd)
	}
	return s
}

// sell lets buyers in for a while.
func (s *shop) sell(t *testing.T, d time.Duration, all ...*buyers) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var done sync.WaitGroup
	for i, b := range all {
		done.Go(func() { b.come(ctx, rand.New(rand.NewPCG(uint64(i), 2))) })
	}
	done.Wait()
}

// come has buyers come until ctx ends.
func (b *buyers) come(ctx context.Context, rng *rand.Rand) {
	b.began = time.Now()
	var all sync.WaitGroup
	defer all.Wait()
	for ; b.first == 0 || time.Since(b.began) < b.first; b.came++ {
		if !wait(ctx, time.Duration(rng.ExpFloat64()/b.rate*float64(time.Second))) {
			return
		}
		id, rng := fmt.Sprintf("%s-%d", b.tenant, b.came), rand.New(rand.NewPCG(rng.Uint64(), 0))
		all.Go(func() { b.buy(ctx, id, rng) })
	}
}

func (b *buyers) buy(ctx context.Context, id string, rng *rand.Rand) {
	m, token := again{id: id}, ""
	for first := time.Now(); ; {
		began := time.Now()
		answer, err := b.post(id, token)
		if err != nil {
			b.note(&m, began, err)
			return
		}
		if answer.StatusCode == http.StatusAccepted {
			b.note(&m, began, nil)
			b.mu.Lock()
			b.served = append(b.served, purchase{first, time.Now()})
			b.mu.Unlock()
			return
		}
		b.mu.Lock()
		b.offered++
		b.refused[strconv.Itoa(answer.StatusCode)]++
		b.shedding = append(b.shedding, time.Since(began))
		b.mu.Unlock()
		if m.first.IsZero() {
			m.first = began
		}
		if t := answer.Header.Get("X-Queue-Token"); t != "" {
			token = t
		}
		seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
		// Clients don't wait to the millisecond.
		if !wait(ctx, max(time.Duration(seconds)*time.Second-time.Duration(rng.Int64N(int64(time.Second))), time.Second)) {
			return
		}
	}
}

func (b *buyers) post(id, token string) (*http.Response, error) {
	q := url.Values{"from": {"news@example.org"}, "to": {id + "@quick.example"}}
	req, err := http.NewRequest("POST", b.url+"/v1/messages?"+q.Encode(), strings.NewReader(overloadMessage(id)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+b.key)
	req.Header.Set("Content-Type", "message/rfc822")
	req.Header.Set("Expect", "100-continue") // a refusal comes before the body then
	if token != "" {
		req.Header.Set("X-Queue-Token", token)
	}
	answer, err := b.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if _, err = io.Copy(io.Discard, answer.Body); err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusAccepted && answer.StatusCode != http.StatusTooManyRequests && answer.StatusCode != http.StatusServiceUnavailable {
		return nil, errors.New(answer.Status)
	}
	return answer, nil
}

// halfMinute is what a tenant got in one.
type halfMinute struct {
	served      int
	median, p95 time.Duration // of the waits of those that were served, from their first attempts on
}

func (b *buyers) halfMinutes() (all []halfMinute) {
	const length = 30 * time.Second
	var waits [][]time.Duration
	for _, p := range b.served {
		i := int(p.served.Sub(b.began) / length)
		for len(waits) <= i {
			waits = append(waits, nil)
		}
		waits[i] = append(waits[i], p.served.Sub(p.first))
	}
	for _, w := range waits {
		slices.Sort(w)
		all = append(all, halfMinute{len(w), lateness(w).quantile(.5), lateness(w).quantile(.95)})
	}
	return all
}

// TestOverloadFlashSale has two equal tenants sell by HTTP what the disk takes. One has more buyers, the other has more
// connections: each gets half, and those that are served at the same time have waited for about as long.
func TestOverloadFlashSale(t *testing.T) {
	long, rate := overloadTime(t), int64(overloadDisk)
	if boundsHold() {
		long, rate = 3*long, overloadDisk/8 // no more wait than this machine has time for the attempts of
	}
	many := &buyers{crowd: crowd{tenant: "many", tier: 3}, connections: 60}
	wide := &buyers{crowd: crowd{tenant: "wide", tier: 3}, connections: 600}
	s := openWebShop(t, rate, 0, many, wide)
	capacity := s.capacity(t, long/6, false)
	many.first, wide.first = long/4, long/4
	// Each has more than its half of what is served in all.
	many.rate, wide.rate = 5*capacity, 2.5*capacity
	s.sell(t, long, many, wide)
	t.Logf("the disk takes %.0f messages a second", capacity)
	t.Log(many)
	t.Log(wide)
	t.Log("half minute: the share of many; served, median and 95th percentile of the wait, of each")
	a, b := many.halfMinutes(), wide.halfMinutes()
	for i := range min(len(a), len(b)) {
		line := fmt.Sprintf("%d: %.3f", i, float64(a[i].served)/float64(max(a[i].served+b[i].served, 1)))
		for _, h := range []halfMinute{a[i], b[i]} {
			line += fmt.Sprintf("; %d, %.1f s, %.1f s (%.2f)", h.served, h.median.Seconds(), h.p95.Seconds(), float64(h.p95)/float64(max(h.median, 1)))
		}
		t.Log(line)
	}
	s.nothingLost(t)
	if many.refused["429"] == 0 || wide.refused["429"] == 0 || len(many.accepted) == 0 || len(wide.accepted) == 0 {
		t.Error("want some of each tenant accepted, and some refused with 429")
	}
}

// TestOverloadBesideALargeTenantByHTTP measures what a tenant that offers more than the disk takes costs a small one of
// the same tier.
func TestOverloadBesideALargeTenantByHTTP(t *testing.T) {
	long := overloadTime(t) / 2
	small := &buyers{crowd: crowd{tenant: "small", tier: 3, rate: 40}, connections: 100}
	large := &buyers{crowd: crowd{tenant: "large", tier: 3, rate: 500}, connections: 400}
	s := openWebShop(t, overloadDisk*4/5, 0, small, large) // 240 messages a second
	s.sell(t, long, small)
	alone, p99 := small.share(), quantile(small.took, .99)
	t.Log(small)
	s.sell(t, long/2, large) // it has found its place
	small.offered, small.took = 0, nil
	before := len(small.accepted)
	s.sell(t, long, small, large)
	t.Log(small)
	t.Log(large)
	t.Logf("of the small tenant %.3f were accepted alone and %.3f beside the large one; p99 %v and %v",
		alone, float64(len(small.accepted)-before)/float64(max(small.offered, 1)), p99, quantile(small.took, .99))
	s.nothingLost(t)
	if len(small.accepted) == before || len(large.accepted) == 0 {
		t.Error("a tenant had nothing accepted")
	}
}

// TestOverloadByHTTP offers three times of what the disk takes, by HTTP and two tenants in each tier.
func TestOverloadByHTTP(t *testing.T) {
	long := overloadTime(t)
	var all []*buyers
	for _, tier := range []int{1, 3, 4} {
		for _, name := range []string{"a", "b"} {
			all = append(all, &buyers{crowd: crowd{tenant: fmt.Sprintf("%s%d", name, tier), tier: tier}, connections: 100})
		}
	}
	s := openWebShop(t, overloadDisk, 0, all...)
	capacity := s.capacity(t, long/2, false)
	for i, part := range []float64{.4, .1, .2, .8, .5, 1} { // of the capacity
		all[i].rate = part * capacity
	}
	s.sell(t, long, all...)
	t.Logf("the disk takes %.0f messages a second", capacity)
	t.Log("tier tenant  asked   taken   part of what is taken   p50        p99        refused in p99")
	taken := 0
	for _, b := range all {
		taken += len(b.accepted)
	}
	came, of := make(map[int]int), make(map[int]int) // buyers that came and those that were taken, by tier
	for _, b := range all {
		came[b.tier] += b.came
		of[b.tier] += len(b.accepted)
		t.Logf("%-4d %-6s %6d %6d %5.1f %% %20v %10v %10v", b.tier, b.tenant, b.offered, len(b.accepted),
			100*float64(len(b.accepted))/float64(max(taken, 1)), quantile(b.took, .5), quantile(b.took, .99), quantile(b.shedding, .99))
	}
	s.nothingLost(t)
	// A busy machine offers less of each than it should, and of tier 3 less than of tier 4: parts count, not numbers.
	if of[1] == 0 || of[3]*came[4] < of[4]*came[3] {
		t.Errorf("came by tier: %v, taken: %v, want the most of the most important", came, of)
	}
}
