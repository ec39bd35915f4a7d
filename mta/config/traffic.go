package config

import (
	_ "embed"
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
	Limits `conf:",inline"`
	// Connections to one host of the site; 0 means the site's limit.
	ConnectionLimitPerHost int `conf:"connection_limit_per_host" min:"0"`
	// The port of the hosts that the DNS names; *here only*.
	SMTPPort int `conf:"smtp_port" default:"25" min:"1" max:"65535" only:"defaults"`

	// The wait after a temporary failure, twice as long each time; or a list, such as `["5m", "30m", "2h"]`, whose last
	// value repeats. Varied by up to a tenth.
	RetryInterval Retry `conf:"retry_interval" default:"10m"`
	// The maximum of the doubling.
	MaxRetryInterval time.Duration `conf:"max_retry_interval" default:"4h" min:"1s"`
	// The age at which a message expires and its sender gets a report (RFC 5321, 4.5.4.1), unless a
	// [`mail`](#mail-name) block or the message itself has a shorter one, in every state: also mail that is paused,
	// waits for a warm-up or has no route. That of [scheduled mail](submission.md#scheduled-mail) counts from its
	// release. A reload applies to deferred mail at its next attempt. Held mail, and mail for a domain whose provider
	// is not known, expires by the longest `max_age` that can apply. Nothing expires for some hours after the machine's
	// clock [jumped ahead](queue.md#time).
	MaxAge time.Duration `conf:"max_age" default:"5d" min:"1m"`
	// The age at which the sender gets a delay report; `"0"` means never; *here only*, and in `mail`.
	DelayWarning time.Duration `conf:"delay_warning" default:"4h" min:"0" only:"defaults"`
	// The retry interval for a host that is unreachable or rejects the relay; twice as long each time. Meanwhile the
	// other hosts get the mail.
	HostRetryInterval time.Duration `conf:"host_retry_interval" default:"1m" min:"1s"`
	// The maximum of the doubling.
	MaxHostRetryInterval time.Duration `conf:"max_host_retry_interval" default:"1h" min:"1s"`

	// When an idle connection is closed.
	IdleTimeout time.Duration `conf:"idle_timeout" default:"30s" min:"1s"`
	// The age at which a connection takes no more messages.
	ActiveTimeout time.Duration `conf:"active_timeout" default:"5m" min:"1s"`

	// `"opportunistic"`: TLS where the host offers it, with any certificate (RFC 7435). `"required"`: TLS with any
	// certificate, or no mail. `"verified"`: TLS with a certificate that is the host's, or no mail. `"off"`: never.
	// See [tls.md](tls.md).
	TLS string `conf:"tls" default:"opportunistic" oneof:"opportunistic required verified off"`
	// The lowest version of TLS: `"1.0"`, `"1.1"`, `"1.2"`, `"1.3"`; `"auto"`: `"1.2"`, and `"1.0"` where mail would
	// otherwise go in clear text.
	TLSMinVersion string `conf:"tls_min_version" default:"auto" oneof:"auto 1.0 1.1 1.2 1.3"`
	// PEM file with the only CAs to trust for hosts' certificates; by default those of the system.
	TLSCA string `conf:"tls_ca"`
	// PEM file with a client certificate and its chain, for hosts that request one.
	TLSCertificate string `conf:"tls_certificate"`
	// PEM file with its key.
	TLSKey string `conf:"tls_key"`
	// Honor the [MTA-STS policies](tls.md#mta-sts) of recipients' domains (RFC 8461).
	MTASTS bool `conf:"mta_sts" default:"true"`
	// Hosts that publish TLSA records in signed zones must match them (RFC 7672), see [tls.md](tls.md#dane). Needs
	// trusted `servers` of [`resolver`](#resolver).
	DANE bool `conf:"dane" default:"true"`
	// How far commands run ahead of replies. `"auto"`: as far as the host offers. `"pipelining"`: without CHUNKING.
	// `"lockstep"`: each command waits for its reply.
	Pipelining string `conf:"pipelining" default:"auto" oneof:"auto pipelining lockstep"`

	Timeouts Timeouts `conf:"timeouts,block"`

	origins settings.Origins
}

// Limits bound the mail for a destination.
type Limits struct {
	// Connections to a site at a time.
	ConnectionLimit int `conf:"connection_limit" default:"10" min:"1"`
	// Connections to the site from one source; 0 means the site's limit, which is for all sources together.
	ConnectionLimitPerSource int `conf:"connection_limit_per_source" min:"0"`
	// Messages after which the connection is closed.
	MaxDeliveriesPerConnection int `conf:"max_deliveries_per_connection" default:"100" min:"1"`
	// Recipients in one transaction; every host must accept 100 (RFC 5321, 4.5.3.1.8).
	MaxRecipientsPerBatch int `conf:"max_recipients_per_batch" default:"100" min:"1"`
	// Messages to a site, evenly paced: `"60/min"` is one a second.
	MaxMessageRate Rate `conf:"max_message_rate"`
	// Connections to a site, paced likewise.
	MaxConnectionRate Rate `conf:"max_connection_rate"`
	// Messages to a site from one source.
	MaxMessageRatePerSource Rate `conf:"max_message_rate_per_source"`
	// Connections to a site from one source.
	MaxConnectionRatePerSource Rate `conf:"max_connection_rate_per_source"`
}

