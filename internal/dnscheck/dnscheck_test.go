package dnscheck

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"example.org/mta/internal/dkim"
)

// zone answers as a resolver from lines of a zone file. Names in broken get no answer.
type zone struct {
	records map[string][]dns.RR
	broken  map[string]bool
}

func newZone(t testing.TB, lines ...string) *zone {
	t.Helper()
	z := &zone{make(map[string][]dns.RR), make(map[string]bool)}
	for _, l := range lines {
		rr, err := dns.NewRR(l)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(rr.Header().Name, ".")
		z.records[name] = append(z.records[name], rr)
	}
	return z
}

var errServfail = errors.New("SERVFAIL")

func (z *zone) get(name string) ([]dns.RR, error) {
	if z.broken[name] {
		return nil, errServfail
	}
	return z.records[strings.ToLower(name)], nil
}

func (z *zone) Addresses(_ context.Context, host string) (out []netip.Addr, err error) {
	records, err := z.get(host)
	for _, rr := range records {
		switch rr := rr.(type) {
		case *dns.A:
			out = append(out, netip.MustParseAddr(rr.A.String()))
		case *dns.AAAA:
			out = append(out, netip.MustParseAddr(rr.AAAA.String()))
		}
	}
	return out, err
}

func (z *zone) Exchangers(_ context.Context, domain string) (out []Exchanger, err error) {
	records, err := z.get(domain)
	for _, rr := range records {
		if mx, ok := rr.(*dns.MX); ok {
			out = append(out, Exchanger{mx.Preference, strings.TrimSuffix(mx.Mx, ".")})
		}
	}
	return out, err
}

func (z *zone) Texts(_ context.Context, name string) (out []string, err error) {
	records, err := z.get(name)
	for _, rr := range records {
		if txt, ok := rr.(*dns.TXT); ok {
			out = append(out, strings.Join(txt.Txt, ""))
		}
	}
	return out, err
}

func (z *zone) Names(_ context.Context, a netip.Addr) (out []string, err error) {
	name, err := dns.ReverseAddr(a.String())
	if err != nil {
		return nil, err
	}
	records, err := z.get(strings.TrimSuffix(name, "."))
	for _, rr := range records {
		if ptr, ok := rr.(*dns.PTR); ok {
			out = append(out, strings.TrimSuffix(ptr.Ptr, "."))
		}
	}
	return out, err
}

