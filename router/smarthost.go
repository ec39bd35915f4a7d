package router

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

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

// via stands between a domain and a host in the name of a route. No domain has a space.
const via = " via "

// Via is the name of the route by which the mail for a domain goes to a host, given as [Smarthost.String] has it. The
// route itself is the domain's, with its settings.
func Via(domain, host string) string { return domain + via + host }

// DomainOf is the domain of a route's name.
func DomainOf(name string) string {
	domain, _, _ := strings.Cut(name, via)
	return domain
}

// parseSmarthost is the inverse of String for a host.
func parseSmarthost(text string) (h Smarthost, err error) {
	u, err := url.Parse(text)
	if err != nil {
		return h, err
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return Smarthost{Host: u.Hostname(), Port: uint16(port), Implicit: u.Scheme == "smtps"}, err
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
