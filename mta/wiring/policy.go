// Package wiring makes the parts' settings out of the configuration: a file for each part, and
// [Policy], which answers what applies to a message. Everything here is a function of one
// configuration, which doesn't change: no goroutine, no lock, nothing that is opened.
package wiring

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/internal/settings"
	"example.org/mta/mta/config"
	"example.org/mta/suppression"
	"example.org/mta/warmup"
)

// Policy answers, from one configuration, what applies to a message. A reload replaces it as a whole.
type Policy struct {
	Config *config.Config
	// LongestAge is the longest max_age of all destinations.
	LongestAge time.Duration
	// SoonestDelay is the least age at which any sender is notified of a delay; 0: never.
	SoonestDelay time.Duration
	ages         map[string]time.Duration // each max_age of destinations that the file has, by its block
	mails        []mail
	// Feed says which refusals put addresses on the suppression list.
	Feed *suppression.FeedSettings

	// Weights returns the weights of a pool's sources, nil when all are equal. Nil: those of the configuration.
	Weights func(*config.Pool) func(source string) int

	// Relays returns how many relays share the limits. Nil: this one has them for itself.
	Relays func() int

	divided map[*config.Pool]*Pool // the pools with dedicated sources
	warming map[string][]string    // the pools of each source with a plan, by the warm-up's name of it
	perNode map[string]bool        // blocks whose limits are not shared with other relays
}

// New makes the policy of a configuration.
func New(cfg *config.Config) *Policy {
	p := &Policy{Config: cfg, perNode: cfg.PerNode(), ages: agesOf(cfg), Feed: Feed(cfg), mails: mailsOf(cfg),
		SoonestDelay: soonestDelay(cfg)}
	p.divided, p.warming = make(map[*config.Pool]*Pool), make(map[string][]string)
	p.LongestAge = slices.Max(slices.Collect(maps.Values(p.ages)))
	for _, pool := range cfg.Pools {
		if len(pool.Dedicated) > 0 {
			p.divided[pool] = newPool(cfg, pool)
		}
		for _, d := range pool.Dedicated {
			if d.Plan != "" {
				key := WarmupKey(cfg, d)
				p.warming[key] = append(p.warming[key], pool.Name)
			}
		}
	}
	return p
}

func agesOf(cfg *config.Config) map[string]time.Duration {
	ages := map[string]time.Duration{"defaults": cfg.Defaults.Traffic.MaxAge}
	for _, p := range cfg.Providers {
		if p.Sets("max_age") {
			ages["provider "+p.Name] = p.Traffic.MaxAge
		}
	}
	for _, d := range cfg.Domains {
		if d.Sets("max_age") {
			ages["domain "+string(d.Pattern)] = d.Traffic.MaxAge
		}
	}
	return ages
}

// SameAges reports whether another policy has the same max_age for all.
func (p *Policy) SameAges(other *Policy) bool {
	return maps.Equal(p.ages, other.ages) && slices.EqualFunc(p.mails, other.mails, func(a, b mail) bool {
		return a.MaxAge == b.MaxAge && reflect.DeepEqual(a.match, b.match)
	})
}

// SameRoutes reports whether another policy has the same routes, and the same providers of sites, for all mail. Whether
// MTA-STS policies count is of routes, which come with them.
func (p *Policy) SameRoutes(other *Policy) bool {
	return reflect.DeepEqual(routes(p.Config), routes(other.Config)) && !p.differs(other, ofRoutes)
}

// SameWays reports whether all mail goes as it does by another policy: by the same routes, from the same sources, with
// the same TLS. If not, what waits for a site from a source may have to wait for another, which nobody knows before it
// is looked at.
func (p *Policy) SameWays(other *Policy) bool {
	return p.SameRoutes(other) && !p.differs(other, ofWays) &&
		slices.EqualFunc(p.Config.Sources, other.Config.Sources, func(a, b *config.Source) bool {
			return outgoing(a) == outgoing(b)
		})
}

// sameContent reports whether all mail leaves with the same content as by another policy: signed by the same keys, of
// whose files the names may have stayed the same, and with the same fields to unsubscribe by.
func (p *Policy) sameContent(other *Policy) bool {
	return !p.differs(other, ofContent) && slices.Equal(keysOf(p.Config), keysOf(other.Config))
}

// keysOf lists the public keys that sign.
func keysOf(cfg *config.Config) (all []string) {
	for _, d := range cfg.DKIMs {
		for _, k := range d.Keys {
			if k.Key() != nil {
				all = append(all, k.Key().Record())
			}
		}
	}
	return all
}

// differs reports whether another policy has another value of any setting with such a name.
func (p *Policy) differs(other *Policy, names *regexp.Regexp) bool {
	return slices.ContainsFunc(settings.Diff(other.Config, p.Config), func(c settings.Change) bool {
		return names.MatchString(c.Setting)
	})
}

