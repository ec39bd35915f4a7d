package config

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// Console serves the pages of package web from within the relay.
//
// The [console](console.md) in the relay: pages for browsers, for users with names and roles. `mta console` needs no
// block.
//
// While a setting that takes a restart waits for it, so do the others of the block. A session ends when `users`
// changes.
//
// Its `tls` is that of a [listener](#tls), HTTPS from the first octet: `certificate`, `key`, `acme` and `min_version`.
type Console struct {
	block

	// Where browsers connect, such as `"127.0.0.1:8026"`. Another address than loopback requires `tls`, or a proxy
	// with TLS in `trusted_proxies`.
	Address string       `conf:"address" check:"listen or off" reload:"restart" node:"own"`
	TLS     Certificates `conf:"tls,block" reload:"restart"`
	// The users file, which [`mta console user`](cli.md#mta-console) changes, with immediate effect. Required. It can
	// be the file of [`users`](#users).
	Users string `conf:"users" node:"own"`
	// The names by which browsers call the console, without ports; on loopback also `localhost`, `127.0.0.1` and `::1`.
	// Others are refused with 421. Default: `hostname`.
	Hosts []string `conf:"hosts" node:"own"`
	// The networks of proxies whose `X-Forwarded-For`, `X-Forwarded-Proto` and `user_header` count.
	TrustedProxies []netip.Prefix `conf:"trusted_proxies"`
	// The header field in which such a proxy names the user whom it has logged in, such as `"X-Remote-User"`; the
	// users file gives the role. The proxy must remove the field from what clients send.
	UserHeader string `conf:"user_header"`
	// The path of the console at a proxy, such as `"/mta"`.
	BasePath string `conf:"base_path" reload:"restart"`
}

// Names lists the hosts by which browsers may call the console.
func (c *Console) Names(hostname string) []string {
	names := slices.Clone(c.Hosts)
	if len(names) == 0 {
		names = []string{hostname}
		if isLoopback(c.Address) {
			names = append(names, "localhost", "127.0.0.1", "::1")
		}
	}
	return names
}

var (
	headerName = regexp.MustCompile("^[A-Za-z0-9][A-Za-z0-9-]*$")
	pathPrefix = regexp.MustCompile("^(/[A-Za-z0-9._~-]+)+$")
)

func (k checker) console(taken *claims) {
	c := &k.Console
	if c.Address == "" {
		return
	}
	k.claim(taken, c.Address, "console", &c.block)
	if !c.TLS.Enabled() && len(c.TrustedProxies) == 0 && !isLoopback(c.Address) {
		k.problem(&c.block, "address",
			`give it tls { certificate = "...", key = "..." }, or name the proxy with TLS in front of it: `+
				`trusted_proxies = ["192.0.2.1"]`,
			"console: passwords would come in clear over the network to %s", c.Address)
	}
	if c.Users == "" {
		k.problem(&c.block, "users",
			`write users = "/etc/mta/console-users", and add users with 'mta console user add'; `+
				"'mta console' needs none",
			"console: nobody could log in: there is no users file")
	}
	k.certificates(&c.block, "console", c.TLS)
	k.notEverybody(&c.block, "trusted_proxies", c.TrustedProxies, "name the addresses of your proxies",
		"claim any address")
	if c.UserHeader != "" && len(c.TrustedProxies) == 0 {
		k.problem(&c.block, "user_header", `name the proxy that logs users in: trusted_proxies = ["192.0.2.1"]`,
			"console: user_header counts from trusted proxies only, and there are none")
	}
	if c.UserHeader != "" && !headerName.MatchString(c.UserHeader) {
		k.problem(&c.block, "user_header", `write the name of a header field, such as "X-Remote-User"`,
			"user_header: %q is not a valid name of a header field", c.UserHeader)
	}
	if c.BasePath != "" && (!pathPrefix.MatchString(c.BasePath) || strings.Contains(c.BasePath+"/", "/../") ||
		strings.Contains(c.BasePath+"/", "/./")) {
		k.problem(&c.block, "base_path", `write it as "/mta": a slash at the beginning, none at the end`,
			"base_path: %q is not a valid path", c.BasePath)
	}
	for _, h := range c.Hosts {
		if _, err := netip.ParseAddr(strings.Trim(h, "[]")); err != nil && checkHostname(h) != nil && h != "localhost" {
			k.problem(&c.block, "hosts", `write names without ports, such as "mta1.example.com"`,
				"hosts: %q is not a valid host name", h)
		}
	}
}
