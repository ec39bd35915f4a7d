package sites

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/dispatch/rules"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/gcra"
	"example.org/mta/internal/legible"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/route"
	"example.org/mta/internal/settings"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/answer/blocks"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
	"example.org/mta/router"
	"example.org/mta/warmup"
)

// domainCase is the explanation of one domain while it is being put together.
type domainCase struct {
	api.Destination
	now     time.Time
	cfg     *config.Config
	route   *route.Route
	tenant  string
	mail    rules.Mail
	pool    *config.Pool
	sources []sourceCase
	divided []delivery.NamedScope // limits that all relays share
	drains  []drainCase
	files   int               // that the process may have open
	origins map[string]string // where limits were set: of "connection_limit of site a"
}

// sourceCase is a source of the pool, and what applies to mail that takes it.
type sourceCase struct {
	delivery.Source
	limits    delivery.Limits
	hosts     []api.Host // of the route, as far as it reaches them
	suspended time.Time  // until when; zero: it is not
	missing   bool       // this machine does not have its address
	paused    api.Rule   // zero: it is not
	closed    bool       // its weight is 0: it gets no new mail

	// What its warm-up lacks for the provider, and until when; "" when it lacks nothing or has none.
	lacks      string
	lacksUntil time.Time
}

// drainCase is the rate to which a source is held after an outage.
type drainCase struct {
	source string
	rate   gcra.Rate
	lane   int    // in Lanes
	gone   string // when its backlog will be
}

// explainDomain returns all that decides the fate of mail that takes the route of a name from a pool. queued is what
// queuedByKey gives: one count of the queue is enough for all domains of a message m, nil if no
// mail is special.
func (d *Sites) explainDomain(ctx context.Context, domain string, mail rules.Mail, pool *config.Pool,
	queued map[string]*queue.Count, m *envelope.Message) api.Destination {
	pol := d.Policy()
	tenant := mail.Tenant
	c := domainCase{now: d.Now(), cfg: pol.Config, tenant: tenant, mail: mail.In(pool), pool: pool, files: d.Files,
		origins: make(map[string]string)}
	c.Destination = api.Destination{
		Domain: router.DomainOf(domain), Pool: pool.Name, OtherPools: otherPools(c.cfg, pool), Steps: []string{},
		Hosts: []api.TierHost{}, Sources: []api.DestinationSource{}, Limits: []api.Limit{},
	}
	res := d.Router.Lookup(ctx, domain)
	c.Steps, c.RouteExpires = append(c.Steps, res.Notes...), res.Expires
	for _, x := range res.Exchangers {
		if x.Skipped != "" {
			c.Steps = append(c.Steps, fmt.Sprintf("%s is not used: %s", x.Name, x.Skipped))
		}
	}
	c.count(queued[domain])
	c.countUnplaced(d.Queue, queued[""])
	if res.Route == nil {
		c.Failure = api.ReplyOf(*res.Failure)
		c.countPaused(queued, d)
		c.judge()
		d.overrule(&c, m)
		return c.Destination
	}
	c.route = res.Route
	c.Site, c.Provider = c.route.Site, c.route.Provider
	c.mail.Provider = c.Provider
	c.addTLS(ctx, d.TLSA)
	c.addSTS(d)
	if c.Site != domain {
		c.count(queued[c.Site])
	}
	c.addHosts(d)
	c.addSite(d)
	for _, name := range pool.Sources() {
		if s, ok := pol.Outgoing(name); ok {
			limits := pol.Limits(c.route, name, tenant)
			c.divided = slices.Concat(c.divided, limits.Divided, pol.Limits(c.route, name, "").Divided)
			limits.Rules = d.Messages.Rules.Rates(c.route, name, tenant)
			c.addSource(s, limits, d)
		}
	}
	c.countThrottled(queued, pool.Name)
	c.countPaused(queued, d)
	c.addTrafficLimits(m, pol, d.Messages.Rules)
	c.finishLanes()
	c.judge()
	d.overrule(&c, m)
	return c.Destination
}

