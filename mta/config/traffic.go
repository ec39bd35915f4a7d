package config

import (
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/mta/internal/certificates"
	"example.org/mta/internal/settings"
	"example.org/mta/warmup"
)

// Traffic is how mail goes to a destination. The same settings stand in the blocks defaults,
// provider and domain; each is taken from the most specific block that has it: a domain's own,
// then wider domain patterns, then the provider, then defaults.
type Traffic struct {
	// ConnectionLimit bounds the connections to a site at a time. In a provider block it bounds
	// all sites of the provider together as well, see Config.Budget.
	ConnectionLimit int `conf:"connection_limit" min:"1"`
	// ConnectionLimitPerHost bounds those to one host. 0: as the site's.
	ConnectionLimitPerHost int `conf:"connection_limit_per_host" min:"0"`
	// ConnectionLimitPerSource bounds those from one source to a site. 0: as the site's.
	ConnectionLimitPerSource int `conf:"connection_limit_per_source" min:"0"`
	// MaxDeliveriesPerConnection is how many messages a connection takes before it is closed.
	MaxDeliveriesPerConnection int `conf:"max_deliveries_per_connection" min:"1"`
	// MaxRecipientsPerBatch is how many recipients one transaction names at most.
	MaxRecipientsPerBatch int `conf:"max_recipients_per_batch" min:"1"`
	// MaxMessageRate and MaxConnectionRate pace what leaves for a site. Zero: no limit.
	MaxMessageRate    Rate `conf:"max_message_rate"`
	MaxConnectionRate Rate `conf:"max_connection_rate"`
	// MaxMessageRatePerSource and MaxConnectionRatePerSource pace what leaves from one source for
	// a site. Zero: no limit.
	MaxMessageRatePerSource    Rate `conf:"max_message_rate_per_source"`
	MaxConnectionRatePerSource Rate `conf:"max_connection_rate_per_source"`
	// SMTPPort is where hosts found by DNS listen.
	SMTPPort int `conf:"smtp_port" min:"1" max:"65535" only:"defaults"`

	// RetryInterval and MaxRetryInterval are the waits after temporary failures.
	RetryInterval    Retry         `conf:"retry_interval"`
	MaxRetryInterval time.Duration `conf:"max_retry_interval" min:"1s"`
	// MaxAge is when a message that is still not delivered is given up.
	MaxAge time.Duration `conf:"max_age" min:"1m"`
	// DelayWarning is when the sender is told that a message is late. 0: never.
	DelayWarning time.Duration `conf:"delay_warning" min:"0" only:"defaults" reload:"restart"`
	// HostRetryInterval is how long a host that could not be reached, or turned us away, is left
	// alone after the first time; it doubles with each further one, up to MaxHostRetryInterval.
	HostRetryInterval    time.Duration `conf:"host_retry_interval" min:"1s"`
	MaxHostRetryInterval time.Duration `conf:"max_host_retry_interval" min:"1s"`

	// IdleTimeout closes a connection that has had nothing to do for so long; ActiveTimeout one
	// that was made so long ago.
	IdleTimeout   time.Duration `conf:"idle_timeout" min:"1s"`
	ActiveTimeout time.Duration `conf:"active_timeout" min:"1s"`

	// TLS is how much protection connections need, see docs/tls.md.
	TLS string `conf:"tls" oneof:"opportunistic required verified off"`
	// TLSMinVersion is the lowest version of TLS. "auto": 1.2, and 1.0 where clear text would do as well.
	TLSMinVersion string `conf:"tls_min_version" oneof:"auto 1.0 1.1 1.2 1.3"`
	// TLSCA is a file in PEM with the only authorities that count. "": those of the system.
	TLSCA string `conf:"tls_ca"`
	// TLSCertificate and TLSKey are files in PEM: the certificate that hosts are shown that ask for one.
	TLSCertificate string `conf:"tls_certificate"`
	TLSKey         string `conf:"tls_key"`
	// MTASTS has mail heed the MTA-STS policies of recipients' domains.
	MTASTS bool `conf:"mta_sts"`
	// DANE says whether the TLSA records of hosts count (RFC 7672). It has no effect without a resolver
	// that is trusted, see Resolver.Trusted.
	DANE bool `conf:"dane"`
	// Pipelining is how far commands run ahead of replies: "auto" is as far as the remote
	// offers, "pipelining" makes no use of CHUNKING, "lockstep" waits for each reply.
	Pipelining string `conf:"pipelining" oneof:"auto pipelining lockstep"`

	Timeouts Timeouts `conf:"timeouts,block"`

	origins settings.Origins
}

// Timeouts bound each phase of a connection (RFC 5321, 4.5.3.2).
type Timeouts struct {
	Connect  time.Duration `conf:"connect" min:"1s"`
	Greeting time.Duration `conf:"greeting" min:"1s"`
	EHLO     time.Duration `conf:"ehlo" min:"1s"` // and STARTTLS and AUTH
	Mail     time.Duration `conf:"mail" min:"1s"`
	Rcpt     time.Duration `conf:"rcpt" min:"1s"`
	Data     time.Duration `conf:"data" min:"1s"`  // the reply to DATA
	Block    time.Duration `conf:"block" min:"1s"` // writing a piece of the content
	Dot      time.Duration `conf:"dot" min:"1s"`   // the reply to the content
	Quit     time.Duration `conf:"quit" min:"1s"`
}

