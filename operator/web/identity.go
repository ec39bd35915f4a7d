package web

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"example.org/mta/internal/network"
	"example.org/mta/submission/auth"
)

// Identity is who uses the console.
type Identity struct {
	User string
	Role Role
	// Stamp is what Logins.Still goes by: only Logins knows what it is.
	Stamp any
}

// Logins knows the users. Package mta makes it from the users file.
type Logins interface {
	// Login checks a password. It takes its time, more after failures, and fails alike for a wrong password and
	// an unknown user. The error is for the form; *control.Error where it is more than that.
	Login(ctx context.Context, from netip.Addr, user, password string) (Identity, error)
	// Known gives a user whom a proxy has let in. ok is false for one without a role.
	Known(user string) (id Identity, ok bool)
	// Still reports whether an identity is as it was.
	Still(Identity) bool
}

// Login is one that was let in or refused, for the audit.
type Login struct {
	User    string
	Address netip.Addr
	How     string // "password", "link", "proxy"
	Refused string // why; "": let in
}

// peer is the address of the other end of the connection.
func peer(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap().WithZone("")
}

// trusted reports whether an address is a proxy's that we trust.
func (s *Server) trusted(a netip.Addr) bool {
	return network.Contain(s.access.Load().TrustedProxies, a)
}

// clientOf gives the address of who asks: behind trusted proxies, as they name it in X-Forwarded-For.
func (s *Server) clientOf(r *http.Request) netip.Addr {
	hops := network.Elements(r.Header.Values("X-Forwarded-For"))
	return network.Client(netip.AddrPortFrom(peer(r), 0), hops, s.access.Load().TrustedProxies).Addr()
}

// byProxy gives who has logged in at the proxy that a request came from; only what a trusted one says counts.
func (s *Server) byProxy(r *http.Request) (user string, ok bool) {
	name := s.access.Load().UserHeader
	if name == "" || !s.trusted(peer(r)) {
		return "", false
	}
	values := r.Header.Values(name)
	if len(values) != 1 || values[0] == "" {
		return "", false // two say that one is somebody else's
	}
	return values[0], true
}

// Role is what somebody may do.
type Role = auth.Role

// The roles, from the least.
const (
	Anyone   = auth.Anyone
	Viewer   = auth.Viewer
	Operator = auth.Operator
	Admin    = auth.Admin
)

// ParseRole reads the name of a role.
func ParseRole(name string) (Role, error) {
	i := slices.Index(auth.Roles, name)
	if i < 0 {
		return Anyone, fmt.Errorf("there is no role %q", name)
	}
	return Viewer + Role(i), nil
}
