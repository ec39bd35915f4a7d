package wiring

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"

	"example.org/mta/delivery"
	"example.org/mta/delivery/tlspolicy"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/route"
	"example.org/mta/mta/config"
	"example.org/mta/router"
	"example.org/mta/router/resolver"
)

// Resolver makes the settings of the DNS resolver. A server that is no address is an error.
func Resolver(c config.Resolver) (resolver.Config, error) {
	out := resolver.Config{
		Trusted: c.Trusted, MaxNegativeTTL: c.NegativeTTL,
	}
	for _, s := range c.Servers {
		server, err := serverAddress(s)
		if err != nil {
			return out, err
		}
		out.Servers = append(out.Servers, server)
	}
	return out, nil
}

// serverAddress reads "ip" or "ip:port".
func serverAddress(s string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.AddrPortFrom(a, 53), nil
	}
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		return a, fmt.Errorf("%q is not the address of a name server: want \"192.0.2.53\" or \"192.0.2.53:53\"", s)
	}
	return a, nil
}

// Router makes the settings of the router. taken is where this relay listens: routes must not lead there.
func Router(cfg *config.Config, taken []string) (router.Settings, error) {
	var listeners []netip.AddrPort
	for _, t := range taken {
		if ap, err := netip.ParseAddrPort(t); err == nil {
			listeners = append(listeners, ap)
		}
	}
	self, err := router.ListenerAddrs(listeners)
	if err != nil {
		return router.Settings{}, fmt.Errorf("finding this machine's addresses: %w", err)
	}
	out := routes(cfg)
	out.Self, out.SelfAddrs = []string{cfg.Hostname}, self
	return out, out.Validate()
}

// routes are the router's settings, without those about this machine.
func routes(cfg *config.Config) router.Settings {
	out := router.Settings{
		Port:          uint16(cfg.Defaults.Traffic.SMTPPort),
		AllowLoopback: cfg.Router.AllowLoopback,
		RefusePrivate: cfg.Router.RefusePrivate,
		NoIPv4:        !cfg.Router.IPv4,
		NoIPv6:        !cfg.Router.IPv6,
	}
	for _, p := range cfg.Providers {
		out.Providers = append(out.Providers, router.Provider{Name: p.Name, MX: texts(p.MX)})
	}
	for _, d := range cfg.Domains {
		switch {
		case len(d.Route) > 0:
			out.Smarthosts = append(out.Smarthosts,
				router.SmarthostRoute{Domains: string(d.Pattern), Hosts: smarthosts(&d.Smarthosts)})
		case d.Set("route"):
			out.ByDNS = append(out.ByDNS, string(d.Pattern))
		}
	}
	for _, s := range cfg.SenderDomainBlocks {
		if len(s.Route) > 0 {
			out.Smarthosts = append(out.Smarthosts,
				router.SmarthostRoute{Domains: s.RouteName(), Hosts: smarthosts(&s.Smarthosts)})
		}
	}
	return out
}

func texts(ps []config.Pattern) []string {
	out := make([]string, len(ps))
	for i, p := range ps {
		out[i] = string(p)
	}
	return out
}

func smarthosts(d *config.Smarthosts) []router.Smarthost {
	var auth *route.Auth
	if d.Username != "" {
		auth = &route.Auth{Username: d.Username, Password: string(d.Password)}
	}
	out := make([]router.Smarthost, len(d.Route))
	for i, h := range d.Route {
		out[i] = router.Smarthost{Host: h.Host, Port: h.Port, Implicit: h.Implicit, Auth: auth, Answer: h.Answer}
	}
	return out
}

// Outgoing returns the source of a name, false if a reload has removed it.
func (p *Policy) Outgoing(name string) (delivery.Source, bool) {
	s := p.Config.Source(name)
	if s == nil {
		return delivery.Source{}, false
	}
	return outgoing(s), true
}

func outgoing(s *config.Source) delivery.Source {
	return delivery.Source{Name: s.Name, Address: s.Address, EHLO: s.EHLO, Proxy: s.Proxy.String()}
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

var tlsLevels = map[string]tlspolicy.Level{
	"opportunistic": tlspolicy.Opportunistic, "required": tlspolicy.Required, "verified": tlspolicy.Verified,
	"off": tlspolicy.Off,
}

// TLSVersions are the versions of TLS that the configuration can name.
var TLSVersions = map[string]uint16{"1.0": tls.VersionTLS10, "1.1": tls.VersionTLS11, "1.2": tls.VersionTLS12,
	"1.3": tls.VersionTLS13}

// TLS makes the TLS settings of a destination.
func TLS(t *config.Traffic) tlspolicy.Settings {
	return tlspolicy.Settings{
		Level: tlsLevels[t.TLS], MinVersion: TLSVersions[t.TLSMinVersion], CA: t.TLSCA,
		Certificate: t.TLSCertificate, Key: t.TLSKey, STS: t.MTASTS, DANE: t.DANE,
	}
}

// Demand returns what a message demands of connections along a route.
func (p *Policy) Demand(m *envelope.Message, rt *route.Route) tlspolicy.Demand {
	wish := tlspolicy.Message{RequireTLS: m.RequireTLS, NotNeeded: m.TLSOptional, Report: m.Generated()}
	return tlspolicy.Decide(TLS(p.Traffic(rt.Domain, rt)), rt, wish)
}
