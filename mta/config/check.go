package config

import (
	"crypto/tls"
	"fmt"
	"math"
	"net"
	"net/mail"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"example.org/mta/internal/certificates"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/legible"
	"example.org/mta/internal/settings"
)

// checker looks at what settings say together; each by itself was looked at when it was read.
type checker struct {
	*Config
	problems *settings.Collector
}

func (c *Config) check(problems *settings.Collector) {
	k := checker{c, problems}
	k.identity()
	k.listeners()
	k.sources()
	k.plans()
	k.pools()
	k.ownLimits()
	k.tenants()
	k.milters()
	k.tlsReports()
	k.dkim()
	k.returnPathKeys()
	k.waysOfSenders()
	k.streams()
	k.limits()
	k.suppression()
	k.traffic("defaults", &c.Defaults.block, &c.Defaults.Traffic)
	k.providers()
	k.domains()
	k.backoffs()
	k.classifies()
}

// problem complains of a setting, unless there was a complaint already when it was read.
func (k checker) problem(b *block, setting, hint, format string, args ...any) {
	k.problems.About(b, setting, hint, format, args...)
}

func (k checker) identity() {
	if err := checkHostname(k.Hostname); err != nil {
		k.problem(&k.block, "hostname", `write the name of this machine in the DNS, such as "mta1.example.com"`,
			"hostname: %s", err)
	}
	if a, err := envelope.ParseAddress(k.Postmaster); k.Set("postmaster") && (err != nil || a.Null()) {
		k.problem(&k.block, "postmaster", `write it as "postmaster@example.com"`,
			"postmaster: %s is not a mail address", settings.Quoted(k.Postmaster))
	}
	if _, err := mail.ParseAddress(k.DSN.From); k.DSN.Set("from") && err != nil {
		k.problem(&k.DSN.block, "from", `write it as "Mail Delivery System <postmaster@example.com>"`,
			"from: %s is not a mail address with a name", settings.Quoted(k.DSN.From))
	}
}

func (k checker) listeners() {
	var taken claims
	for _, l := range k.Listeners {
		if len(l.Address) == 0 {
			k.problem(&l.block, "address", `write address = "127.0.0.1:2525"`, "listener %q has no address", l.Name)
		}
		for _, a := range l.Address {
			k.claim(&taken, a, fmt.Sprintf("listener %q", l.Name), &l.block)
		}
		k.relaying(l)
		k.foreignFields(l)
		k.certificates(&l.block, fmt.Sprintf("listener %q", l.Name), l.TLS.Certificates)
		if l.TLS.Implicit && !l.TLS.Enabled() {
			k.problem(&l.block, "tls.implicit", "also write certificate and key",
				"tls of listener %q has no certificate", l.Name)
		}
		k.auth(l)
		k.inbound(l)
		if l.Tenant != "" && k.Tenant(l.Tenant) == nil {
			k.reference(&l.block, "tenant", "tenant", l.Tenant, k.Names("tenant"))
		}
	}
	k.apis(&taken)
	k.acme(&taken)
	if k.HTTP.Address != "" {
		k.claim(&taken, k.HTTP.Address, "http", &k.HTTP.block)
	}
	k.console(&taken)
	k.cluster(&taken)
}

// foreignFields looks at the names of fields that are removed from messages.
func (k checker) foreignFields(l *Listener) {
	k.notEverybody(&l.block, "headers_from", l.HeadersFrom, "name the addresses of your own applications",
		"choose the pool of its mail")
	used := make(map[string]bool)
	for _, f := range []struct{ setting, name string }{{"pool_header", l.PoolHeader},
		{"campaign_header", l.CampaignHeader}, {"envid_header", l.EnvIDHeader}} {
		name := strings.ToLower(f.name)
		switch rest, x := strings.CutPrefix(name, "x-"); {
		case name == "":
			continue
		case !x || rest == "" || strings.HasPrefix(rest, "mta-") || len(name) > maxMark ||
			strings.ContainsFunc(name, func(r rune) bool {
				return r <= ' ' || r >= 0x7f || r == ':'
			}):
			k.problem(&l.block, f.setting,
				`write the name of a field that begins with X-, such as "X-Virtual-MTA"; the field is removed from `+
					"messages",
				"%s: %s is not a field for this purpose", f.setting, settings.Quoted(f.name))
		case used[name]:
			k.problem(&l.block, f.setting, "name another field", "%s: %s already has another meaning here", f.setting,
				settings.Quoted(f.name))
		}
		used[name] = true
	}
	if len(used) == 0 && len(l.HeadersFrom) > 0 {
		k.problem(&l.block, "headers_from", `write pool_header = "X-Virtual-MTA"`,
			"headers_from of listener %q has no effect without pool_header, campaign_header or envid_header", l.Name)
	}
}

