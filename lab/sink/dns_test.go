package sink

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"
)

const testZone = `
example.com.        300 IN SOA ns.example.com. host.example.com. 1 3600 600 86400 30
example.com.        300 IN MX  10 mx1.example.com.
example.com.        300 IN MX  20 mx2.example.com.
example.com.        300 IN TXT "hello"
mx1.example.com.     60 IN A    127.0.0.1
mx1.example.com.     60 IN AAAA ::1
deep.er.example.com. 60 IN A    127.0.0.2
alias.example.com.   60 IN CNAME mx1.example.com.
loop.example.com.    60 IN CNAME loop.example.com.
*.wild.example.com.  60 IN A    127.0.0.3
*.wild.example.com.  60 IN MX   5 mx1.example.com.
`

func serve(t *testing.T, z *Zone) (*DNSServer, string) {
	t.Helper()
	s := NewDNS(z)
	addr, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		goleak.VerifyNone(t)
	})
	return s, addr.String()
}

func ask(t *testing.T, network, addr, name string, qtype uint16) *dns.Msg {
	t.Helper()
	c := &dns.Client{Net: network, Timeout: time.Minute}
	m, _, err := c.Exchange(new(dns.Msg).SetQuestion(dns.Fqdn(name), qtype), addr)
	if err != nil {
		t.Fatalf("%s %s over %s: %v", name, dns.TypeToString[qtype], network, err)
	}
	return m
}

// summary is the answer in one line: code, then the records without TTLs.
func summary(m *dns.Msg) string {
	out := []string{dns.RcodeToString[m.Rcode]}
	for _, rr := range m.Answer {
		out = append(out, strings.TrimSpace(strings.TrimPrefix(rr.String(), rr.Header().String())))
	}
	return strings.Join(out, " ")
}

func TestAnswers(t *testing.T) {
	_, addr := serve(t, MustZone(testZone))
	for _, tc := range []struct {
		name  string
		qtype uint16
		want  string
	}{
		{"example.com", dns.TypeMX, "NOERROR 10 mx1.example.com. 20 mx2.example.com."},
		{"EXAMPLE.com", dns.TypeTXT, `NOERROR "hello"`},
		{"mx1.example.com", dns.TypeA, "NOERROR 127.0.0.1"},
		{"mx1.example.com", dns.TypeAAAA, "NOERROR ::1"},
		{"mx1.example.com", dns.TypeMX, "NOERROR"},
		{"er.example.com", dns.TypeA, "NOERROR"},
		{"nosuch.example.com", dns.TypeA, "NXDOMAIN"},
		{"alias.example.com", dns.TypeA, "NOERROR mx1.example.com. 127.0.0.1"},
		{"alias.example.com", dns.TypeMX, "NOERROR mx1.example.com."},
		{"a.wild.example.com", dns.TypeA, "NOERROR 127.0.0.3"},
		{"a.b.wild.example.com", dns.TypeMX, "NOERROR 5 mx1.example.com."},
		{"wild.example.com", dns.TypeA, "NOERROR"},
		{"other.test", dns.TypeA, "NXDOMAIN"},
	} {
		for _, network := range []string{"udp", "tcp"} {
			if got := summary(ask(t, network, addr, tc.name, tc.qtype)); got != tc.want {
				t.Errorf("%s %s over %s: got %q, want %q", tc.name, dns.TypeToString[tc.qtype], network, got, tc.want)
			}
		}
	}
}

