package metrics

import (
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/mta/bounce/inbox"
	"example.org/mta/delivery"
	"example.org/mta/delivery/tlspolicy/sts"
	"example.org/mta/internal/certificates"
	"example.org/mta/internal/dnscheck"
	"example.org/mta/internal/parking"
	"example.org/mta/mta/admit"
	"example.org/mta/mta/config"
	"example.org/mta/mta/events"
	"example.org/mta/mta/tally"
	"example.org/mta/queue/schedule"
	"example.org/mta/submission/intake"
	"example.org/mta/suppression"
	"example.org/mta/warmup"
)

// Parts have the figures that take several tables, or labels that the parts don't know. For all others see Of, If, By.
type Parts struct {
	Version      string
	Config       func() *config.Config // in force
	Now          func() time.Time
	Tally        *tally.Tallies
	Delivery     Delivery
	Warmups      Warmups
	WarmupSource func(key string) string // that a warm-up is of
	EachLine     func(func(parking.Line, *schedule.Count))
	ProviderOf   func(parking.Key) (string, bool) // false: not known yet
	Waiting      func(each func(reason parking.Reason, provider string, recipients int))
	Quota        func(tenant string) (intake.QuotaState, bool)
	Missing      func(source string) bool               // whether this machine lacks the source's address
	Clients      func(listener string) int64            // connections
	Checks       func() ([]dnscheck.Finding, time.Time) // of the DNS; the time is zero when there was none
	Certificates func() []certificates.Expiry
	Streams      func() []events.Status // nil without an accounting log
	Admission    func() admit.Status
	Inbound      func() map[inbox.Counted]int64
	STS          func() sts.Stats
	Fed          func() suppression.FeederStats
}

// Delivery counts connections.
type Delivery interface {
	Usage() delivery.Usage
	BySource() map[string]delivery.SourceCounts
}

// Warmups are those under way, by key.
type Warmups interface {
	IPs() []string
	Status(key string) (warmup.Status, bool)
}

// Collectors are all that Parts have the figures of.
func (p *Parts) Collectors() (all []prometheus.Collector) {
	for _, of := range []func(*collector) collect{
		p.build, p.listeners, p.tenants, p.poolsAndProviders, p.sources, p.quotas, p.queued, p.waiting, p.warmups,
		p.admission,
		p.streams, p.certificates, p.inbound, p.lookups, p.fed, p.checks,
	} {
		c := new(collector)
		c.collect = of(c)
		all = append(all, c)
	}
	return all
}

func (p *Parts) build(c *collector) collect {
	build := add[int](c, "build")
	return func(ch chan<- prometheus.Metric) { build(ch, 1, p.Version, revision(), runtime.Version()) }
}

// revision is the commit that this was built from, "" when that is not known.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}

func (p *Parts) listeners(c *collector) collect {
	type listener struct {
		tally.Tally
		Connections int64
	}
	listeners := add[listener](c, "listeners")
	return func(ch chan<- prometheus.Metric) {
		for _, l := range p.Config().Listeners {
			listeners(ch, listener{p.Tally.Get(tally.Listener, l.Name), p.Clients(l.Name)}, l.Name)
		}
	}
}

func (p *Parts) tenants(c *collector) collect {
	tenants, missing := add[tally.Tally](c, "tenants"), add[int64](c, "fields missing")
	return func(ch chan<- prometheus.Metric) {
		for _, t := range append([]*config.Tenant{{}}, p.Config().Tenants...) {
			n := p.Tally.Get(tally.Tenant, t.Name)
			tenants(ch, n, t.Name)
			for f, count := range n.Missing {
				missing(ch, count, t.Name, intake.Field(f).String())
			}
		}
	}
}

func (p *Parts) poolsAndProviders(c *collector) collect {
	pools, providers := add[tally.Tally](c, "pools"), add[tally.Tally](c, "providers")
	connections := add[int](c, "provider connections")
	return func(ch chan<- prometheus.Metric) {
		cfg, use := p.Config(), p.Delivery.Usage()
		for _, b := range cfg.Pools {
			pools(ch, p.Tally.Get(tally.Pool, b.Name), b.Name)
		}
		providers(ch, p.Tally.Get(tally.Provider, ""), "")
		for _, b := range cfg.Providers {
			providers(ch, p.Tally.Get(tally.Provider, b.Name), b.Name)
			connections(ch, use.Providers[b.Name].Connections, b.Name)
		}
	}
}

func (p *Parts) sources(c *collector) collect {
	type source struct {
		delivery.Load
		delivery.SourceCounts
		Missing bool
	}
	sources := add[source](c, "sources")
	failures, suspensions := add[uint64](c, "source failures"), add[uint64](c, "source suspensions")
	return func(ch chan<- prometheus.Metric) {
		use, counts := p.Delivery.Usage(), p.Delivery.BySource()
		for _, b := range p.Config().Sources {
			n := counts[b.Name]
			sources(ch, source{use.Sources[b.Name], n, p.Missing(b.Name)}, b.Name)
			for f, failed := range n.Failed {
				failures(ch, failed, b.Name, delivery.Failure(f).String())
			}
			suspensions(ch, n.Suspended, b.Name)
		}
		suspensions(ch, counts[""].Suspended, "")
	}
}

