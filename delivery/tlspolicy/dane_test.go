package tlspolicy

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// zone is a DNS in memory: a line for each question, as "A mx.example.com", and "" for silence.
type zone struct {
	answers map[string]DNSAnswer
	asked   []string
}

var errServfail = errors.New("SERVFAIL")

func (z *zone) ask(question, name string) (DNSAnswer, error) {
	z.asked = append(z.asked, question+" "+name)
	a, ok := z.answers[question+" "+name]
	if !ok {
		return DNSAnswer{}, errServfail
	}
	if a.Name == "" {
		a.Name = name
	}
	return a, nil
}

func (z *zone) Addresses(_ context.Context, host string, ipv6 bool) (DNSAnswer, error) {
	if ipv6 {
		return z.ask("AAAA", host)
	}
	return z.ask("A", host)
}
func (z *zone) Alias(_ context.Context, name string) (DNSAnswer, error) { return z.ask("CNAME", name) }
func (z *zone) TLSA(_ context.Context, name string) (DNSAnswer, error)  { return z.ask("TLSA", name) }

func TestLookupDANE(t *testing.T) {
	ee := []TLSARecord{{3, 1, 1, make([]byte, 32)}}
	pkix := []TLSARecord{{1, 1, 1, make([]byte, 32)}}
	const at, atTarget = "TLSA _25._tcp.mx.test", "TLSA _25._tcp.target.test"
	secure, insecure := DNSAnswer{Secure: true}, DNSAnswer{}
	alias, unsigned := DNSAnswer{Name: "target.test", Secure: true}, DNSAnswer{Name: "target.test"}
	for _, tc := range []struct {
		name    string
		answers map[string]DNSAnswer
		want    string // status and base, or the error
		asked   string
	}{
		{"addresses are insecure: TLSA is not asked for", map[string]DNSAnswer{"A mx.test": insecure}, "absent ", "A mx.test"},
		{"addresses fail", nil, "DANE: SERVFAIL", "A mx.test"},
		{"usable records", map[string]DNSAnswer{"A mx.test": secure, at: {Secure: true, Records: ee}}, "usable mx.test", "A mx.test, " + at},
		{"unusable records", map[string]DNSAnswer{"A mx.test": secure, at: {Secure: true, Records: pkix}}, "unusable mx.test", "A mx.test, " + at},
		{"no records, proven", map[string]DNSAnswer{"A mx.test": secure, at: secure}, "absent ", "A mx.test, " + at},
		{"insecure records", map[string]DNSAnswer{"A mx.test": secure, at: {Records: ee}}, "absent ", "A mx.test, " + at},
		{"TLSA look-up fails", map[string]DNSAnswer{"A mx.test": secure}, "DANE: SERVFAIL", "A mx.test, " + at},
		{"secure alias, records at its target", map[string]DNSAnswer{"A mx.test": alias, atTarget: {Secure: true, Records: ee}}, "usable target.test", "A mx.test, " + atTarget},
		{"secure alias, records at its own name", map[string]DNSAnswer{"A mx.test": alias, atTarget: secure, at: {Secure: true, Records: ee}}, "usable mx.test", "A mx.test, " + atTarget + ", " + at},
		{"secure alias, unusable records at its target", map[string]DNSAnswer{"A mx.test": alias, atTarget: {Secure: true, Records: pkix}, at: {Secure: true, Records: ee}}, "unusable target.test", "A mx.test, " + atTarget},
		{"secure alias, look-up at its target fails", map[string]DNSAnswer{"A mx.test": alias, at: {Secure: true, Records: ee}}, "DANE: SERVFAIL", "A mx.test, " + atTarget},
		{"alias to an unsigned zone", map[string]DNSAnswer{"A mx.test": unsigned, "CNAME mx.test": secure, at: {Secure: true, Records: ee}}, "usable mx.test", "A mx.test, CNAME mx.test, " + at},
		{"unsigned alias", map[string]DNSAnswer{"A mx.test": unsigned, "CNAME mx.test": insecure}, "absent ", "A mx.test, CNAME mx.test"},
		{"look-up of the alias fails", map[string]DNSAnswer{"A mx.test": unsigned}, "DANE: SERVFAIL", "A mx.test, CNAME mx.test"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			z := &zone{answers: tc.answers}
			h, err := LookupDANE(t.Context(), z, "mx.test", netip.MustParseAddrPort("192.0.2.1:25"))
			got := [...]string{"absent", "unusable", "usable"}[h.State] + " " + h.Base
			if err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if asked := strings.Join(z.asked, ", "); asked != tc.asked {
				t.Errorf("asked for %s, want %s", asked, tc.asked)
			}
		})
	}
}

func TestLookupAsksForThePortAndTheFamily(t *testing.T) {
	for addr, want := range map[string][]string{
		"192.0.2.1:587":          {"A mx.test", "TLSA _587._tcp.mx.test"},
		"[2001:db8::1]:25":       {"AAAA mx.test", "TLSA _25._tcp.mx.test"},
		"[::ffff:192.0.2.1]:465": {"A mx.test", "TLSA _465._tcp.mx.test"},
	} {
		z := &zone{answers: map[string]DNSAnswer{"A mx.test": {Secure: true}, "AAAA mx.test": {Secure: true}, want[1]: {Secure: true}}}
		if h, err := LookupDANE(t.Context(), z, "MX.test.", netip.MustParseAddrPort(addr)); err != nil || h.State != Absent {
			t.Errorf("%s: %v, %v", addr, h.State, err)
		}
		if !slices.Equal(z.asked, want) {
			t.Errorf("%s: asked for %q, want %q", addr, z.asked, want)
		}
	}
}

func TestLiteralsHaveNoRecords(t *testing.T) {
	z := &zone{}
	for _, host := range []string{"192.0.2.1", "2001:db8::1"} {
		if h, err := LookupDANE(t.Context(), z, host, netip.MustParseAddrPort("192.0.2.1:25")); err != nil || h.State != Absent || len(z.asked) > 0 {
			t.Errorf("%s: %v, %v, asked for %q", host, h.State, err, z.asked)
		}
	}
}
