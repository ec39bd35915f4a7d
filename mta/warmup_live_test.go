package mta

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/smtp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.org/mta/delivery"
	"example.org/mta/internal/parking"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/config"
	"example.org/mta/mta/listen"
	"example.org/mta/mta/warming"
	"example.org/mta/warmup"
)

// shaky is a ledger that can be lost.
type shaky struct {
	warming.Ledger
	how atomic.Int32
}

// How a ledger is lost.
const (
	sound   = iota
	gone    // nobody answers
	full    // it can be read, and each write fails, of which nobody knows how far it got
	doubted // each write is carried out, and fails for all that the writer hears
)

func openShaky(into **shaky) func(string) (warming.Ledger, error) {
	return func(path string) (warming.Ledger, error) {
		l, err := warming.OpenBolt(path)
		if err != nil {
			return nil, err
		}
		*into = &shaky{Ledger: l}
		return *into, nil
	}
}

func (s *shaky) Claim(ctx context.Context, owner string, ttl time.Duration, keys []warmup.Key, dst []warmup.Record) ([]warmup.Record, warmup.Instant, error) {
	if s.how.Load() == gone {
		return dst, 0, errors.New("nobody answers")
	}
	return s.Ledger.Claim(ctx, owner, ttl, keys, dst)
}

func (s *shaky) Write(ctx context.Context, changes []warmup.Change, dst []bool) ([]bool, error) {
	switch s.how.Load() {
	case gone:
		return dst, errors.New("nobody answers")
	case full:
		return dst, fmt.Errorf("%w: %w", warmup.ErrUnknownOutcome, syscall.ENOSPC)
	case doubted:
		if _, err := s.Ledger.Write(ctx, changes, nil); err != nil {
			return dst, err
		}
		return dst, fmt.Errorf("%w: %w", warmup.ErrUnknownOutcome, syscall.EIO)
	}
	return s.Ledger.Write(ctx, changes, dst)
}

// The plan of the tests below.
const (
	lossHour = time.Second
	lossCap  = 100
)

// shortHours gives plan "live" hours of a second.
func shortHours(cfg *config.Config) { cfg.WarmupPlan("live").Hour = lossHour }

// lossWorld is a relay whose ledger can be lost, with a warming source at 127.0.0.77.
func lossWorld(t *testing.T, pool string) (*world, *shaky) {
	t.Helper()
	var store *shaky
	w := newWorldWith(t, Options{openLedger: openShaky(&store)}, sink.Config{}, fmt.Sprintf(`
		defaults { smtp_port = PORT }
		source "new-1" { address = "127.0.0.77" }
		source "old-1" { address = "127.0.0.78" }
		plan "live" {
			stage {
				hourly = %d
				daily = %d
			}
			health {
				min_sample = 0
				pause { sample = 0 }
			}
		}
		pool "default" {
			%s
			dedicated "new-1" { plan = "live" }
		}`, lossCap, 24*lossCap, pool), shortHours)
	return w, store
}

// load submits messages without a pause between them, until it is told to stop, and says how many.
func (w *world) load(stop <-chan struct{}) (sent int, err error) {
	c, err := smtp.Dial(w.listeners.Addresses(listen.SMTP)[0])
	if err != nil {
		return 0, err
	}
	defer c.Close()
	for pace := time.Tick(4 * time.Millisecond); ; <-pace {
		select {
		case <-stop:
			return sent, nil
		default:
		}
		if err := errors.Join(c.Mail("ann@client.example"), c.Rcpt("bob@box.example")); err != nil {
			return sent, err
		}
		d, err := c.Data()
		if err != nil {
			return sent, err
		}
		fmt.Fprintf(d, "X-Mta-Test-Id: %d\r\n\r\nhello\r\n", sent)
		if err := d.Close(); err != nil {
			return sent, err
		}
		sent++
	}
}

// fromWarming lists when mail came from the warming source.
func (w *world) fromWarming() (at []time.Time) {
	for _, d := range w.recorder.Deliveries() {
		if d.Client.Addr().String() == "127.0.0.77" {
			at = append(at, d.At)
		}
	}
	return at
}

func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(limit)
	for look := time.Tick(5 * time.Millisecond); !ok(); <-look {
		if time.Now().After(deadline) {
			w.t.Fatalf("after %v: not %s", limit, what)
		}
	}
}

// TestW17_LostLedgerFailsClosed loses the store under load. What was leased may be spent; then nothing
// takes the warming source, until the store is back. Nothing is lost, and no cap is passed.
func TestW17_LostLedgerFailsClosed(t *testing.T) {
	for name, how := range map[string]int32{"gone": gone, "full": full, "doubted": doubted} {
		for overflow, pool := range map[string]string{"divert": `shared = ["old-1"]`, "hold": `overflow = "hold"`} {
			t.Run(name+"/"+overflow, func(t *testing.T) {
				before := goleak.IgnoreCurrent()
				t.Cleanup(func() { noLeaks(t, before) })
				loseLedger(t, how, pool)
			})
		}
	}
}

