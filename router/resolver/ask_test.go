package resolver

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"example.org/mta/internal/bubble"
)

// fakeNet is name servers in memory, for tests in virtual time. A server is a func that gives
// the octets of the answers to a question: none for a silent one.
type fakeNet struct {
	mu      sync.Mutex
	servers map[string]func(q *dns.Msg) [][]byte
	asked   []string // "udp 192.0.2.1:53", in order
	ids     map[uint16]bool
	edns    []bool
}

func (n *fakeNet) dial(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, network+" "+address)
	serve := n.servers[address]
	if serve == nil {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	ours, theirs := net.Pipe()
	go n.converse(theirs, network, serve)
	return ours, nil
}

func (n *fakeNet) converse(c net.Conn, network string, serve func(q *dns.Msg) [][]byte) {
	defer c.Close()
	buf := make([]byte, 4096)
	if network == "tcp" {
		if _, err := io.ReadFull(c, buf[:2]); err != nil {
			return
		}
	}
	k, err := c.Read(buf)
	if err != nil {
		return
	}
	q := new(dns.Msg)
	if q.Unpack(buf[:k]) != nil {
		return
	}
	n.mu.Lock()
	if n.ids == nil {
		n.ids = make(map[uint16]bool)
	}
	n.ids[q.Id] = true
	n.edns = append(n.edns, q.IsEdns0() != nil)
	n.mu.Unlock()
	for _, raw := range serve(q) {
		if network == "tcp" {
			raw = append(binary.BigEndian.AppendUint16(nil, uint16(len(raw))), raw...)
		}
		if _, err := c.Write(raw); err != nil {
			return
		}
	}
	_, _ = c.Read(buf) // until the other side closes
}

func answer(q *dns.Msg, rcode int, records ...string) *dns.Msg {
	m := new(dns.Msg).SetReply(q)
	m.Rcode, m.RecursionAvailable = rcode, true
	for _, s := range records {
		rr, err := dns.NewRR(s)
		if err != nil {
			panic(err)
		}
		m.Answer = append(m.Answer, rr)
	}
	return m
}

func pack(m *dns.Msg) [][]byte {
	raw, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return [][]byte{raw}
}

func good(q *dns.Msg) [][]byte {
	return pack(answer(q, dns.RcodeSuccess, q.Question[0].Name+" 60 IN A 127.0.0.1"))
}
func servfail(q *dns.Msg) [][]byte { return pack(answer(q, dns.RcodeServerFailure)) }
func silent(*dns.Msg) [][]byte     { return nil }
func lame(q *dns.Msg) [][]byte {
	m := answer(q, dns.RcodeSuccess)
	m.RecursionAvailable = false
	return pack(m)
}

const s1, s2 = "192.0.2.1:53", "192.0.2.2:53"

func (n *fakeNet) resolver() *Resolver {
	return New(Config{
		Servers: []netip.AddrPort{netip.MustParseAddrPort(s1), netip.MustParseAddrPort(s2)},
		Dial:    n.dial,
	})
}

func TestServersAreTriedInTurn(t *testing.T) {
	for _, tc := range []struct {
		name          string
		first, second func(q *dns.Msg) [][]byte
		want          string
		took          time.Duration
		questions     int
	}{
		{"both good", good, good, "x.test 127.0.0.1", 0, 1},
		{"first says SERVFAIL", servfail, good, "x.test 127.0.0.1", 0, 2},
		{"first is lame", lame, good, "x.test 127.0.0.1", 0, 2},
		{"first is not running", nil, good, "x.test 127.0.0.1", 0, 2},
		{"first is silent", silent, good, "x.test 127.0.0.1", 2 * time.Second, 2},
		{"both say SERVFAIL", servfail, servfail, "temporary: SERVFAIL", 0, 2},
		{"silent and SERVFAIL", silent, servfail, "temporary: no answer in time", 14 * time.Second, 4},
		{"both silent", silent, silent, "temporary: no answer in time", 20 * time.Second, 5},
		{"none is running", nil, nil, "temporary: name server is not running", 0, 6},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				n := &fakeNet{servers: map[string]func(*dns.Msg) [][]byte{s1: tc.first, s2: tc.second}}
				r, t0 := n.resolver(), time.Now()
				if got := show(r.A(t.Context(), "x.test")); got != tc.want {
					t.Errorf("got %q, want %q", got, tc.want)
				}
				if took := time.Since(t0); took != tc.took {
					t.Errorf("took %s, want %s", took, tc.took)
				}
				if len(n.asked) != tc.questions {
					t.Errorf("questions %q, want %d", n.asked, tc.questions)
				}
				synctest.Wait()
			})
		})
	}
}