// claim notes who listens where. Port 0 is a port that nobody has yet.
func (k checker) claim(taken *claims, address, who string, b *block) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "0" {
		return // said before, or never in the way
	}
	this := claimed{who, host, port, b}
	for _, other := range *taken {
		if !this.overlaps(other) {
			continue
		}
		if !b.Set("address") { // what is from the defaults can't be pointed at
			this, other = other, this
		}
		k.problem(this.block, "address", "give one of them another port",
			"%s: %s already listens at %s", this.who, other.who, net.JoinHostPort(other.host, other.port))
		return
	}
	*taken = append(*taken, this)
}

// claims are the addresses that are listened at.
type claims []claimed

// claimed is who listens at an address.
type claimed struct {
	who, host, port string
	block           *block
}

// overlaps reports whether the two can't be listened at together: all addresses of the machine, of
// both families, include any other.
func (c claimed) overlaps(other claimed) bool {
	return c.port == other.port && (c.host == other.host || isAll(c.host) || isAll(other.host))
}

func isAll(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// relaying looks at who may do what only friends may.
func (k checker) relaying(l *Listener) {
	k.notEverybody(&l.block, "relay_from", l.RelayFrom, "name the networks of your own machines",
		"send mail through this relay")
	k.notEverybody(&l.block, "tenant_header_from", l.TenantHeaderFrom, "name the addresses of your own applications",
		"send as any tenant")
	k.notEverybody(&l.block, "proxy_from", l.ProxyFrom, "name the addresses of your proxies", "claim any address")
}

func (k checker) sources() {
	for _, s := range k.Sources {
		if s.Address.IsUnspecified() || s.Address.IsMulticast() {
			k.problem(&s.block, "address", "write an address of this machine",
				"address: connections can't be made from %s", s.Address)
		}
		k.proxy(s)
	}
}

func (k checker) proxy(s *Source) {
	if s.Proxy.Kind == HAProxy && !s.Address.IsValid() {
		k.problem(&s.block, "proxy",
			"write the address on the proxy's machine to send from, such as address = \"192.0.2.10\"",
			"proxy: source %q has no address to pass to the HAProxy", s.Name)
	}
	shown := "proxy_username"
	if s.ProxyUsername == "" {
		shown = "proxy_password"
	}
	switch {
	case s.ProxyUsername == "" && s.ProxyPassword == "":
	case s.Proxy.Kind != SOCKS5:
		k.problem(&s.block, shown, `write a proxy, such as proxy = "socks5://192.0.2.1:1080"`,
			"source %q has %[2]s but no SOCKS5 proxy", s.Name, shown)
	case s.ProxyUsername == "" || s.ProxyPassword == "":
		k.problem(&s.block, shown, "write both proxy_username and proxy_password",
			"source %q has only one of proxy_username and proxy_password", s.Name)
	case len(s.ProxyUsername) > 255 || len(s.ProxyPassword) > 255:
		k.problem(&s.block, shown, "", "proxy_username and proxy_password are limited to 255 octets each (RFC 1929)")
	}
}

// reference complains of a name that nothing has.
func (k checker) reference(b *block, setting, what, name string, known []string) {
	hint := fmt.Sprintf("add one: %s %q { ... }", what, name)
	if guess := legible.Nearest(name, known); guess != "" {
		hint = fmt.Sprintf("did you mean %q?", guess)
	} else if len(known) > 0 {
		hint = "defined: " + strings.Join(known, ", ")
	}
	k.problem(b, setting, hint, "%s: there is no %s %s", setting, what, settings.Quoted(name))
}

func (k checker) limits() {
	if strings.TrimSpace(k.DataDir) == "" {
		k.problem(&k.block, "data_dir", `write a directory, such as "/var/lib/mta"`, "data_dir is empty")
	}
	if !k.Router.IPv4 && !k.Router.IPv6 {
		k.problem(&k.Router.block, "ipv6", "enable one of them", "ipv4 and ipv6 are both off: no mail can be delivered")
	}
	if a := k.Accounting; a.KeepSize > 0 && a.KeepSize < a.RotateSize {
		k.problem(&a.block, "keep_size", "make it several times rotate_size",
			"keep_size: %s is less than one file: rotate_size is %s", a.KeepSize, a.RotateSize)
	}
	k.copiedFields()
	k.listed()
}

// maxCopied is how many header fields records can repeat.
const maxCopied = 16

// copiedFields looks at the header fields that records repeat.
func (k checker) copiedFields() {
	a := &k.Accounting
	if len(a.Headers) > maxCopied {
		k.problem(&a.block, "headers", "name those that matter most", "headers: %d fields are more than %d",
			len(a.Headers), maxCopied)
	}
	for _, name := range a.Headers {
		if name == "" || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c >= 0x7f || c == ':' }) {
			k.problem(&a.block, "headers", `write the name of a field, such as "Subject"`,
				"headers: %q is not a valid name of a header field", name)
		}
	}
}

