// Package blocks answers about the configuration's blocks: sources, providers, pools and tenants, what of them is
// paused, their warm-ups, and their figures over time.
package blocks

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/destdb"
	"example.org/mta/dispatch/rules"
	"example.org/mta/dispatch/weights"
	"example.org/mta/internal/legible"
	"example.org/mta/internal/parking"
	"example.org/mta/mta/config"
	"example.org/mta/mta/tally"
	"example.org/mta/operator/answer/waits"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
	"example.org/mta/submission/intake"
)

// Blocks answers about sources, providers, pools and tenants: as many as the configuration has. It implements
// api.Blocks.
type Blocks struct {
	Config   func() *config.Config // in force
	Now      func() time.Time
	Delivery Delivery
	Tally    *tally.Tallies
	Rates    *Rates
	Rules    *rules.Rules
	Warmups  *Warmups
	Missing  func(source string) bool // whether this machine lacks the source's address
	Weights  *weights.Weights
	Quotas   *intake.Quotas      // of tenants
	Queued   func() queue.Counts // recipients in the queue, by tenant
	Waits    *waits.Waits
	// Behind waits for the other nodes of a cluster, and returns which don't know of a weight yet; "": all do.
	Behind func(context.Context) string
}

// Delivery has what is under way from the sources, and what is suspended.
type Delivery interface {
	Usage() delivery.Usage
	Suspensions() []destdb.Suspension
}

// Check returns an error when the configuration has no source, pool, tenant or provider of a name, with those that it
// has.
func Check(cfg *config.Config, what, name string) error {
	names := cfg.Names(what)
	const most = 10 // that fit into a line
	hint := fmt.Sprintf("the %ss: %s", what, strings.Join(names, ", "))
	switch meant := legible.Nearest(name, names); {
	case slices.Contains(names, name):
		return nil
	case meant != "":
		hint = fmt.Sprintf("did you mean %q?", meant)
	case len(names) == 0:
		hint = "the configuration has none"
	case len(names) > most:
		hint = fmt.Sprintf("for a list of the %ss: mta %ss", what, what)
	}
	return api.NotFound(hint, "there is no %s %q", what, name)
}

// row is a block with what its place in a listing depends on.
type row[T any] struct {
	value T
	name  string
	size  int
}

// cut gives a page of rows: by name, or by size and then by name. The cursor is the name of the last
// row before; a block that has moved since may be seen twice.
func cut[T any](rows []row[T], f *api.BlockFilter) (page []T, next string) {
	sized := f.Order == api.BySize || f.Order == api.ByWorst
	slices.SortFunc(rows, func(a, b row[T]) int {
		if sized && a.size != b.size {
			return cmp.Compare(b.size, a.size)
		}
		return cmp.Compare(a.name, b.name)
	})
	if f.After != "" {
		last := strings.TrimPrefix(f.After, cursorMark)
		if sized {
			rows = rows[1+slices.IndexFunc(rows, func(r row[T]) bool { return r.name == last }):]
		} else {
			behind := func(r row[T], name string) int { return cmp.Compare(r.name, name) }
			at, _ := slices.BinarySearchFunc(rows, last+"\x00", behind)
			rows = rows[at:]
		}
	}
	for i := range rows {
		if f.Limit > 0 && len(page) == f.Limit {
			return page, cursorMark + rows[i-1].name
		}
		page = append(page, rows[i].value)
	}
	return page, ""
}

// size is what the place of a block depends on in an order: its mail, or what of it waits for more than its turn.
func size(f *api.BlockFilter, mail int, waits []api.WaitsFor) int {
	if f.Order == api.ByWorst {
		return api.Worst(waits)
	}
	return mail
}

// cursorMark begins a cursor, which is never "" even if the name is.
const cursorMark = ":"

