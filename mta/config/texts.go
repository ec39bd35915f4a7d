package config

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/settings"
	"example.org/mta/warmup"
)

// checks are the tests that the tag check names.
var checks = map[string]func(string) error{
	"listen":          checkListen,
	"listen or off":   unlessEmpty(checkListen),
	"server":          checkServer,
	"plan preset":     unlessEmpty(func(s string) error { return settings.OneOf(s, warmup.PresetNames()) }),
	"hostname":        checkHostname,
	"domain or empty": checkReturnPath,
}

func unlessEmpty(check func(string) error) func(string) error {
	return func(s string) error {
		if s == "" {
			return nil
		}
		return check(s)
	}
}

func checkListen(s string) error {
	const remedy = `write it as "127.0.0.1:2525", "[::1]:2525", or ":2525" for all addresses of the machine`
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return settings.Wrong(remedy, "%s is not an address with a port", settings.Quoted(s))
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return settings.Wrong(remedy, "%s has an invalid port", settings.Quoted(s))
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "" {
		return settings.Wrong(remedy, "%s has no IP address before the port", settings.Quoted(s))
	}
	return nil
}

func checkServer(s string) error {
	if _, err := netip.ParseAddr(s); err == nil {
		return nil
	}
	if a, err := netip.ParseAddrPort(s); err == nil && a.Port() > 0 {
		return nil
	}
	return settings.Wrong(`write it as "192.0.2.53", "192.0.2.53:53" or "[2001:db8::53]:53"`,
		"%s is not the address of a name server", settings.Quoted(s))
}

func checkHostname(s string) error {
	if a, err := envelope.ToASCII(s); err != nil || a == "" || strings.HasPrefix(s, "[") && !isLiteral(s) {
		return settings.Wrong(`write a name that exists in the DNS, such as "mta1.example.com"`,
			"%s is not a host name", settings.Quoted(s))
	}
	return nil
}