// traffic looks at the settings of one block. What it doesn't set may come from any other, so
// only defaults is held against itself as a whole.
func (k checker) traffic(title string, b *block, t *Traffic) {
	complete := title == "defaults"
	if (complete || b.Set("retry_interval") && b.Set("max_retry_interval")) &&
		t.RetryInterval.First > t.MaxRetryInterval {
		k.problem(b, "retry_interval", "make max_retry_interval longer",
			"retry_interval: %s is longer than max_retry_interval, %s",
			settings.FormatDuration(t.RetryInterval.First), settings.FormatDuration(t.MaxRetryInterval))
	}
	if (complete || b.Set("host_retry_interval") && b.Set("max_host_retry_interval")) &&
		t.HostRetryInterval > t.MaxHostRetryInterval {
		k.problem(b, "host_retry_interval", "make max_host_retry_interval longer",
			"host_retry_interval: %s is longer than max_host_retry_interval, %s",
			settings.FormatDuration(t.HostRetryInterval), settings.FormatDuration(t.MaxHostRetryInterval))
	}
	// What a preset says beside a file's lower limit is not a mistake of the file.
	if b.Sets("connection_limit_per_host") && b.Sets("connection_limit") &&
		t.ConnectionLimitPerHost > t.ConnectionLimit {
		k.problem(b, "connection_limit_per_host", "a host is part of a site: lower it, or raise connection_limit",
			"connection_limit_per_host: %d is more than connection_limit, %d", t.ConnectionLimitPerHost,
			t.ConnectionLimit)
	}
	if b.Sets("connection_limit_per_source") && b.Sets("connection_limit") &&
		t.ConnectionLimitPerSource > t.ConnectionLimit {
		k.problem(b, "connection_limit_per_source",
			"connection_limit counts connections from all sources: lower one or raise the other",
			"connection_limit_per_source: %d is more than connection_limit, %d", t.ConnectionLimitPerSource,
			t.ConnectionLimit)
	}
	if b.Set("tls_certificate") != b.Set("tls_key") {
		at := "tls_certificate"
		if b.Set("tls_key") {
			at = "tls_key"
		}
		k.problem(b, at, "write both tls_certificate and tls_key",
			"%s has only one of tls_certificate and tls_key", title)
	}
	k.dane(b, t)
}