func (b Blocks) Sources(_ context.Context, f api.BlockFilter) (l api.SourceList, _ error) {
	cfg, use := b.Config(), b.Delivery.Usage()
	if err := Check(cfg, "pool", f.Pool); f.Pool != "" && err != nil {
		return l, err
	}
	attempts, suspended := sourceAttempts(b.Tally.Paths()), b.suspensions()
	waiting := b.Waits.Picture().BySource
	var rows []row[api.Source]
	for _, s := range cfg.Sources {
		c := b.Tally.Get(tally.Source, s.Name)
		src := api.Source{Name: s.Name, EHLO: s.EHLO, Pools: poolsOf(cfg, s.Name), Load: loadOf(use.Sources[s.Name]),
			Tally: TallyOf(&c), WaitsFor: waiting[s.Name]}
		if s.Address.IsValid() {
			src.Address = s.Address.String()
		}
		src.State, src.Reason = b.sourceState(s)
		for _, pool := range src.Pools {
			src.Weights = b.weight(src.Weights, cfg.Pool(pool), s.Name, pool)
		}
		src.Present, src.Providers = !b.Missing(s.Name), attempts[s.Name]
		src.Suspended, src.Suspensions = suspended[s.Name], len(suspended[s.Name])
		src.Suspended = src.Suspended[:min(src.Suspensions, api.MaxSourceSuspensions)]
		if !f.BlockNamed(s.Name) || f.Pool != "" && !slices.Contains(src.Pools, f.Pool) || leftOut(&f, &c, src.Load) {
			continue
		}
		rows = append(rows, row[api.Source]{src, s.Name, size(&f, src.Load.Waiting+src.Load.Running, src.WaitsFor)})
	}
	l.Sources, l.Next = cut(rows, &f)
	return l, nil
}

// weight adds the weight of a source of a pool to some others, by a name, unless it is 1.
func (b Blocks) weight(all map[string]int, pool *config.Pool, source, name string) map[string]int {
	of := b.Weights.In(pool)
	if of == nil || of(source) == 1 {
		return all
	}
	if all == nil {
		all = make(map[string]int)
	}
	all[name] = of(source)
	return all
}

// SetWeight gives a source of a pool another weight. One source at least keeps getting new mail.
func (b Blocks) SetWeight(ctx context.Context, name string, w api.SetWeight) (done api.WeightChanged, _ error) {
	cfg := b.Config()
	if err := Check(cfg, "pool", name); err != nil {
		return done, err
	}
	pool := cfg.Pool(name)
	sources := pool.Sources()
	if !slices.Contains(sources, w.Source) {
		return done, api.NotFound("its sources: "+strings.Join(sources, ", "), "pool %q has no source %q", name,
			w.Source)
	}
	if w.Own {
		if w.Weight = 1; pool.WeightOf() != nil {
			w.Weight = pool.WeightOf()(w.Source)
		}
	}
	of := b.Weights.In(pool)
	if w.Weight == 0 && !b.left(pool, w.Source) {
		return done, api.Invalid("the others are paused, missing or at 0; to stop all mail: mta pause pool "+name,
			"no source of pool %q would be left for new mail", name)
	}
	done.Weight = api.Weight{Pool: name, Source: w.Source, Weight: w.Weight,
		By: api.ActorOf(ctx).Name() + b.Weights.Where, Reason: api.ReasonOf(ctx), Since: b.Now()}
	done.Effect, done.Was = api.Effect{Count: 1}, 1
	if of != nil {
		done.Was = of(w.Source)
	}
	if w.DryRun {
		return done, nil
	}
	var err error
	if w.Own {
		err = b.Weights.End(name, w.Source)
	} else {
		err = b.Weights.Set(done.Weight)
	}
	if err != nil {
		return done, err
	}
	if w.Weight > 0 {
		b.Rules.SourceFree()
	}
	if done.Behind = b.Behind(ctx); done.Behind == "" && w.Weight == 0 && !b.left(pool, "") {
		done.Behind = fmt.Sprintf(
			"pool %q has no source for new mail any more: another node has taken out the others", name)
	}
	return done, nil
}

// left reports whether new mail of a pool can leave from any of its sources, one apart.
func (b Blocks) left(pool *config.Pool, but string) bool {
	of := b.Weights.In(pool)
	return slices.ContainsFunc(pool.Sources(), func(s string) bool {
		return s != but && (of == nil || of(s) > 0) && !b.Missing(s) && !b.Rules.Source(s)
	})
}

// sourceAttempts are the outcomes at each provider, by source.
func sourceAttempts(paths map[tally.Path]tally.Counts) map[string][]api.SourceProvider {
	by := make(map[string][]api.SourceProvider)
	for p, c := range paths {
		by[p.Source] = append(by[p.Source], api.SourceProvider{
			Provider: p.Provider, Delivered: c.Delivered, Deferred: c.Deferred, Bounced: c.Bounced, Expired: c.Expired})
	}
	for _, list := range by {
		slices.SortFunc(list, func(a, b api.SourceProvider) int { return cmp.Compare(a.Provider, b.Provider) })
	}
	return by
}