// overrule puts what keeps mail from leaving at all before the other answers about a destination: operators' rules, and
// the window and the pace of a message m; nil if no mail is special, and without an id if that of a tenant is. It names
// all rules that apply.
func (d *Sites) overrule(c *domainCase, m *envelope.Message) {
	kept := d.Messages.Rules
	list := kept.For(c.mail)
	for _, source := range c.pool.Sources() {
		from := c.mail
		from.Source = source
		list = append(list, kept.For(from)...)
	}
	slices.SortFunc(list, (*api.Rule).Compare)
	list = slices.Compact(list)
	for _, x := range list {
		c.Rules = append(c.Rules, x.InWords())
	}
	if m == nil || m.ID == 0 { // no message is asked about
		defer c.exceptions(kept.List(), list)
	}
	if x := kept.Stops(c.mail, false); x != nil && x.Action != api.RuleSuspend {
		will := map[api.RuleAction]string{api.RuleBounce: "mail is bounced: ", api.RuleHold: "new mail is held: "}
		c.Now, c.Until = will[x.Action]+x.InWords(), x.Until
	} else if why, until, ok := kept.Why(kept.Keeps(c.mail, c.pool)); ok {
		c.Now, c.Until = "no mail is sent: "+why, until
	} else if m == nil || c.Failure != nil {
		return
	} else if why, until, ok := kept.Why(kept.Shut(m)); ok {
		c.Now, c.Until = "the message waits: "+why, until
	} else if p := kept.Pace(m); !p.IsZero() && c.Now == sentAtOnce {
		c.Now = "mail is sent as its pace allows: " + p.String()
	}
}

// exceptions adds the rules that are for some of the mail only.
func (c *domainCase) exceptions(all []api.Rule, named []*api.Rule) {
	may := func(want, got string) bool { return want == "" || got == "" || want == got }
	n := 0
	for i := range all {
		x := &all[i]
		if x.Source != "" || !may(x.Tenant, c.mail.Tenant) || !may(x.Pool, c.mail.Pool) ||
			!may(x.Provider, c.mail.Provider) || !may(x.Domain, c.mail.Domain) ||
			slices.ContainsFunc(named, func(o *api.Rule) bool { return o.ID == x.ID }) {
			continue
		}
		if n++; n <= mostExceptions {
			c.Rules = append(c.Rules, "for some of the mail, "+x.InWords())
		}
	}
	if n > mostExceptions {
		c.Rules = append(c.Rules, fmt.Sprintf("and %d more for some of the mail: mta rule list", n-mostExceptions))
	}
	if n > 0 && c.Now == sentAtOnce {
		c.Now += ", except what the rules below are for"
	}
}

const mostExceptions = 10

// otherPools are those whose sources the mail of other tenants takes.
func otherPools(cfg *config.Config, this *config.Pool) []api.OtherPool {
	var all []api.OtherPool
	for _, t := range cfg.Tenants {
		name := cfg.PoolOf(t.Name).Name
		if name == this.Name {
			continue
		}
		at := slices.IndexFunc(all, func(p api.OtherPool) bool { return p.Name == name })
		if at < 0 {
			at, all = len(all), append(all, api.OtherPool{Name: name})
		}
		all[at].Tenants = append(all[at].Tenants, t.Name)
	}
	return all
}

// count adds what waits in the queue under a key.
func (c *domainCase) count(k *queue.Count) {
	if k != nil {
		c.Queued.Parked += k.States[queue.StateParked]
		c.Queued.Active += k.States[queue.StateLeased]
		c.Queued.Due += k.States[queue.StateDue] + k.States[queue.StateEnding]
		c.Queued.Deferred += k.States[queue.StateDeferred]
		c.Queued.Held += k.States[queue.StateHeld] + k.States[queue.StateUnreadable]
	}
}

// countThrottled adds the mail that waits for the warm-ups of the pool.
func (c *domainCase) countThrottled(queued map[string]*queue.Count, pool string) {
	if k := queued[(parking.Key{Kind: parking.Tokens, Name: pool,
		Provider: cmp.Or(c.Provider, warmup.Other)}).String()]; k != nil {
		c.Queued.Warmup += k.States[queue.StateParked]
	}
}

