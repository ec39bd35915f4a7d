package wiring

import (
	"context"
	"net"
	"net/netip"

	"example.org/mta/delivery"
	"example.org/mta/mta/config"
)

// Outgoing returns the source of a name, false if a reload has removed it.
func (p *Policy) Outgoing(name string) (delivery.Source, bool) {
	s := p.Config.Source(name)
	if s == nil {
		return delivery.Source{}, false
	}
	return delivery.Source{Name: s.Name, Address: s.Address, EHLO: s.EHLO}, true
}

// Dialer returns what opens connections from a source, through its proxy if it has one.
func (p *Policy) Dialer(s delivery.Source) delivery.Dialer {
	src := p.Config.Source(s.Name)
	if src == nil || src.Proxy.Kind == "" {
		return delivery.Direct(s.Address)
	}
	dial := throughProxy(src)
	return func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
		nc, err := dial(ctx, to)
		if err != nil {
			return nil, &delivery.SourceError{Err: err}
		}
		return nc, nil
	}
}

func throughProxy(s *config.Source) delivery.Dialer {
	if s.Proxy.Kind == config.SOCKS5 {
		return delivery.SOCKS5(s.Proxy.Address(), s.ProxyUsername, string(s.ProxyPassword))
	}
	return delivery.PROXY(s.Proxy.Address(), s.Address)
}
