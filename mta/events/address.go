package events

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// Address is where a stream leads.
type Address struct {
	Scheme string   // as kafka, without "+tls"
	TLS    bool     // connections are encrypted, and the broker's certificate is verified
	Hosts  []string // "host:port"
	Path   string   // unescaped, without the slash before it
	Query  url.Values
}

// scheme is a protocol, with and without TLS.
type scheme struct {
	name string
	tls  bool
	port int // where brokers listen
}

var schemes = map[string]scheme{
	"kafka":     {"kafka", false, 9092},
	"kafka+tls": {"kafka", true, 9093},
	"nats":      {"nats", false, 4222},
	"nats+tls":  {"nats", true, 4222},
	"amqp":      {"amqp", false, 5672},
	"amqps":     {"amqp", true, 5671},
}

// IsBroker reports whether an address is a broker's, by its scheme.
func IsBroker(to string) bool {
	name, _, ok := strings.Cut(to, "://")
	_, known := schemes[strings.ToLower(name)]
	return ok && known
}

// ParseAddress reads an address: SCHEME://HOST[:PORT][,HOST[:PORT]...]/PATH[?QUERY]. A user or password is an error,
// since addresses are shown.
func ParseAddress(to string) (*Address, error) {
	name, rest, _ := strings.Cut(to, "://")
	s, known := schemes[strings.ToLower(name)]
	if !known {
		return nil, fmt.Errorf("%q is not the scheme of a broker", name)
	}
	hosts, rest, _ := strings.Cut(rest, "/")
	if strings.Contains(hosts, "@") {
		return nil, fmt.Errorf(
			"it has a user or a password, which every log would show: write user and password beside it")
	}
	a := &Address{Scheme: s.name, TLS: s.tls}
	for host := range strings.SplitSeq(hosts, ",") {
		host, err := withPort(host, s.port)
		if err != nil {
			return nil, err
		}
		a.Hosts = append(a.Hosts, host)
	}
	u, err := url.Parse("/" + rest)
	if err != nil {
		return nil, fmt.Errorf("the part after the hosts is not a valid path")
	}
	if u.Fragment != "" {
		return nil, fmt.Errorf("it has a fragment (#)")
	}
	if a.Query, err = url.ParseQuery(u.RawQuery); err != nil {
		return nil, fmt.Errorf("the part after the question mark is not a valid query")
	}
	a.Path = strings.TrimPrefix(u.Path, "/")
	return a, nil
}

// withPort adds the usual port to a host without one. Addresses of IPv6 are in brackets.
func withPort(host string, usual int) (string, error) {
	switch h, port, err := net.SplitHostPort(host); {
	case host == "" || strings.ContainsAny(host, " \t?#"):
		return "", fmt.Errorf("%q is not a valid host", host)
	case err == nil:
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || h == "" {
			return "", fmt.Errorf("%q is not a valid host and port", host)
		}
		return host, nil
	}
	h := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.Contains(h, ":") != strings.HasPrefix(host, "[") {
		return "", fmt.Errorf("%q is not a valid host and port", host)
	}
	return net.JoinHostPort(h, strconv.Itoa(usual)), nil
}

// ExpandName replaces {type} and {tenant} in the name of a subject or a routing key by those of an event. What could
// make more than one word of it, or a wildcard, becomes "_"; so does no tenant.
func ExpandName(name string, e *Event) string {
	if !strings.Contains(name, "{") {
		return name
	}
	return strings.NewReplacer("{type}", word(e.Type), "{tenant}", word(e.Tenant)).Replace(name)
}

func word(s string) string {
	if s == "" {
		return "_"
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		}
		return '_'
	}, s)
}

// CheckName returns the fault of a name that ExpandName is to fill in.
func CheckName(name string) error {
	rest := strings.NewReplacer("{type}", "", "{tenant}", "").Replace(name)
	if i := strings.IndexAny(rest, "{}"); i >= 0 {
		return fmt.Errorf("%q has a brace that belongs neither to {type} nor to {tenant}", name)
	}
	return nil
}