// countUnplaced adds what waits for sending hours or the pace of its campaign, whose keys have no site, and what has no
// key, as nobody has looked for its route.
func (c *domainCase) countUnplaced(q *queue.Queue, unsorted *queue.Count) {
	if unsorted != nil {
		c.Queued.Unsorted = unsorted.Total
	}
	for key := range q.CountKeys() {
		if isPlace(key) && key != (parking.Key{}) {
			continue
		}
		for _, k := range q.Summary(queue.Filter{Domain: c.Domain}) {
			switch {
			case k.Key == parking.Key{}:
				c.count(&k.Count)
				c.Queued.Unsorted = max(0, c.Queued.Unsorted-k.Total)
			case k.Key.Kind == parking.Hours:
				c.Queued.Hours += k.States[queue.StateParked]
			case k.Key.Kind == parking.Pace:
				c.Queued.Paced += k.States[queue.StateParked]
			}
		}
		return
	}
}

// countPaused adds what waits for the end of the pause that is in the way of the tenant's mail.
func (c *domainCase) countPaused(queued map[string]*queue.Count, r *Sites) {
	key := cmp.Or(r.Messages.Rules.Suspends(c.mail), r.Messages.Rules.SourceOf(c.pool))
	if k := queued[key.String()]; key != (parking.Key{}) && k != nil {
		c.Queued.Paused, c.Queued.PausedBy = k.States[queue.StateParked], key.Name
	}
}

// addHosts gives the route's hosts with what is known of them.
func (c *domainCase) addHosts(d *Sites) {
	for i, tier := range c.route.Tiers {
		for _, h := range tier {
			host := api.Host{Name: h.Name, Address: h.Addr.String(), State: api.HostUnused}
			for _, known := range d.Delivery.HostsAt(h.Addr.Addr()) {
				if known.Addr == h.Addr {
					host = hostOf(&known, c.now)
					host.Name = h.Name // an address can have several
				}
			}
			c.Hosts = append(c.Hosts, api.TierHost{Tier: i + 1, Host: host})
		}
	}
}

func (c *domainCase) addSite(d *Sites) {
	c.SlowStart = 1
	known, ok := d.Delivery.Site(c.Site)
	if ok {
		s := siteOf(&known.SiteInfo, c.now)
		c.Connections, c.SlowStart, c.Actions = s.Connections, s.SlowStart, s.Actions
	}
	drains := 0
	for _, l := range known.Lanes {
		if l.Draining != nil {
			drains++
		}
	}
	for _, l := range known.Lanes {
		if !slices.Contains(c.pool.Sources(), l.Source) {
			continue // the mail of other pools
		}
		c.Lanes = append(c.Lanes, api.Lane{
			Source: l.Source, Waiting: l.Waiting, Running: l.Running, Opening: l.Opening, Why: l.Why, Until: l.Until,
			Tenant: l.Tenant, Oldest: l.Oldest,
		})
		if l.Draining != nil {
			c.addDrain(&l, c.Queued.Parked/drains)
		}
	}
}

// addDrain adds how fast the backlog of a lane leaves after an outage, and when it will be gone. Parked is how
// much of it waits in the queue.
func (c *domainCase) addDrain(l *delivery.LaneInfo, parked int) {
	rate, n := l.Draining.Rate, parked+l.Waiting
	gone := c.now.Add(l.Draining.Takes(n))
	shown := &c.Lanes[len(c.Lanes)-1]
	shown.Drain, shown.DrainEnds = rate.String(), gone
	c.limit("drain after an outage", shown.Drain, "site "+c.Site+" from source "+l.Source,
		"the usual rate of the site, doubled every half minute without failures",
		fmt.Sprintf("%d wait, gone by about %s", n, gone.Format(time.DateTime)))
	c.drains = append(c.drains, drainCase{l.Source, rate, len(c.Lanes) - 1,
		fmt.Sprintf("; the backlog of %d will be gone by about %s if the site continues to accept it", n,
			gone.Format(time.DateTime))})
}

// finishLanes adds to what lanes wait for where that was set, and when their backlog will be gone.
func (c *domainCase) finishLanes() {
	for i := range c.Lanes {
		c.Lanes[i].Why = c.whence(c.Lanes[i].Why)
	}
	for _, d := range c.drains {
		if l := &c.Lanes[d.lane]; l.Why != "" {
			l.Why += d.gone
		}
	}
}

// limitValue is the value in what delivery calls a limit.
var limitValue = regexp.MustCompile(`^(\w+) [^ ]+ of `)

