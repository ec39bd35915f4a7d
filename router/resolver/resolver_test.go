package resolver

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"

	"example.org/mta/lab/sink"
)

const testZone = `
example.com.       300 IN SOA ns.example.com. host.example.com. 1 3600 600 86400 30
example.com.       300 IN MX  20 MX2.example.com.
example.com.       300 IN MX  10 mx1.Example.COM.
null.example.com.   60 IN MX  0 .
mx1.example.com.    60 IN A    127.0.0.1
mx1.example.com.    60 IN A    127.0.0.2
mx1.example.com.    60 IN AAAA ::1
alias.example.com.  20 IN CNAME mx1.example.com.
dangle.example.com. 20 IN CNAME nosuch.example.com.
v4only.example.com. 20 IN CNAME v4.example.com.
v4.example.com.     20 IN A 127.0.0.4
loop.example.com.   20 IN CNAME pool.example.com.
pool.example.com.   20 IN CNAME loop.example.com.
zero.example.com.    0 IN A 127.0.0.1
long.example.com. 9000000 IN A 127.0.0.1
txt.example.com.    60 IN TXT "v=spf1 " "-all"
txt.example.com.    60 IN TXT "a\"b\\c \195\164"
txt2.example.com.   60 IN TXT "a\"b" "\195\164"
1.0.0.127.in-addr.arpa. 60 IN PTR MX1.example.com.
1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa. 60 IN PTR mx1.example.com.
`

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves a zone and gives a resolver that asks it.
func start(t testing.TB, z *sink.Zone, change func(*Config)) (*Resolver, *sink.DNSServer) {
	t.Helper()
	s := sink.NewDNS(z)
	addr, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	cfg := Config{Servers: []netip.AddrPort{addr}}
	if change != nil {
		change(&cfg)
	}
	return New(cfg), s
}

// show puts an outcome on one line.
func show(a *Answer, err error) string {
	if err != nil {
		return fmt.Sprintf("%s: %s", KindOf(err), err.(*Error).Reason)
	}
	var b strings.Builder
	b.WriteString(a.Name)
	for _, m := range a.MX {
		fmt.Fprintf(&b, " %d:%s", m.Preference, m.Host)
	}
	for _, ad := range a.Addrs {
		fmt.Fprintf(&b, " %s", ad)
	}
	for _, text := range a.Texts {
		fmt.Fprintf(&b, " [%s]", text)
	}
	for _, name := range a.Names {
		fmt.Fprintf(&b, " %s", name)
	}
	return b.String()
}

func reverse(r *Resolver) func(context.Context, string) (*Answer, error) {
	return func(ctx context.Context, ip string) (*Answer, error) { return r.PTR(ctx, netip.MustParseAddr(ip)) }
}