// The names of further settings by which mail takes another route, goes another way, or has other content.
var (
	ofContent = regexp.MustCompile(`^dkim "|^tenant "[^"]*": (senders|unsubscribe|unsubscribe_mail)$`)
	ofRoutes  = regexp.MustCompile(`^(defaults|(provider|domain) "[^"]*"): mta_sts$`)
	ofWays    = regexp.MustCompile(
		`^source "[^"]*": proxy_.*$|^pool "[^"]*"(: (shared|overflow|dedicated .*))?$|` +
			`^(tenant|sender_domain|domain) "[^"]*": pool$|` +
			`^(defaults|(provider|domain) "[^"]*"): (tls|tls_.*|dane)$`)
)

// Weight gives the weight of a tenant among tenants.
func (p *Policy) Weight(tenant string) int {
	if t := p.Config.Tenant(tenant); t != nil {
		return t.Weight
	}
	return 1
}

// PoolOf returns the pool that a message leaves from on a route, see config.Config.PoolBy. Without a route, the
// recipient's domain does not count.
func (p *Policy) PoolOf(m *envelope.Message, rt *route.Route) *config.Pool {
	domain := ""
	if rt != nil {
		domain = rt.Domain
	}
	return p.Config.PoolBy(config.WayOf(m, domain))
}

// Divided returns the pool of a message on a route if it has dedicated sources, else nil.
func (p *Policy) Divided(m *envelope.Message, rt *route.Route) *Pool {
	if len(p.divided) == 0 {
		return nil
	}
	return p.divided[p.PoolOf(m, rt)]
}

// Stays returns the question that a reload asks of each queued job: whether its source still belongs to
// its pool, and means the same to the warm-up as before. A job whose source comes under a plan has no
// token, and would leave uncounted. A job whose TLS settings, return path or time to expire have changed is made anew,
// and so is one that comes under a window or a pace, and each when a route or what signs mail has changed.
func (p *Policy) Stays(before *Policy) func(*delivery.Job) bool {
	same := p.SameRoutes(before) && p.sameContent(before)
	return func(j *delivery.Job) bool {
		if !same {
			return false // its route is looked up anew, and it is signed anew
		}
		key, ok := p.keyOf(j)
		was, _ := before.keyOf(j)
		return ok && key == was && p.Demand(j.Message, j.Route) == j.Demand &&
			p.returnPath(j) == before.returnPath(j) && p.timed(j) == before.timed(j) &&
			p.Expires(j.Message, "", j.Route).Equal(before.Expires(j.Message, "", j.Route))
	}
}

func (p *Policy) timed(j *delivery.Job) bool {
	return p.Window(j.Message) != nil || p.Pace(j.Message) != nil
}

func (p *Policy) returnPath(j *delivery.Job) config.ReturnPath {
	return p.Config.ReturnPathFor(j.Message.Tenant, j.Message.Sender)
}

// keyOf gives the warm-up's name of a job's source, "" of a shared one; false when it is not of the pool.
func (p *Policy) keyOf(j *delivery.Job) (key string, ok bool) {
	if pool := p.Divided(j.Message, j.Route); pool != nil {
		return pool.Key[j.Source], pool.Has(j.Source)
	}
	return "", slices.Contains(p.PoolOf(j.Message, j.Route).Shared, j.Source)
}

// WarmupKeys returns the warm-up's names of all sources with a plan, sorted.
func (p *Policy) WarmupKeys() []string { return slices.Sorted(maps.Keys(p.warming)) }

// Plans returns the plan of each source that has one, by the warm-up's name of it.
func (p *Policy) Plans() map[string]*warmup.Plan {
	plans := make(map[string]*warmup.Plan, len(p.warming))
	for _, pool := range p.Config.Pools {
		for _, d := range pool.Dedicated {
			if d.Plan != "" {
				plans[WarmupKey(p.Config, d)] = p.Config.WarmupPlan(d.Plan)
			}
		}
	}
	return plans
}

// WarmupPools returns the names of the pools that have a source with a plan, by the warm-up's name of it.
func (p *Policy) WarmupPools(key string) []string { return p.warming[key] }

// WarmupSource returns the name of a source with a plan, by the warm-up's name of it; that name itself if
// there is none any more.
func (p *Policy) WarmupSource(key string) string {
	for _, name := range p.warming[key] {
		for _, d := range p.Config.Pool(name).Dedicated {
			if d.Plan != "" && WarmupKey(p.Config, d) == key {
				return d.Name
			}
		}
	}
	return key
}

// WarmupKeyOf returns the warm-up's name of a source with a plan, given its name or that; false if there is none.
func (p *Policy) WarmupKeyOf(name string) (key string, ok bool) {
	if p.warming[name] != nil {
		return name, true
	}
	for _, pool := range p.divided {
		if key := pool.Key[name]; p.warming[key] != nil {
			return key, true
		}
	}
	return "", false
}

// SourceFor picks a shared source of a message's pool, see SourceIn.
func (p *Policy) SourceFor(m *envelope.Message, rt *route.Route, via string,
	missing func(source string) bool) (string, bool) {
	return p.SourceIn(p.PoolOf(m, rt), m.ID, rt, via, missing)
}