func newKey(t testing.TB, domain, selector string, alg dkim.Algorithm, bits int) *dkim.Key {
	t.Helper()
	signer, _, err := dkim.Generate(alg, bits)
	if err != nil {
		t.Fatal(err)
	}
	key, err := dkim.NewKey(domain, selector, signer)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

var out1 = Source{Name: "out1", Address: netip.MustParseAddr("192.0.2.1"), EHLO: "mta1.acme.example"}

// good is a zone in which nothing is wrong with out1 and acme.example.
func good(key *dkim.Key) []string {
	return []string{
		"1.2.0.192.in-addr.arpa. PTR mta1.acme.example.", "mta1.acme.example. A 192.0.2.1", `mta1.acme.example. TXT "v=spf1 a -all"`,
		`acme.example. TXT "v=spf1 ip4:192.0.2.1 -all"`, "acme.example. MX 10 mx.acme.example.", "mx.acme.example. A 192.0.2.9",
		`_dmarc.acme.example. TXT "v=DMARC1; p=reject"`, key.ZoneLine(),
	}
}

// find gives the findings of a check, which must be there.
func find(t *testing.T, found []Finding, check string) []Finding {
	t.Helper()
	var out []Finding
	for _, f := range found {
		if f.Check == check {
			out = append(out, f)
		}
	}
	if len(out) == 0 {
		t.Fatalf("no finding of %s in %+v", check, found)
	}
	return out
}

func TestNothingIsWrong(t *testing.T) {
	key := newKey(t, "acme.example", "s1", dkim.RSA, 2048)
	asked := []string{}
	c := Checker{Resolver: newZone(t, append(good(key), "2.0.0.127.bl.example. A 127.0.0.2")...), Lists: []string{"bl.example"},
		StartTLS: func(_ context.Context, host string) (bool, error) { asked = append(asked, host); return true, nil }}
	found := c.Check(t.Context(), []Source{out1}, []Domain{{Name: "acme.example", Sources: []Source{out1}, Keys: []Key{{Key: key}}}})
	checks := []string{}
	for _, f := range found {
		checks = append(checks, f.Check)
		if f.Result != OK || f.Text == "" || f.Remedy != "" || f.Record != "" {
			t.Errorf("%+v", f)
		}
	}
	if want := []string{CheckReverse, CheckEHLO, CheckHELOSPF, CheckList, CheckSPF, CheckDKIM, CheckDMARC, CheckMX, CheckSTARTTLS}; !slices.Equal(checks, want) {
		t.Errorf("checked %v, want %v", checks, want)
	}
	if !slices.Equal(asked, []string{"mx.acme.example"}) {
		t.Errorf("asked %v for STARTTLS", asked)
	}
}

// TestWhatIsWrong changes one thing of a good zone at a time.
func TestWhatIsWrong(t *testing.T) {
	key := newKey(t, "acme.example", "s1", dkim.RSA, 2048)
	other := newKey(t, "acme.example", "s1", dkim.RSA, 2048)
	without := func(part string) []string {
		lines := slices.DeleteFunc(good(key), func(l string) bool { return strings.Contains(l, part) })
		if len(lines) == len(good(key)) {
			t.Fatalf("%s is not in the zone", part)
		}
		return lines
	}
	for name, tc := range map[string]struct {
		lines        []string
		check        string
		result       Result
		text, record string
	}{
		"no PTR":            {without("PTR"), CheckReverse, Failed, "192.0.2.1 has no name", "1.2.0.192.in-addr.arpa. IN PTR mta1.acme.example."},
		"PTR leads astray":  {append(without("PTR"), "1.2.0.192.in-addr.arpa. PTR old.acme.example."), CheckReverse, Failed, "does not resolve to it", "old.acme.example. IN A 192.0.2.1"},
		"EHLO is nowhere":   {without("mta1.acme.example. A"), CheckEHLO, Failed, "has no address", "mta1.acme.example. IN A 192.0.2.1"},
		"EHLO is elsewhere": {append(without("mta1.acme.example. A"), "mta1.acme.example. A 192.0.2.8"), CheckEHLO, Failed, "resolves to 192.0.2.8, not to 192.0.2.1", "mta1.acme.example. IN A 192.0.2.1"},
		"EHLO without SPF":  {without("mta1.acme.example. TXT"), CheckHELOSPF, Warning, "mta1.acme.example has no SPF record", `mta1.acme.example. IN TXT "v=spf1 a -all"`},
		"no SPF":            {without(`acme.example. TXT "v=spf1 ip4`), CheckSPF, Failed, "acme.example has no SPF record", `acme.example. IN TXT "v=spf1 ip4:192.0.2.1 ~all"`},
		"SPF forbids": {append(without(`acme.example. TXT "v=spf1 ip4`), `acme.example. TXT "v=spf1 mx ~all"`), CheckSPF, Failed, "does not allow mail from 192.0.2.1 (softfail)",
			`acme.example. IN TXT "v=spf1 ip4:192.0.2.1 mx ~all"`},
		"two SPF":        {append(good(key), `acme.example. TXT "v=spf1 -all"`), CheckSPF, Failed, "can't use the SPF record", ""},
		"no DKIM record": {without("s1._domainkey"), CheckDKIM, Failed, "there is no record s1._domainkey.acme.example", key.ZoneLine()},
		"another key":    {append(without("s1._domainkey"), other.ZoneLine()), CheckDKIM, Failed, "another key", key.ZoneLine()},
		"no DMARC":       {without("_dmarc"), CheckDMARC, Failed, "has no DMARC policy", `_dmarc.acme.example. IN TXT "v=DMARC1; p=none; rua=mailto:dmarc@acme.example"`},
		"two DMARC":      {append(good(key), `_dmarc.acme.example. TXT "v=DMARC1; p=none"`), CheckDMARC, Failed, "there are 2", ""},
		"broken DMARC":   {append(without("_dmarc"), `_dmarc.acme.example. TXT "v=DMARC1; p=perhaps"`), CheckDMARC, Failed, "invalid policy", ""},
		"DMARC by DKIM":  {without(`acme.example. TXT "v=spf1 ip4`), CheckDMARC, OK, "DKIM of acme.example is aligned; SPF is not", ""},
		"DMARC by SPF":   {without("s1._domainkey"), CheckDMARC, OK, "SPF of acme.example is aligned; DKIM is not", ""},
		"DMARC by none":  {slices.DeleteFunc(without("s1._domainkey"), func(l string) bool { return strings.Contains(l, "ip4:") }), CheckDMARC, Failed, "neither SPF nor DKIM", ""},
		"no MX":          {append(without("MX"), "acme.example. A 192.0.2.7"), CheckMX, Warning, "bounces come to its address, 192.0.2.7", "acme.example. IN MX 10 mail.acme.example."},
		"nowhere":        {without("MX"), CheckMX, Failed, "neither MX nor address", "acme.example. IN MX 10 mail.acme.example."},
		"null MX":        {append(without("MX"), "acme.example. MX 0 ."), CheckMX, Failed, "null MX", "acme.example. IN MX 10 mail.acme.example."},
		"MX is nowhere":  {without("mx.acme.example. A"), CheckMX, Failed, "mx.acme.example: no address", ""},
		"no STARTTLS":    {good(key), CheckSTARTTLS, Warning, "does not offer STARTTLS", ""},
		"STS without":    {append(good(key), `_mta-sts.acme.example. TXT "v=STSv1; id=1"`), CheckSTARTTLS, Failed, "MTA-STS", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := Checker{Resolver: newZone(t, tc.lines...), StartTLS: func(context.Context, string) (bool, error) { return false, nil }}
			found := c.Check(t.Context(), []Source{out1}, []Domain{{Name: "acme.example", Sources: []Source{out1}, Keys: []Key{{Key: key}}}})
			f := find(t, found, tc.check)[0]
			if f.Result != tc.result || !strings.Contains(f.Text, tc.text) || f.Record != tc.record || (f.Result != OK) != (f.Remedy != "") {
				t.Errorf("%+v, want %s, %q, %q", f, tc.result, tc.text, tc.record)
			}
			if f.Record != "" {
				if _, err := dns.NewRR(f.Record); err != nil {
					t.Errorf("%s can't be published: %v", f.Record, err)
				}
			}
		})
	}
}

