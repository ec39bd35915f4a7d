package mta

import (
	"context"
	"slices"
	"testing"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/envelope"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/tally"
	"example.org/mta/operator/answer/blocks"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
)

// What was counted is shown for the source, the pool, the tenant and the site that it was of.
func TestBlocksShowWhatBecameOfMail(t *testing.T) {
	w := newWorld(t, sink.Config{Refusals: []sink.Refusal{sink.UnknownUsers("nobody")}}, `
		defaults { smtp_port = PORT }
		source "out" { address = "127.0.0.1" }
		source "spare" {}
		pool "default" { shared = ["out"] }
		pool "other" { shared = ["spare"] }
		tenant "acme" { pool = "other" }`)
	w.send("ann@client.example", letter, "bob@box.example", "nobody@box.example")
	w.await("ann@client.example", "Delivery")
	w.await("nobody@box.example", "Bounce")
	ctx, b := context.Background(), w.api.Blocks.(blocks.Blocks)
	b.Queued = func() queue.Counts { return counts(map[string]int{"acme": 3, "stranger": 4}) }
	check := func(what string, got api.Tally) {
		t.Helper()
		if got.Delivered != 2 || got.Bounced != 1 || got.LastError == nil || got.LastError.Code != 550 || got.ErrorAt.IsZero() {
			t.Errorf("%s: %+v", what, got)
		}
	}
	sources, err := b.Sources(ctx, api.BlockFilter{Order: api.BySize})
	if err != nil || len(sources.Sources) != 2 {
		t.Fatalf("%+v, %v", sources, err)
	}
	check("source out", sources.Sources[0].Tally)
	if s := sources.Sources[0]; s.State != api.SourceSending || !slices.Equal(s.Pools, []string{"default"}) || s.Address != "127.0.0.1" {
		t.Errorf("source %+v", s)
	}
	if failing, _ := b.Sources(ctx, api.BlockFilter{Names: []string{"SPARE"}, Failing: true}); len(failing.Sources) != 0 {
		t.Errorf("a source that sent nothing is failing: %+v", failing)
	}
	pools, _ := b.Pools(ctx, api.UnpooledFilter{BlockFilter: api.BlockFilter{Names: []string{"default"}}})
	check("pool default", pools.Pools[0].Tally)
	if others, _ := b.Pools(ctx, api.UnpooledFilter{BlockFilter: api.BlockFilter{Names: []string{"other"}}}); others.Pools[0].Tenants != 1 {
		t.Errorf("pool %+v", others.Pools[0])
	}
	tenants, _ := b.Tenants(ctx, api.TenantFilter{})
	check("no tenant", tenants.Tenants[0].Tally)
	if n := tenants.Tenants[0].Queued; n != 4 || tenants.Tenants[0].Tally.Accepted != 3 {
		t.Errorf("nobody's mail: %d queued, %+v", n, tenants.Tenants[0])
	}
	// What was in the queue at the start was accepted before it, and is delivered now: neither makes a tenant busy.
	w.tally.Attempted(&tally.Outcome{Kind: accounting.Delivery, Message: &envelope.Message{Tenant: "acme"}, Result: &delivery.Result{}, Recipients: 1}, time.Now())
	b.Queued = func() queue.Counts { return counts(map[string]int{"stranger": 4}) }
	if busy, _ := b.Tenants(ctx, api.TenantFilter{BlockFilter: api.BlockFilter{Busy: true}}); len(busy.Tenants) != 1 || busy.Tenants[0].Name != "" {
		t.Errorf("busy: %+v", busy)
	}
	if _, err := b.Tenants(ctx, api.TenantFilter{BlockFilter: api.BlockFilter{Pool: "deflt"}}); api.Hint(err) == "" {
		t.Errorf("a pool that is none: %v", err)
	}
	sites, err := w.api.Destinations.Sites(ctx, api.SiteFilter{Order: api.BySize})
	if err != nil || len(sites.Sites) != 1 && len(sites.Sites) != 2 { // the sender has a site, too
		t.Fatalf("%+v, %v", sites, err)
	}
	total := api.Tally{}
	for _, s := range sites.Sites {
		total.Delivered += s.Tally.Delivered
		total.Bounced += s.Tally.Bounced
	}
	if total.Delivered != 2 || total.Bounced != 1 {
		t.Errorf("sites %+v", sites)
	}
	if s := w.Status(); s.Rates.Delivered < 0 || s.Memory.Process == 0 || s.Disk.Free == 0 || len(s.States) != len(api.States) {
		t.Errorf("status %+v", s)
	}
}

// counts are recipients in the queue, by tenant.
func counts(by map[string]int) (c queue.Counts) {
	for name, n := range by {
		c.Rows = append(c.Rows, queue.Row{Name: name, Count: queue.Count{Total: n}})
	}
	return c
}