// Timeouts bound each phase of a connection (RFC 5321, 4.5.3.2).
//
// Within `defaults`, `provider` and `domain`: the timeout of each phase of a connection (RFC 5321, 4.5.3.2).
type Timeouts struct {
	// For the TCP connection.
	Connect time.Duration `conf:"connect" default:"1m" min:"1s"`
	// For the greeting.
	Greeting time.Duration `conf:"greeting" default:"5m" min:"1s"`
	// For the replies to EHLO, STARTTLS and AUTH, and for the TLS handshake.
	EHLO time.Duration `conf:"ehlo" default:"5m" min:"1s"`
	// For the reply to MAIL.
	Mail time.Duration `conf:"mail" default:"5m" min:"1s"`
	// For the reply to RCPT.
	Rcpt time.Duration `conf:"rcpt" default:"5m" min:"1s"`
	// For the reply to DATA.
	Data time.Duration `conf:"data" default:"2m" min:"1s"`
	// For the host to accept a block of content.
	Block time.Duration `conf:"block" default:"3m" min:"1s"`
	// For the reply to the content. A shorter timeout causes duplicates: the host may have accepted the message.
	Dot time.Duration `conf:"dot" default:"10m" min:"1s"`
	// For the reply to QUIT.
	Quit time.Duration `conf:"quit" default:"10s" min:"1s"`
}

// Defaults is the traffic settings of all destinations, and complete.
//
// The settings for destinations, also allowed in `provider` and `domain` blocks, except those marked *here only*. For
// each setting the most specific block wins: the recipient's domain itself, then wider patterns (`*.example.net`
// before `*.net` before `*`), then the provider, then `defaults`.
//
// A **site** is the set of hosts that serve a domain; domains with the same hosts share one site and its limits.
type Defaults struct {
	block
	Traffic Traffic `conf:",inline"`
}

// Provider is several sites with one budget.
//
// Several sites with one budget. The settings apply to each of the sites; `connection_limit`, `max_message_rate` and
// `max_connection_rate` also limit all of them together.
//
//	provider "example" {
//	  mx               = ["*.mail.example.net"]
//	  connection_limit = 20
//	  max_message_rate = "100/s"
//	}
type Provider struct {
	block
	Name string `conf:",label"`
	// The names of its mail exchangers: `"mx.example.net"`, or `"*.example.net"` for all below it.
	MX []Pattern `conf:"mx"`
	// In a [cluster](cluster.md#shared-limits): the limits that this block sets are each node's own, and not
	// those of all nodes together.
	LimitsPerNode bool `conf:"limits_per_node"`
	// Traffic has only what the block sets; ask Config.Traffic for what applies.
	Traffic Traffic `conf:",inline"`
}

// Domain is what is special about some recipients' domains.
//
// Settings for some recipient domains: `"example.net"` is that domain only, `"*.example.net"` all below it, `"*"`
// all, `"[192.0.2.1]"` an address literal.
//
//	domain "*" {
//	  route    = ["smtp://relay.example.net:587"]
//	  username = "relay"
//	  password = env("RELAY_PASSWORD")
//	}
type Domain struct {
	block
	Pattern Pattern `conf:",label"`
	// Smarthosts are where mail goes instead of to the domain's exchangers. An empty Route in the file means by DNS,
	// whatever wider blocks have.
	Smarthosts `conf:",inline"`
	// The pool whose sources mail for these domains takes, from all senders. The most specific block that has it
	// decides. Default: the sender's or tenant's.
	Pool string `conf:"pool"`
	// `"mailbox"`: ask the domain's host at RCPT whether the [recipient exists](submission.md#mailboxes); for mailbox
	// servers of your own. The most specific block that has it decides.
	VerifyRecipients string `conf:"verify_recipients" oneof:"off mailbox"`
	// In a [cluster](cluster.md#shared-limits): the limits that this block sets are each node's own, and not
	// those of all nodes together.
	LimitsPerNode bool `conf:"limits_per_node"`
	// Traffic has only what the block sets; ask Config.Traffic for what applies.
	Traffic Traffic `conf:",inline"`
}