// whence adds to the name of a limit where it was set.
func (c *domainCase) whence(limit string) string {
	key, lacks, all := strings.Cut(strings.TrimPrefix(limit, delivery.PartOf), delivery.OfAllRelays)
	if origin := c.origins[limitValue.ReplaceAllString(key, "$1 of ")]; origin != "" && all {
		return strings.TrimSuffix(limit, lacks) + ", set by " + origin + lacks
	} else if origin != "" {
		return limit + ", set by " + origin
	}
	return limit
}

func (c *domainCase) addSource(s delivery.Source, limits delivery.Limits, r *Sites) {
	x := sourceCase{Source: s, limits: limits, missing: r.Missing(s.Name)}
	x.paused, _ = r.Messages.Rules.Get(rules.Key(api.Selection{Source: s.Name}))
	if weight := r.Weights.In(c.pool); weight != nil {
		x.closed = weight(s.Name) == 0
	}
	for _, tier := range c.route.Tiers {
		for _, h := range tier {
			if s.Reaches(h) {
				at := slices.IndexFunc(c.Hosts, func(t api.TierHost) bool { return t.Host.Address == h.Addr.String() })
				x.hosts = append(x.hosts, c.Hosts[at].Host)
			}
		}
	}
	for _, a := range c.Actions {
		if a.What == api.SiteSuspended && (a.Source == "" || a.Source == s.Name) && a.End.After(x.suspended) {
			x.suspended = a.End
		}
	}
	shown := api.DestinationSource{Name: s.Name, EHLO: s.EHLO, Reaches: len(x.hosts)}
	if s.Address.IsValid() {
		shown.Address = s.Address.String()
	}
	if st, ok := r.Messages.Warmups.Of(s.Name); ok {
		shown.Warmup = blocks.Progress(&st, c.Provider)
		if st.State != "unknown" { // the first mail has the ledger read
			x.lacks, x.lacksUntil = blocks.Lacking(&st, c.Provider)
		}
	}
	c.sources = append(c.sources, x)
	c.Sources = append(c.Sources, shown)
	if conf := c.cfg.Source(s.Name); conf != nil {
		c.addScope(limits.Source, "source "+s.Name, conf.Origin)
	}
	c.addOwnLimits(s.Name, &limits)
}

// addOwnLimits adds what a source and its pools allow at the destination beside the destination's limits.
func (c *domainCase) addOwnLimits(source string, in *delivery.Limits) {
	t, path := c.cfg.Traffic(c.route.Domain, c.route.Provider), "site "+c.Site+" from source "+source
	inForce := map[string]string{
		"connection_limit": fmt.Sprint(in.Path.Connections), "max_message_rate": in.Path.MessageRate.String(),
		"max_connection_rate": in.Path.ConnectionRate.String(),
	}
	for setting := range inForce {
		c.origins[setting+" of "+path] = t.Origin(setting + "_per_source")
	}
	for _, own := range c.cfg.OwnLimits(source, c.route.Domain, c.route.Provider) {
		for _, name := range own.Settings() {
			setting, perSource := strings.CutSuffix(name, "_per_source")
			scope, now := path, ""
			if _, scoped := inForce[setting]; scoped && own.Pooled && !perSource {
				scope = "site " + c.Site + " from " + own.Who
			} else if inForce[setting] == own.Value(name) {
				now = "the smallest for this source"
				c.origins[setting+" of "+path] = own.Origin(name)
			}
			c.limit(name, own.Value(name), scope, own.Origin(name), now)
		}
		for _, x := range in.Shared {
			if x.Name == "provider "+c.Provider+" from "+own.Who {
				c.addScope(x.Scope, x.Name, own.OriginTogether)
			}
		}
	}
}

// limitsLeftOut are settings that bound nothing by themselves.
var limitsLeftOut = []string{"smtp_port", "delay_warning", "pipelining"}

