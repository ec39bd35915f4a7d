package router

import (
	"net/netip"
	"testing"
)

func TestUnusableAddresses(t *testing.T) {
	for _, c := range []struct{ addr, open, strict string }{
		{"192.0.2.1", "", ""},
		{"2001:db8::1", "", ""},
		{"8.8.8.8", "", ""},
		{"10.1.2.3", "", "private"},
		{"172.16.0.1", "", "private"},
		{"192.168.0.1", "", "private"},
		{"fd00::1", "", "private"},
		{"100.63.255.255", "", ""},
		{"100.64.0.0", "", "private"},
		{"100.127.255.255", "", "private"},
		{"100.128.0.0", "", ""},
		{"192.0.0.1", "", "private"},
		{"192.0.1.1", "", ""},
		{"198.17.255.255", "", ""},
		{"198.18.0.1", "", "private"},
		{"198.19.255.255", "", "private"},
		{"198.20.0.0", "", ""},
		{"240.0.0.1", "", "private"},
		{"255.255.255.254", "", "private"},
		{"255.255.255.255", "a multicast or broadcast", "a multicast or broadcast"},
		{"fec0::1", "", "private"},
		{"feff:ffff::1", "", "private"},
		{"64:ff9b:1::a00:1", "", "private"},
		{"0.1.2.3", "the unspecified", "the unspecified"},
		{"::", "the unspecified", "the unspecified"},
		{"127.0.0.1", "a loopback", "a loopback"},
		{"::1", "a loopback", "a loopback"},
		{"169.254.1.1", "a link-local", "a link-local"},
		{"fe80::1", "a link-local", "a link-local"},
		// The same within IPv6: mapped, compatible, NAT64.
		{"::ffff:192.0.2.1", "", ""},
		{"::ffff:10.0.0.1", "", "private"},
		{"::ffff:100.64.0.1", "", "private"},
		{"::ffff:127.0.0.1", "a loopback", "a loopback"},
		{"::ffff:169.254.169.254", "a link-local", "a link-local"},
		{"::192.0.2.1", "", ""},
		{"::10.0.0.1", "", "private"},
		{"::127.0.0.1", "a loopback", "a loopback"},
		{"64:ff9b::192.0.2.1", "", ""},
		{"64:ff9b::10.0.0.1", "", "private"},
		{"64:ff9b::198.18.0.1", "", "private"},
		{"64:ff9b::127.0.0.1", "a loopback", "a loopback"},
		{"64:ff9b::169.254.169.254", "a link-local", "a link-local"},
		{"64:ff9b:0:0:0:1:a00:1", "", ""},
	} {
		for _, refuse := range []bool{false, true} {
			s := settings{Settings: Settings{RefusePrivate: refuse}}
			word := c.open
			if refuse {
				word = c.strict
			}
			want := ""
			switch word {
			case "":
			case "private":
				want = "it is a private address"
			default:
				want = "it is " + word + " address"
			}
			if got := s.unusable(netip.MustParseAddr(c.addr)); got != want {
				t.Errorf("%s, private refused %v: %q, want %q", c.addr, refuse, got, want)
			}
		}
	}
}
