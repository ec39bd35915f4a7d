package network

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
)

func TestOf(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1": "192.0.2.1/32", "::ffff:192.0.2.1": "192.0.2.1/32", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64", "fe80::1%eth0": "fe80::/64",
	} {
		if got := Of(netip.MustParseAddr(address)); got.String() != want {
			t.Errorf("%s: %v, want %s", address, got, want)
		}
	}
	if got := Of(netip.Addr{}); got.IsValid() {
		t.Errorf("the zero address: %v", got)
	}
}

func TestPeer(t *testing.T) {
	tcp := &net.TCPAddr{IP: net.ParseIP("192.0.2.1"), Port: 25} // 16 octets, as net gives it
	if got := Peer(tcp).String(); got != "192.0.2.1:25" {
		t.Errorf("%v is %s", tcp, got)
	}
	if got := Peer(&net.UnixAddr{Name: "x", Net: "unix"}); got.IsValid() {
		t.Errorf("a socket without an address: %v", got)
	}
}

func TestContain(t *testing.T) {
	some := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	if !Contain(some, netip.MustParseAddr("::1")) || Contain(some, netip.MustParseAddr("192.0.2.1")) || Contain(nil, netip.MustParseAddr("10.0.0.1")) {
		t.Error("an address is in the wrong networks")
	}
}

func TestWithout(t *testing.T) {
	for _, c := range []struct{ p, q, want string }{
		{"10.0.0.0/8", "10.128.0.0/9", "[10.0.0.0/9]"},
		{"10.0.0.0/30", "10.0.0.1/32", "[10.0.0.0/32 10.0.0.2/31]"},
		{"10.0.0.0/8", "192.0.2.0/24", "[10.0.0.0/8]"},
		{"10.0.0.0/8", "10.0.0.0/8", "[]"},
		{"10.1.0.0/16", "10.0.0.0/8", "[]"},
		{"2001:db8::/32", "2001:db8:8000::/33", "[2001:db8::/33]"},
		{"10.0.0.0/8", "::/0", "[10.0.0.0/8]"},
	} {
		if got := fmt.Sprint(Without(netip.MustParsePrefix(c.p), netip.MustParsePrefix(c.q))); got != c.want {
			t.Errorf("%s without %s is %s, want %s", c.p, c.q, got, c.want)
		}
	}
}