func (k checker) providers() {
	claimed := make(map[Pattern]string)
	for _, p := range k.Providers {
		if len(p.MX) == 0 {
			hint := `write the names of its mail exchangers, such as mx = ["*.example.net"]`
			if guess := legible.Nearest(p.Name, presetNames()); guess != "" && k.Presets {
				hint = fmt.Sprintf("did you mean %q, which has a preset?", guess)
			}
			k.problem(&p.block, "mx", hint, "provider %q has no mx, so it matches nothing", p.Name)
		}
		for _, mx := range p.MX {
			if other, dup := claimed[mx]; dup {
				k.problem(&p.block, "mx", "an exchanger belongs to one provider",
					"mx: %q already belongs to provider %q", string(mx), other)
			}
			claimed[mx] = p.Name
		}
		k.traffic(p.Title(), &p.block, &p.Traffic)
	}
}

func (k checker) domains() {
	for _, d := range k.Domains {
		own := ""
		if d.Set("tls") {
			own = d.Traffic.TLS
		}
		k.credentials(&d.block, fmt.Sprintf("domain %q", string(d.Pattern)), d.Smarthosts, own)
		k.loops(&d.block, d.Route)
		k.callouts(d)
		k.traffic(d.Title(), &d.block, &d.Traffic)
	}
}

func (k checker) backoffs() {
	for _, r := range k.Backoffs {
		if r.Provider != "" && k.resolved.providers[r.Provider] == nil {
			k.reference(&r.block, "provider", "provider", r.Provider, k.Names("provider"))
		}
		if len(r.Codes)+len(r.Classes) == 0 && r.Pattern == "" && !r.Session && !r.Set("codes") && !r.Set("classes") &&
			!r.Set("pattern") {
			k.problem(&r.block, "codes",
				`write a condition, such as codes = [421], pattern = "too many connections", or session = true`,
				"backoff %q would act on every refusal, even of an unknown user", r.Name)
		}
		if r.BySource && r.Suspend == 0 && !r.Slows() {
			k.problem(&r.block, "by_source",
				`write a duration, such as suspend = "10m", or a rate, such as rate = "10/min"`,
				"by_source: backoff %q suspends nothing and slows nothing down", r.Name)
		}
		if r.After.Count > 0 && r.Fewer == 0 && r.Suspend == 0 && !r.Slows() {
			k.problem(&r.block, "after", `write what it does, such as suspend = "10m"`,
				"after: backoff %q does nothing, however many refusals there are", r.Name)
		}
		if f := r.RateFactor; f != 0 && (f < .001 || f > 1) {
			k.problem(&r.block, "rate_factor", "write a number from 0.001 to 1, such as 0.5",
				"rate_factor: %v is not a part of a rate", f)
		}
		if r.Rate != (Rate{}) && r.RateFactor > 0 {
			k.problem(&r.block, "rate_factor", "remove one of them", "backoff %q has both rate and rate_factor", r.Name)
		}
		if r.After.Count > maxAfter {
			k.problem(&r.block, "after", fmt.Sprintf("write %d at most", maxAfter), "after: %d is more than %d",
				r.After.Count, maxAfter)
		}
	}
}

// maxAfter is how many refusals a rule can wait for: the time of each is kept.
const maxAfter = 1000

// callouts must go to mailbox servers of one's own: strangers block who uses theirs for it.
func (k checker) callouts(d *Domain) {
	if d.VerifyRecipients == "mailbox" && d.Pattern == "*" {
		k.problem(&d.block, "verify_recipients",
			`write it into blocks of your own domains, such as domain "example.com"`,
			`verify_recipients: domain "*" is everybody's: their hosts are not to be asked for mailboxes`)
	}
}