// Smarthosts are hosts to relay through, and the login there.
type Smarthosts struct {
	// Hosts to relay through, best first: `"smtp://host:port"` (port 25), or `"smtps://host:port"` (port 465) for TLS
	// from the first byte. Their MX records are not looked up. `[]`: by DNS, although a wider block such as `domain
	// "*"` has a route. For [tests](routing.md#tests) the whole list is `["discard"]` or `["fail 451 4.3.0 text"]`.
	// Default: by DNS.
	Route []Smarthost `conf:"route"`
	// For AUTH at the hosts of `route`, over TLS only.
	Username string `conf:"username"`
	// Likewise; best as `env("NAME")`.
	Password Secret `conf:"password"`
}

// resolved is the configuration as it is asked for, and what was worked out before.
type resolved struct {
	sources   map[string]*Source
	pools     map[string]*Pool
	plans     map[string]*warmup.Plan
	tenants   map[string]*Tenant
	providers map[string]*Provider
	domains   map[Pattern]*Domain
	own       map[string][]ownBlocks // by source: those that have limits for some destinations
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
		providers: make(map[string]*Provider), domains: make(map[Pattern]*Domain),
		senders: make(map[Pattern]*SenderDomain),
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
	r.own = c.indexOwn()
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

// MayUse reports whether a tenant's mail may name a pool: its own one, the default one, and those that no other
// tenant names.
func (c *Config) MayUse(tenant, pool string) bool {
	if c.Pool(pool) == nil {
		return false
	}
	if pool == DefaultPool || c.PoolOf(tenant).Name == pool {
		return true
	}
	return !slices.ContainsFunc(c.Tenants, func(t *Tenant) bool { return t.Pool == pool })
}

// Shared reports whether mail of several tenants may leave from a source.
func (c *Config) Shared(source string) bool {
	tenants := make(map[string]bool)
	for _, p := range c.Pools {
		if !slices.Contains(p.Sources(), source) {
			continue
		}
		anybody := slices.ContainsFunc(c.Domains, func(d *Domain) bool { return d.Pool == p.Name }) ||
			slices.ContainsFunc(c.SenderDomainBlocks, func(s *SenderDomain) bool { return s.Pool == p.Name })
		for _, t := range c.Tenants {
			if anybody || c.MayUse(t.Name, p.Name) {
				tenants[t.Name] = true
			}
		}
	}
	return len(tenants) > 1
}

// PoolFor gives the pool that a tenant's mail uses which names one: its tenant's if it names none, or one that
// the tenant may not use any more. It is never nil.
func (c *Config) PoolFor(tenant, named string) *Pool {
	if named != "" && c.MayUse(tenant, named) {
		return c.Pool(named)
	}
	return c.PoolOf(tenant)
}

// Budget gives what the sites of a provider share, which the limits per source and per connection don't; zero when it
// has no limits.
func (c *Config) Budget(provider string) Limits {
	if p := c.resolved.providers[provider]; p != nil {
		return p.Traffic.Limits
	}
	return Limits{}
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
	for _, d := range slices.Backward(slices.Collect(c.matching(domain))) {
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

// Pairs lists all certificates with their keys: those that clients are shown, and those that hosts are.
func (c *Config) Pairs() (pairs []certificates.Pair) {
	for _, l := range c.Listeners {
		pairs = append(pairs, l.TLS.Pairs()...)
	}
	for _, a := range c.APIs {
		pairs = append(pairs, a.TLS.Pairs()...)
	}
	pairs = append(pairs, c.Console.TLS.Pairs()...)
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
	return matching(domain, func(p Pattern) *Domain { return c.resolved.domains[p] })
}

// matching gives what find has for a domain, the most specific first. Find returns nil for a pattern without any.
func matching[D any](domain string, find func(Pattern) *D) iter.Seq[*D] {
	return func(yield func(*D) bool) {
		next := func(p Pattern) bool {
			d := find(p)
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

//go:embed presets.hcl
var presetsText []byte

// presets gives the providers that are known without a file.
func presets() []*Provider {
	var c Config
	schema().Presets(presetsText, &c)
	return c.Providers
}

// addPresets puts the presets behind the file's own providers. A provider of the file that has the
// name of a preset gets from it what it doesn't set itself; exchangers that the file gives to
// somebody are not a preset's any more.
func (c *Config) addPresets() {
	if !c.Presets {
		return
	}
	taken := func(mx Pattern) bool {
		return slices.ContainsFunc(c.Providers, func(p *Provider) bool {
			return slices.ContainsFunc(p.MX, func(own Pattern) bool { return own.covers(mx) })
		})
	}
	for _, preset := range presets() {
		preset.MX = slices.DeleteFunc(preset.MX, taken)
		i := slices.IndexFunc(c.Providers, func(p *Provider) bool { return p.Name == preset.Name })
		switch {
		case i >= 0:
			settings.Inherit(c.Providers[i], preset)
		case len(preset.MX) > 0:
			c.Providers = append(c.Providers, preset)
		}
	}
}

// presetNames lists the presets.
func presetNames() []string {
	return namesOf(presets(), func(p *Provider) string { return p.Name })
}
