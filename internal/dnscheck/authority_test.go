package dnscheck

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// nameServer answers at an address of the loopback network with the records of its zones; what is in
// none of them it refuses.
func nameServer(t *testing.T, ip string, port int, zones []string, records ...string) int {
	t.Helper()
	byName := make(map[string][]dns.RR)
	for _, r := range records {
		rr, err := dns.NewRR(r)
		if err != nil {
			t.Fatal(err)
		}
		byName[rr.Header().Name] = append(byName[rr.Header().Name], rr)
	}
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		reply := new(dns.Msg)
		reply.SetReply(q)
		question := q.Question[0]
		reply.Authoritative = true
		reply.Rcode = dns.RcodeRefused
		for _, z := range zones {
			if dns.IsSubDomain(z, question.Name) {
				reply.Rcode = dns.RcodeSuccess
			}
		}
		for _, rr := range byName[question.Name] {
			if t := rr.Header().Rrtype; t == question.Qtype || t == dns.TypeCNAME {
				reply.Answer = append(reply.Answer, rr)
			}
		}
		w.WriteMsg(reply)
	})
	conn, err := net.ListenPacket("udp", fmt.Sprintf("%s:%d", ip, port))
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{PacketConn: conn, Handler: handler}
	go server.ActivateAndServe()
	t.Cleanup(func() { server.Shutdown() })
	return conn.LocalAddr().(*net.UDPAddr).Port
}

func TestEachServerIsAsked(t *testing.T) {
	// One resolver that knows where the servers are, and has old records.
	port := nameServer(t, "127.0.0.1", 0, []string{"."},
		"acme.example. SOA ns1.acme.example. x. 1 1 1 1 1", "esp.example. SOA ns.esp.example. x. 1 1 1 1 1",
		"acme.example. NS ns1.acme.example.", "acme.example. NS ns2.acme.example.", "acme.example. NS lame.acme.example.",
		"esp.example. NS ns.esp.example.", "ns.esp.example. A 127.0.0.4",
		"ns1.acme.example. A 127.0.0.2", "ns2.acme.example. A 127.0.0.3", "lame.acme.example. A 127.0.0.4",
		`s._domainkey.acme.example. TXT "cached"`)
	const alias = "t._domainkey.acme.example. CNAME t.keys.esp.example."
	nameServer(t, "127.0.0.2", port, []string{"acme.example."}, `s._domainkey.acme.example. TXT "v=DKIM1; " "p=new"`, alias)
	nameServer(t, "127.0.0.3", port, []string{"acme.example."}, `s._domainkey.acme.example. TXT "v=DKIM1; p=old"`, alias)
	nameServer(t, "127.0.0.4", port, []string{"esp.example."}, `t.keys.esp.example. TXT "behind"`)
	a := &Asker{Resolvers: []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(port))}, Timeout: time.Minute, Port: uint16(port)}
	for name, want := range map[string]string{
		"s._domainkey.acme.example": "lame.acme.example [] it answers REFUSED, ns1.acme.example [v=DKIM1; p=new], ns2.acme.example [v=DKIM1; p=old]",
		"t._domainkey.acme.example": "lame.acme.example [] it answers REFUSED, ns.esp.example [behind] t.keys.esp.example.",
		"u._domainkey.acme.example": "lame.acme.example [] it answers REFUSED, ns1.acme.example [], ns2.acme.example []",
	} {
		answers, err := a.TXT(context.Background(), name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, ans := range answers {
			line := fmt.Sprintf("%s %v", ans.Server, ans.Texts)
			if ans.Alias != "" {
				line += " " + ans.Alias
			}
			if ans.Err != nil {
				line += " " + ans.Err.Error()
			}
			got = append(got, line)
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s\n got %s\nwant %s", name, strings.Join(got, ", "), want)
		}
	}
	if _, err := a.TXT(context.Background(), "s._domainkey.nowhere.example"); err == nil || !strings.Contains(err.Error(), "in no zone") {
		t.Errorf("a name in no zone: %v", err)
	}
}

// missing is a resolver that has seen that there is nothing.
type missing struct{ Resolver }

func (missing) Addresses(context.Context, string) ([]netip.Addr, error) { return nil, nil }
func (missing) Exchangers(context.Context, string) ([]Exchanger, error) { return nil, nil }
func (missing) Texts(_ context.Context, name string) (all []string, _ error) {
	if name == "known.acme.example" {
		all = []string{"from the resolver"}
	}
	return all, nil
}

// What was published after a resolver has seen that it was missing is found all the same.
func TestWhatIsMissingIsAskedOfTheZone(t *testing.T) {
	port := nameServer(t, "127.0.0.1", 0, []string{"."}, "acme.example. SOA ns1.acme.example. x. 1 1 1 1 1", "acme.example. NS ns1.acme.example.",
		"esp.example. SOA ns1.acme.example. x. 1 1 1 1 1", "esp.example. NS ns1.acme.example.", "list.example. SOA ns1.acme.example. x. 1 1 1 1 1",
		"list.example. NS ns1.acme.example.", "ns1.acme.example. A 127.0.0.2")
	nameServer(t, "127.0.0.2", port, []string{"acme.example.", "esp.example.", "list.example."}, `acme.example. TXT "v=spf1 " "-all"`, `known.acme.example. TXT "from the zone"`,
		"acme.example. MX 10 mx.esp.example.", "www.acme.example. CNAME host.esp.example.", "host.esp.example. A 192.0.2.1", "host.esp.example. AAAA 2001:db8::1", "2.list.example. A 127.0.0.2")
	f := &Fresh{Resolver: missing{}, Stale: []string{"list.example"}, Asker: &Asker{
		Resolvers: []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(port))}, Timeout: time.Minute, Port: uint16(port)}}
	for _, x := range []struct {
		name, want string
		ask        func(string) (any, error)
	}{
		{"acme.example", "[v=spf1 -all]", func(n string) (any, error) { return f.Texts(t.Context(), n) }},
		{"known.acme.example", "[from the resolver]", func(n string) (any, error) { return f.Texts(t.Context(), n) }},
		{"acme.example", "[{10 mx.esp.example}]", func(n string) (any, error) { return f.Exchangers(t.Context(), n) }},
		{"www.acme.example", "[192.0.2.1 2001:db8::1]", func(n string) (any, error) { return f.Addresses(t.Context(), n) }},
		{"none.acme.example", "[]", func(n string) (any, error) { return f.Addresses(t.Context(), n) }},
		{"2.list.example", "[]", func(n string) (any, error) { return f.Addresses(t.Context(), n) }},
	} {
		if got, err := x.ask(x.name); fmt.Sprint(got) != x.want || err != nil {
			t.Errorf("%s: %v, %v, want %s", x.name, got, err, x.want)
		}
	}
}
