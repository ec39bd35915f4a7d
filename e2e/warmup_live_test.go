package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/operator/api"
)

// planText is a plan that goes a stage up each day, whatever happens.
func planText(stages []warmStage) string {
	text := ""
	for _, s := range stages {
		text += fmt.Sprintf("  stage {\n    hourly = %d\n    daily = %d\n", s.hourly, s.daily)
		for name, p := range s.providers {
			text += fmt.Sprintf("    provider %q {\n      hourly = %d\n      daily = %d\n    }\n", name, p.hourly, p.daily)
		}
		text += "  }\n"
	}
	return text + "  health {\n    min_sample = 0\n    pause { sample = 0 }\n  }\n"
}

// TestW9_W11_W12_LiveVolumeFollowsThePlan offers far more than the plan allows, for a day of short
// hours and some of the next, and counts at the providers.
func TestW9_W11_W12_LiveVolumeFollowsThePlan(t *testing.T) {
	parallel(t)
	lasts := warmDuration(t, 26*time.Second)
	hour := max(time.Second, (lasts / 60).Truncate(time.Second)) // two days and a half, when there is time
	stages := []warmStage{
		{warmCaps{60, 720}, map[string]warmCaps{"big": {20, 200}, "mid": {15, 150}}},
		{warmCaps{96, 1152}, map[string]warmCaps{"big": {32, 300}, "mid": {24, 240}}},
		{warmCaps{150, 1800}, map[string]warmCaps{"big": {50, 500}, "mid": {38, 400}}},
	}
	g := newWarmGround(t, warmSettings{hour: hour, plan: planText(stages)})
	c := g.recount(t, hour, stages)
	g.mailer.steady(150/hour.Seconds(), lasts)
	w, err := g.warmup()
	if err != nil {
		t.Fatal(err)
	}
	g.mailer.finish(t)
	g.relay.drained(t, patience)

	c.count(g)
	c.within(t)
	whole := int(lasts / hour / 24) // days that mail was offered all through
	for _, name := range c.names() {
		days := c.by(24 * hour)[name]
		for d := range whole {
			most := c.stage(d).caps(name).daily
			t.Logf("%s, day %d: %d of %d", name, d, days[d], most)
			if name != "other" && !full(days[d], most) { // which gets what the others leave
				inTime(t, "%s, day %d: only %d of %d", name, d, days[d], most)
			}
		}
		if name == "other" {
			continue
		}
		c.filled(t, name, 1, 10) // then the day's caps bind the providers
		c.filled(t, name, 25, min(33, int(lasts/hour)-1))
	}
	if w.Stage != min(whole, 2)+1 || len(w.History) != whole {
		inTime(t, "after %d days it is on stage %d with %d days behind it", whole, w.Stage, len(w.History))
	}
	for d, h := range w.History {
		if seen := c.by(24 * hour)[allProviders][d]; int(h.Sent) != seen {
			inTime(t, "day %d: the relay says that it sent %d, the providers saw %d", d, h.Sent, seen)
		}
	}
	g.judgeDelivery(t, false)
}

