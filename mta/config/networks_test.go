package config

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
)

func prefixes(list string) (all []netip.Prefix) {
	for _, s := range strings.Fields(list) {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

func TestNetworksAreSummedUp(t *testing.T) {
	for _, test := range []struct {
		list, family string
	}{
		{"0.0.0.0/1 128.0.0.0/1", "IPv4"},
		{"128.0.0.0/1", "IPv4"},
		{"0.0.0.0/2 64.0.0.0/2", "IPv4"},
		{"0.0.0.0/0", "IPv4"},
		{"10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 127.0.0.0/8 100.64.0.0/10", ""},
		{"0.0.0.0/2 0.0.0.0/3 32.0.0.0/3 10.0.0.0/8", ""}, // a quarter, over and over
		{"::/1 8000::/1", "IPv6"},
		{"2000::/3", "IPv6"},
		{"2000::/4", "IPv6"},
		{"::/0", "IPv6"},
		{"fc00::/7 fe80::/10 2001:db8::/32 ::1/128 8000::/1", ""},
		{"", ""},
	} {
		if family, share := openTo(prefixes(test.list)); family != test.family {
			t.Errorf("%s: %q, %v", test.list, family, share)
		}
	}
}

// TestNetworksSplitAnyhow: a network that is cut into parts, in any order and with parts twice, has the
// same share.
func TestNetworksSplitAnyhow(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		parts := prefixes("0.0.0.0/1")
		for range 20 {
			i := rnd.IntN(len(parts))
			p := parts[i]
			if p.Bits() == 32 {
				continue
			}
			a := p.Addr().As4()
			a[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
			parts[i] = netip.PrefixFrom(p.Addr(), p.Bits()+1)
			parts = append(parts, netip.PrefixFrom(netip.AddrFrom4(a), p.Bits()+1))
			if rnd.IntN(3) == 0 {
				parts = append(parts, p)
				break
			}
		}
		rnd.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		if _, share := openTo(parts); share != 0.5 {
			t.Fatalf("%v: %v", parts, share)
		}
	}
}