// A server that was silent costs its time-out once, not with each name.
func TestSilentServerIsAskedLastForAWhile(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := &fakeNet{servers: map[string]func(*dns.Msg) [][]byte{s1: silent, s2: good}}
		r := n.resolver()
		took := func(name string) time.Duration {
			t0 := time.Now()
			if _, err := r.A(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			return time.Since(t0)
		}
		if d := took("a.test"); d != 2*time.Second {
			t.Errorf("first name: %s", d)
		}
		if d := took("b.test"); d != 0 {
			t.Errorf("second name: %s", d)
		}
		time.Sleep(shunTime)
		if d := took("c.test"); d != 2*time.Second {
			t.Errorf("after a while: %s, want the first server asked first again", d)
		}
	})
}

func TestForgedDatagramsAreIgnored(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		forge := func(q *dns.Msg) [][]byte {
			evil := q.Question[0].Name + " 60 IN A 203.0.113.6"
			otherID, otherName, question := answer(q, 0, evil), answer(q, 0, evil), q.Copy()
			otherID.Id++
			otherName.Question = []dns.Question{{Name: "y.test.", Qtype: dns.TypeA, Qclass: dns.ClassINET}}
			var out [][]byte
			for _, m := range []*dns.Msg{otherID, otherName, question} {
				out = append(out, pack(m)...)
			}
			return append(append(out, []byte("?")), good(q)...)
		}
		n := &fakeNet{servers: map[string]func(*dns.Msg) [][]byte{s1: forge}}
		if got := show(n.resolver().A(t.Context(), "x.test")); got != "x.test 127.0.0.1" {
			t.Errorf("got %s", got)
		}
	})
}

// Records that were not asked for must not get in: neither another owner's nor another type's.
func TestOnlyWhatWasAskedForIsTaken(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := &fakeNet{servers: map[string]func(*dns.Msg) [][]byte{s1: func(q *dns.Msg) [][]byte {
			return pack(answer(q, 0, "y.test. 60 IN A 203.0.113.6", "x.test. 60 IN TXT boo", "X.test. 60 IN A 127.0.0.1"))
		}}}
		if got := show(n.resolver().A(t.Context(), "x.test")); got != "x.test 127.0.0.1" {
			t.Errorf("got %s", got)
		}
	})
}

func TestServerWithoutEDNS(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		old := func(q *dns.Msg) [][]byte {
			if q.IsEdns0() != nil {
				m := answer(q, dns.RcodeFormatError)
				m.Question = nil
				return pack(m)
			}
			return good(q)
		}
		n := &fakeNet{servers: map[string]func(*dns.Msg) [][]byte{s1: old}}
		if got := show(n.resolver().A(t.Context(), "x.test")); got != "x.test 127.0.0.1" {
			t.Errorf("got %s", got)
		}
		if len(n.edns) != 2 || !n.edns[0] || n.edns[1] {
			t.Errorf("EDNS in the questions: %v, want true and false", n.edns)
		}
	})
}

// What a server says about its failure (RFC 8914) is told, but not its free text.
func TestExtendedErrorsAreTold(t *testing.T) {
	for _, tc := range []struct {
		name string
		said []dns.EDNS0
		want string
	}{
		{"nothing", nil, "temporary: SERVFAIL"},
		{"bogus", []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeDNSBogus, ExtraText: "ns 192.0.2.9\r\n"}}, "temporary: SERVFAIL, DNSSEC Bogus"},
		{"other, then a word", []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeOther, ExtraText: "x"}, &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeNetworkError}}, "temporary: SERVFAIL, Network Error"},
		{"unregistered", []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: 49151}}, "temporary: SERVFAIL"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				n := &fakeNet{servers: map[string]func(*dns.Msg) [][]byte{s1: func(q *dns.Msg) [][]byte {
					m := answer(q, dns.RcodeServerFailure)
					m.SetEdns0(1232, false)
					m.IsEdns0().Option = tc.said
					return pack(m)
				}}}
				r := New(Config{Servers: []netip.AddrPort{netip.MustParseAddrPort(s1)}, Dial: n.dial})
				if got := show(r.A(t.Context(), "x.test")); got != tc.want {
					t.Errorf("got %q, want %q", got, tc.want)
				}
			})
		})
	}
}

