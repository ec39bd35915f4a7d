package tally

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/delivery"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
	"example.org/mta/submission/intake"
)

// Whatever tenants clients name, and however many sites there are, memory and labels are bounded.
func TestTalliesAreBounded(t *testing.T) {
	cfg := config.Default()
	c := New(func() *config.Config { return cfg })
	now := time.Now()
	for i := range maxSiteTallies + 1000 {
		site := fmt.Sprint("site", i)
		o := &Outcome{accounting.Delivery, &envelope.Message{Tenant: fmt.Sprint("stranger", i)}, &route.Route{Site: site}, site, &delivery.Result{}, bounce.None, 1}
		c.Attempted(o, now.Add(time.Duration(i)*time.Second))
	}
	if n := len(c.by[Site]); n != maxSiteTallies {
		t.Errorf("%d sites are kept, want %d", n, maxSiteTallies)
	}
	n := 0
	for scope, names := range c.by {
		if Scope(scope) != Site {
			n += len(names)
		}
	}
	if n != 3 {
		t.Errorf("%d tallies of blocks, want those of no tenant, no provider and the default pool", n)
	}
	if got := c.Get(Tenant, "").Delivered; got != maxSiteTallies+1000 {
		t.Errorf("%d delivered for no tenant in particular, want all", got)
	}
	last := fmt.Sprint("site", maxSiteTallies+999)
	if c.Get(Site, last).Delivered != 1 {
		t.Errorf("%s, which came last, is forgotten", last)
	}
}

func TestATallyKeepsTheLastFailure(t *testing.T) {
	cfg := config.Default()
	c := New(func() *config.Config { return cfg })
	now := time.Now()
	count := func(kind accounting.Type, code int, text string, at time.Time) {
		r := &delivery.Result{Source: "a", Reply: reply.Reply{Code: code, Text: text}}
		c.Attempted(&Outcome{kind, &envelope.Message{}, &route.Route{Site: "mx"}, "mx", r, bounce.None, 1}, at)
	}
	count(accounting.Bounce, 450, "first", now)
	count(accounting.TransientFailure, 450, strings.Repeat("\u00e9", 1000), now)
	count(accounting.Delivery, 250, "", now.Add(time.Second))
	for what, got := range map[string]Tally{"site": c.Get(Site, "mx"), "source": c.Get(Source, "a")} {
		if got.Delivered != 1 || got.Deferred != 1 || got.Bounced != 1 {
			t.Errorf("%s: %+v", what, got)
		}
		if n := len(got.Failure.Text); n > maxFailureOctets+len("\u2026") || !strings.HasPrefix(got.Failure.Text, "\u00e9") {
			t.Errorf("%s: the last failure has %d octets: %q", what, n, got.Failure.Text)
		}
		if !got.FailureAt.Equal(now) {
			t.Errorf("%s: the last failure was at %v, want %v", what, got.FailureAt, now)
		}
	}
}

func TestMissingFieldsAreCountedByTenant(t *testing.T) {
	cfg, err := config.Parse([]byte(`tenant "acme" {}`), "mta.conf", os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	c := New(func() *config.Config { return cfg })
	for _, tenant := range []string{"acme", "acme", "stranger"} {
		c.Taken("smtp", &envelope.Message{Tenant: tenant, Recipients: []envelope.Recipient{{}, {}}}, 1<<intake.FieldListUnsubscribe)
	}
	for tenant, want := range map[string]int64{"acme": 2, "": 1} {
		got := c.Get(Tenant, tenant)
		if got.Messages != want || got.Missing != [intake.NumFields]int64{intake.FieldListUnsubscribe: want} {
			t.Errorf("tenant %q: %d messages, missing %v, want %d", tenant, got.Messages, got.Missing, want)
		}
	}
}

// TestBusy: whoever had recipients since the last question is named once, with their number.
func TestBusy(t *testing.T) {
	cfg, err := config.Parse([]byte(`tenant "acme" {}`), "mta.conf", os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	c := New(func() *config.Config { return cfg })
	deliver := func(site string, took time.Duration) {
		now := time.Now()
		c.Attempted(&Outcome{accounting.Delivery, &envelope.Message{Tenant: "acme", Received: now.Add(-took)}, &route.Route{Site: site}, site, &delivery.Result{}, bounce.None, 1}, now)
	}
	busy := func(scope Scope) string {
		var s []string
		c.Busy(scope, func(name string, n int64) { s = append(s, fmt.Sprintf("%s:%d", name, n)) })
		return strings.Join(s, " ")
	}
	deliver("a", time.Second)
	deliver("b", time.Second)
	deliver("a", time.Second)
	c.Received(&envelope.Message{Tenant: "acme", Recipients: make([]envelope.Recipient, 4)})
	for _, want := range []string{"a:2 b:1", ""} {
		if got := busy(Site); got != want {
			t.Errorf("busy sites: %q, want %q", got, want)
		}
	}
	if got := busy(Tenant); got != "acme:7" {
		t.Errorf("busy tenants: %q", got)
	}
	for range 2 {
		h := c.Delays(Site, "a")
		if p50, ok := h.Quantile(.5); h.Len() > 0 && (!ok || p50 < 1750*time.Millisecond || p50 > 2250*time.Millisecond) {
			t.Errorf("the delay is %v, %v, want 2 s", p50, ok)
		}
		deliver("a", 2*time.Second)
	}
	total := c.TotalDelays()
	if a, none := c.Delays(Site, "a"), c.Delays(Site, "stranger"); a.Len() != 2 || none.Len() != 0 || total.Len() != 5 || c.by[Site]["stranger"] != nil {
		t.Errorf("%d delays at a, %d at a stranger, %d in all; want 2, 0, 5", a.Len(), none.Len(), total.Len())
	}
	if c.Unwatch(Site, "a"); c.by[Site]["a"].delays != nil {
		t.Error("delays are counted that nobody watches")
	}
}

func BenchmarkAttempted(b *testing.B) {
	cfg := config.Default()
	c := New(func() *config.Config { return cfg })
	now := time.Now()
	var outcomes [1000]Outcome
	for i := range outcomes {
		site := fmt.Sprint("site", i)
		outcomes[i] = Outcome{accounting.Delivery, &envelope.Message{Received: now}, &route.Route{Site: site}, site, &delivery.Result{Source: "out"}, bounce.None, 1}
	}
	for i := 0; b.Loop(); i++ {
		c.Attempted(&outcomes[i%len(outcomes)], now)
	}
}

// TestPathsAreThoseOfAttempts: what ends without an attempt took no path.
func TestPathsAreThoseOfAttempts(t *testing.T) {
	cfg := config.Default()
	c := New(func() *config.Config { return cfg })
	for _, attempted := range []bool{true, true, false} {
		r := &delivery.Result{Source: "a", Attempted: attempted}
		c.Attempted(&Outcome{accounting.Expiration, &envelope.Message{}, &route.Route{Provider: "big"}, "mx", r, bounce.None, 1}, time.Now())
	}
	if got := c.Paths(); len(got) != 1 || got[Path{"a", "big"}] != (Counts{Expired: 2}) {
		t.Errorf("paths %+v, want two that expired", got)
	}
}
