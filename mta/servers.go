package mta

import (
	"context"
	"net/netip"

	"example.org/mta/internal/httpclient"
	"example.org/mta/router/resolver"
)

// serverAddresses gives the addresses of a server that the operator has named, such as that of a web hook: by the
// relay's resolver. A name that it does not find may be one of this machine (/etc/hosts), or have a domain that the
// system searches, as in containers.
func (r *stores) serverAddresses(ctx context.Context, host string) (all []netip.Addr, err error) {
	for _, find := range []func(context.Context, string) (*resolver.Answer, error){r.resolver.A, r.resolver.AAAA} {
		if found, err := find(ctx, host); err == nil {
			all = append(all, found.Addrs...)
		}
	}
	if len(all) > 0 {
		return all, nil
	}
	return httpclient.System(ctx, host)
}
