package router

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"

	"example.org/mta/internal/route"
)

// Smarthost is a relay that configuration names for a domain. It is reached at its addresses; its
// MX records are not looked at.
type Smarthost struct {
	Host string // a name in A-label form, or an IP address
	Port uint16
	Auth *route.Auth // nil without
	// Implicit is TLS from the first octet (RFC 8314).
	Implicit bool
	// Answer stands in place of a host, see route.Inside.
	Answer string
}

// String gives the smarthost as it stands in the configuration, without user and password.
func (h Smarthost) String() string {
	if h.Answer != "" {
		return h.Answer
	}
	u := url.URL{Scheme: "smtp", Host: h.address()}
	if h.Implicit {
		u.Scheme = "smtps"
	}
	return u.String()
}

// address is host:port, with brackets around an IPv6 address.
func (h Smarthost) address() string {
	return net.JoinHostPort(h.Host, strconv.Itoa(int(h.Port)))
}

// CheckSmarthosts says whether these can be one route. It has one way of TLS and one user for all
// of its hosts, so that a fall-back is never weaker than the first choice.
func CheckSmarthosts(hosts []Smarthost) error {
	if len(hosts) == 0 {
		return errors.New("route names no host")
	}
	first := hosts[0]
	for _, h := range hosts {
		switch {
		case h.Answer != "" && len(hosts) == 1:
		case h.Answer != "":
			return fmt.Errorf("%q must be the only entry of a route", h.Answer)
		case h.Host == "" || h.Port == 0:
			return errors.New("host of a route has no name or no port")
		case h.Implicit != first.Implicit:
			return errors.New("all hosts of a route must have the same TLS: smtp:// and smtps:// can't be mixed")
		case (h.Auth == nil) != (first.Auth == nil) || h.Auth != nil && *h.Auth != *first.Auth:
			return errors.New("all hosts of a route must have the same user and password")
		}
	}
	return nil
}