// suspensions are the sites and hosts that get no mail from a source, by source, the latest first.
func (b Blocks) suspensions() map[string][]api.SourceSuspension {
	by := make(map[string][]api.SourceSuspension)
	for _, s := range b.Delivery.Suspensions() {
		if s.Source != "" {
			by[s.Source] = append(by[s.Source],
				api.SourceSuspension{Site: s.Site, Host: api.AddressOf(s.Host), Reason: s.Reason,
					Begin: s.Begin, End: s.End})
		}
	}
	for _, list := range by {
		slices.SortStableFunc(list, func(a, b api.SourceSuspension) int { return b.Begin.Compare(a.Begin) })
	}
	return by
}

func (b Blocks) Providers(_ context.Context, f api.UnpooledFilter) (l api.ProviderList, _ error) {
	cfg, use, waiting := b.Config(), b.Delivery.Usage(), b.Waits.Picture().ByProvider
	var rows []row[api.Provider]
	for _, p := range append([]*config.Provider{{}}, cfg.Providers...) {
		c := b.Tally.Get(tally.Provider, p.Name)
		x := api.Provider{Name: p.Name, Load: loadOf(use.Providers[p.Name]), Tally: TallyOf(&c),
			WaitsFor: waiting[p.Name]}
		if f.BlockNamed(p.Name) && !leftOut(&f.BlockFilter, &c, x.Load) {
			n := size(&f.BlockFilter, x.Load.Waiting+x.Load.Running, x.WaitsFor)
			rows = append(rows, row[api.Provider]{x, p.Name, n})
		}
	}
	l.Providers, l.Next = cut(rows, &f.BlockFilter)
	return l, nil
}

// sourceState returns whether a source sends, and the obstacle if not.
func (b Blocks) sourceState(s *config.Source) (state, reason string) {
	if b.Missing(s.Name) {
		return api.SourceMissing, "this machine does not have its address"
	}
	if why := pausedSource(b.Rules, s.Name); why != "" {
		return api.SourcePaused, why
	}
	w, warming := b.Warmups.Of(s.Name)
	switch {
	case !warming || w.State == "warm":
		return api.SourceSending, ""
	case w.State == "normal":
		return api.SourceWarming, standing(&w)
	}
	why := "warm-up: " + w.State
	if w.State == "scheduled" {
		why += ": " + standing(&w)
	}
	return api.SourcePaused, why
}

// pausedSource returns by whom and why a source is paused, alone or with everything; "" if it is not.
func pausedSource(r *rules.Rules, name string) string {
	return r.First(api.Selection{Source: name})
}

// poolsOf names the pools that have a source.
func poolsOf(cfg *config.Config, source string) []string {
	names := []string{}
	for _, p := range cfg.Pools {
		if slices.Contains(p.Shared, source) || slices.Contains(dedicatedOf(p), source) {
			names = append(names, p.Name)
		}
	}
	return names
}

func dedicatedOf(p *config.Pool) []string {
	names := []string{}
	for _, d := range p.Dedicated {
		names = append(names, d.Name)
	}
	return names
}

func loadOf(l delivery.Load) api.Load {
	return api.Load(l)
}

// leftOut reports whether a block doesn't fit what a filter asks of its state.
func leftOut(f *api.BlockFilter, c *tally.Tally, l api.Load) bool {
	return f.Failing && !c.Failing() || f.Busy && l == (api.Load{})
}