// Defaults is the traffic settings of all destinations, and complete.
type Defaults struct {
	block
	Traffic Traffic `conf:",inline"`
}

// Provider is several sites with one budget.
type Provider struct {
	block
	Name string    `conf:",label"`
	MX   []Pattern `conf:"mx"` // names of mail exchangers
	// Traffic has only what the block sets; ask Config.Traffic for what applies.
	Traffic Traffic `conf:",inline"`
}

// Domain is what is special about some recipients' domains.
type Domain struct {
	block
	Pattern Pattern `conf:",label"`
	// Smarthosts are where mail goes instead of to the domain's exchangers. An empty Route in the file means by DNS,
	// whatever wider blocks have.
	Smarthosts `conf:",inline"`
	// Pool is what mail leaves from, whoever sends it. "": that of the sender's domain, or of the tenant.
	Pool string `conf:"pool"`
	// VerifyRecipients "mailbox" has the hosts of these domains asked at RCPT whether a recipient exists.
	VerifyRecipients string `conf:"verify_recipients" oneof:"off mailbox"`
	// Traffic has only what the block sets; ask Config.Traffic for what applies.
	Traffic Traffic `conf:",inline"`
}

// Smarthosts are hosts to relay through, and the login there.
type Smarthosts struct {
	Route []Smarthost `conf:"route"` // best first
	// Username and Password are for the hosts of Route.
	Username string `conf:"username"`
	Password Secret `conf:"password"`
}

// Budget is what the sites of a provider share. Zero is no limit.
type Budget struct {
	ConnectionLimit   int
	MaxMessageRate    Rate
	MaxConnectionRate Rate
}

// resolved is the configuration as it is asked for, and what was worked out before.
type resolved struct {
	sources   map[string]*Source
	pools     map[string]*Pool
	plans     map[string]*warmup.Plan
	tenants   map[string]*Tenant
	providers map[string]*Provider
	domains   map[Pattern]*Domain
	networks  tenantNetworks
	signers   map[Pattern][]*DKIM
	signed    map[string]bool // tenants whose mail may be signed; "*" for all
	senders   map[Pattern]*SenderDomain

	returnPaths bool // some mail has one
	domainPools bool // a recipient's domain has one

	// traffic remembers settings by what they are made of, so that it holds no more than the
	// file's domains times its providers, whatever is asked.
	traffic sync.Map // trafficKey -> *Traffic
}

type trafficKey struct {
	domain   *Domain // the most specific that matches; it determines the wider ones
	provider *Provider
}

// index prepares c for being asked.
func (c *Config) index() {
	r := &resolved{
		sources: make(map[string]*Source), pools: make(map[string]*Pool), tenants: make(map[string]*Tenant),
		providers: make(map[string]*Provider), domains: make(map[Pattern]*Domain), senders: make(map[Pattern]*SenderDomain),
	}
	for _, s := range c.Sources {
		r.sources[s.Name] = s
	}
	r.pools[DefaultPool] = &Pool{Name: DefaultPool, Overflow: "hold"} // when all sources are dedicated
	for _, p := range c.Pools {
		r.pools[p.Name] = p
	}
	for _, t := range c.Tenants {
		r.tenants[t.Name] = t
	}
	for _, p := range c.Providers {
		r.providers[p.Name] = p
	}
	for _, d := range c.Domains {
		r.domains[d.Pattern] = d
		r.domainPools = r.domainPools || d.Pool != ""
	}
	for _, d := range c.SenderDomainBlocks {
		r.senders[d.Pattern] = d
	}
	r.returnPaths = len(c.ReturnPathDomains()) > 0
	r.networks = indexNetworks(c.Tenants)
	r.plans = c.indexPlans()
	r.signers, r.signed = c.indexSigners()
	c.resolved = r
}

// Source gives the source of that name, nil when there is none.
func (c *Config) Source(name string) *Source { return c.resolved.sources[name] }

// Tenant gives what the file says of a tenant, nil when it says nothing.
func (c *Config) Tenant(name string) *Tenant { return c.resolved.tenants[name] }

// Pool gives the pool of that name, nil when there is none.
func (c *Config) Pool(name string) *Pool { return c.resolved.pools[name] }

// PoolOf gives the pool that a tenant's mail uses; it is never nil.
func (c *Config) PoolOf(tenant string) *Pool {
	if t := c.Tenant(tenant); t != nil {
		return c.Pool(t.Pool)
	}
	return c.Pool(DefaultPool)
}

// MayUse reports whether a tenant's mail may name a pool: its own one, and those that are no other tenant's.
func (c *Config) MayUse(tenant, pool string) bool {
	if c.Pool(pool) == nil {
		return false
	}
	if pool == DefaultPool || c.PoolOf(tenant).Name == pool {
		return true
	}
	return !slices.ContainsFunc(c.Tenants, func(t *Tenant) bool { return t.Pool == pool })
}

