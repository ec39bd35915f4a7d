package router

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"

	"example.org/mta/internal/route"
	"example.org/mta/lab/sink"
	"example.org/mta/router/resolver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves a zone and gives a router that asks it.
func start(t testing.TB, z *sink.Zone, s Settings) (*Router, *sink.DNSServer) {
	t.Helper()
	server := sink.NewDNS(z)
	addr, err := server.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	res := resolver.New(resolver.Config{Servers: []netip.AddrPort{addr}, Try: 100 * time.Millisecond, Rounds: 1})
	r := New(Config{Settings: s, Rand: rand.New(rand.NewPCG(1, 2))}, res)
	t.Cleanup(func() {
		r.Close()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return r, server
}

// show puts a result on one line: site, provider, then the tiers, whose hosts are sorted, since
// chance orders them.
func show(r Result) string {
	if r.Failure != nil {
		return r.Failure.String()
	}
	out := r.Route.Site
	if r.Route.Provider != "" {
		out += " {" + r.Route.Provider + "}"
	}
	for _, tier := range r.Route.Tiers {
		var hosts []string
		for _, h := range tier {
			hosts = append(hosts, h.String())
		}
		slices.Sort(hosts)
		out += " / " + strings.Join(hosts, " ")
	}
	return out
}

const world = `
	example.com.          IN MX 10 mx1.example.com.
	example.com.          IN MX 10 mx2.example.com.
	example.com.          IN MX 20 backup.example.org.
	mx1.example.com.      IN A 192.0.2.1
	mx1.example.com.      IN A 192.0.2.11
	mx1.example.com.      IN AAAA 2001:db8::1
	mx2.example.com.      IN A 192.0.2.2
	backup.example.org.   IN A 198.51.100.1

	implicit.test.        IN A 192.0.2.3
	implicit6.test.       IN AAAA 2001:db8::3
	www.test.             IN CNAME implicit.test.
	nothing.test.         IN TXT "no mail here"
	null.test.            IN MX 0 .
	nulls.test.           IN MX 0 .
	nulls.test.           IN MX 10 mx2.example.com.
	alias.test.           IN CNAME example.com.
	mxalias.test.         IN MX 10 a.mxalias.test.
	a.mxalias.test.       IN CNAME mx2.example.com.
	literalmx.test.       IN MX 10 192.0.2.77.
	oddmx.test.           IN MX 10 a\(b.test.
	dup.test.             IN MX 20 mx2.example.com.
	dup.test.             IN MX 10 mx2.example.com.
	sameaddr.test.        IN MX 10 a.sameaddr.test.
	sameaddr.test.        IN MX 10 b.sameaddr.test.
	a.sameaddr.test.      IN A 192.0.2.40
	b.sameaddr.test.      IN A 192.0.2.40

	dead.test.            IN MX 10 gone.dead.test.
	dead.test.            IN MX 20 bare.dead.test.
	bare.dead.test.       IN TXT "no address"
	halfdead.test.        IN MX 10 gone.dead.test.
	halfdead.test.        IN MX 20 mx2.example.com.
	shaky.test.           IN MX 10 gone.dead.test.
	shaky.test.           IN MX 20 servfail.test.
	shakyok.test.         IN MX 10 servfail.test.
	shakyok.test.         IN MX 20 mx2.example.com.
	six.test.             IN MX 10 v6.six.test.
	v6.six.test.          IN AAAA 2001:db8::66
	halffamily.test.      IN MX 10 h.halffamily.test.
	h.halffamily.test.    IN A 192.0.2.50

	self1.test.           IN MX 10 relay.example.net.
	self2.test.           IN MX 10 mx2.example.com.
	self2.test.           IN MX 20 Relay.Example.net.
	self2.test.           IN MX 20 mx1.example.com.
	self2.test.           IN MX 30 backup.example.org.
	self3.test.           IN MX 10 mx2.example.com.
	self3.test.           IN MX 20 hidden.test.
	hidden.test.          IN A 203.0.113.5
	self4.test.           IN A 203.0.113.5

	loopback.test.        IN MX 10 lo.loopback.test.
	lo.loopback.test.     IN A 127.0.0.1
	localhostmx.test.     IN MX 10 localhost.
	zero.test.            IN A 0.0.0.0
	multicast.test.       IN A 224.0.0.1
	mapped.test.          IN AAAA ::ffff:127.0.0.1
	private.test.         IN A 10.1.2.3
	mixed.test.           IN MX 10 m.mixed.test.
	m.mixed.test.         IN A 127.0.0.1
	m.mixed.test.         IN A 192.0.2.9

	gmail.test.           IN MX 5  gmail-smtp-in.l.google.com.
	gmail.test.           IN MX 10 alt1.gmail-smtp-in.l.google.com.
	gmail.test.           IN MX 20 alt2.gmail-smtp-in.l.google.com.
	*.gmail-smtp-in.l.google.com. IN A 192.0.2.100
	gmail-smtp-in.l.google.com.   IN A 192.0.2.101
	relayed.test.         IN MX 10 mx2.example.com.
	relayed.test.         IN MX 20 gmail-smtp-in.l.google.com.

	smart.example.net.    IN A 192.0.2.200
	smart2.example.net.   IN A 192.0.2.201
	smartlo.example.net.  IN A 127.0.0.1
`

func worldZone(t testing.TB) *sink.Zone {
	t.Helper()
	z, err := sink.NewZone(world)
	if err != nil {
		t.Fatal(err)
	}
	z.Fault("servfail.test", sink.DNSFault{Rcode: dns.RcodeServerFailure})
	z.Fault("mute.test", sink.DNSFault{Drop: true})
	z.Fault("h.halffamily.test", sink.DNSFault{Rcode: dns.RcodeServerFailure, Types: []uint16{dns.TypeAAAA}})
	return z
}

var worldSettings = Settings{
	Self:      []string{"relay.example.net"},
	SelfAddrs: []netip.AddrPort{netip.MustParseAddrPort("203.0.113.5:25")},
	Smarthosts: []SmarthostRoute{
		{"smart.test", hosts("smart.example.net:587")},
		{"*.smart.test", hosts("smart.example.net:2525", "smart2.example.net:25")},
		{"lo.smart.test", hosts("smartlo.example.net:2626")},
		{"addr.smart.test", hosts("[2001:db8::25]:2525")},
		{"gone.smart.test", hosts("gone.example.net:25")},
		{"halfgone.smart.test", hosts("gone.example.net:25", "smart.example.net:25")},
		{"servfail.smart.test", hosts("servfail.test:25")},
		{"self.smart.test", hosts("203.0.113.5:25")},
		{"[192.0.2.99]", hosts("smart.example.net:25")},
	},
	Providers: []Provider{
		{"google", []string{"*.google.com", "*.googlemail.com"}},
		{"ours", []string{"smart.example.net"}},
	},
}

func TestRoutes(t *testing.T) {
	r, _ := start(t, worldZone(t), worldSettings)
	for _, tc := range []struct{ domain, want string }{
		{"example.com", "(mx1|mx2).example.com,backup.example.org" +
			" / mx1.example.com[192.0.2.11]:25 mx1.example.com[192.0.2.1]:25 mx1.example.com[2001:db8::1]:25 mx2.example.com[192.0.2.2]:25" +
			" / backup.example.org[198.51.100.1]:25"},
		{"implicit.test", "implicit.test / implicit.test[192.0.2.3]:25"},
		{"implicit6.test", "implicit6.test / implicit6.test[2001:db8::3]:25"},
		{"www.test", "www.test / www.test[192.0.2.3]:25"},
		{"alias.test", "(mx1|mx2).example.com,backup.example.org" +
			" / mx1.example.com[192.0.2.11]:25 mx1.example.com[192.0.2.1]:25 mx1.example.com[2001:db8::1]:25 mx2.example.com[192.0.2.2]:25" +
			" / backup.example.org[198.51.100.1]:25"},
		{"mxalias.test", "a.mxalias.test / a.mxalias.test[192.0.2.2]:25"},
		{"literalmx.test", "192.0.2.77 / 192.0.2.77[192.0.2.77]:25"},
		{"dup.test", "mx2.example.com / mx2.example.com[192.0.2.2]:25"},
		{"nulls.test", "mx2.example.com / mx2.example.com[192.0.2.2]:25"},

		// What the DNS says and what it doesn't.
		{"nosuch.test", "550 5.1.2 the domain nosuch.test does not exist"},
		{"nothing.test", "550 5.4.4 the domain nothing.test has neither a mail exchanger nor an address"},
		{"null.test", "556 5.1.10 the domain null.test does not accept mail (null MX)"},
		{"servfail.test", "451 4.4.3 the DNS gives no answer for servfail.test: SERVFAIL"},
		{"mute.test", "451 4.4.3 the DNS gives no answer for mute.test: no answer in time"},
		{"oddmx.test", "550 5.4.4 no mail exchanger of oddmx.test can be used: none has the name of a host"},
		{"dead.test", "550 5.4.4 no mail exchanger of dead.test can be used: gone.dead.test does not exist; bare.dead.test has no address"},
		{"halfdead.test", "gone.dead.test,mx2.example.com / mx2.example.com[192.0.2.2]:25"},
		{"shaky.test", "451 4.4.3 the DNS gives no answer for shaky.test: looking up the address of servfail.test: SERVFAIL"},
		{"shakyok.test", "mx2.example.com,servfail.test / mx2.example.com[192.0.2.2]:25"},
		{"halffamily.test", "h.halffamily.test / h.halffamily.test[192.0.2.50]:25"},
		{"", "550 5.1.3 the address has no domain"},
		{"a..b", "550 5.1.2 the domain a..b does not exist"},

		// Loops (RFC 5321, 5.1).
		{"self1.test", "554 5.4.6 mail for self1.test loops back to this relay, which does not host it"},
		{"self2.test", "mx2.example.com / mx2.example.com[192.0.2.2]:25"},
		{"self3.test", "mx2.example.com,hidden.test / mx2.example.com[192.0.2.2]:25"},
		{"self4.test", "554 5.4.6 mail for self4.test loops back to this relay, which does not host it"},
		{"loopback.test", "550 5.4.4 no mail exchanger of loopback.test can be used: lo.loopback.test is at 127.0.0.1, and it is a loopback address"},
		{"zero.test", "550 5.4.4 no mail exchanger of zero.test can be used: zero.test is at 0.0.0.0, and it is the unspecified address"},
		{"multicast.test", "550 5.4.4 no mail exchanger of multicast.test can be used: multicast.test is at 224.0.0.1, and it is a multicast or broadcast address"},
		{"mapped.test", "550 5.4.4 no mail exchanger of mapped.test can be used: mapped.test is at 127.0.0.1, and it is a loopback address"},
		{"mixed.test", "m.mixed.test / m.mixed.test[192.0.2.9]:25"},
		{"private.test", "private.test / private.test[10.1.2.3]:25"},

		// Literals (RFC 5321, 4.1.3).
		{"[192.0.2.7]", "[192.0.2.7] / 192.0.2.7[192.0.2.7]:25"},
		{"[ipv6:2001:db8::7]", "[ipv6:2001:db8::7] / 2001:db8::7[2001:db8::7]:25"},
		{"[2001:db8::7]", "550 5.1.3 [2001:db8::7]: address literal is neither [192.0.2.1] nor [IPv6:2001:db8::1]"},
		{"[tag:content]", "550 5.1.3 [tag:content]: address literal is neither [192.0.2.1] nor [IPv6:2001:db8::1]"},
		{"[127.0.0.1]", "550 5.4.4 no mail exchanger of [127.0.0.1] can be used: it is a loopback address"},
		{"[203.0.113.5]", "554 5.4.6 mail for [203.0.113.5] loops back to this relay, which does not host it"},
		{"[ipv6:::ffff:203.0.113.5]", "554 5.4.6 mail for [ipv6:::ffff:203.0.113.5] loops back to this relay, which does not host it"},

		// Providers: the best tier decides.
		{"gmail.test", "(alt1|alt2|).gmail-smtp-in.l.google.com {google}" +
			" / gmail-smtp-in.l.google.com[192.0.2.101]:25 / alt1.gmail-smtp-in.l.google.com[192.0.2.100]:25 / alt2.gmail-smtp-in.l.google.com[192.0.2.100]:25"},
		{"relayed.test", "mx2.example.com,gmail-smtp-in.l.google.com / mx2.example.com[192.0.2.2]:25 / gmail-smtp-in.l.google.com[192.0.2.101]:25"},

		// Smarthosts.
		{"smart.test", "smart.example.net:587 {ours} / smart.example.net[192.0.2.200]:587"},
		{"x.y.smart.test", "smart.example.net:2525,smart2.example.net:25 {ours} / smart.example.net[192.0.2.200]:2525 / smart2.example.net[192.0.2.201]:25"},
		{"lo.smart.test", "smartlo.example.net:2626 / smartlo.example.net[127.0.0.1]:2626"},
		{"addr.smart.test", "[2001:db8::25]:2525 / 2001:db8::25[2001:db8::25]:2525"},
		{"gone.smart.test", "451 4.4.4 the relay configured for gone.smart.test can't be used: gone.example.net does not exist"},
		{"halfgone.smart.test", "gone.example.net:25,smart.example.net:25 / smart.example.net[192.0.2.200]:25"},
		{"servfail.smart.test", "451 4.4.4 the relay configured for servfail.smart.test can't be used: looking up the address of servfail.test: SERVFAIL"},
		{"self.smart.test", "451 4.4.4 the relay configured for self.smart.test can't be used: 203.0.113.5 is this relay"},
		{"[192.0.2.99]", "smart.example.net:25 {ours} / smart.example.net[192.0.2.200]:25"},
	} {
		res := r.Lookup(t.Context(), tc.domain)
		if got := show(res); got != tc.want {
			t.Errorf("%s:\n got  %s\n want %s\n notes: %s", tc.domain, got, tc.want, strings.Join(res.Notes, "\n        "))
		}
		if (res.Route == nil) == (res.Failure == nil) {
			t.Errorf("%s: route %v and trouble %v", tc.domain, res.Route, res.Failure)
		}
		if res.Failure != nil && (res.Failure.Command != "route" || !res.Failure.Local) {
			t.Errorf("%s: %+v is not said to be ours, of step route", tc.domain, res.Failure)
		}
	}
}

// The same address twice in a tier would only be tried twice.
func TestEachAddressOnceInATier(t *testing.T) {
	r, _ := start(t, worldZone(t), Settings{})
	if rt := r.Lookup(t.Context(), "sameaddr.test").Route; rt == nil || rt.Hosts() != 1 {
		t.Errorf("got %v", rt)
	}
}

func TestPolicies(t *testing.T) {
	for _, tc := range []struct {
		name     string
		settings Settings
		domain   string
		want     string
	}{
		{"loopback allowed", Settings{AllowLoopback: true, Port: 2525}, "loopback.test", "lo.loopback.test / lo.loopback.test[127.0.0.1]:2525"},
		{"localhost allowed", Settings{AllowLoopback: true}, "localhostmx.test", "localhost / localhost[127.0.0.1]:25 localhost[::1]:25"},
		{"loopback allowed, but it is us", Settings{AllowLoopback: true, SelfAddrs: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:25")}},
			"loopback.test", "554 5.4.6 mail for loopback.test loops back to this relay, which does not host it"},
		{"loopback allowed, we are at another port", Settings{AllowLoopback: true, SelfAddrs: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:2525")}},
			"loopback.test", "lo.loopback.test / lo.loopback.test[127.0.0.1]:25"},
		{"unspecified never", Settings{AllowLoopback: true}, "zero.test",
			"550 5.4.4 no mail exchanger of zero.test can be used: zero.test is at 0.0.0.0, and it is the unspecified address"},
		{"private refused", Settings{RefusePrivate: true}, "private.test",
			"550 5.4.4 no mail exchanger of private.test can be used: private.test is at 10.1.2.3, and it is a private address"},
		{"no IPv6", Settings{NoIPv6: true}, "mx1.example.com", "mx1.example.com / mx1.example.com[192.0.2.11]:25 mx1.example.com[192.0.2.1]:25"},
		{"no IPv6, and nothing else there", Settings{NoIPv6: true}, "six.test",
			"550 5.4.4 no mail exchanger of six.test can be used: v6.six.test has no address"},
		{"no IPv4", Settings{NoIPv4: true}, "mx1.example.com", "mx1.example.com / mx1.example.com[2001:db8::1]:25"},
		{"a default route", Settings{Smarthosts: []SmarthostRoute{{"*", hosts("smart.example.net:25")}}},
			"[192.0.2.7]", "smart.example.net:25 / smart.example.net[192.0.2.200]:25"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, _ := start(t, worldZone(t), tc.settings)
			if got := show(r.Lookup(t.Context(), tc.domain)); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestADomainCanBeExemptFromAWiderSmarthost(t *testing.T) {
	s := Settings{Smarthosts: []SmarthostRoute{{"*", hosts("192.0.2.1:587")}}, ByDNS: []string{"direct.test", "*.direct.test"}}
	c, err := s.compile()
	if err != nil {
		t.Fatal(err)
	}
	for domain, want := range map[string]int{"any.test": 1, "direct.test": 0, "x.direct.test": 0} {
		if got, ok := c.smarthosts.find(domain); len(got) != want || !ok {
			t.Errorf("%s: %v, %v; want %d smarthosts", domain, got, ok, want)
		}
	}
}

func TestSmarthostTLSAndAuthReachTheRoute(t *testing.T) {
	me := &route.Auth{Username: "me", Password: "secret"}
	r, _ := start(t, worldZone(t), Settings{Smarthosts: []SmarthostRoute{
		{"*", []Smarthost{with(at("smart.example.net:465"), true, me), with(at("smart2.example.net:465"), true, me)}},
	}})
	res := r.Lookup(t.Context(), "any.test")
	if res.Route == nil || !res.Route.Implicit || !res.Route.Configured || res.Route.Auth != me {
		t.Fatalf("got %+v", res.Route)
	}
	if len(res.Route.Tiers) != 2 || res.Route.Tiers[0][0].Addr.Port() != 465 {
		t.Errorf("tiers %v", res.Route.Tiers)
	}
	if all := fmt.Sprint(res.Notes, res.Route.Site); strings.Contains(all, "secret") {
		t.Errorf("the password is in %s", all)
	}
}

// RFC 5321, 5.1: hosts of equal preference are to be tried in an order left to chance.
func TestEqualPreferenceIsShuffled(t *testing.T) {
	var records strings.Builder
	for i := range 4 {
		fmt.Fprintf(&records, "even.test. IN MX 10 mx%d.even.test.\nmx%d.even.test. IN A 192.0.2.%d\n", i, i, i+1)
	}
	r, _ := start(t, sink.MustZone(records.String()), Settings{})
	const rounds = 2400
	first := make(map[string]int)
	orders := make(map[string]int)
	for range rounds {
		tier := r.Lookup(t.Context(), "even.test").Route.Tiers[0]
		first[tier[0].Name]++
		orders[fmt.Sprint(tier)]++
	}
	if len(orders) != 24 {
		t.Errorf("%d orders of 4 hosts in %d rounds, want all 24", len(orders), rounds)
	}
	// Chi-square with 23 degrees of freedom: over 49.7 with p < 0.001. The seed is fixed.
	chi := 0.0
	for _, n := range orders {
		d := float64(n) - rounds/24
		chi += d * d / (rounds / 24)
	}
	if chi > 49.7 {
		t.Errorf("chi-square %.1f: some orders are preferred: %v", chi, first)
	}
}

func TestNumberOfHostsIsBounded(t *testing.T) {
	var records strings.Builder
	for i := range 100 {
		fmt.Fprintf(&records, "many.test. IN MX %d mx%d.many.test.\n", i/50, i)
		for k := range 10 {
			fmt.Fprintf(&records, "mx%d.many.test. IN A 192.0.%d.%d\n", i, k, i+1)
		}
	}
	r, server := start(t, sink.MustZone(records.String()), Settings{MaxHosts: 20, NoIPv6: true})
	rt := r.Lookup(t.Context(), "many.test").Route
	if rt.Hosts() != 20 {
		t.Errorf("%d hosts, want 20", rt.Hosts())
	}
	names := make(map[string]bool)
	for _, h := range rt.Tiers[0] {
		names[h.Name] = true
	}
	if len(names) != 20 {
		t.Errorf("%d names among the 20 hosts: one with many addresses must not keep others out", len(names))
	}
	if n := server.Total(); n > 22 { // MX over UDP, then TCP, then 20 addresses
		t.Errorf("%d queries", n)
	}
}

// The result holds no longer than the records it was made from.
func TestRouteExpiresWithItsRecords(t *testing.T) {
	z := sink.MustZone(`
		long.test.     3600 IN MX 10 mx.long.test.
		mx.long.test.  3600 IN A 192.0.2.1
		short.test.    3600 IN MX 10 mx.short.test.
		mx.short.test.   40 IN A 192.0.2.1
		quick.test.      50 IN MX 10 mx.long.test.
		gone.test.     3600 IN SOA ns. host. 1 3600 600 86400 30`)
	z.Fault("fail.test", sink.DNSFault{Rcode: dns.RcodeServerFailure})
	r, _ := start(t, z, Settings{NoIPv6: true})
	for domain, want := range map[string]time.Duration{
		"long.test":   5 * time.Minute, // MaxRouteAge
		"short.test":  40 * time.Second,
		"quick.test":  50 * time.Second,
		"x.gone.test": 30 * time.Second,
		"fail.test":   5 * time.Second,
	} {
		left := time.Until(r.Lookup(t.Context(), domain).Expires)
		if left > want || left < want-5*time.Second {
			t.Errorf("%s holds for %s, want %s", domain, left, want)
		}
	}
}

func TestLookupExplains(t *testing.T) {
	r, _ := start(t, worldZone(t), worldSettings)
	res := r.Lookup(t.Context(), "shakyok.test")
	if len(res.Exchangers) != 2 || res.Exchangers[0].Skipped == "" || res.Exchangers[1].Skipped != "" || res.Exchangers[1].Preference != 20 {
		t.Errorf("exchangers %+v", res.Exchangers)
	}
	for domain, want := range map[string]string{
		"implicit.test": "its own address is taken",
		"shakyok.test":  "MX of shakyok.test: 10 servfail.test, 20 ",
		"self2.test":    "relay.example.net is this relay: those of preference 20 and above are left out",
		"mixed.test":    "127.0.0.1 of m.mixed.test is left out: it is a loopback address",
		"mxalias.test":  "is an alias of mx2.example.com",
		"gmail.test":    "belongs to provider google",
		"smart.test":    "mail for smart.test is sent to smtp://smart.example.net:587",
		"servfail.test": "SERVFAIL",
	} {
		if notes := strings.Join(r.Lookup(t.Context(), domain).Notes, "\n"); !strings.Contains(notes, want) {
			t.Errorf("%s: notes do not say %q:\n%s", domain, want, notes)
		}
	}
}

func TestLookupEndsWithItsContext(t *testing.T) {
	r, _ := start(t, worldZone(t), Settings{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := show(r.Lookup(ctx, "uncached.test")); !strings.HasPrefix(got, "451 4.4.3") {
		t.Errorf("got %s", got)
	}
}
