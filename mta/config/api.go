package config

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"
)

// API takes mail and the questions of tenants by HTTP.
type API struct {
	block
	Name string `conf:",label"`

	// Address has one or more "ip:port"; ":port" is every address of the machine.
	Address []string `conf:"address" check:"listen"`
	// TLS is how the listener speaks HTTPS, when it has a certificate.
	TLS Certificates `conf:"tls,block"`
	// ProxyFrom is the networks whose connections begin with a PROXY protocol header.
	ProxyFrom []netip.Prefix `conf:"proxy_from"`
	// TrustedProxies is the networks whose X-Forwarded-For, Forwarded and X-Forwarded-Proto count.
	TrustedProxies []netip.Prefix `conf:"trusted_proxies"`
	// Tenants are those whose keys are accepted. Empty: all.
	Tenants []string `conf:"tenants"`
	// Compat is the services whose clients are understood, too.
	Compat []string `conf:"compat" oneof:"sendgrid resend"`

	MaxRequest     Size `conf:"max_request" min:"1KiB" max:"1GiB"` // octets of a body, decompressed
	MaxConnections int  `conf:"max_connections" min:"1"`           // at a time

	// VerifyRecipients and MaxHold are as in a listener.
	VerifyRecipients string        `conf:"verify_recipients" oneof:"off domain"`
	MaxHold          time.Duration `conf:"max_hold" min:"0" max:"3650d"`

	// What each key may ask for. Zero: no limit.
	MaxRequestRate   Rate     `conf:"max_request_rate"`
	MaxRecipientRate Rate     `conf:"max_recipient_rate"`
	MaxByteRate      ByteRate `conf:"max_byte_rate" min:"0B/s"` // of request bodies
}

func (k checker) apis(taken *claims) {
	for _, a := range k.APIs {
		what := fmt.Sprintf("api %q", a.Name)
		if len(a.Address) == 0 {
			k.problem(&a.block, "address", `write address = "127.0.0.1:8080"`, "%s has no address", what)
		}
		for _, address := range a.Address {
			k.claim(taken, address, what, &a.block)
			if !a.TLS.Enabled() && len(a.TrustedProxies) == 0 && len(a.ProxyFrom) == 0 && !isLoopback(address) {
				k.problem(&a.block, "address", `give it tls { certificate = "...", key = "..." }, or name the proxy with TLS in front of it: trusted_proxies = ["192.0.2.1"]`,
					"%s: keys would come in clear over the network to %s", what, address)
			}
		}
		k.certificates(&a.block, what, a.TLS)
		if k.Keys.File == "" {
			k.problem(&a.block, "", `write keys { file = "/etc/mta/keys" }, and add keys with 'mta key add'`, "%s accepts nobody: there is no keys file", what)
		}
		k.notEverybody(&a.block, "trusted_proxies", a.TrustedProxies, "name the addresses of your proxies", "claim any address")
		k.notEverybody(&a.block, "proxy_from", a.ProxyFrom, "name the addresses of your proxies", "claim any address")
		for _, name := range a.Tenants {
			if k.Tenant(name) == nil {
				k.reference(&a.block, "tenants", "tenant", name, tenantNames(k.Tenants))
			}
		}
	}
}

// isLoopback reports whether only this machine gets to an address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip, notIP := netip.ParseAddr(host)
	return err == nil && notIP == nil && ip.IsLoopback()
}

// certificates looks at what a block's tls says together.
func (k checker) certificates(b *block, what string, c Certificates) {
	if n, m := len(c.Certificate), len(c.Key); n != m {
		k.problem(b, "tls", "write a key for each certificate", "tls of %s: the numbers of certificates (%d) and keys (%d) differ", what, n, m)
	}
	if c.ACME && len(k.ACME.Names) == 0 {
		k.problem(b, "tls.acme", `write acme { names = ["mta1.example.com"] }`, "tls of %s uses ACME, but acme has no names", what)
	}
}

// notEverybody refuses a list of networks that is everybody's, by one of them or by all together.
func (k checker) notEverybody(b *block, setting string, networks []netip.Prefix, hint, what string) {
	for _, p := range networks {
		if p.Bits() == 0 {
			k.problems.Add(b.Where(setting), hint, "%s: %s lets everyone %s", setting, p, what)
		}
	}
	if slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Bits() == 0 }) {
		return // complained of
	}
	if family, share := openTo(networks); share > 0 {
		k.problems.Add(b.Where(setting), hint, "%s: these networks together let %.0f %% of all %s addresses %s", setting, 100*share, family, what)
	}
}
