package postfix

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"example.org/mta/importer"
	"example.org/mta/internal/envelope"
)

// hop is where mail goes, and by which transports.
type hop struct {
	transports []*transport // one of which is chosen for each message
	hosts      []string     // host:port, best first; none: the recipient's domain
	names      []string     // of hosts, as the configuration writes them
	reset      bool         // the recipient's domain, whatever relayhost has
	named      bool         // the entry names the transports, so that the sender's don't count
	at         importer.Origin
}

// splitResult takes "transport:nexthop" apart.
func splitResult(s string) (transport, nexthop string) {
	transport, nexthop, _ = strings.Cut(strings.TrimSpace(s), ":")
	return strings.TrimSpace(transport), strings.TrimSpace(nexthop)
}

// nexthops reads "[host]:port", "host" and several of these. domain is the one whose mail goes there, "" for many.
func (im *importing) nexthops(s, domain string, at importer.Origin) (hosts, names []string) {
	for _, item := range list(s) {
		host, port, exact, err := nexthop(item)
		if err != nil {
			im.fail(at, "%v", err)
			continue
		}
		if !exact && strings.EqualFold(host, domain) && (port == "" || port == "25") && len(list(s)) == 1 {
			return nil, nil
		}
		if _, err := netip.ParseAddr(host); err != nil && !exact {
			im.top.Noted(at,
				fmt.Sprintf("Postfix looks the MX records of %s up, the relay connects to the host of that name: "+
					"write its exchangers into the route", host))
		}
		port = cmp.Or(port, "25")
		hosts, names = append(hosts, net.JoinHostPort(host, port)), append(names, item)
	}
	return hosts, names
}

// nexthop reads one. exact: its MX records are not looked up.
func nexthop(s string) (host, port string, exact bool, err error) {
	host = s
	if rest, ok := strings.CutPrefix(s, "["); ok {
		inside, after, ok := strings.Cut(rest, "]")
		if !ok {
			return "", "", false, fmt.Errorf("%q has no ]: write [host] or [host]:port", importer.Short(s))
		}
		host, exact = inside, true
		if v6, ok := strings.CutPrefix(strings.ToLower(host), "ipv6:"); ok {
			host = v6
		}
		if after != "" {
			var colon bool
			if port, colon = strings.CutPrefix(after, ":"); !colon {
				return "", "", false,
					fmt.Errorf("%q has more than a port after the ]: write [host]:port", importer.Short(s))
			}
		}
	} else if h, p, ok := strings.Cut(s, ":"); ok {
		host, port = h, p
	}
	if port != "" {
		if port, err = portOf(port); err != nil {
			return "", "", false, err
		}
	}
	if _, err := netip.ParseAddr(host); err != nil {
		if host, err = domainName(host); err != nil {
			return "", "", false, fmt.Errorf("%q is not a host: write a name or an address", importer.Short(s))
		}
	}
	return strings.ToLower(host), port, exact, nil
}

// domainName gives the name of a domain or host as the relay writes it.
func domainName(s string) (string, error) {
	ascii, err := envelope.ToASCII(strings.ToLower(s))
	if err == nil && (ascii == "" || ascii[0] == '[') {
		err = fmt.Errorf("%q is not a name", importer.Short(s))
	}
	return ascii, err
}

// pattern gives a key of a transport or TLS policy table as mta.conf writes it; false if it is not a domain.
func pattern(key string) (string, bool) {
	if key == "*" {
		return key, true
	}
	below, wide := strings.CutPrefix(key, ".")
	name, err := domainName(below)
	if wide {
		name = "*." + name
	}
	return name, err == nil
}

// wider lists the patterns that cover one, the narrowest first, "*" not among them.
func wider(p string) (all []string) {
	rest := strings.TrimPrefix(p, "*.")
	for {
		_, above, ok := strings.Cut(rest, ".")
		if !ok {
			return all
		}
		all, rest = append(all, "*."+above), above
	}
}
