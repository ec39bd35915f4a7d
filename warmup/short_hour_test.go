package warmup_test

import (
	"context"
	"testing"
	"time"

	"example.org/mta/warmup"
)

// backlog is mail that is held, by provider.
type backlog struct {
	c       *warmup.Controller
	waiting map[string]int64
	sent    map[string]int64
}

// onTokens is warmup.Config.OnTokens.
func (b *backlog) onTokens(_, provider string) {
	got, _ := take(b.c, "ip", provider, b.waiting[provider], true)
	b.waiting[provider] -= got
	b.sent[provider] += got
}

// TestW18_BacklogsShareShortHours has three providers' mail waiting, and one of them with a last message
// only, whose lane then wants nothing more: hours of a few seconds are filled all the same, by whoever
// has mail, each in turn.
func TestW18_BacklogsShareShortHours(t *testing.T) {
	const hourly = 120
	w := newWorld(t, hourly, 24*hourly)
	w.plan.Hour, w.plan.Overflow = 4*time.Second, warmup.Hold
	b := &backlog{waiting: map[string]int64{"big": 300, "mid": 300, "small": 20}, sent: make(map[string]int64)}
	b.c = w.node("a", func(cfg *warmup.Config) {
		cfg.OnTokens, cfg.Waiting = b.onTokens, func(_, provider string) int64 { return b.waiting[provider] }
	})
	for provider, n := range b.waiting {
		got := send(b.c, provider, n)
		b.sent[provider] += got
		b.waiting[provider] -= got
	}
	for range 4 {
		before := b.sent["big"] + b.sent["mid"] + b.sent["small"]
		for range 4 * time.Second / (20 * time.Millisecond) {
			w.pass(20 * time.Millisecond)
			if wait := b.c.Step(context.Background()); wait > 20*time.Millisecond {
				t.Fatalf("the next step is in %v, which is %.0f of the plan's minutes", wait, wait.Seconds()/4*60)
			}
		}
		if n := b.sent["big"] + b.sent["mid"] + b.sent["small"] - before; n < 98*hourly/100 {
			t.Errorf("%d left in an hour, and the cap is %d", n, hourly)
		}
	}
	if b.waiting["small"] > 0 || b.sent["big"] < 180 || b.sent["mid"] < 180 {
		t.Errorf("sent %v, the shares aren't fair", b.sent)
	}
	for _, p := range status(t, b.c).Providers {
		if diff := p.Waiting - b.waiting[p.Provider]; diff > 2 || diff < -2 { // what has just been called
			t.Errorf("%s: %d are told to wait, and %d do", p.Provider, p.Waiting, b.waiting[p.Provider])
		}
	}
}

// TestUnknownOutcomeIsAskedForSoon: an IP whose write may have happened stands still until that is known,
// so nobody may wait for other work to do before asking.
func TestUnknownOutcomeIsAskedForSoon(t *testing.T) {
	w := newWorld(t, 3600, 86_400)
	c := w.node("a")
	c.Step(context.Background())
	w.store.Unsure(func() (apply, answer bool) { return false, false })
	c.Allowance("ip", warmup.Ask{Provider: "big", Recipients: 1})
	for range 10 {
		w.pass(time.Second)
		if wait := c.Step(context.Background()); wait > time.Second {
			t.Fatalf("the next step is in %v", wait)
		}
	}
}