// SourceIn picks a shared source of a pool for a message: the one of the attempt before, via, if there was one, else
// always the same one for the same message, each as often as its weight allows. If that is missing, or reaches no host
// of the route (nil: not known), it picks another one of the pool; the mail of a missing source spreads over all
// others. It reports false if all are missing, or closed to new mail.
func (p *Policy) SourceIn(pool *config.Pool, id envelope.ID, rt *route.Route, via string,
	missing func(source string) bool) (string, bool) {
	if via != "" && slices.Contains(pool.Shared, via) && !missing(via) && p.Reaches(via, rt) {
		return via, true
	}
	weight := p.WeightsOf(pool)
	first, open := Pick(pool.Shared, Spread(id), weight) // the same at each attempt, as greylisting requires
	if open && !missing(first) && p.Reaches(first, rt) {
		return first, true
	}
	var present, able []string
	for _, name := range pool.Shared {
		if missing(name) || weight != nil && weight(name) == 0 {
			continue
		}
		present = append(present, name)
		if p.Reaches(name, rt) {
			able = append(able, name)
		}
	}
	if len(able) == 0 {
		able = present // delivery reports their fault
	}
	if len(able) == 0 {
		return first, false
	}
	// Spread anew: the first spread's remainder is what is common to all mail of a missing source.
	other, _ := Pick(able, Spread(envelope.ID(Spread(id))), weight)
	return other, true
}

// WeightsOf returns the weights of a pool's sources, nil when all are equal.
func (p *Policy) WeightsOf(pool *config.Pool) func(source string) int {
	if p.Weights == nil {
		return pool.WeightOf()
	}
	return p.Weights(pool)
}

// Pick returns one of sources by a number, of all numbers as many as its weight allows: the same one for the same
// number. It returns the first one and false if all have the weight 0. Nil weights are equal.
func Pick(sources []string, n uint64, weight func(source string) int) (string, bool) {
	if weight == nil {
		return sources[n%uint64(len(sources))], true
	}
	total := 0
	for _, s := range sources {
		total += weight(s)
	}
	if total == 0 {
		return sources[0], false
	}
	at := int(n % uint64(total))
	for i := 0; ; i++ {
		if at -= weight(sources[i]); at < 0 {
			return sources[i], true
		}
	}
}

// Reaches reports whether a source can connect to any host of a route.
func (p *Policy) Reaches(source string, rt *route.Route) bool {
	s := p.Config.Source(source)
	if s == nil {
		return false
	}
	if rt == nil {
		return true
	}
	from := delivery.Source{Address: s.Address}
	return slices.ContainsFunc(rt.Tiers, func(tier route.Tier) bool {
		return slices.ContainsFunc(tier, from.Reaches)
	})
}

// Spread makes neighbouring ids differ in all bits (the finaliser of SplitMix64).
func Spread(id envelope.ID) uint64 {
	x := uint64(id)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Traffic returns the settings for a destination. Without a route, the domain alone decides.
func (p *Policy) Traffic(domain string, rt *route.Route) *config.Traffic {
	if rt != nil {
		return p.Config.Traffic(rt.Domain, rt.Provider)
	}
	return p.Config.Traffic(domain, "")
}

// MaxAge returns the age at which mail for a domain is given up. While nobody knows the provider of the domain's
// hosts, that is the longest that any provider's settings lead to.
func (p *Policy) MaxAge(domain, provider string, known bool) time.Duration {
	if known {
		return p.Config.Traffic(domain, provider).MaxAge
	}
	age := p.Config.Traffic(domain, "").MaxAge
	for _, any := range p.Config.Providers {
		age = max(age, p.Config.Traffic(domain, any.Name).MaxAge)
	}
	return age
}

// Expires returns when mail is given up, of an age that counts from start: at its max_age, or before if its sender
// has given a time.
func Expires(start, sender time.Time, maxAge time.Duration) time.Time {
	if at := start.Add(maxAge); sender.IsZero() || at.Before(sender) {
		return at
	}
	return sender
}

// ExpiresAt is Expires for a message, given the max_age of its destination: that of a mail block may be shorter.
func (p *Policy) ExpiresAt(m *envelope.Message, start time.Time, maxAge time.Duration) time.Time {
	if x := p.MailOf(m, "max_age"); x != nil {
		maxAge = min(maxAge, x.MaxAge)
	}
	return Expires(start, m.Expires, maxAge)
}

// Expires returns when a message for a destination is given up. Without a route its provider is not known.
func (p *Policy) Expires(m *envelope.Message, domain string, rt *route.Route) time.Time {
	provider := ""
	if rt != nil {
		domain, provider = rt.Domain, rt.Provider
	}
	return p.ExpiresAt(m, m.Start(), p.MaxAge(domain, provider, rt != nil))
}

// NoSource is the reply for a message whose pool has no usable source.
func (p *Policy) NoSource(m *envelope.Message, rt *route.Route) reply.Reply {
	pool := p.PoolOf(m, rt)
	return reply.Local(451, reply.Enhanced{4, 3, 5}, "route",
		"this machine has the address of no source of pool %q: %s", pool.Name, strings.Join(pool.Sources(), ", "))
}
