package tally

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

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
		o := &Outcome{accounting.Delivery, &envelope.Message{Tenant: fmt.Sprint("stranger", i)}, &route.Route{Site: site}, site, &delivery.Result{}}
		c.Attempted(o, now.Add(time.Duration(i)*time.Second))
	}
	if n := len(c.sites); n != maxSiteTallies {
		t.Errorf("%d sites are kept, want %d", n, maxSiteTallies)
	}
	n := 0
	for _, names := range c.by {
		n += len(names)
	}
	if n != 3 {
		t.Errorf("%d tallies of blocks, want those of no tenant, no provider and the default pool", n)
	}
	if got := c.Get(Tenant, "").Delivered; got != maxSiteTallies+1000 {
		t.Errorf("%d delivered for no tenant in particular, want all", got)
	}
	last := fmt.Sprint("site", maxSiteTallies+999)
	if c.Site(last).Delivered != 1 {
		t.Errorf("%s, which came last, is forgotten", last)
	}
}

func TestATallyKeepsTheLastFailure(t *testing.T) {
	cfg := config.Default()
	c := New(func() *config.Config { return cfg })
	now := time.Now()
	count := func(kind accounting.Type, code int, text string, at time.Time) {
		r := &delivery.Result{Source: "a", Reply: reply.Reply{Code: code, Text: text}}
		c.Attempted(&Outcome{kind, &envelope.Message{}, &route.Route{Site: "mx"}, "mx", r}, at)
	}
	count(accounting.Bounce, 450, "first", now)
	count(accounting.TransientFailure, 450, strings.Repeat("\u00e9", 1000), now)
	count(accounting.Delivery, 250, "", now.Add(time.Second))
	for what, got := range map[string]Tally{"site": c.Site("mx"), "source": c.Get(Source, "a")} {
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