// TestW8_W11_LiveKillsOverdrawNothing kills the relay at random moments under load. What the providers
// saw from the warming source stays under each cap all the same, and nothing is lost.
func TestW8_W11_LiveKillsOverdrawNothing(t *testing.T) {
	parallel(t)
	hour := warmHour(t, 2*time.Second, 20)
	stages := []warmStage{{warmCaps{200, 1000}, map[string]warmCaps{"big": {70, 280}, "mid": {40, 1000}}}}
	lasts := warmDuration(t, 14*time.Second)
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 0))
	g := newWarmGround(t, warmSettings{hour: hour, plan: planText(stages)})
	c := g.recount(t, hour, stages)
	var load sync.WaitGroup
	stop := make(chan struct{})
	load.Go(func() { g.mailer.until(stop, 100) })
	kills := 0
	const want = 300 // recipients; a start that is waited for adds ten, on however slow a machine
	taken := func() int { return len(g.rcpts.from(g.dedicated)) }
	for end := time.Now().Add(lasts); kills < 20 || time.Now().Before(end) || taken() < want; kills++ {
		<-time.After(time.Duration(50+rng.IntN(600)) * time.Millisecond)
		g.relay.kill()
		g.relay.process = launchRelay(t, g.relay)
		if rng.IntN(3) != 0 { // else the next kill may come while it starts
			g.relay.listens(t, g.relay.addr)
			if err := allCome("recipients of the warming source", min(want, taken()+10), taken); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	load.Wait()
	g.relay.listens(t, g.relay.addr)
	g.mailer.finish(t)
	g.relay.drained(t, patience)

	c.count(g)
	t.Logf("%d kills, seed %d; by hour %v", kills, seed, c.list(allProviders))
	c.within(t)
	for d, n := range c.by(24 * hour)[allProviders] {
		t.Logf("day %d: %d of %d", d, n, c.stage(d).daily)
	}
	if n := len(c.seen); n < want {
		t.Errorf("only %d took the warming source: that tests nothing", n)
	}
	g.judgeDelivery(t, true)
}

// TestW18_LiveBacklogLeavesAtTheCap lets mail wait, and restarts the relay in the middle.
func TestW18_LiveBacklogLeavesAtTheCap(t *testing.T) {
	parallel(t)
	hour := warmHour(t, 3*time.Second, 5)
	stages := []warmStage{{warmCaps{120, 2880}, nil}}
	const backlog = 360
	g := newWarmGround(t, warmSettings{hour: hour, hold: true, plan: planText(stages)})
	c := g.recount(t, hour, stages)
	c.wait(t, 0.9) // so that a whole hour begins with all of it
	for range backlog / len(warmProviders) {
		for _, p := range warmProviders {
			g.mailer.offer(p, 1)
		}
	}
	g.mailer.finish(t)
	c.wait(t, 2.5)
	if !g.relay.stop(20 * time.Second) {
		t.Error("the relay did not end by itself within 20 s")
	}
	g.relay.process = launchRelay(t, g.relay)
	g.relay.listens(t, g.relay.addr)
	g.relay.drained(t, time.Duration(backlog/120+2)*hour+patience)

	c.count(g)
	t.Logf("by hour: %v", c.list(allProviders))
	c.within(t)
	c.filled(t, allProviders, 1, backlog/120)
	if most := c.most(hour / 12); float64(most) > .22*120 {
		inTime(t, "%d in 5 minutes, more than 22 %% of the cap", most)
	} else {
		t.Logf("most in any 5 minutes: %.1f %% of the cap", 100*float64(most)/120)
	}
	if n := len(c.seen); n != backlog {
		t.Errorf("the providers saw %d of %d", n, backlog)
	}
	g.judgeDelivery(t, false)
}

// greylist refuses the first attempt for a recipient from each address (RFC 6647).
type greylist struct {
	mu    sync.Mutex // guards known
	known map[string]bool
}

func (l *greylist) answer(client netip.Addr, recipient string) string {
	key := client.String() + " " + recipient
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known[key] {
		return ""
	}
	l.known[key] = true
	return "450 4.7.1 <" + recipient + ">: Recipient address rejected: Greylisted, come again"
}

// TestW19_LiveRetryTakesTheSameSource has all first attempts greylisted. The second ones come from the
// same addresses, though the relay was restarted, or killed, in between.
func TestW19_LiveRetryTakesTheSameSource(t *testing.T) {
	parallel(t)
	hour := warmHour(t, 4*time.Second, 60)
	stages := []warmStage{{warmCaps{120, 2880}, nil}}
	g := newWarmGround(t, warmSettings{hour: hour, plan: planText(stages), answer: (&greylist{known: make(map[string]bool)}).answer})
	c := g.recount(t, hour, stages)
	const want = 30 // from each source
	stop := make(chan struct{})
	var load sync.WaitGroup
	load.Go(func() { g.mailer.until(stop, 20) })
	eventually(t, patience, func() error { // on a slow machine few get a token
		first := make(map[netip.Addr]int)
		met := make(map[string]bool)
		for _, r := range g.rcpts.all() {
			if !met[r.recipient] {
				first[r.client]++
			}
			met[r.recipient] = true
		}
		if least := min(first[g.dedicated], first[g.shared]); least < want || len(met) < 4*want {
			return fmt.Errorf("%d first attempts, %d from one of the sources", len(met), least)
		}
		return nil
	})
	close(stop)
	load.Wait()
	g.mailer.finish(t)
	if !g.relay.stop(20 * time.Second) {
		t.Error("the relay did not end by itself within 20 s")
	}
	stopped := time.Now()
	g.relay.process = launchRelay(t, g.relay)
	g.relay.listens(t, g.relay.addr)
	<-time.After(500 * time.Millisecond) // the moment of the kill
	g.relay.kill()
	g.relay.process = launchRelay(t, g.relay)
	g.relay.listens(t, g.relay.addr)
	g.relay.drained(t, patience)

	c.count(g)
	c.within(t)
	first := make(map[string]rcptSeen)
	moved, again := 0, make(map[netip.Addr]int)
	for _, r := range g.rcpts.all() {
		from, seen := first[r.recipient]
		switch {
		case !seen:
			first[r.recipient] = r
			continue
		case from.client == r.client:
		case from.at.After(stopped):
			t.Logf("%s was tried first just before the kill, which took the record along", r.recipient)
		default:
			if moved++; moved <= 10 {
				t.Errorf("%s came from %s first and from %s then", r.recipient, from.client, r.client)
			}
		}
		again[r.client]++
	}
	t.Logf("retries: %d from the warming source, %d from the shared one, %d from another than before", again[g.dedicated], again[g.shared], moved)
	if again[g.dedicated] < want || again[g.shared] < want {
		t.Errorf("the test wants at least %d of each", want)
	}
	g.judgeDelivery(t, true)
}

// TestW6_LiveReloadOfAChangedPlan lowers the hourly cap of a running warm-up and raises it again.
// Each holds from the next hour on. Stage and counters stay.
func TestW6_LiveReloadOfAChangedPlan(t *testing.T) {
	parallel(t)
	hour := warmHour(t, 1500*time.Millisecond, 6)
	plan := func(hourly int) string {
		return planText([]warmStage{{warmCaps{40, 40}, nil}, {warmCaps{hourly, 2400}, nil}}) + "  start_stage = 2\n"
	}
	g := newWarmGround(t, warmSettings{hour: hour, plan: plan(150)})
	c := g.recount(t, hour, nil)
	stop := make(chan struct{})
	var load sync.WaitGroup
	ends := sync.OnceFunc(func() { close(stop); load.Wait() })
	defer ends()
	load.Go(func() { g.mailer.until(stop, 60) })
	hourly := []int{150, 150, 60, 60, 240, 240}
	written := 150
	for _, change := range []struct {
		at     float64 // hours since the begin
		hourly int
	}{{1.5, 60}, {3.5, 240}} {
		c.wait(t, change.at)
		before, err := g.warmup()
		if err != nil {
			t.Fatal(err)
		}
		seen := int64(len(g.rcpts.from(g.dedicated)))
		g.reconfigure(t, plan(written), plan(change.hourly))
		written = change.hourly
		after, err := g.warmup()
		if err != nil {
			t.Fatal(err)
		}
		// Tokens that nobody used are given back meanwhile; those of what has left stay counted.
		firstDay := after.DayEnds.Equal(after.Started.Add(24 * hour))
		if after.Stage != 2 || !after.Started.Equal(before.Started) || firstDay && after.SentDay < seen {
			t.Errorf("at hour %.1f the reload makes of\n%+v\nthis:\n%+v", change.at, before, after)
		}
		if after.HourlyLimit != before.HourlyLimit {
			inTime(t, "at hour %.1f the reload makes %d an hour of %d", change.at, after.HourlyLimit, before.HourlyLimit)
		}
	}
	c.wait(t, float64(len(hourly)))
	c.count(g)
	hours := c.by(hour)[allProviders]
	t.Logf("by hour: %v", c.list(allProviders))
	for h, most := range hourly {
		// After a lower cap the sliding hour has yet to lose what the higher one allowed.
		lowered := h > 0 && most < hourly[h-1]
		if hours[h] > most {
			inTime(t, "hour %d: %d, and its cap is %d", h, hours[h], most)
		}
		if h > 0 && !lowered && !full(hours[h], most) && !c.stood(t, h) {
			inTime(t, "hour %d: only %d of %d", h, hours[h], most)
		}
	}
	ends()
	g.mailer.finish(t)
	g.relay.drained(t, patience)
	g.judgeDelivery(t, false)
}

// reconfigure replaces text in the configuration file, and has the relay read it again.
func (g *warmGround) reconfigure(t *testing.T, old, text string) {
	t.Helper()
	file, err := os.ReadFile(g.relay.config)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(file), old) {
		t.Fatalf("the configuration doesn't have\n%s", old)
	}
	writeFile(t, g.relay.config, strings.Replace(string(file), old, text, 1))
	client := api.NewClient(g.relay.dir + "/data/control.sock")
	defer client.Close()
	if _, err := api.OpReload.Call(context.Background(), client, api.Intent{}); err != nil {
		t.Fatal(err)
	}
}

// recount begins to look at the warming source: its windows count from the warm-up's begin.
func (g *warmGround) recount(t *testing.T, hour time.Duration, stages []warmStage) *recount {
	t.Helper()
	c := &recount{hour: hour, stages: stages, pulse: newPulse(t, 10*time.Millisecond)}
	eventually(t, patience, func() error {
		w, err := g.warmup()
		if err == nil && w.Started.IsZero() {
			err = errors.New("the warm-up has not begun")
		}
		c.begin = w.Started
		return err
	})
	return c
}
