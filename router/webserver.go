package router

import (
	"context"
	"fmt"
	"net/netip"

	"example.org/mta/router/resolver"
)

// Addresses gives the addresses of a host that is not a mail exchanger, IPv4 first, such as a web server that the DNS
// names. The rules are those for exchangers: a record of a stranger's does not make the relay talk to itself, or to
// the private network where that is refused.
func (r *Router) Addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	r.mu.Lock()
	s := r.mu.settings
	r.mu.Unlock()
	var usable []netip.Addr
	var why error
	for _, family := range []struct {
		off  bool
		find func(context.Context, string) (*resolver.Answer, error)
	}{{s.NoIPv4, r.resolver.A}, {s.NoIPv6, r.resolver.AAAA}} {
		if family.off {
			continue
		}
		answer, err := family.find(ctx, host)
		if err != nil {
			if why == nil || resolver.KindOf(err) == resolver.Temporary {
				why = err
			}
			continue
		}
		for _, a := range answer.Addrs {
			if bad := s.unusable(a); bad != "" {
				why = fmt.Errorf("%s is at %s, and %s", host, a, bad)
				continue
			}
			usable = append(usable, a.Unmap())
		}
	}
	if len(usable) > 0 {
		return usable, nil
	}
	return nil, why
}
