package wiring

import (
	"fmt"
	"net/netip"

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
		return a, fmt.Errorf("resolver server %q is neither an IP address nor ip:port", s)
	}
	return a, nil
}

// Router makes the settings of the router. taken is where this relay listens: routes must not lead there.
func Router(cfg *config.Config, taken []netip.AddrPort) (router.Settings, error) {
	self, err := router.ListenerAddrs(taken)
	if err != nil {
		return router.Settings{}, fmt.Errorf("finding this machine's addresses: %w", err)
	}
	out := router.Settings{
		Self:      []string{cfg.Hostname},
		SelfAddrs: self,

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
	return out, out.Validate()
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
