package router

import "testing"

func FuzzParseLiteral(f *testing.F) {
	for _, s := range []string{"[192.0.2.1]", "[IPv6:2001:db8::1]", "[ipv6:::ffff:192.0.2.1]", "[fe80::1%eth0]", "[]", "[IPv6:]", "[1.2.3.4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := parseLiteral(s)
		if err != nil {
			return
		}
		if !a.IsValid() || a.Zone() != "" || a.Is4In6() {
			t.Errorf("%q: %s", s, a)
		}
		if b, err := parseLiteral(literalName(a)); err != nil || a != b {
			t.Errorf("%q is written as %s, which is %s, %v", s, literalName(a), b, err)
		}
	})
}
