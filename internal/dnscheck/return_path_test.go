package dnscheck

import (
	"net/netip"
	"strings"
	"testing"
)

// The exchangers of a return path's domain have to be the relay.
func TestReturnPath(t *testing.T) {
	here := ReturnPath{
		Name: "b.acme.example", Hosts: []string{"mta1.acme.example"}, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
		Sources: []Source{{Name: "out", Address: netip.MustParseAddr("203.0.113.7"), EHLO: "out.acme.example"}},
	}
	const spf = `b.acme.example. TXT "v=spf1 ip4:203.0.113.7 -all"`
	for name, c := range map[string]struct {
		zone   []string
		result Result
		text   string
		record string
	}{
		"by name":    {[]string{"b.acme.example. MX 10 MTA1.acme.example.", "mta1.acme.example. A 192.0.2.9"}, OK, "comes to this relay", ""},
		"by address": {[]string{"b.acme.example. MX 10 in.acme.example.", "in.acme.example. A 192.0.2.1"}, OK, "comes to this relay, by in.acme.example", ""},
		"second":     {[]string{"b.acme.example. MX 10 in.acme.example.", "b.acme.example. MX 20 mta1.acme.example.", "in.acme.example. A 192.0.2.9", "mta1.acme.example. A 192.0.2.1"}, OK, "by mta1.acme.example", ""},
		"elsewhere":  {[]string{"b.acme.example. MX 10 mx.other.example.", "mx.other.example. A 192.0.2.9"}, Warning, "goes to mx.other.example (192.0.2.9), and not to this relay", "b.acme.example. IN MX 10 mta1.acme.example."},
		"no MX":      {[]string{"b.acme.example. A 192.0.2.1"}, OK, "comes to this relay", ""},
		"null MX":    {[]string{"b.acme.example. MX 0 ."}, "", "", ""},
		"nothing":    {nil, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			checker := Checker{Resolver: newZone(t, append(c.zone, spf)...)}
			var got Finding
			for _, f := range checker.ReturnPath(t.Context(), &here) {
				switch {
				case f.Domain != "b.acme.example":
					t.Errorf("about %q: %+v", f.Domain, f)
				case f.Check == CheckReturnPath:
					got = f
				case f.Check == CheckSPF && f.Result != OK:
					t.Errorf("SPF: %+v", f)
				case f.Check == CheckMX && f.Record != "" && f.Record != "b.acme.example. IN MX 10 mta1.acme.example.":
					t.Errorf("MX: %+v", f)
				case f.Check == CheckMX && c.result == "" && (f.Result != Failed || f.Record == ""):
					t.Errorf("MX: %+v", f)
				}
			}
			if got.Result != c.result || !strings.Contains(got.Text, c.text) || got.Record != c.record {
				t.Errorf("%+v, want %s %q %q", got, c.result, c.text, c.record)
			}
		})
	}
}