// TestAMissingRecordIsFoundOnce: two sources lack the same SPF record, which lets both pass.
func TestAMissingRecordIsFoundOnce(t *testing.T) {
	c := Checker{Resolver: newZone(t)}
	found := find(t, c.Check(t.Context(), nil, []Domain{{Name: "acme.example", Sources: []Source{
		{Name: "a", Address: netip.MustParseAddr("192.0.2.1"), EHLO: "mta1.acme.example"},
		{Name: "b", Address: netip.MustParseAddr("192.0.2.2"), EHLO: "mta1.acme.example"}}}}), CheckSPF)
	if want := `acme.example. IN TXT "v=spf1 ip4:192.0.2.1 ip4:192.0.2.2 ~all"`; len(found) != 1 || found[0].Record != want {
		t.Errorf("%+v", found)
	}
}

// A name server that gives no answer says nothing about the domain: each check is unknown, and none fails.
func TestNoAnswerIsNoFault(t *testing.T) {
	key := newKey(t, "acme.example", "s1", dkim.RSA, 2048)
	z := newZone(t, good(key)...)
	for name := range z.records {
		z.broken[name] = true
	}
	z.broken["2.0.0.127.bl.example"] = true
	c := Checker{Resolver: z, Lists: []string{"bl.example"}}
	found := c.Check(t.Context(), []Source{out1}, []Domain{{Name: "acme.example", Sources: []Source{out1}, Keys: []Key{{Key: key}}}})
	if len(found) != 8 || Count(found, Unknown) != len(found) {
		t.Errorf("%+v", found)
	}
	for _, f := range found {
		if f.Text == "" || f.Record != "" {
			t.Errorf("%+v", f)
		}
	}
}