// loops looks for routes that lead back to the relay itself, and for answers beside hosts.
func (k checker) loops(b *block, route []Smarthost) {
	for _, to := range route {
		if to.Answer != "" && len(route) > 1 {
			k.problem(b, "route", "remove the other entries, or it", "route: %q must be the only entry", to.Answer)
			return
		}
		for _, l := range k.Listeners {
			if slices.ContainsFunc(l.Address, func(a string) bool { return k.isSelf(to, a) }) {
				k.problem(b, "route", "name the next host for the mail",
					"route: %s is this relay itself, listener %q: mail would loop",
					net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port))), l.Name)
				return
			}
		}
	}
}

// isSelf reports whether a route leads to a listener: by its address, by any address of this very
// machine to one that has them all, or by the relay's own name.
func (k checker) isSelf(to Smarthost, listener string) bool {
	host, port, err := net.SplitHostPort(listener)
	if err != nil || port == "0" || port != strconv.Itoa(int(to.Port)) {
		return false
	}
	if strings.EqualFold(to.Host, k.Hostname) {
		return true
	}
	ip, err := netip.ParseAddr(to.Host)
	own, _ := netip.ParseAddr(host)
	local := strings.EqualFold(to.Host, "localhost") ||
		err == nil && (ip.IsLoopback() || slices.ContainsFunc(k.Sources, func(s *Source) bool {
			return s.Address == ip
		}))
	return err == nil && ip == own || local && isAll(host) ||
		strings.EqualFold(to.Host, "localhost") && own.IsLoopback()
}

// credentials go out over TLS only, and only to hosts that the file names. tls is what the block itself sets, "" for
// nothing.
func (k checker) credentials(b *block, what string, h Smarthosts, tls string) {
	if h.Username == "" && h.Password == "" {
		return
	}
	shown := "username"
	if h.Username == "" {
		shown = "password"
	}
	switch {
	case b.Failed("username") || b.Failed("password"):
	case h.Username == "" || h.Password == "":
		k.problem(b, shown, "write both username and password", "%s has only one of username and password", what)
	case len(h.Route) == 0:
		k.problem(b, shown, `write their hosts, such as route = ["smtp://relay.example.net:587"]`,
			"%s has a username but no route", what)
	case h.Route[0].Answer != "":
		k.problem(b, shown, "remove it", "%s has a %s, but no host in its route", what, shown)
	case tls == "off" && !allImplicit(h.Route):
		k.problem(b, "tls", `write tls = "verified"`, "tls: a password is not sent without TLS")
	}
}

func allImplicit(hosts []Smarthost) bool {
	return !slices.ContainsFunc(hosts, func(h Smarthost) bool { return !h.Implicit })
}

// checkFiles looks at the files that the configuration names.
func checkFiles(c *Config, problems *settings.Collector) {
	k := checker{c, problems}
	for _, l := range c.Listeners {
		k.certificateFiles(&l.block, fmt.Sprintf("listener %q", l.Name), l.TLS.Certificates)
	}
	for _, a := range c.APIs {
		k.certificateFiles(&a.block, fmt.Sprintf("api %q", a.Name), a.TLS)
	}
	if c.Console.Address != "" {
		k.certificateFiles(&c.Console.block, "console", c.Console.TLS)
	}
	for _, s := range c.Streams {
		if s.CA == "" {
			continue
		}
		if _, err := certificates.ReadAuthorities(s.CA); err != nil {
			k.problem(&s.block, "ca", "", "ca of stream %q: %s", s.Name, err)
		}
	}
	for _, l := range c.Listeners {
		if _, err := l.TLS.ClientCAs(); err != nil {
			k.problem(&l.block, "tls.client_ca", "", "client_ca of listener %q: %s", l.Name, err)
		}
	}
	for d := range c.destinations() {
		if p, ok := d.traffic.clientPair(); ok {
			if _, err := tls.LoadX509KeyPair(p.Certificate, p.Key); err != nil {
				k.problem(d.block, "tls_certificate", "", "tls_certificate of %s: %s", d.Title(), err)
			}
		}
		if d.traffic.TLSCA != "" {
			if _, err := certificates.ReadAuthorities(d.traffic.TLSCA); err != nil {
				k.problem(d.block, "tls_ca", "", "tls_ca of %s: %s", d.Title(), err)
			}
		}
	}
	k.dkimFiles()
	k.clusterFiles()
}

