package http

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"example.org/mta/internal/network"
)

// behindProxy expects a PROXY header on a connection from ProxyFrom. It is read by the connection's
// own goroutine.
func (s *Server) behindProxy(conn net.Conn) net.Conn {
	if peer := network.Peer(conn.RemoteAddr()); !network.Contain(s.config.ProxyFrom, peer.Addr()) {
		return conn
	}
	return proxied{network.ProxyHeader(conn, s.config.Timeouts.Header)}
}

// proxied is a connection that a proxy in ProxyFrom has made.
type proxied struct{ net.Conn }

// whence finds out who the client is, and refuses what has come over the network in clear.
func (s *Server) whence(c *Call) error {
	peer, _ := netip.ParseAddrPort(c.Request.RemoteAddr)
	c.Client = netip.AddrPortFrom(peer.Addr().Unmap().WithZone(""), peer.Port())
	c.Secure = c.Request.TLS != nil
	local := c.Client.Addr().IsLoopback()
	trusted := network.Contain(s.config.TrustedProxies, c.Client.Addr())
	if trusted {
		if err := s.forwarded(c); err != nil {
			return err
		}
	}
	if c.Secure || byProxy(c.Request) || local && !trusted {
		return nil
	}
	p := &Problem{Status: http.StatusForbidden,
		Detail: "use https: a key that went over the network in clear must be replaced", Reason: "clear"}
	switch {
	case !trusted:
		return p
	case c.Request.Header.Get("X-Forwarded-Proto") != "" && !c.Client.Addr().IsLoopback():
		return p // the proxy itself was asked in clear
	}
	return nil
}

// isProxy reports whether an address is that of a proxy, which has not named the client.
func (s *Server) isProxy(a netip.Addr) bool {
	return network.Contain(s.config.ProxyFrom, a) || network.Contain(s.config.TrustedProxies, a)
}

// forwarded takes what a trusted proxy says of its client.
func (s *Server) forwarded(c *Call) error {
	h := c.Request.Header
	hops, proto, ok := parseForwarded(h.Values("Forwarded"))
	others := network.Elements(h.Values("X-Forwarded-For"))
	// One of the two may be the client's own invention that the proxy passes on.
	if a, b := network.Client(c.Client, hops, s.config.TrustedProxies),
		network.Client(c.Client, others, s.config.TrustedProxies); !ok ||
		len(hops) > 0 && len(others) > 0 && a.Addr() != b.Addr() {
		return Problemf(http.StatusBadRequest,
			"Forwarded and X-Forwarded-For disagree or are malformed: the proxy must remove what clients send of them")
	} else if len(hops) > 0 {
		c.Client = a
	} else {
		c.Client = b
	}
	if protos := network.Elements(h.Values("X-Forwarded-Proto")); len(protos) > 0 {
		proto = protos[len(protos)-1] // of the proxy that this relay talks to
	}
	c.Secure = c.Secure || strings.EqualFold(proto, "https")
	return nil
}

// parseForwarded gives the "for" of each hop, and the "proto" of the last (RFC 7239, 4).
func parseForwarded(lines []string) (hops []string, proto string, ok bool) {
	for _, e := range network.Elements(lines) {
		hop := "unknown"
		proto = ""
		for pair := range strings.SplitSeq(e, ";") {
			name, value, found := strings.Cut(strings.TrimSpace(pair), "=")
			if !found {
				return nil, "", false
			}
			value = strings.Trim(value, `"`)
			switch strings.ToLower(name) {
			case "for":
				hop = value
			case "proto":
				proto = value
			}
		}
		hops = append(hops, hop)
	}
	return hops, proto, true
}