// addTrafficLimits adds the settings for the destination, with the block that made each, and those
// of the message, the provider, the tenant and the relay.
func (c *domainCase) addTrafficLimits(m *envelope.Message, pol *wiring.Policy, kept *rules.Rules) {
	t := c.cfg.Traffic(c.route.Domain, c.route.Provider)
	overruled := c.addMail(m, pol, t.MaxAge, kept)
	for _, name := range t.Settings() {
		value := t.Value(name)
		if overruled[name] {
			continue
		}
		if slices.Contains(limitsLeftOut, name) || strings.HasPrefix(name, "tls") || strings.Contains(name, ".") ||
			value == "0" || value == "none" {
			continue
		}
		now := ""
		if name == "connection_limit" {
			now = fmt.Sprintf("%d in use", c.Connections)
		}
		c.limit(name, value, c.scopeOf(name), t.Origin(name), now)
	}
	if len(c.sources) > 0 {
		lim := &c.sources[0].limits
		for _, p := range c.cfg.Providers {
			if p.Name == c.Provider {
				c.addScope(lim.Provider, "provider "+p.Name, p.Origin)
			}
		}
		if tenant := c.cfg.Tenant(c.tenant); tenant != nil {
			c.addScope(lim.Tenant, "tenant "+c.tenant, tenant.Origin)
			if r := lim.TenantPath.MessageRate; !r.Unlimited() {
				c.limit("max_message_rate_per_source", r.String(),
					"tenant "+c.tenant+" at site "+c.Site+", each source",
					tenant.Origin("max_message_rate_per_source"), "")
			}
		}
		for _, r := range lim.Rules {
			scope := fmt.Sprintf("rule %d", r.Rule)
			if r.Shared != "" {
				scope += delivery.OfAllRelays
			}
			c.limit("slow", r.Rate.String(), scope, r.Why, "")
		}
		c.addScope(lim.Relay, "the relay", c.cfg.Delivery.Origin)
	}
	now, configured := "", c.cfg.Delivery.MaxConnections
	most := wiring.ShareDescriptors(c.files, c.cfg).Of(configured)
	if most < configured {
		now = fmt.Sprintf("%d configured, but the process may have few open files", configured)
	}
	c.limit("max_connections", fmt.Sprint(most), "the relay", c.cfg.Delivery.Origin("max_connections"), now)
}

// addMail adds the settings of mail blocks that count for a message, and returns their names.
func (c *domainCase) addMail(m *envelope.Message, pol *wiring.Policy, maxAge time.Duration,
	kept *rules.Rules) map[string]bool {
	count := make(map[string]bool)
	if m == nil {
		return count
	}
	for _, name := range settings.Names(new(config.Mail)) {
		if x := pol.MailOf(m, name); x != nil && name != "pace" && (name != "max_age" || x.MaxAge < maxAge) {
			now := ""
			if name == "window" {
				now = "open"
				if kept.Shut(m) != (parking.Key{}) {
					now = "closed"
				}
			}
			c.limit(name, settings.Value(x, name), c.scopeOf(name), x.Origin(name), now)
			count[name] = true
		}
	}
	if p := kept.Pace(m); !p.IsZero() {
		c.limit("pace", p.Rate.String(), p.Key.Name, p.Why, "")
	}
	return count
}

// scopeOf names the scope that a traffic setting limits.
func (c *domainCase) scopeOf(setting string) string {
	switch {
	case strings.HasSuffix(setting, "_per_source"):
		return "site " + c.Site + ", each source"
	case strings.HasSuffix(setting, "_per_host"), strings.Contains(setting, "host_retry"):
		return "each host"
	case strings.HasSuffix(setting, "_per_connection"), setting == "idle_timeout", setting == "active_timeout":
		return "each connection"
	case strings.HasSuffix(setting, "_per_batch"):
		return "each transaction"
	case setting == "max_age", setting == "delay_warning", strings.HasSuffix(setting, "retry_interval"):
		return "each recipient"
	}
	return "site " + c.Site
}

func (c *domainCase) addScope(s delivery.Scope, scope string, origin func(string) string) {
	if s.Connections > 0 {
		c.limit("connection_limit", fmt.Sprint(s.Connections), scope, origin("connection_limit"), "")
	}
	if !s.MessageRate.Unlimited() {
		c.limit("max_message_rate", s.MessageRate.String(), scope, origin("max_message_rate"), "")
	}
	if !s.ConnectionRate.Unlimited() {
		c.limit("max_connection_rate", s.ConnectionRate.String(), scope, origin("max_connection_rate"), "")
	}
}