// certificateFiles looks at the files that a block's tls names.
func (k checker) certificateFiles(b *block, what string, c Certificates) {
	for _, p := range c.Pairs() {
		if _, err := tls.LoadX509KeyPair(p.Certificate, p.Key); err != nil {
			k.problem(b, "tls.certificate", "", "tls of %s: %s", what, err)
		}
	}
}

// Names lists the blocks of a kind: source, pool, tenant or provider.
func (c *Config) Names(kind string) []string {
	switch kind {
	case "source":
		return namesOf(c.Sources, func(s *Source) string { return s.Name })
	case "pool":
		return namesOf(c.Pools, func(p *Pool) string { return p.Name })
	case "tenant":
		return namesOf(c.Tenants, func(t *Tenant) string { return t.Name })
	}
	return namesOf(c.Providers, func(p *Provider) string { return p.Name })
}

func namesOf[T any](blocks []T, name func(T) string) (names []string) {
	for _, b := range blocks {
		names = append(names, name(b))
	}
	return names
}

// ipv6Unicast is where the addresses of the Internet are that are in use (RFC 4291, 2.4).
var ipv6Unicast = netip.MustParsePrefix("2000::/3")

// tooMuch is the share of all addresses, of one family, from which a list of networks is not a list of
// one's own: the largest provider there is has less.
const tooMuch = 0.5

// openTo returns what share of the addresses of a family networks have together, 0 to 1, when that is too
// much for a list of one's own networks. IPv6 addresses count that are in use in the Internet.
func openTo(networks []netip.Prefix) (family string, share float64) {
	var v4, v6 []netip.Prefix
	for _, p := range networks {
		switch {
		case p.Addr().Is4():
			v4 = append(v4, p.Masked())
		case p.Bits() <= ipv6Unicast.Bits() && p.Contains(ipv6Unicast.Addr()):
			v6 = append(v6, ipv6Unicast)
		case ipv6Unicast.Contains(p.Addr()):
			v6 = append(v6, p.Masked())
		}
	}
	if share := shareOf(v4, 0); share >= tooMuch {
		return "IPv4", share
	}
	if share := shareOf(v6, ipv6Unicast.Bits()); share >= tooMuch {
		return "IPv6", share
	}
	return "", 0
}

// shareOf sums networks up, each address once. whole is the length of the prefix that has all.
func shareOf(networks []netip.Prefix, whole int) (share float64) {
	slices.SortFunc(networks, func(a, b netip.Prefix) int { return a.Bits() - b.Bits() })
	for i, p := range networks {
		within := func(larger netip.Prefix) bool { return larger.Contains(p.Addr()) }
		if !slices.ContainsFunc(networks[:i], within) {
			share += math.Exp2(float64(whole - p.Bits()))
		}
	}
	return share
}

// dane complains of DANE that is asked for and can't be had. Which servers the system has is not known yet.
func (k checker) dane(b *block, t *Traffic) {
	if !b.Sets("dane") || !t.DANE {
		return
	}
	for _, server := range k.Resolver.Servers {
		if a := serverIP(server); a.IsValid() && !k.Resolver.trusts(a) {
			k.problem(b, "dane",
				fmt.Sprintf("ask a validating server on this machine, or, if the way to it is safe, write resolver { "+
					"trusted = [%q] }", a),
				"dane: it needs DNSSEC, and the name server %s is not trusted to validate", a)
			return
		}
	}
}

// serverIP gives the address of one of Resolver.Servers; invalid when it can't be read.
func serverIP(server string) netip.Addr {
	if a, err := netip.ParseAddrPort(server); err == nil {
		return a.Addr().Unmap()
	}
	a, _ := netip.ParseAddr(server) // invalid otherwise
	return a.Unmap()
}

func (r *Resolver) trusts(server netip.Addr) bool {
	return server.IsLoopback() || slices.ContainsFunc(r.Trusted, func(p netip.Prefix) bool {
		return p.Contains(server)
	})
}