func TestTruncatedOverTCPTooIsMalformed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		cut := func(q *dns.Msg) [][]byte {
			m := answer(q, 0)
			m.Truncated = true
			return pack(m)
		}
		n := &fakeNet{servers: map[string]func(*dns.Msg) [][]byte{s1: cut, s2: cut}}
		if got := show(n.resolver().A(t.Context(), "x.test")); got != "temporary: malformed answer" {
			t.Errorf("got %s", got)
		}
	})
}

func TestQueryIDsAreRandom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := &fakeNet{servers: map[string]func(*dns.Msg) [][]byte{s1: good}}
		r := n.resolver()
		for i := range 64 {
			if _, err := r.A(t.Context(), string(rune('a'+i%26))+string(rune('a'+i/26))+".test"); err != nil {
				t.Fatal(err)
			}
		}
		if len(n.ids) < 60 { // 64 of 65,536: more than 4 repeats are as good as impossible
			t.Errorf("%d ids in 64 questions", len(n.ids))
		}
	})
}

// Who waits for a look-up that another began gets an answer when that other gives up.
func TestWaitersOutliveTheFirstCaller(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		slow := func(q *dns.Msg) [][]byte {
			time.Sleep(time.Second)
			return good(q)
		}
		n := &fakeNet{servers: map[string]func(*dns.Msg) [][]byte{s1: slow}}
		r := n.resolver()
		first, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := r.A(first, "x.test"); !errors.Is(err, context.Canceled) {
				t.Errorf("first: %v", err)
			}
		})
		synctest.Wait()
		for range 3 {
			wg.Go(func() {
				if got := show(r.A(t.Context(), "x.test")); got != "x.test 127.0.0.1" {
					t.Errorf("waiter: %s", got)
				}
			})
		}
		impatient, cancel2 := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel2()
		wg.Go(func() {
			if _, err := r.A(impatient, "x.test"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("impatient waiter: %v", err)
			}
		})
		time.Sleep(500 * time.Millisecond)
		cancel()
		wg.Wait()
		if len(n.asked) != 2 {
			t.Errorf("questions %q, want the first caller's and one waiter's", n.asked)
		}
	})
}

func TestInFlightIsBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now, most := 0, 0
		slow := func(q *dns.Msg) [][]byte {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			return good(q)
		}
		n := &fakeNet{servers: map[string]func(*dns.Msg) [][]byte{s1: slow}}
		r := New(Config{Servers: []netip.AddrPort{netip.MustParseAddrPort(s1)}, Dial: n.dial, InFlight: 3, Total: 5 * time.Second})
		var wg sync.WaitGroup
		good, busy := 0, 0
		for i := range 21 { // 3 a second: 15 within their 5 s
			wg.Go(func() {
				_, err := r.A(t.Context(), string(rune('a'+i))+".test")
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					good++
				case KindOf(err) == Temporary:
					busy++
				}
			})
		}
		wg.Wait()
		if most > 3 || good < 12 || good+busy != 21 {
			t.Errorf("%d at once, %d answered, %d told that too many are under way", most, good, busy)
		}
	})
}

func FuzzParse(f *testing.F) {
	q := question{"x.test", TypeA}
	query, err := q.pack(0x1234, true)
	if err != nil {
		f.Fatal(err)
	}
	asked := new(dns.Msg)
	if err := asked.Unpack(query); err != nil {
		f.Fatal(err)
	}
	for _, m := range [][][]byte{good(asked), servfail(asked), lame(asked),
		pack(answer(asked, 0, "x.test. 60 IN CNAME y.test.", "y.test. 4294967295 IN A 192.0.2.1")),
		pack(answer(asked, 3, "x.test. 60 IN CNAME x.test.")),
	} {
		f.Add(m[0])
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := parse(raw, query, q)
		if err != nil {
			return
		}
		if m.ttl < 0 || len(m.addrs) > maxRecords || len(m.mx) > 0 || m.aliases > maxAliases+1 {
			t.Errorf("ttl %s, %d addresses, %d exchangers, %d aliases", m.ttl, len(m.addrs), len(m.mx), m.aliases)
		}
		for _, a := range m.addrs {
			if !a.Is4() {
				t.Errorf("A record with %s", a)
			}
		}
		if m.alias != "" && (!m.empty() || m.alias != m.name) {
			t.Errorf("alias %q of %q with %v", m.alias, m.name, m.addrs)
		}
	})
}