func loseLedger(t *testing.T, how int32, pool string) {
	w, store := lossWorld(t, pool)
	stop := make(chan struct{})
	var loading sync.WaitGroup
	sent, loadErr := 0, error(nil)
	loading.Go(func() { sent, loadErr = w.load(stop) })
	w.until("many are sent", func() bool { return len(w.fromWarming()) >= lossCap/4 })

	store.how.Store(how)
	w.until("the store is found lost", func() bool {
		s, _ := w.warm.Controller().Status("127.0.0.77")
		return s.State == "store_down"
	})
	if why := w.warm.Trouble(); !strings.HasPrefix(why, "the warm-up of new-1 gets no tokens: its ledger can't be reached: ") {
		t.Errorf("the alarm says %q", why)
	}
	lost := time.Now()
	w.until("an hour has passed", func() bool { return time.Since(lost) > lossHour })
	late := 0
	for _, at := range w.fromWarming() {
		if at.After(lost) {
			late++
		}
	}
	t.Logf("%d were sent on leases after the store was lost", late)
	if most := 8; late > most { // 180 s of an hour's flow, and what was under way
		t.Errorf("%d, more than the %d that may have been leased", late, most)
	}

	store.how.Store(sound)
	back := len(w.fromWarming())
	w.until("mail takes the warming source again", func() bool { return len(w.fromWarming()) >= back+lossCap/4 })
	if why := w.warm.Trouble(); why != "" {
		t.Errorf("the alarm says %q when mail takes the source again", why)
	}
	close(stop)
	loading.Wait()
	if loadErr != nil {
		t.Fatal(loadErr)
	}
	status, _ := w.warm.Controller().Status("127.0.0.77")
	w.judgeLoss(sent, status.Started)
}

// judgeLoss demands that all is delivered or waits, once, and that no hour has more than its cap.
func (w *world) judgeLoss(sent int, begin time.Time) {
	w.t.Helper()
	w.until("all that was taken is delivered or held", func() bool {
		return w.queue.ParkedInLines(parking.Key{Kind: parking.Tokens, Name: "default", Provider: "other"})+int(w.recorder.Tally().Unique) == sent
	})
	if n := w.recorder.Tally().Duplicates(); n > 0 {
		w.t.Errorf("%d came twice", n)
	}
	hours := make(map[time.Duration]int)
	for _, at := range w.fromWarming() {
		hours[at.Sub(begin)/lossHour]++
	}
	for h, n := range hours {
		if n > lossCap {
			w.t.Errorf("hour %d: %d, and the cap is %d", h, n, lossCap)
		}
	}
	w.t.Logf("%d submitted, from the warming source by hour: %v", sent, hours)
}

// TestWarmupEndsWhenItsLedgerIsLost stops a relay that can't write its warm-ups down.
func TestWarmupEndsWhenItsLedgerIsLost(t *testing.T) {
	w, store := lossWorld(t, `overflow = "hold"`)
	w.send("ann@client.example", letter, "bob@box.example")
	store.how.Store(full)
	began := time.Now()
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 20*time.Second { // a drain that waits has 30
		t.Errorf("it took %v", took)
	}
}

// The greeting of a provider that turns a warming source away reaches its warm-up.
func TestWarmupHearsOfARefusedGreeting(t *testing.T) {
	t.Parallel()
	w := newWorldWith(t, Options{}, sink.Config{Refusals: []sink.Refusal{{Phase: sink.Connect, Reply: "554 5.7.1 go away"}}}, `
		defaults { smtp_port = PORT }
		source "new-1" { address = "127.0.0.77" }
		pool "default" {
			overflow = "hold"
			dedicated "new-1" { plan = "standard" }
		}`)
	w.send("ann@client.example", letter, "bob@box.example")
	var s warmup.Status
	w.until("the refusal is counted, and the token back", func() bool {
		s, _ = w.warm.Status("127.0.0.77")
		return len(s.Providers) > 0 && s.Providers[0].Refused > 0 && s.SentDay == 0
	})
	if p := s.Providers[0]; p.Refused != 1 || p.HardBounces+p.Deferred+p.Delivered != 0 {
		t.Errorf("%+v", p)
	}
}

// A plan that a reload brings is known to the warm-up before any mail is chosen by it: an address that
// the warm-up doesn't know has no limits.
func TestReloadLeavesNoMomentWithoutLimits(t *testing.T) {
	early, w := 0, (*world)(nil)
	bind := func(a netip.Addr) error { // is called amid a reload, with the sources that it brings
		if pool := w.policy.Load().Config.PoolOf(""); len(pool.Dedicated) > 0 && !slices.Contains(w.warm.Controller().IPs(), "127.0.0.77") {
			early++
		}
		return delivery.Bind(a)
	}
	w = newWorldWith(t, Options{Bind: bind}, sink.Config{}, `defaults { smtp_port = PORT }`)
	w.rewrite("warming", fmt.Sprintf(`
		defaults { smtp_port = %s }
		source "new-1" { address = "127.0.0.77" }
		source "old-1" { address = "127.0.0.78" }
		plan "live" {
			stage {
				hourly = 10
				daily = 100
			}
			health { min_sample = 0 }
		}
		pool "default" {
			shared = ["old-1"]
			dedicated "new-1" { plan = "live" }
		}`, w.port))
	if _, err := w.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(w.warm.Controller().IPs(), []string{"127.0.0.77"}) {
		t.Fatalf("warming: %v", w.warm.Controller().IPs())
	}
	if early > 0 {
		t.Error("the configuration is in force and its warm-up is not")
	}
	w.rewrite("warm", fmt.Sprintf(`defaults { smtp_port = %s }`, w.port))
	if _, err := w.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ips := w.warm.Controller().IPs(); len(ips) > 0 {
		t.Errorf("still warming: %v", ips)
	}
}