// A short name of the machine is no name for receivers, and its SPF is not looked at.
func TestEHLOWithoutDomain(t *testing.T) {
	c := Checker{Resolver: newZone(t)}
	found := c.Check(t.Context(), []Source{{Name: "out1", Address: out1.Address, EHLO: "vm"}}, nil)
	if len(found) != 2 || found[1].Result != Failed || !strings.Contains(found[1].Text, `"vm"`) || !strings.HasSuffix(found[0].Record, "IN PTR mta.your-domain.example.") {
		t.Errorf("%+v", found)
	}
}

func TestBlockLists(t *testing.T) {
	v6 := Source{Name: "out6", Address: netip.MustParseAddr("2001:db8::1"), EHLO: "mta1.acme.example"}
	for _, tc := range []struct {
		name   string
		source Source
		lines  []string
		result Result
		text   string
	}{
		{"listed", out1, []string{"2.0.0.127.bl.example. A 127.0.0.2", "1.2.0.192.bl.example. A 127.0.0.11", "1.2.0.192.bl.example. A 127.0.0.3"}, Failed, "192.0.2.1 is on bl.example (127.0.0.3 and 127.0.0.11)"},
		{"listed, IPv6", v6, []string{"2.0.0.127.bl.example. A 127.0.0.2", "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.bl.example. A 127.0.0.3"}, Failed, "2001:db8::1 is on bl.example"},
		{"not listed", out1, []string{"2.0.0.127.bl.example. A 127.0.0.2"}, OK, "192.0.2.1 is not on bl.example"},
		{"dead", out1, nil, Unknown, "does not list 127.0.0.2"},
		{"lists the world", out1, []string{"2.0.0.127.bl.example. A 127.0.0.2", "1.0.0.127.bl.example. A 127.0.0.2", "1.2.0.192.bl.example. A 127.0.0.2"}, Unknown, "it lists 127.0.0.1"},
		{"public resolver", out1, []string{"2.0.0.127.bl.example. A 127.255.255.254"}, Unknown, "public resolvers"},
		{"too often", out1, []string{"2.0.0.127.bl.example. A 127.0.0.2", "1.2.0.192.bl.example. A 127.255.255.255"}, Unknown, "too many queries"},
		{"mistyped", out1, []string{"2.0.0.127.bl.example. A 127.255.255.252"}, Unknown, "mistyped"},
		{"parked domain", out1, []string{"2.0.0.127.bl.example. A 203.0.113.9"}, Unknown, "not a valid answer of a block list"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := Checker{Resolver: newZone(t, tc.lines...), Lists: []string{"bl.example"}}
			f := find(t, c.Check(t.Context(), []Source{tc.source}, nil), CheckList)[0]
			if f.Result != tc.result || !strings.Contains(f.Text, tc.text) || f.Source != tc.source.Name {
				t.Errorf("%+v, want %s, %q", f, tc.result, tc.text)
			}
		})
	}
}

// What the world can't see is not judged.
func TestAddressesThatNobodySees(t *testing.T) {
	for _, a := range []string{"127.0.0.1", "10.1.2.3", "192.168.0.1", "100.64.0.1", "169.254.1.1", "fd00::1", "::1", "0.0.0.0", ""} {
		addr, _ := netip.ParseAddr(a)
		s := Source{Name: "out1", Address: addr, EHLO: "mta1.acme.example"}
		key := newKey(t, "acme.example", "s1", dkim.Ed25519, 0)
		c := Checker{Resolver: newZone(t, good(key)...)}
		found := c.Check(t.Context(), []Source{s}, []Domain{{Name: "acme.example", Sources: []Source{s}, Keys: []Key{{Key: key}}}})
		if f := find(t, found, CheckAddress)[0]; f.Result != Unknown || !strings.Contains(f.Remedy, "public_address") {
			t.Errorf("%q: %+v", a, f)
		}
		if f := find(t, found, CheckSPF)[0]; f.Result != Unknown {
			t.Errorf("%q: %+v", a, f)
		}
		if f := find(t, found, CheckDMARC)[0]; f.Result != OK || !strings.Contains(f.Text, "SPF could not be checked") {
			t.Errorf("%q: %+v", a, f)
		}
		if Count(found, Failed) > 0 {
			t.Errorf("%q: %+v", a, found)
		}
	}
}