func (b Blocks) Pools(_ context.Context, f api.UnpooledFilter) (l api.PoolList, _ error) {
	cfg, use, waiting := b.Config(), b.Delivery.Usage(), b.Waits.Picture()
	tenants := make(map[string]int)
	for _, t := range cfg.Tenants {
		tenants[cfg.PoolOf(t.Name).Name]++
	}
	var rows []row[api.Pool]
	for _, p := range cfg.Pools {
		c := b.Tally.Get(tally.Pool, p.Name)
		pool := api.Pool{Name: p.Name, Shared: append([]string{}, p.Shared...), Dedicated: dedicatedOf(p),
			Tenants: tenants[p.Name], Tally: TallyOf(&c)}
		lists := [][]api.WaitsFor{waiting.ByPool[p.Name]}
		pool.Paused = b.Rules.First(api.Selection{Pool: p.Name})
		for _, s := range slices.Concat(pool.Shared, pool.Dedicated) {
			pool.Weights = b.weight(pool.Weights, p, s, s)
			x := use.Sources[s]
			pool.Load.Connections += x.Connections
			pool.Load.Waiting += x.Waiting
			pool.Load.Running += x.Running
			// of what waits for the pool itself some waits for one of its sources
			lists = append(lists, slices.DeleteFunc(slices.Clone(waiting.BySource[s]), func(x api.WaitsFor) bool {
				return x.Reason == parking.Warmup || x.Reason == parking.Paused
			}))
		}
		pool.WaitsFor = waits.Merged(lists...)
		if f.BlockNamed(p.Name) && !leftOut(&f.BlockFilter, &c, pool.Load) {
			n := size(&f.BlockFilter, pool.Load.Waiting+pool.Load.Running, pool.WaitsFor)
			rows = append(rows, row[api.Pool]{pool, p.Name, n})
		}
	}
	l.Pools, l.Next = cut(rows, &f.BlockFilter)
	return l, nil
}

func (b Blocks) Tenants(_ context.Context, f api.TenantFilter) (l api.TenantList, _ error) {
	cfg := b.Config()
	queued := make(map[string]int)
	for _, row := range b.Queued().Rows {
		if cfg.Tenant(row.Name) == nil {
			row.Name = ""
		}
		queued[row.Name] += row.Total
	}
	if err := Check(cfg, "pool", f.Pool); f.Pool != "" && err != nil {
		return l, err
	}
	waiting := b.Waits.ByTenant()
	rates := b.Rates.OfTenants(b.Now(), b.Tally.Counts(tally.Tenant))
	var rows []row[api.Tenant]
	for _, t := range append([]*config.Tenant{{}}, cfg.Tenants...) {
		c := b.Tally.Get(tally.Tenant, t.Name)
		tenant := api.Tenant{Name: t.Name, Pool: cfg.PoolOf(t.Name).Name, Queued: queued[t.Name], Tally: TallyOf(&c),
			Rates: rates[t.Name], WaitsFor: waiting[t.Name]}
		tenant.Paused = b.Rules.First(api.Selection{Tenant: t.Name}, api.Selection{Pool: tenant.Pool})
		if t.Name != "" { // other mail has its listener's
			tenant.Tier, tenant.Use = &t.Tier, b.useOf(t)
		}
		idle := queued[t.Name] == 0
		if f.BlockNamed(t.Name) && (f.Pool == "" || f.Pool == tenant.Pool) && !(f.Failing && !c.Failing()) &&
			!(f.Busy && idle) {
			rows = append(rows, row[api.Tenant]{tenant, t.Name, size(&f.BlockFilter, queued[t.Name], tenant.WaitsFor)})
		}
	}
	l.Tenants, l.Next = cut(rows, &f.BlockFilter)
	return l, nil
}

// TallyOf puts a tally in the API's words.
func TallyOf(c *tally.Tally) api.Tally {
	return api.Tally{
		Accepted: c.Accepted, Delivered: c.Delivered, Deferred: c.Deferred, Bounced: c.Bounced, Expired: c.Expired,
		LastError: api.ReplyOf(c.Failure), ErrorAt: c.FailureAt,
	}
}

// useOf puts what a tenant uses in the API's words.
func (b Blocks) useOf(t *config.Tenant) *api.TenantUse {
	s, known := b.Quotas.State(t.Name)
	if !known { // a reload has just taken it away
		return nil
	}
	u := &api.TenantUse{
		Connections: s.Connections, MaxConnections: s.Limits.Connections,
		QueuedMessages: s.Queued.Messages + s.Coming.Messages, MaxQueuedMessages: s.Limits.Messages,
		QueuedBytes: s.Queued.Octets + s.Coming.Octets, MaxQueuedBytes: s.Limits.Octets,
		OverQuota: t.OverQuota, Over: s.Now.Reason.String(), Refused: byReason(&s.Refused),
		Lowered: byReason(&s.Lowered),
	}
	if !s.Limits.Rate.Unlimited() {
		u.MaxSubmissionRate = s.Limits.Rate.String()
	}
	return u
}

// byReason leaves out what has not happened.
func byReason(counts *[intake.QuotaReasons]int64) map[string]int64 {
	m := make(map[string]int64)
	for why, n := range counts {
		if n > 0 {
			m[intake.QuotaReason(why).String()] = n
		}
	}
	return m
}
