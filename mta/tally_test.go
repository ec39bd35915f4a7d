package mta

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
	"example.org/mta/mta/config"
	"example.org/mta/submission"
)

// Whatever tenants clients name, and however many sites there are, memory and labels are bounded.
func TestTalliesAreBounded(t *testing.T) {
	cfg := config.Default()
	c := newTallies(func() *config.Config { return cfg })
	now := time.Now()
	for i := range maxSiteTallies + 1000 {
		o := &outcomes{message: &envelope.Message{Tenant: fmt.Sprint("stranger", i)}, route: &route.Route{Site: fmt.Sprint("site", i)}}
		c.attempted(eventDelivery, o, attempt{}, now.Add(time.Duration(i)*time.Second))
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
	if got := c.get(tallyTenant, "").delivered; got != maxSiteTallies+1000 {
		t.Errorf("%d delivered for no tenant in particular, want all", got)
	}
	last := fmt.Sprint("site", maxSiteTallies+999)
	if c.site(last).delivered != 1 {
		t.Errorf("%s, which came last, is forgotten", last)
	}
}

func TestATallyKeepsTheLastFailure(t *testing.T) {
	cfg := config.Default()
	c := newTallies(func() *config.Config { return cfg })
	now := time.Now()
	o := &outcomes{message: &envelope.Message{}, route: &route.Route{Site: "mx"}}
	fail := func(kind eventKind, text string) {
		c.attempted(kind, o, attempt{result: delivery.Result{Source: "a", Reply: reply.Reply{Code: 450, Text: text}}}, now)
	}
	fail(eventBounce, "first")
	fail(eventTransientFailure, strings.Repeat("\u00e9", 1000))
	c.attempted(eventDelivery, o, attempt{result: delivery.Result{Source: "a", Reply: reply.Reply{Code: 250}}}, now.Add(time.Second))
	for what, got := range map[string]tally{"site": c.site("mx"), "source": c.get(tallySource, "a")} {
		if got.delivered != 1 || got.deferred != 1 || got.bounced != 1 {
			t.Errorf("%s: %+v", what, got)
		}
		if n := len(got.failure.Text); n > maxFailureOctets+len("\u2026") || !strings.HasPrefix(got.failure.Text, "\u00e9") {
			t.Errorf("%s: the last failure has %d octets: %q", what, n, got.failure.Text)
		}
		if !got.failureAt.Equal(now) {
			t.Errorf("%s: the last failure was at %v, want %v", what, got.failureAt, now)
		}
	}
}

func TestMissingFieldsAreCountedByTenant(t *testing.T) {
	cfg, err := config.Parse([]byte(`tenant "acme" {}`), "mta.conf", os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	c := newTallies(func() *config.Config { return cfg })
	for _, tenant := range []string{"acme", "acme", "stranger"} {
		c.taken("smtp", &envelope.Message{Tenant: tenant, Recipients: []envelope.Recipient{{}, {}}}, 1<<submission.FieldListUnsubscribe)
	}
	for tenant, want := range map[string]int64{"acme": 2, "": 1} {
		got := c.get(tallyTenant, tenant)
		if got.messages != want || got.missing != [submission.NumFields]int64{submission.FieldListUnsubscribe: want} {
			t.Errorf("tenant %q: %d messages, missing %v, want %d", tenant, got.messages, got.missing, want)
		}
	}
}