// Alignment is by organization, unless the policy is strict; a policy may be the organization's.
func TestAlignment(t *testing.T) {
	for _, tc := range []struct {
		policy, mailFrom, signer string
		result                   Result
		text                     string
	}{
		{"p=none", "bounce.acme.co.uk", "acme.co.uk", OK, "SPF of bounce.acme.co.uk and DKIM of acme.co.uk are aligned"},
		{"p=none; aspf=s", "bounce.acme.co.uk", "acme.co.uk", OK, "DKIM of acme.co.uk is aligned; SPF is not"},
		{"p=none; adkim=s", "news.acme.co.uk", "acme.co.uk", OK, "SPF of news.acme.co.uk is aligned; DKIM is not"},
		{"p=none; adkim=s; aspf=s", "bounce.acme.co.uk", "acme.co.uk", Failed, "neither"},
		{"p=none", "other.co.uk", "other.co.uk", Failed, "neither"},
	} {
		key := newKey(t, tc.signer, "s1", dkim.RSA, 2048)
		c := Checker{Resolver: newZone(t, key.ZoneLine(), fmt.Sprintf(`_dmarc.acme.co.uk. TXT "v=DMARC1; %s"`, tc.policy), fmt.Sprintf(`%s. TXT "v=spf1 ip4:192.0.2.1 -all"`, tc.mailFrom))}
		found := c.Check(t.Context(), nil, []Domain{{Name: "news.acme.co.uk", MailFrom: tc.mailFrom, Sources: []Source{out1}, Keys: []Key{{Key: key}}}})
		if f := find(t, found, CheckDMARC)[0]; f.Result != tc.result || !strings.Contains(f.Text, tc.text) {
			t.Errorf("%+v: %+v", tc, f)
		}
	}
}

func TestKeys(t *testing.T) {
	ed, small, later := newKey(t, "acme.example", "e", dkim.Ed25519, 0), newKey(t, "acme.example", "r", dkim.RSA, 1024), newKey(t, "acme.example", "l", dkim.RSA, 2048)
	check := func(keys ...Key) []Finding {
		c := Checker{Resolver: newZone(t, append(good(ed), small.ZoneLine())...)}
		return find(t, c.Check(t.Context(), nil, []Domain{{Name: "acme.example", Keys: keys}}), CheckDKIM)
	}
	if f := check(); f[0].Result != Failed || !strings.Contains(f[0].Remedy, "mta dkim keygen --domain acme.example") {
		t.Errorf("no key: %+v", f)
	}
	if f := check(Key{Key: ed}); len(f) != 2 || f[0].Result != OK || f[1].Result != Warning || !strings.Contains(f[1].Text, "Ed25519 only") {
		t.Errorf("Ed25519 only: %+v", f)
	}
	if f := check(Key{Key: ed}, Key{Key: small}); len(f) != 2 || f[1].Result != Warning || !strings.Contains(f[1].Text, "1024 bits") {
		t.Errorf("a small key: %+v", f)
	}
	if f := check(Key{Key: later, Later: true}); f[0].Result != Failed || !strings.Contains(f[0].Text, "does not sign yet") {
		t.Errorf("a later key: %+v", f)
	}
}

// FuzzRecords puts anything into the records that are read: nothing may panic, and each finding has its
// words.
func FuzzRecords(f *testing.F) {
	f.Add("v=spf1 include:acme.example ~all", "v=DMARC1; p=none; adkim=s; pct=x", "v=DKIM1; p=")
	f.Add("v=spf1 exists:%{ir}.%{v}._spf.%{d2} redirect=x", "v=DMARC1;p", "p=====")
	key := newKey(f, "acme.example", "s1", dkim.Ed25519, 0)
	f.Fuzz(func(t *testing.T, spf, dmarc, record string) {
		z := newZone(t, good(key)...)
		for name, text := range map[string]string{"acme.example": spf, "_dmarc.acme.example": dmarc, key.Name(): record} {
			z.records[name] = []dns.RR{&dns.TXT{Txt: []string{text}}}
		}
		c := Checker{Resolver: z}
		for _, f := range c.Check(t.Context(), []Source{out1}, []Domain{{Name: "acme.example", Sources: []Source{out1}, Keys: []Key{{Key: key}}}}) {
			if f.Text == "" || f.Result == "" {
				t.Errorf("%+v", f)
			}
		}
	})
}