func (c *domainCase) limit(setting, value, scope, origin, now string) {
	row := api.Limit{Setting: setting, Value: value, Scope: scope + c.ofAll(setting, scope), Origin: origin, Now: now}
	if key := setting + " of " + scope; c.origins[key] == "" {
		c.origins[key] = origin
	} else if slices.Contains(c.Limits, row) {
		return // a pool's own, which come with each of its sources
	}
	c.Limits = append(c.Limits, row)
}

// ofAll is what the name of a limit ends with if all relays of a cluster share it.
func (c *domainCase) ofAll(setting, scope string) string {
	setting = strings.TrimSuffix(setting, "_per_source")
	site, perSource := strings.CutSuffix(scope, ", each source")
	for _, x := range c.divided {
		has := setting == "connection_limit" && x.Connections > 0 ||
			setting == "max_message_rate" && !x.MessageRate.Unlimited() ||
			setting == "max_connection_rate" && !x.ConnectionRate.Unlimited()
		if has && (x.Name == scope || strings.HasPrefix(x.Name, scope+" for ") ||
			strings.HasPrefix(x.Name, scope+" by ") || perSource && strings.HasPrefix(x.Name, site+" from source ")) {
			return delivery.OfAllRelays
		}
	}
	return ""
}

// judge describes what happens to mail for the domain now, the first obstacle first.
func (c *domainCase) judge() {
	say := func(until time.Time, format string, args ...any) {
		c.Now, c.Until = fmt.Sprintf(format, args...), until
	}
	if c.Failure != nil {
		if c.Failure.Code >= 500 {
			say(time.Time{}, "mail bounces: there is no route")
			return
		}
		say(time.Time{}, "mail is deferred and retried: no route can be found now")
		return
	}
	able := c.able()
	c.Ceiling = c.ceiling(able)
	c.stop()
	switch until, why := c.hindrance(); {
	case len(able) == 0:
		say(until, "no mail is sent: %s", why)
	case c.waits() != nil:
		l := c.waits()
		say(l.Until, "mail from source %s waits: %s", l.Source, l.Why)
	case len(able) < len(c.sources):
		say(until, "mail is sent from %d of %d sources, not from the others: %s", len(able), len(c.sources), why)
	default:
		c.Until, c.Now = c.afterWarmup(able)
	}
}

// stop has no rate be the ceiling while nothing gives this relay a part of a limit, and mail waits for one.
func (c *domainCase) stop() {
	l := c.waits()
	if l == nil || strings.HasPrefix(l.Why, "rule ") {
		return
	}
	if _, why, _ := strings.Cut(l.Why, delivery.OfAllRelays); strings.Contains(why, ": ") {
		c.Ceiling = api.Ceiling{Binds: l.Why}
	}
}

const sentAtOnce = "mail is sent without delay"

// afterWarmup is the answer when only a warm-up can delay mail.
func (c *domainCase) afterWarmup(able []sourceCase) (time.Time, string) {
	pool := c.pool
	patience := pool.PatienceOf(c.cfg.Tenant(c.tenant), config.DefaultTier)
	var lacks *sourceCase // the warm-up that has space first, of those that have none
	free := false         // a source takes mail now
	for i := range able {
		s := &able[i]
		switch {
		case s.lacks == "":
			free = free || pool.Overflow != "hold" || !slices.Contains(pool.Shared, s.Name)
		case lacks == nil, !s.lacksUntil.IsZero() &&
			(lacks.lacksUntil.IsZero() || s.lacksUntil.Before(lacks.lacksUntil)):
			lacks = s
		}
	}
	switch {
	case lacks == nil:
		return time.Time{}, sentAtOnce
	case free && patience > 0 && !lacks.lacksUntil.IsZero():
		return time.Time{}, fmt.Sprintf("as much mail as source %s takes within %s waits for its warm-up, "+
			"other mail is sent without delay: %s", lacks.Name, legible.Age(patience), lacks.lacks)
	case free:
		return time.Time{}, fmt.Sprintf(sentAtOnce+", but not from source %s, which warms up: %s",
			lacks.Name, lacks.lacks)
	}
	return lacks.lacksUntil, fmt.Sprintf("mail waits for the warm-up of source %s: %s", lacks.Name, lacks.lacks)
}

