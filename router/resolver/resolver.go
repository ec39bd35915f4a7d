// Package resolver looks up records of the DNS, for the router and others: cached, coalesced,
// bounded in number and in time, from several recursive servers. It is a stub resolver: it does not
// validate DNSSEC signatures itself, and believes the AD bit of the servers that are trusted to.
//
// Order of use: New, then a method for each type by any number of goroutines. The package starts no
// goroutines: a look-up runs in the goroutine that first asked, and the others who want the same
// wait for it.
package resolver

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

// Config is how a Resolver works. Every zero field has a default.
type Config struct {
	Servers []netip.AddrPort // recursive servers, tried in order; default: SystemServers
	// Trusted are the networks, besides loopback, of servers whose AD bit is believed. It is believed
	// only when all Servers are trusted: an attacker who could silence those that are would otherwise have
	// the others asked.
	Trusted []netip.Prefix

	Try      time.Duration // for one answer of one server; doubles each time through the list; 2 s
	Rounds   int           // times through the list; 3
	Total    time.Duration // for a whole look-up, all tries and aliases; 20 s
	InFlight int           // look-ups at once, others wait within their Total; 256

	Entries        int           // answers kept, good and bad; 100,000
	MinTTL         time.Duration // answers are kept at least so long, 5 s
	MaxTTL         time.Duration // and at most so long, 24 h
	MaxNegativeTTL time.Duration // "there is no such thing" is kept at most so long; 15 min
	FailTTL        time.Duration // failures are kept so long, RFC 9520 (3.2) wants 1 s to 5 min; 5 s

	Now  func() time.Time // time.Now
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

func (c *Config) setDefaults() {
	setDefault(&c.Try, 2*time.Second)
	setDefault(&c.Rounds, 3)
	setDefault(&c.Total, 20*time.Second)
	setDefault(&c.InFlight, 256)
	setDefault(&c.Entries, 100_000)
	setDefault(&c.MinTTL, 5*time.Second)
	setDefault(&c.MaxTTL, 24*time.Hour)
	setDefault(&c.MaxNegativeTTL, 15*time.Minute)
	setDefault(&c.FailTTL, 5*time.Second)
	if len(c.Servers) == 0 {
		c.Servers = SystemServers()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
}

func setDefault[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// MX is one mail exchanger of a domain.
type MX struct {
	Preference uint16
	Host       string // lower case, no final dot; "" is the root, as in a null MX (RFC 7505)
}

// Answer is what a look-up found, never nothing. It is shared: leave it alone.
type Answer struct {
	Name    string       // whose records they are, after all aliases
	MX      []MX         // of an MX look-up, as the server ordered them
	Addrs   []netip.Addr // of an A or AAAA look-up, as the server ordered them
	Texts   []string     // of a TXT look-up: the strings of each record joined, as octets
	Names   []string     // of a PTR or CNAME look-up: lower case, no final dot
	TLSA    []TLSA       // of a TLSA look-up
	Secure  bool         // a trusted server validated it, and every alias on the way (RFC 4035, 3.2.3)
	Expires time.Time    // when it leaves the cache
}

// TLSA is one TLSA record (RFC 6698, 2.1), as it stands in the DNS: its values may be any.
type TLSA struct {
	Usage, Selector, Matching uint8
	Data                      []byte // the certificate association data
}

// Resolver looks names up. It is safe for use by many goroutines.
type Resolver struct {
	cfg     Config
	servers []*server
	trusted bool          // the AD bit is believed
	slots   chan struct{} // one for each look-up in flight

	asked, hits, answered, failed atomic.Uint64

	mu struct { // guards what is known and what is being asked
		sync.Mutex
		known *Cache[question, outcome]
		calls map[question]*call
	}
}

// outcome is an answer or an error.
type outcome struct {
	answer *Answer
	err    *Error
}

func (o outcome) result() (*Answer, error) {
	if o.err != nil {
		return nil, o.err
	}
	return o.answer, nil
}

// call is a look-up under way. outcome and abandoned are set before done is closed.
type call struct {
	done      chan struct{}
	outcome   outcome
	abandoned bool // who asked first went away: somebody else has to ask
}

// New makes a resolver.
func New(cfg Config) *Resolver {
	cfg.setDefaults()
	r := &Resolver{cfg: cfg, slots: make(chan struct{}, cfg.InFlight)}
	for _, s := range cfg.Servers {
		r.servers = append(r.servers, &server{addr: s})
	}
	r.trusted = !slices.ContainsFunc(cfg.Servers, func(s netip.AddrPort) bool { return !Trusts(cfg.Trusted, s.Addr()) })
	r.mu.known = NewCache[question, outcome](cfg.Entries)
	r.mu.calls = make(map[question]*call)
	return r
}

// Trusts reports whether a server is one whose AD bit is believed: on loopback, where nobody else
// can forge its answers, or in the networks that are trusted.
func Trusts(trusted []netip.Prefix, server netip.Addr) bool {
	server = server.Unmap().WithZone("")
	return server.IsLoopback() || slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(server) })
}

// Servers are those that it asks.
func (r *Resolver) Servers() []netip.AddrPort { return slices.Clone(r.cfg.Servers) }

// Trusted reports whether the AD bit of the servers is believed, see Config.Trusted.
func (r *Resolver) Trusted() bool { return r.trusted }

// MX gives the mail exchangers of a domain. All errors of look-ups are *Error.
func (r *Resolver) MX(ctx context.Context, domain string) (*Answer, error) {
	return r.lookup(ctx, domain, TypeMX)
}

// A gives the IPv4 addresses of a host.
func (r *Resolver) A(ctx context.Context, host string) (*Answer, error) {
	return r.lookup(ctx, host, TypeA)
}

// AAAA gives the IPv6 addresses of a host.
func (r *Resolver) AAAA(ctx context.Context, host string) (*Answer, error) {
	return r.lookup(ctx, host, TypeAAAA)
}

// TXT gives the texts of a name.
func (r *Resolver) TXT(ctx context.Context, name string) (*Answer, error) {
	return r.lookup(ctx, name, TypeTXT)
}

// PTR gives the names of an address.
func (r *Resolver) PTR(ctx context.Context, addr netip.Addr) (*Answer, error) {
	return r.lookup(ctx, ReverseName(addr), TypePTR)
}

// CNAME gives the name that a name is an alias of, following no further alias.
func (r *Resolver) CNAME(ctx context.Context, name string) (*Answer, error) {
	return r.lookup(ctx, name, TypeCNAME)
}

// TLSA gives the TLSA records at a name such as "_25._tcp.mx.example.com".
func (r *Resolver) TLSA(ctx context.Context, name string) (*Answer, error) {
	return r.lookup(ctx, name, TypeTLSA)
}

// Stats are counters since the start, and sizes now.
type Stats struct {
	Asked    uint64 // questions sent to servers, each try counted
	Hits     uint64 // look-ups answered from the cache
	Answered uint64 // look-ups that servers answered, if only by "there is none"
	Failed   uint64 // look-ups after which nothing is known: see Temporary
	Entries  int    // answers in the cache
	InFlight int    // look-ups under way
}

// Stats gives the counters.
func (r *Resolver) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Stats{
		Asked: r.asked.Load(), Hits: r.hits.Load(), Answered: r.answered.Load(), Failed: r.failed.Load(),
		Entries: r.mu.known.Len(), InFlight: len(r.mu.calls),
	}
}

