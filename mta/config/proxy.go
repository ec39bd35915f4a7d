package config

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"

	"example.org/mta/internal/settings"
)

// ProxyKind is what a proxy for outgoing connections speaks.
type ProxyKind string

const (
	SOCKS5  ProxyKind = "socks5"  // RFC 1928
	HAProxy ProxyKind = "haproxy" // it takes a header of the PROXY protocol, version 2
)

// Proxy is where outgoing connections are made through, written as "socks5://host:port" or
// "haproxy://host:port". The zero Proxy, "", means none.
type Proxy struct {
	Kind ProxyKind
	Host string // name in A-label form, or IP address without brackets
	Port uint16
}

// UnmarshalText reads "socks5://host:port", "haproxy://host:port" or "".
func (p *Proxy) UnmarshalText(text []byte) error {
	const remedy = `write it as "socks5://host:port" or "haproxy://host:port"`
	in := string(text)
	if in == "" {
		*p = Proxy{}
		return nil
	}
	u, err := url.Parse(in)
	if err != nil || u.Scheme != string(SOCKS5) && u.Scheme != string(HAProxy) || u.Host == "" {
		// The text may hold a password: it is not quoted.
		return settings.Wrong(remedy, "this is not the address of a proxy")
	}
	if u.User != nil {
		return settings.Wrong("put them into the settings proxy_username and proxy_password",
			"a proxy must not hold a user name or a password")
	}
	if u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return settings.Wrong(remedy, "%s has more than a host and a port", settings.Quoted(in))
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil || port == 0 {
		return settings.Wrong(remedy, "%s has no port from 1 to 65535", settings.Quoted(in))
	}
	host, err := hostOrAddress(u.Hostname())
	if err != nil {
		return settings.Wrong(remedy, "%s has no valid host", settings.Quoted(in))
	}
	*p = Proxy{ProxyKind(u.Scheme), host, uint16(port)}
	return nil
}

// Address gives "host:port".
func (p Proxy) Address() string { return net.JoinHostPort(p.Host, strconv.Itoa(int(p.Port))) }

// String gives the form that is read.
func (p Proxy) String() string {
	if p.Kind == "" {
		return ""
	}
	return string(p.Kind) + "://" + p.Address()
}

// Local gives the address that this machine must have for the source to be of use; ok is false when
// there is none, since the system or a proxy has it.
func (s *Source) Local() (a netip.Addr, ok bool) {
	return s.Address, s.Address.IsValid() && s.Proxy.Kind == ""
}

// LocalAddresses gives the addresses that this machine must have, by the sources that leave from them.
func (c *Config) LocalAddresses() map[string]netip.Addr {
	all := make(map[string]netip.Addr)
	for _, s := range c.Sources {
		if a, local := s.Local(); local {
			all[s.Name] = a
		}
	}
	return all
}