// A record of the zone is shared by all answers: what a wildcard makes of it must not change it.
func TestWildcardAnswersDoNotMix(t *testing.T) {
	_, addr := serve(t, MustZone(testZone))
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 50 {
				name := fmt.Sprintf("n%d-%d.wild.example.com.", g, i)
				m, _, err := (&dns.Client{Timeout: time.Minute}).Exchange(new(dns.Msg).SetQuestion(name, dns.TypeA), addr)
				if err != nil || len(m.Answer) != 1 || m.Answer[0].Header().Name != name {
					t.Errorf("%s: %v, %v", name, m, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestNegativeAnswersHaveAnSOA(t *testing.T) {
	z := MustZone(testZone)
	z.NegativeTTL(7 * time.Second)
	_, addr := serve(t, z)
	for name, want := range map[string]string{
		"nosuch.example.com": "example.com. 30",
		"mx1.example.com":    "example.com. 30", // NODATA
		"nosuch.test":        ". 7",
	} {
		m := ask(t, "udp", addr, name, dns.TypeTXT)
		if len(m.Ns) != 1 {
			t.Fatalf("%s: authority section %v", name, m.Ns)
		}
		h := m.Ns[0].Header()
		if got := fmt.Sprint(h.Name, " ", h.Ttl); got != want || h.Rrtype != dns.TypeSOA {
			t.Errorf("%s: got %s, want %s", name, m.Ns[0], want)
		}
	}
}

func TestCNAMELoopEnds(t *testing.T) {
	_, addr := serve(t, MustZone(testZone))
	if n := len(ask(t, "tcp", addr, "loop.example.com", dns.TypeA).Answer); n != maxCNAME {
		t.Errorf("%d records, want %d", n, maxCNAME)
	}
}

func TestLargeAnswerIsTruncatedOverUDP(t *testing.T) {
	z := MustZone("")
	for i := range 100 {
		if err := z.Add(fmt.Sprintf("many.test. 60 IN MX 10 mx%d.a-rather-long-name.test.", i)); err != nil {
			t.Fatal(err)
		}
	}
	_, addr := serve(t, z)
	if m := ask(t, "udp", addr, "many.test", dns.TypeMX); !m.Truncated {
		t.Error("no TC bit over UDP")
	}
	if m := ask(t, "tcp", addr, "many.test", dns.TypeMX); m.Truncated || len(m.Answer) != 100 {
		t.Errorf("over TCP: truncated %v, %d records", m.Truncated, len(m.Answer))
	}
}

func TestFaults(t *testing.T) {
	z := MustZone(testZone)
	z.Fault("example.com", DNSFault{Rcode: dns.RcodeServerFailure, Types: []uint16{dns.TypeMX}})
	z.Fault("mx1.example.com", DNSFault{Truncate: true})
	z.Fault("*.wild.example.com", DNSFault{Rcode: dns.RcodeRefused, First: 1})
	z.Fault("alias.example.com", DNSFault{NoChase: true, Secure: true})
	z.Fault("loop.example.com", DNSFault{Garbage: true})
	s, addr := serve(t, z)

	if m := ask(t, "udp", addr, "example.com", dns.TypeMX); m.Rcode != dns.RcodeServerFailure {
		t.Errorf("SERVFAIL: got %s", summary(m))
	}
	if m := ask(t, "udp", addr, "example.com", dns.TypeTXT); m.Rcode != dns.RcodeSuccess {
		t.Errorf("another type: got %s", summary(m))
	}
	if m := ask(t, "udp", addr, "mx1.example.com", dns.TypeA); !m.Truncated || len(m.Answer) != 0 {
		t.Errorf("truncated: got %s", m)
	}
	if got := summary(ask(t, "tcp", addr, "mx1.example.com", dns.TypeA)); got != "NOERROR 127.0.0.1" {
		t.Errorf("after truncation, over TCP: got %s", got)
	}
	if m := ask(t, "udp", addr, "x.wild.example.com", dns.TypeA); m.Rcode != dns.RcodeRefused {
		t.Errorf("first query: got %s", summary(m))
	}
	if m := ask(t, "udp", addr, "x.wild.example.com", dns.TypeA); m.Rcode != dns.RcodeSuccess {
		t.Errorf("second query: got %s", summary(m))
	}
	if m := ask(t, "udp", addr, "alias.example.com", dns.TypeA); summary(m) != "NOERROR mx1.example.com." || !m.AuthenticatedData {
		t.Errorf("CNAME not followed, secure: got %s", m)
	}
	c := &dns.Client{Net: "tcp", Timeout: 5 * time.Second}
	if m, _, err := c.Exchange(new(dns.Msg).SetQuestion("loop.example.com.", dns.TypeA), addr); err == nil {
		t.Errorf("garbage was understood: %s", m)
	}
	if n := s.Queries("x.WILD.example.com"); n != 2 {
		t.Errorf("counted %d queries, want 2", n)
	}
	if s.Total() != 8 {
		t.Errorf("total %d, want 8", s.Total())
	}
}

func TestDelayAndDrop(t *testing.T) {
	z := MustZone("slow.test. IN A 127.0.0.1\n\t mute.test. 60 IN A 127.0.0.1")
	z.Fault("slow.test", DNSFault{Delay: 30 * time.Millisecond})
	z.Fault("mute.test", DNSFault{Drop: true})
	_, addr := serve(t, z)
	start := time.Now()
	ask(t, "udp", addr, "slow.test", dns.TypeA)
	if d := time.Since(start); d < 30*time.Millisecond {
		t.Errorf("answered after %s", d)
	}
	c := &dns.Client{Timeout: 50 * time.Millisecond}
	_, _, err := c.Exchange(new(dns.Msg).SetQuestion("mute.test.", dns.TypeA), addr)
	if ne, ok := err.(net.Error); !ok || !ne.Timeout() {
		t.Errorf("got %v, want a time-out", err)
	}
}

// A delay that would outlive the server must not hold Close up.
func TestCloseEndsDelays(t *testing.T) {
	z := MustZone("slow.test. 60 IN A 127.0.0.1")
	z.Fault("slow.test", DNSFault{Delay: time.Hour})
	s, addr := serve(t, z)
	c, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	q, _ := new(dns.Msg).SetQuestion("slow.test.", dns.TypeA).Pack()
	if _, err := c.Write(q); err != nil {
		t.Fatal(err)
	}
	for s.Queries("slow.test") == 0 {
		ask(t, "tcp", addr, "other.test", dns.TypeA)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.Listen("127.0.0.1:0"); err == nil {
		t.Error("listens after close")
	}
}

func TestRefusesWhatIsNotLoopback(t *testing.T) {
	s := NewDNS(MustZone(""))
	defer s.Close()
	for _, a := range []string{"0.0.0.0:0", "192.0.2.1:53", "nonsense", "[::]:0"} {
		if _, err := s.Listen(a); err == nil {
			t.Errorf("%s: no error", a)
		}
	}
}

func TestMalformedZone(t *testing.T) {
	if _, err := NewZone("example.com. 300 IN MX ten mx1."); err == nil {
		t.Error("no error")
	}
}