func (p *Parts) quotas(c *collector) collect {
	quotas := add[intake.QuotaState](c, "quotas")
	refused, lowered := add[int64](c, "over quota"), add[int64](c, "lowered")
	ofMessages := []intake.QuotaReason{intake.OverRate, intake.OverMessages, intake.OverOctets}
	return func(ch chan<- prometheus.Metric) {
		for _, t := range p.Config().Tenants {
			s, known := p.Quota(t.Name)
			if !known {
				continue
			}
			quotas(ch, s, t.Name)
			for _, why := range append(ofMessages, intake.OverConnections, intake.OverShare) {
				refused(ch, s.Refused[why], t.Name, why.String())
			}
			for _, why := range ofMessages {
				lowered(ch, s.Lowered[why], t.Name, why.String())
			}
		}
	}
}

func (p *Parts) warmups(c *collector) collect {
	type provider struct {
		*warmup.ProviderStatus
		Paused bool
	}
	type source struct {
		*warmup.Status
		Waiting int64
		Paused  bool
	}
	sources, providers := add[source](c, "warmups"), add[provider](c, "warmups by provider")
	return func(ch chan<- prometheus.Metric) {
		for _, key := range p.Warmups.IPs() {
			s, ok := p.Warmups.Status(key)
			if !ok { // a reload may have ended it
				continue
			}
			name, waiting := p.WarmupSource(key), int64(0)
			for i := range s.Providers {
				at := &s.Providers[i]
				waiting += at.Waiting
				providers(ch, provider{at, at.State != "normal"}, name, at.Provider)
			}
			sources(ch, source{&s, waiting, s.State != "normal" && s.State != "warm"}, name)
		}
	}
}

func (p *Parts) admission(c *collector) collect {
	pressures, offered := add[float64](c, "pressures"), add[admit.Count](c, "offered")
	refusals := add[admit.KindCount](c, "refusals")
	return func(ch chan<- prometheus.Metric) {
		s := p.Admission()
		for _, x := range s.Now.Pressures {
			pressures(ch, x.Share, x.Name)
		}
		for tier, n := range s.Totals {
			offered(ch, n, strconv.Itoa(tier))
		}
		for _, k := range s.Refusals {
			refusals(ch, k, k.Tenant, strconv.Itoa(k.Tier), k.Reason)
		}
	}
}

func (p *Parts) streams(c *collector) collect {
	streams := add[events.Status](c, "streams")
	return func(ch chan<- prometheus.Metric) {
		if p.Streams == nil {
			return
		}
		for _, s := range p.Streams() {
			streams(ch, s, s.Name)
		}
	}
}

func (p *Parts) certificates(c *collector) collect {
	expiries := add[time.Time](c, "certificates")
	return func(ch chan<- prometheus.Metric) {
		for _, e := range p.Certificates() {
			expiries(ch, e.At, e.File)
		}
	}
}

func (p *Parts) inbound(c *collector) collect {
	inbound := add[int64](c, "inbound")
	return func(ch chan<- prometheus.Metric) {
		for what, n := range p.Inbound() {
			inbound(ch, n, what.Kind.String(), string(what.Outcome))
		}
	}
}

func (p *Parts) lookups(c *collector) collect {
	lookups := add[uint64](c, "sts lookups")
	return func(ch chan<- prometheus.Metric) {
		s := p.STS()
		lookups(ch, s.Fetched, "fetched")
		lookups(ch, s.Unchanged, "unchanged")
		for kind, n := range s.Failed {
			lookups(ch, n, sts.Kind(kind).String())
		}
	}
}

func (p *Parts) fed(c *collector) collect {
	fed := add[int64](c, "fed")
	return func(ch chan<- prometheus.Metric) {
		for source, n := range p.Fed().Made {
			if source != suppression.Unsubscribe { // those are counted as such
				fed(ch, n, string(source))
			}
		}
	}
}

func (p *Parts) checks(c *collector) collect {
	at, findings, failed := add[time.Time](c, "check time"), add[int](c, "checks"), add[int](c, "checks failed")
	return func(ch chan<- prometheus.Metric) {
		found, made := p.Checks()
		if made.IsZero() {
			return
		}
		at(ch, made)
		for _, r := range []dnscheck.Result{dnscheck.OK, dnscheck.Warning, dnscheck.Failed, dnscheck.Unknown} {
			findings(ch, dnscheck.Count(found, r), string(r))
		}
		seen := make(map[[3]string]bool) // several keys, lists or addresses can fail the same check
		for _, f := range found {
			if labels := [3]string{f.Check, f.Source, f.Domain}; f.Result == dnscheck.Failed && !seen[labels] {
				seen[labels] = true
				failed(ch, 1, labels[:]...)
			}
		}
	}
}
