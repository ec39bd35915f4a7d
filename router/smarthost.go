package router

import (
	"errors"
	"net"
	"net/url"
	"strconv"

	"mta/internal/route"
)

// Smarthost is a relay that configuration names for a domain. It is reached at its addresses; its
// MX records are not looked at.
type Smarthost struct {
	Host string // a name in A-label form, or an IP address
	Port uint16
	TLS  route.TLS
	Auth *route.Auth // nil without
}

// String gives the smarthost as it stands in the configuration, without user and password.
func (h Smarthost) String() string {
	u := url.URL{Scheme: "smtp", Host: h.address()}
	if h.TLS == route.TLSImplicit {
		u.Scheme = "smtps"
	}
	return u.String()
}

// address is host:port, with brackets around an IPv6 address.
func (h Smarthost) address() string {
	return net.JoinHostPort(h.Host, strconv.Itoa(int(h.Port)))
}

// CheckSmarthosts says whether these can be one route. It has one way of TLS and one user for all
// of its hosts, so that a fall-back is never weaker than the first choice; and a user needs TLS.
func CheckSmarthosts(hosts []Smarthost) error {
	if len(hosts) == 0 {
		return errors.New("route names no host")
	}
	first := hosts[0]
	if first.Auth != nil && first.TLS != route.TLSRequired && first.TLS != route.TLSImplicit {
		return errors.New("a route with a user must require TLS: credentials go over nothing else")
	}
	for _, h := range hosts {
		switch {
		case h.Host == "" || h.Port == 0:
			return errors.New("host of a route has no name or no port")
		case h.TLS != first.TLS:
			return errors.New("all hosts of a route must have the same TLS: smtp:// and smtps:// can't be mixed")
		case (h.Auth == nil) != (first.Auth == nil) || h.Auth != nil && *h.Auth != *first.Auth:
			return errors.New("all hosts of a route must have the same user and password")
		}
	}
	return nil
}
