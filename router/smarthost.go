package router

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"mta/internal/envelope"
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

// Secrets gives what a route refers to instead of showing it: kind is "env" or "file".
type Secrets func(kind, name string) (string, error)

// ParseSmarthost reads a route of the configuration:
//
//	smtp://host[:25][?tls=opportunistic|required|off]     STARTTLS when offered, by default
//	smtps://host[:465]                                    TLS from the first byte
//	smtp://user:password@host:587                         AUTH, TLS is required
//	smtp://user@host:587?password_env=NAME                the password from the environment
//	smtp://user@host:587?password_file=/run/secrets/relay or from a file
//
// An IPv6 address stands in brackets; user and password are percent-encoded. No error shows any
// part of the text before the host.
func ParseSmarthost(text string, secrets Secrets) (Smarthost, error) {
	var h Smarthost
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" {
		// The error of url.Parse repeats the text, and with it the password.
		return h, errors.New("route is no URL such as smtp://relay.example.com:587, or has characters that must be percent-encoded")
	}
	switch u.Scheme {
	case "smtp":
		h.Port = 25
	case "smtps":
		h.Port, h.TLS = 465, route.TLSImplicit
	default:
		return h, errors.New("route must begin with smtp:// or smtps://")
	}
	if u.Path != "" && u.Path != "/" || u.Fragment != "" {
		return h, errors.New("route must end after the host and the port")
	}
	if err := h.setAddress(u); err != nil {
		return h, err
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return h, errors.New("options of the route (after the ?) are malformed")
	}
	if err := h.setTLS(u, q); err != nil {
		return h, err
	}
	return h, h.setAuth(u, q, secrets)
}

func (h *Smarthost) setAddress(u *url.URL) error {
	h.Host = u.Hostname()
	if h.Host == "" {
		return errors.New("route has no host")
	}
	if a, err := netip.ParseAddr(h.Host); err == nil {
		h.Host = a.Unmap().String()
	} else if h.Host, err = envelope.ToASCII(h.Host); err != nil {
		return fmt.Errorf("host of the route: %w", err)
	}
	if strings.HasSuffix(u.Host, ":") {
		return errors.New("route has no port after the colon")
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return errors.New("port of the route must be 1 to 65535")
		}
		h.Port = uint16(n)
	}
	return nil
}

func (h *Smarthost) setTLS(u *url.URL, q url.Values) error {
	for name, values := range q {
		switch {
		case name != "tls" && name != "password_env" && name != "password_file":
			return fmt.Errorf("route has no option %q, only tls, password_env and password_file", name)
		case len(values) > 1:
			return fmt.Errorf("option %q of the route stands twice", name)
		}
	}
	if u.User != nil && h.TLS == route.TLSOpportunistic {
		h.TLS = route.TLSRequired // credentials go over TLS only
	}
	if !q.Has("tls") {
		return nil
	}
	switch mode := q.Get("tls"); {
	case u.Scheme == "smtps" && mode != "required":
		return errors.New("tls of an smtps:// route is always required")
	case u.User != nil && mode != "required":
		return errors.New("a route with a user needs tls=required: credentials are sent over TLS only")
	case u.Scheme == "smtps":
	case mode == "opportunistic":
		h.TLS = route.TLSOpportunistic
	case mode == "required":
		h.TLS = route.TLSRequired
	case mode == "off":
		h.TLS = route.TLSOff
	default:
		return fmt.Errorf("tls=%s of the route: want opportunistic, required or off", mode)
	}
	return nil
}

func (h *Smarthost) setAuth(u *url.URL, q url.Values, secrets Secrets) error {
	env, file := q.Get("password_env"), q.Get("password_file")
	if u.User == nil {
		if env != "" || file != "" {
			return errors.New("route has a password but no user: smtp://user@host")
		}
		return nil
	}
	password, given := u.User.Password()
	kind, name := "env", env
	if file != "" {
		kind, name = "file", file
	}
	switch {
	case u.User.Username() == "":
		return errors.New("user of the route is empty")
	case given && name != "", env != "" && file != "":
		return errors.New("route has more than one password")
	case name != "" && secrets == nil:
		return fmt.Errorf("password_%s can't be used here", kind)
	case name != "":
		var err error
		if password, err = secrets(kind, name); err != nil {
			return fmt.Errorf("password of the route: %w", err)
		}
	}
	if password == "" {
		return errors.New("route has a user but no password: user:password@host, password_env or password_file")
	}
	h.Auth = &route.Auth{Username: u.User.Username(), Password: password}
	return nil
}

// String gives the URL without the password.
func (h Smarthost) String() string {
	u := url.URL{Scheme: "smtp", Host: h.address()}
	if h.Auth != nil {
		u.User = url.User(h.Auth.Username)
	}
	switch h.TLS {
	case route.TLSImplicit:
		u.Scheme = "smtps"
	case route.TLSRequired:
		u.RawQuery = "tls=required"
	case route.TLSOff:
		u.RawQuery = "tls=off"
	}
	return u.String()
}

// address is host:port, with brackets around an IPv6 address.
func (h Smarthost) address() string {
	return net.JoinHostPort(h.Host, strconv.Itoa(int(h.Port)))
}

// CheckSmarthosts says whether these can be one route: it has one way of TLS and one user for all
// of its hosts, so that a fall-back is never weaker than the first choice.
func CheckSmarthosts(hosts []Smarthost) error {
	if len(hosts) == 0 {
		return errors.New("route names no host")
	}
	first := hosts[0]
	for _, h := range hosts[1:] {
		if h.TLS != first.TLS {
			return errors.New("all hosts of a route must have the same tls")
		}
		if (h.Auth == nil) != (first.Auth == nil) || h.Auth != nil && *h.Auth != *first.Auth {
			return errors.New("all hosts of a route must have the same user and password")
		}
	}
	return nil
}