func (r *Resolver) lookup(ctx context.Context, name string, t Type) (*Answer, error) {
	name, ok := canonical(name)
	if !ok {
		return nil, &Error{Kind: NXDomain, Name: name, Type: t, Reason: "not a possible domain name",
			Expires: r.cfg.Now().Add(r.cfg.MaxNegativeTTL)}
	}
	q := question{name, t}
	if a := r.localhost(q); a != nil {
		return a, nil
	}
	for {
		r.mu.Lock()
		if o, ok := r.mu.known.Get(q, r.cfg.Now()); ok {
			r.mu.Unlock()
			r.hits.Add(1)
			return o.result()
		}
		c := r.mu.calls[q]
		if c == nil {
			c = &call{done: make(chan struct{})}
			r.mu.calls[q] = c
			r.mu.Unlock()
			r.lead(ctx, q, c)
			return c.outcome.result()
		}
		r.mu.Unlock()
		select {
		case <-c.done:
			if !c.abandoned {
				return c.outcome.result()
			}
		case <-ctx.Done():
			return nil, r.failure(q, ctx.Err())
		}
	}
}

// lead does a look-up for all who want it, and remembers what came of it.
func (r *Resolver) lead(ctx context.Context, q question, c *call) {
	c.abandoned = true // also if resolve panics
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.mu.calls, q)
		if !c.abandoned {
			r.mu.known.Put(q, c.outcome, c.outcome.expires())
		}
		close(c.done)
	}()
	c.outcome = r.resolve(ctx, q)
	// A caller that gave up says nothing about the name.
	c.abandoned = c.outcome.err != nil && ended(ctx) != nil
	switch {
	case c.abandoned:
	case c.outcome.err != nil && c.outcome.err.Kind == Temporary:
		r.failed.Add(1)
	default:
		r.answered.Add(1)
	}
}

