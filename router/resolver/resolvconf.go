package resolver

import (
	"io"
	"net/netip"
	"os"

	"github.com/miekg/dns"
)

// SystemServers gives the servers of /etc/resolv.conf, or the one on this machine when the file
// names none, as the C library does.
func SystemServers() []netip.AddrPort {
	f, err := os.Open("/etc/resolv.conf")
	if err == nil {
		defer f.Close()
		if servers := parseResolvConf(f); len(servers) > 0 {
			return servers
		}
	}
	return []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 53)}
}

// parseResolvConf gives the name servers of a resolv.conf(5). The search list and the options
// are for people's short names, not for mail domains.
func parseResolvConf(r io.Reader) []netip.AddrPort {
	conf, err := dns.ClientConfigFromReader(r)
	if err != nil {
		return nil
	}
	var out []netip.AddrPort
	for _, s := range conf.Servers {
		if a, err := netip.ParseAddr(s); err == nil {
			out = append(out, netip.AddrPortFrom(a, 53))
		}
	}
	return out
}