func TestLookups(t *testing.T) {
	z := sink.MustZone(testZone)
	z.Fault("servfail.example.com", sink.DNSFault{Rcode: dns.RcodeServerFailure})
	z.Fault("refused.example.com", sink.DNSFault{Rcode: dns.RcodeRefused})
	z.Fault("garbage.example.com", sink.DNSFault{Garbage: true})
	r, s := start(t, z, func(c *Config) { c.Try, c.Rounds = 50*time.Millisecond, 1 })
	long := strings.Repeat("a", 64)
	for _, tc := range []struct {
		look func(context.Context, string) (*Answer, error)
		name string
		want string
	}{
		{r.MX, "example.com", "example.com 20:mx2.example.com 10:mx1.example.com"},
		{r.MX, "EXAMPLE.com.", "example.com 20:mx2.example.com 10:mx1.example.com"},
		{r.MX, "null.example.com", "null.example.com 0:"},
		{r.A, "mx1.example.com", "mx1.example.com 127.0.0.1 127.0.0.2"},
		{r.AAAA, "mx1.example.com", "mx1.example.com ::1"},
		{r.A, "alias.example.com", "mx1.example.com 127.0.0.1 127.0.0.2"},
		{r.MX, "mx1.example.com", "NODATA: no such record"},
		{r.MX, "nosuch.example.com", "NXDOMAIN: no such name"},
		{r.TXT, "txt.example.com", "txt.example.com [v=spf1 -all] [a\"b\\c ä]"},
		{r.TXT, "txt2.example.com", "txt2.example.com [a\"bä]"},
		{r.TXT, "mx1.example.com", "NODATA: no such record"},
		{reverse(r), "127.0.0.1", "1.0.0.127.in-addr.arpa mx1.example.com"},
		{reverse(r), "::ffff:127.0.0.1", "1.0.0.127.in-addr.arpa mx1.example.com"},
		{reverse(r), "::1", ReverseName(netip.IPv6Loopback()) + " mx1.example.com"},
		{reverse(r), "127.0.0.2", "NXDOMAIN: no such name"},
		{r.A, "dangle.example.com", "NXDOMAIN: no such name"},
		{r.AAAA, "v4only.example.com", "NODATA: no such record"},
		{r.A, "loop.example.com", "temporary: too many aliases, or a loop of them"},
		{r.A, "servfail.example.com", "temporary: SERVFAIL"},
		{r.MX, "refused.example.com", "temporary: REFUSED"},
		{r.A, "garbage.example.com", "temporary: no answer in time"},
		{r.A, "", "NXDOMAIN: not a possible domain name"},
		{r.A, "a..b", "NXDOMAIN: not a possible domain name"},
		{r.A, "a b.example.com", "NXDOMAIN: not a possible domain name"},
		{r.A, `a\.b.example.com`, "NXDOMAIN: not a possible domain name"},
		{r.A, long + ".com", "NXDOMAIN: not a possible domain name"},
		{r.A, strings.Repeat("abcdefg.", 32) + "com", "NXDOMAIN: not a possible domain name"},
		{r.A, "localhost", "localhost 127.0.0.1"},
		{r.AAAA, "relay.localhost", "relay.localhost ::1"},
	} {
		if got := show(tc.look(t.Context(), tc.name)); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
	if st := r.Stats(); st.Answered != 15 || st.Failed != 4 || st.Hits != 2 {
		t.Errorf("%d look-ups answered, %d failed, %d from the cache; want 15, 4 and 2", st.Answered, st.Failed, st.Hits)
	}
	if n := s.Queries("localhost"); n != 0 {
		t.Errorf("localhost was asked for %d times", n)
	}
}

func TestAliasesAreFollowedAcrossAnswers(t *testing.T) {
	z := sink.MustZone(`
		a.test. 60 IN CNAME b.test.
		b.test. 30 IN CNAME c.test.
		c.test. 90 IN A 127.0.0.1
		d.test. 60 IN CNAME d.test.`)
	for _, n := range []string{"a.test", "b.test", "d.test"} {
		z.Fault(n, sink.DNSFault{NoChase: true, Secure: true})
	}
	z.Fault("c.test", sink.DNSFault{Secure: true})
	t0 := time.Unix(1e9, 0)
	r, s := start(t, z, func(c *Config) { c.Now = func() time.Time { return t0 } })
	a, err := r.A(t.Context(), "a.test")
	if got := show(a, err); got != "c.test 127.0.0.1" {
		t.Fatalf("got %s", got)
	}
	if !a.Secure || !a.Expires.Equal(t0.Add(30*time.Second)) {
		t.Errorf("secure %v, expires in %s, want true and the least of the chain, 30s", a.Secure, a.Expires.Sub(t0))
	}
	if got := show(r.A(t.Context(), "d.test")); got != "temporary: too many aliases, or a loop of them" {
		t.Errorf("loop: got %s", got)
	}
	if n := s.Queries("d.test"); n > maxAliases+1 {
		t.Errorf("a loop cost %d queries", n)
	}
	z.Fault("c.test", sink.DNSFault{})
	r = New(Config{Servers: r.cfg.Servers})
	if a, err := r.A(t.Context(), "a.test"); err != nil || a.Secure {
		t.Errorf("one insecure answer in the chain: %v, %v, want insecure", a, err)
	}
}

func TestTruncatedAnswerIsAskedForOverTCP(t *testing.T) {
	z := sink.MustZone("")
	for i := range 200 {
		if err := z.Add(fmt.Sprintf("many.test. 60 IN MX 10 mx%d.a-rather-long-name.test.", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Add("forced.test. 60 IN A 127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	z.Fault("forced.test", sink.DNSFault{Truncate: true})
	r, s := start(t, z, nil)
	a, err := r.MX(t.Context(), "many.test")
	if err != nil || len(a.MX) != 200 {
		t.Errorf("%d records, %v", len(a.MX), err)
	}
	if got := show(r.A(t.Context(), "forced.test")); got != "forced.test 127.0.0.1" {
		t.Errorf("got %s", got)
	}
	if n := s.Queries("forced.test"); n != 2 {
		t.Errorf("%d queries, want one over UDP and one over TCP", n)
	}
}

// Anybody can make the relay look up TXT records of a zone of theirs, and the answers are kept.
func TestTextsAreBounded(t *testing.T) {
	z := sink.MustZone("")
	for i := range 200 {
		if err := z.Add(fmt.Sprintf("big.test. 60 IN TXT \"%d %s\"", i, strings.Repeat("x", 240))); err != nil {
			t.Fatal(err)
		}
	}
	r, _ := start(t, z, nil)
	a, err := r.TXT(t.Context(), "big.test")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Join(a.Texts, "")); n > maxTexts || n < maxTexts-300 {
		t.Errorf("%d octets in %d texts are kept", n, len(a.Texts))
	}
}

func TestCacheKeepsToTTLs(t *testing.T) {
	z := sink.MustZone(testZone)
	z.NegativeTTL(10 * time.Minute)
	z.Fault("fail.test", sink.DNSFault{Rcode: dns.RcodeServerFailure})
	now := time.Unix(1e9, 0)
	r, s := start(t, z, func(c *Config) {
		c.Now = func() time.Time { return now }
		c.MinTTL, c.MaxTTL, c.MaxNegativeTTL, c.FailTTL = 5*time.Second, time.Hour, 2*time.Minute, 3*time.Second
	})
	for _, tc := range []struct {
		name string
		look func(context.Context, string) (*Answer, error)
		kept time.Duration
	}{
		{"example.com", r.MX, 300 * time.Second},       // its TTL
		{"alias.example.com", r.A, 20 * time.Second},   // the least of the chain
		{"zero.example.com", r.A, 5 * time.Second},     // the least we keep
		{"long.example.com", r.A, time.Hour},           // the most
		{"nosuch.example.com", r.A, 30 * time.Second},  // SOA minimum
		{"mx1.example.com", r.MX, 30 * time.Second},    // NODATA likewise
		{"elsewhere.test", r.A, 2 * time.Minute},       // the most for a negative answer
		{"fail.test", r.A, 3 * time.Second},            // RFC 9520
		{"dangle.example.com", r.MX, 20 * time.Second}, // alias, then nothing
	} {
		start := now
		want := show(tc.look(t.Context(), tc.name))
		asked := s.Queries(tc.name)
		now = start.Add(tc.kept - 1)
		if got := show(tc.look(t.Context(), tc.name)); got != want || s.Queries(tc.name) != asked {
			t.Errorf("%s: before %s were over: %q, %d queries; want %q, %d", tc.name, tc.kept, got, s.Queries(tc.name), want, asked)
		}
		now = start.Add(tc.kept)
		if got := show(tc.look(t.Context(), tc.name)); got != want || s.Queries(tc.name) == asked {
			t.Errorf("%s: after %s: %q, %d queries; want %q, asked again", tc.name, tc.kept, got, s.Queries(tc.name), want)
		}
	}
}

func TestCacheIsBounded(t *testing.T) {
	z := sink.MustZone("*.test. 3600 IN A 127.0.0.1")
	r, _ := start(t, z, func(c *Config) { c.Entries = 10 })
	for i := range 50 {
		if _, err := r.A(t.Context(), fmt.Sprintf("n%d.test", i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.Stats().Entries; n != 10 {
		t.Errorf("%d entries, want 10", n)
	}
}

// A thousand who want the same name cost one question.
func TestLookupsAreCoalesced(t *testing.T) {
	z := sink.MustZone("busy.test. 60 IN A 127.0.0.1")
	z.Fault("busy.test", sink.DNSFault{Delay: 50 * time.Millisecond})
	r, s := start(t, z, nil)
	var wg sync.WaitGroup
	for range 1000 {
		wg.Go(func() {
			if got := show(r.A(t.Context(), "busy.test")); got != "busy.test 127.0.0.1" {
				t.Errorf("got %s", got)
			}
		})
	}
	wg.Wait()
	if n := s.Queries("busy.test"); n != 1 {
		t.Errorf("%d queries, want 1", n)
	}
	if st := r.Stats(); st.InFlight != 0 {
		t.Errorf("in flight at the end: %d", st.InFlight)
	}
}

func TestResolvConf(t *testing.T) {
	got := parseResolvConf(strings.NewReader("search example.com\nnameserver 192.0.2.1\nnameserver 2001:db8::1\nnameserver nonsense\noptions ndots:5\n"))
	want := []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:53"), netip.MustParseAddrPort("[2001:db8::1]:53")}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func BenchmarkLookup(b *testing.B) {
	r, _ := start(b, sink.MustZone("*.test. 3600 IN A 127.0.0.1"), func(c *Config) { c.Entries = 1000 })
	b.Run("cached", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.A(b.Context(), "same.test"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("asked", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			i++
			if _, err := r.A(b.Context(), fmt.Sprintf("n%d.test", i)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