// PoolFor gives the pool that a tenant's mail uses which names one: its tenant's if it names none, or one that
// the tenant may not use any more. It is never nil.
func (c *Config) PoolFor(tenant, named string) *Pool {
	if named != "" && c.MayUse(tenant, named) {
		return c.Pool(named)
	}
	return c.PoolOf(tenant)
}

// Budget gives what the sites of a provider share; zero when it has no limits of its own.
func (c *Config) Budget(provider string) Budget {
	p := c.resolved.providers[provider]
	if p == nil {
		return Budget{}
	}
	return Budget{p.Traffic.ConnectionLimit, p.Traffic.MaxMessageRate, p.Traffic.MaxConnectionRate}
}

// Traffic gives the settings that apply to mail for domain, in A-label form and lower case,
// when its hosts belong to provider, "" for none. The result is shared and must be left alone.
func (c *Config) Traffic(domain, provider string) *Traffic {
	key := trafficKey{c.mostSpecific(domain), c.resolved.providers[provider]}
	if t, ok := c.resolved.traffic.Load(key); ok {
		return t.(*Traffic)
	}
	t, _ := c.resolved.traffic.LoadOrStore(key, c.resolve(domain, key.provider))
	return t.(*Traffic)
}

// resolve lays the blocks over one another, the most specific last.
func (c *Config) resolve(domain string, p *Provider) *Traffic {
	t := c.Defaults.Traffic
	t.origins = make(settings.Origins)
	lay := func(over *Traffic, b *block) { t.origins.Lay(&t, over, b) }
	lay(&c.Defaults.Traffic, &c.Defaults.block)
	if p != nil {
		lay(&p.Traffic, &p.block)
	}
	var ds []*Domain
	for d := range c.matching(domain) {
		ds = append(ds, d)
	}
	for _, d := range slices.Backward(ds) {
		lay(&d.Traffic, &d.block)
	}
	return &t
}

// Origin gives the place where a setting was made, as `provider "google" (mta.conf:31)`, or "default".
// Settings of an inner block are named as "timeouts.connect".
func (t *Traffic) Origin(setting string) string { return t.origins.Of(setting) }

// Settings lists the names that Origin knows, in the order of the manual.
func (t *Traffic) Settings() []string { return settings.Names(t) }

// Value gives a setting as text, "" for one that Settings does not list.
func (t *Traffic) Value(setting string) string { return settings.Value(t, setting) }

// destination is a block with traffic settings.
type destination struct {
	*block
	traffic *Traffic // what the block sets
}

// destinations gives all of them.
func (c *Config) destinations() iter.Seq[destination] {
	return func(yield func(destination) bool) {
		if !yield(destination{&c.Defaults.block, &c.Defaults.Traffic}) {
			return
		}
		for _, p := range c.Providers {
			if !yield(destination{&p.block, &p.Traffic}) {
				return
			}
		}
		for _, d := range c.Domains {
			if !yield(destination{&d.block, &d.Traffic}) {
				return
			}
		}
	}
}

// clientPair is the certificate that hosts are shown, false when there is none.
func (t *Traffic) clientPair() (certificates.Pair, bool) {
	p := certificates.Pair{Certificate: t.TLSCertificate, Key: t.TLSKey}
	return p, p.Certificate != "" && p.Key != ""
}

// ClientPairs lists the certificates that hosts are shown.
func (c *Config) ClientPairs() (pairs []certificates.Pair) {
	for d := range c.destinations() {
		if p, ok := d.traffic.clientPair(); ok {
			pairs = append(pairs, p)
		}
	}
	return pairs
}

// matching gives the domain blocks that apply to domain, the most specific first: the domain's
// own, then ever wider patterns, then "*".
func (c *Config) matching(domain string) iter.Seq[*Domain] {
	return func(yield func(*Domain) bool) {
		next := func(p Pattern) bool {
			d := c.resolved.domains[p]
			return d == nil || yield(d)
		}
		more := next(Pattern(domain))
		for rest := domain; more && !strings.HasPrefix(domain, "["); {
			_, above, ok := strings.Cut(rest, ".")
			if !ok {
				break
			}
			more, rest = next(Pattern("*."+above)), above
		}
		if more {
			next("*")
		}
	}
}

// VerifiesMailboxes reports whether the hosts of a domain, in A-label form and lower case, are asked whether its
// mailboxes exist: the most specific block that says so decides.
func (c *Config) VerifiesMailboxes(domain string) bool {
	if len(c.resolved.domains) == 0 {
		return false
	}
	for d := range c.matching(domain) {
		if d.Set("verify_recipients") {
			return d.VerifyRecipients == "mailbox"
		}
	}
	return false
}

func (c *Config) mostSpecific(domain string) *Domain {
	if len(c.resolved.domains) == 0 {
		return nil
	}
	for d := range c.matching(domain) {
		return d
	}
	return nil
}