func (o outcome) expires() time.Time {
	if o.err != nil {
		return o.err.Expires
	}
	return o.answer.Expires
}

// resolve asks the servers, and goes on asking while they answer with aliases only.
func (r *Resolver) resolve(ctx context.Context, q question) outcome {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Total)
	defer cancel()
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return outcome{err: r.failure(q, errBusy)}
	}
	secure, ttl, current := true, maxTTL, q
	// RFC 1034 (3.6.2) wants aliases followed and loops found; it names no limit. Postfix has 10.
	for aliases := 0; ; {
		m, err := r.ask(ctx, current)
		if err != nil {
			return outcome{err: r.failure(q, err)}
		}
		secure, ttl = secure && m.secure, min(ttl, m.ttl)
		if m.alias == "" {
			return r.conclude(q, m, secure, ttl)
		}
		if aliases += m.aliases; aliases > maxAliases {
			return outcome{err: r.failure(q, errAliases)}
		}
		current.name = m.alias
	}
}

// conclude makes the outcome of the last message of a chain.
func (r *Resolver) conclude(q question, m *message, secure bool, ttl time.Duration) outcome {
	now := r.cfg.Now()
	if !m.empty() {
		ttl = min(max(ttl, r.cfg.MinTTL), r.cfg.MaxTTL)
		return outcome{answer: &Answer{
			Name: m.name, MX: m.mx, Addrs: m.addrs, Texts: m.texts, Names: m.names, TLSA: m.tlsa,
			Secure: secure, Expires: now.Add(ttl),
		}}
	}
	e := &Error{Kind: NoData, Name: q.name, Type: q.qtype, Reason: "no such record", Secure: secure}
	if m.nxdomain {
		e.Kind, e.Reason = NXDomain, "no such name"
	}
	// RFC 2308 (5): kept for the SOA's time; an answer without SOA should not be kept at all, and
	// is for as long as a failure, lest a broken zone be asked for each message.
	kept := r.cfg.FailTTL
	if m.soa {
		kept = min(max(ttl, r.cfg.MinTTL), r.cfg.MaxNegativeTTL)
	}
	e.Expires = now.Add(kept)
	return outcome{err: e}
}

func (r *Resolver) failure(q question, cause error) *Error {
	e := &Error{Kind: Temporary, Name: q.name, Type: q.qtype, cause: cause, Reason: reason(cause),
		Expires: r.cfg.Now().Add(r.cfg.FailTTL)}
	var se *serverError
	if errors.As(cause, &se) {
		e.Server = se.server
	}
	return e
}

// localhost answers for the names that RFC 6761 (6.3) keeps from the DNS.
func (r *Resolver) localhost(q question) *Answer {
	if q.name != "localhost" && !strings.HasSuffix(q.name, ".localhost") {
		return nil
	}
	a := &Answer{Name: q.name, Expires: r.cfg.Now().Add(r.cfg.MaxTTL)}
	switch q.qtype {
	case TypeA:
		a.Addrs = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	case TypeAAAA:
		a.Addrs = []netip.Addr{netip.IPv6Loopback()}
	default:
		return nil
	}
	return a
}

// SystemServers gives the servers of /etc/resolv.conf, or the one on this machine when the file
// names none, as the C library does.
func SystemServers() []netip.AddrPort {
	f, err := os.Open("/etc/resolv.conf")
	if err == nil {
		defer f.Close()
		if servers := parseResolvConf(f); len(servers) > 0 {
			return servers
		}
	}
	return []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 53)}
}

// parseResolvConf gives the name servers of a resolv.conf(5). The search list and the options
// are for people's short names, not for mail domains.
func parseResolvConf(r io.Reader) []netip.AddrPort {
	conf, err := dns.ClientConfigFromReader(r)
	if err != nil {
		return nil
	}
	var out []netip.AddrPort
	for _, s := range conf.Servers {
		if a, err := netip.ParseAddr(s); err == nil {
			out = append(out, netip.AddrPortFrom(a, 53))
		}
	}
	return out
}
