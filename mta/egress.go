package mta

import (
	"context"
	"net"

	"example.org/mta/delivery"
	"example.org/mta/delivery/egress"
	"example.org/mta/internal/route"
	"example.org/mta/mta/config"
)

// dial opens a connection from a source, through its proxy if it has one.
func (r *Relay) dial(ctx context.Context, s delivery.Source, h route.Host) (net.Conn, error) {
	src := r.policy.Load().cfg.Source(s.Name)
	if src == nil || src.Proxy.Kind == "" {
		return egress.Direct(s.Address)(ctx, h.Addr)
	}
	nc, err := throughProxy(src)(ctx, h.Addr)
	if err != nil {
		return nil, &delivery.SourceError{Err: err}
	}
	return nc, nil
}

func throughProxy(s *config.Source) egress.Dialer {
	if s.Proxy.Kind == config.SOCKS5 {
		return egress.SOCKS5(s.Proxy.Address(), s.ProxyUsername, string(s.ProxyPassword))
	}
	return egress.PROXY(s.Proxy.Address(), s.Address)
}
