package config

import (
	"fmt"
	"net/netip"
	"slices"
)

// dane complains of DANE that is asked for and can't be had. Which servers the system has is not known yet.
func (k checker) dane(b *block, t *Traffic) {
	if !b.Sets("dane") || !t.DANE {
		return
	}
	for _, server := range k.Resolver.Servers {
		if a := serverIP(server); a.IsValid() && !k.Resolver.trusts(a) {
			k.problem(b, "dane", fmt.Sprintf("ask a validating server on this machine, or, if the way to it is safe, write resolver { trusted = [%q] }", a),
				"dane: it needs DNSSEC, and the name server %s is not trusted to validate", a)
			return
		}
	}
}

// serverIP gives the address of one of Resolver.Servers; invalid when it can't be read.
func serverIP(server string) netip.Addr {
	if a, err := netip.ParseAddrPort(server); err == nil {
		return a.Addr().Unmap()
	}
	a, _ := netip.ParseAddr(server) // invalid otherwise
	return a.Unmap()
}

func (r *Resolver) trusts(server netip.Addr) bool {
	return server.IsLoopback() || slices.ContainsFunc(r.Trusted, func(p netip.Prefix) bool { return p.Contains(server) })
}