// waits is the lane in which mail waits longest, nil when none has to.
func (c *domainCase) waits() *api.Lane {
	var first *api.Lane
	for i := range c.Lanes {
		if l := &c.Lanes[i]; l.Waiting > 0 && l.Why != "" && c.concerns(l) &&
			(first == nil || l.Oldest.Before(first.Oldest)) {
			first = l
		}
	}
	return first
}

// concerns reports whether what keeps mail in a lane keeps the tenant's, too.
func (c *domainCase) concerns(l *api.Lane) bool {
	return (l.Tenant == "" || l.Tenant == c.tenant) && slices.ContainsFunc(c.sources, func(s sourceCase) bool {
		return s.Name == l.Source
	})
}

// able are the sources from which mail can leave now.
func (c *domainCase) able() []sourceCase {
	return slices.DeleteFunc(slices.Clone(c.sources), func(s sourceCase) bool {
		_, why := c.whyNot(&s)
		return why != ""
	})
}

// hindrance is what keeps mail back from the source that can go on first.
func (c *domainCase) hindrance() (until time.Time, why string) {
	closed := ""
	for i := range c.sources {
		at, w := c.whyNot(&c.sources[i])
		if c.sources[i].closed {
			closed += "; " + w
		} else if w != "" && (why == "" || !at.IsZero() && (until.IsZero() || at.Before(until))) {
			until, why = at, w
		}
	}
	if len(c.sources) == 0 {
		why = fmt.Sprintf("pool %s has no source", c.Pool)
	}
	return until, strings.TrimPrefix(why+closed, "; ")
}

// whyNot returns the obstacle to all mail from a source, "" without one.
func (c *domainCase) whyNot(s *sourceCase) (time.Time, string) {
	if s.closed {
		return time.Time{}, fmt.Sprintf("source %s gets no new mail: its weight in pool %s is 0", s.Name, c.Pool)
	}
	if s.paused.ID != 0 {
		return s.paused.Until, s.paused.InWords()
	}
	if s.suspended.After(c.now) {
		why := ""
		for _, a := range c.Actions {
			if a.What == api.SiteSuspended && a.End.Equal(s.suspended) {
				why = a.Reason
			}
		}
		return s.suspended, "suspended (" + why + ")"
	}
	if s.missing {
		return time.Time{}, fmt.Sprintf("source %s is skipped: this machine does not have its address, %v",
			s.Name, s.Address)
	}
	if len(s.hosts) == 0 {
		return time.Time{},
			fmt.Sprintf("source %s can't reach any of the hosts: they have addresses of the other family only", s.Name)
	}
	var (
		first time.Time
		host  string // that can be tried first, and why not yet
	)
	for i := range s.hosts {
		h := &s.hosts[i]
		at, why := retryAt(h, s.Name)
		if !at.After(c.now) {
			return time.Time{}, ""
		}
		if first.IsZero() || at.Before(first) {
			first, host = at, fmt.Sprintf("%s [%s] %s", h.Name, h.Address, why)
		}
	}
	if n := len(s.hosts) - 1; n > 0 {
		host += fmt.Sprintf(", and %d more", n)
	}
	return first, "no host can be tried before its retry time: " + host
}

// retryAt is when a source may try a host, and why not now; zero when nothing is wrong, or it has
// connections to it.
func retryAt(h *api.Host, source string) (at time.Time, why string) {
	for _, a := range h.Actions {
		if (a.Source == "" || a.Source == source) && a.End.After(at) {
			at, why = a.End, "is suspended: "+a.Reason
		}
	}
	if !at.IsZero() {
		return at, why // whatever else may be: connections go on, but take nothing more
	}
	failed := func(b *api.Broken) (time.Time, string) {
		return b.RetryAt, "has failed: " + b.Reply.String()
	}
	if h.Broken != nil {
		at, why = failed(h.Broken)
	}
	for _, p := range h.Paths {
		switch {
		case p.Source != source:
		case p.State == api.HostActive, p.State == api.HostIdle:
			return time.Time{}, ""
		case p.Broken != nil && p.Broken.RetryAt.After(at):
			at, why = failed(p.Broken)
		}
	}
	return at, why
}
