package controltest

import (
	"context"
	"time"

	"example.org/mta/operator/api"
)

var _ api.Blocks = (*Relay)(nil)

// Providers gives a page of those of KnownProviders that fit.
func (r *Relay) Providers(_ context.Context, f api.BlockFilter, after string, limit int) (l api.ProviderList, _ error) {
	var list []api.Provider
	for _, p := range r.KnownProviders {
		if f.BlockNamed(p.Name) && (!f.Busy || p.Load != (api.Load{})) {
			list = append(list, p)
		}
	}
	l.Providers, l.Next = pageOf(list, func(p *api.Provider) string { return p.Name }, after, limit)
	return l, nil
}

// Sources gives a page of those of KnownSources that fit.
func (r *Relay) Sources(_ context.Context, f api.BlockFilter, after string, limit int) (l api.SourceList, _ error) {
	var list []api.Source
	for _, s := range r.KnownSources {
		if f.BlockNamed(s.Name) && (!f.Busy || s.Load != (api.Load{})) {
			list = append(list, s)
		}
	}
	l.Sources, l.Next = pageOf(list, func(s *api.Source) string { return s.Name }, after, limit)
	return l, nil
}

// Pools gives a page of those of KnownPools that fit.
func (r *Relay) Pools(_ context.Context, f api.BlockFilter, after string, limit int) (l api.PoolList, _ error) {
	var list []api.Pool
	for _, p := range r.KnownPools {
		if f.BlockNamed(p.Name) {
			list = append(list, p)
		}
	}
	l.Pools, l.Next = pageOf(list, func(p *api.Pool) string { return p.Name }, after, limit)
	return l, nil
}

// Tenants gives a page of those of KnownTenants that fit.
func (r *Relay) Tenants(_ context.Context, f api.BlockFilter, queued map[string]int, after string, limit int) (l api.TenantList, _ error) {
	var list []api.Tenant
	for _, t := range r.KnownTenants {
		t.Queued = queued[t.Name]
		if f.BlockNamed(t.Name) && (f.Pool == "" || f.Pool == t.Pool) {
			list = append(list, t)
		}
	}
	l.Tenants, l.Next = pageOf(list, func(t *api.Tenant) string { return t.Name }, after, limit)
	return l, nil
}

func (r *Relay) addBlocks() {
	greylisted := &api.Reply{Code: 450, Enhanced: "4.7.1", Text: "greylisted, come back in five minutes", Command: "RCPT"}
	tally := api.Tally{Accepted: 9, Delivered: 3, Deferred: 19, Bounced: 1, LastError: greylisted, ErrorAt: r.Now.Add(-5 * time.Minute)}
	load := api.Load{Connections: 10, Waiting: 2000, Running: 31}
	three := 3
	r.KnownSources = []api.Source{
		{Name: "out1", Address: "192.0.2.10", EHLO: "out1.acme.example", Pools: []string{"acme"}, State: api.SourceWarming, Present: true,
			Reason: "plan standard, stage 3 of 14, 40 of 150 sent this hour, 310 of 1000 today"},
		{Name: "shared1", Address: "192.0.2.20", EHLO: "shared1.acme.example", Pools: []string{"acme", "default"}, State: api.SourceSending, Load: load, Tally: tally,
			Present: true, Providers: []api.SourceProvider{{Provider: "", Delivered: 2, Deferred: 19}, {Provider: "gmail", Delivered: 1, Bounced: 1}},
			Suspended: []api.SourceSuspension{{Site: "slow.example", Reason: "450 4.7.1 too many connections", Begin: r.Now.Add(-time.Minute), End: r.Now.Add(9 * time.Minute)}}, Suspensions: 1},
		{Name: "spare", Address: "198.51.100.7", EHLO: "spare.acme.example", Pools: []string{}, State: api.SourceMissing, Reason: "this machine does not have its address"},
	}
	r.KnownProviders = []api.Provider{{Name: "", Load: load, Tally: tally}, {Name: "gmail"}, {Name: "microsoft"}}
	r.KnownPools = []api.Pool{
		{Name: "acme", Shared: []string{"shared1"}, Dedicated: []string{"out1"}, Tenants: 1, Load: load, Tally: tally},
		{Name: "default", Shared: []string{"shared1"}, Dedicated: []string{}, Load: load},
	}
	r.KnownTenants = []api.Tenant{
		{Name: "", Pool: "default"},
		{Name: "acme", Pool: "acme", Tier: &three, Tally: tally, Use: &api.TenantUse{
			Connections: 12, MaxConnections: 20, MaxSubmissionRate: "10/s", QueuedMessages: 1000, MaxQueuedMessages: 1000, QueuedBytes: 52_428_800,
			OverQuota: "refuse", Over: "messages", Refused: map[string]int64{"messages": 310, "connections": 2}, Lowered: map[string]int64{},
		}},
	}
}
