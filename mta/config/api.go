package config

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"
)

// API takes mail and the questions of tenants by HTTP.
//
// Accepts mail by HTTP: see [http.md](http.md). Each address that other machines can reach needs TLS or a proxy with
// TLS in front of it, since keys must not travel in clear.
//
// Its `tls` is that of a [listener](#tls), HTTPS from the first octet: `certificate`, `key`, `acme` and `min_version`.
type API struct {
	block
	Name string `conf:",label"`

	// One or more of `"ip:port"`; `":8443"` is port 8443 on all addresses of the machine.
	Address []string `conf:"address" check:"listen" node:"own"`
	// TLS is how the listener speaks HTTPS, when it has a certificate.
	TLS Certificates `conf:"tls,block"`
	// Load balancers whose connections begin with a PROXY protocol header; the client address in the header then
	// applies everywhere.
	ProxyFrom []netip.Prefix `conf:"proxy_from"`
	// The networks of HTTP proxies. Of a request from there, the client is the right-most address in `X-Forwarded-For`
	// or `Forwarded` that is not a trusted proxy itself; if the two disagree, the request gets a 400.
	// `X-Forwarded-Proto: https` means that the client used TLS; `http` is refused.
	TrustedProxies []netip.Prefix `conf:"trusted_proxies"`
	// The tenants whose keys are accepted; empty: all.
	Tenants []string `conf:"tenants"`
	// The services whose clients are understood, too: `"sendgrid"`, `"resend"` ([http-compat.md](http-compat.md)).
	Compat []string `conf:"compat" oneof:"sendgrid resend"`

	// Octets of a request's body, decompressed; larger ones get a 413. All requests under way hold at most eight times
	// as much memory; further ones get a 503.
	MaxRequest Size `conf:"max_request" default:"50MiB" min:"1KiB" max:"1GiB"`
	// At a time. When all are in use, a new connection takes the place of one of a client (an IPv4 address or IPv6 /64)
	// that has more and no request with a valid key under way; else of one without a request, else without a valid key,
	// else of an idle one. If there is none, it gets a 503.
	MaxConnections int `conf:"max_connections" default:"1000" min:"1" node:"own"`

	// As in a [listener](#listener-name): fields that are removed.
	HeadersRemove []FieldPattern `conf:"headers_remove"`
	// As in a [listener](#listener-name): with `"domain"`, recipients whose domain accepts no mail are refused.
	VerifyRecipients string `conf:"verify_recipients" default:"off" oneof:"off domain"`
	// How far ahead, 3650d at most, mail may be scheduled by `send_at`, `spread` included; with `"0s"` a request
	// with `send_at` is refused.
	MaxHold time.Duration `conf:"max_hold" default:"7d" min:"0" max:"3650d"`

	// Requests with one key, such as `"100/s"`. [`tenant`](#tenant-name) has the same three limits, for all its keys
	// together.
	MaxRequestRate Rate `conf:"max_request_rate"`
	// Recipients in requests with one key.
	MaxRecipientRate Rate `conf:"max_recipient_rate"`
	// Octets of request bodies with one key; 0: no limit.
	MaxByteRate ByteRate `conf:"max_byte_rate" min:"0B/s"`
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
				k.problem(&a.block, "address",
					`give it tls { certificate = "...", key = "..." }, or name the proxy with TLS in front of it: `+
						`trusted_proxies = ["192.0.2.1"]`,
					"%s: keys would come in clear over the network to %s", what, address)
			}
		}
		k.certificates(&a.block, what, a.TLS)
		if k.Keys.File == "" {
			k.problem(&a.block, "", `write keys { file = "/etc/mta/keys" }, and add keys with 'mta key add'`,
				"%s accepts nobody: there is no keys file", what)
		}
		k.notEverybody(&a.block, "trusted_proxies", a.TrustedProxies, "name the addresses of your proxies",
			"claim any address")
		k.notEverybody(&a.block, "proxy_from", a.ProxyFrom, "name the addresses of your proxies", "claim any address")
		k.names(&a.block, "tenants", "tenant", a.Tenants, k.Names("tenant"))
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
		k.problem(b, "tls", "write a key for each certificate",
			"tls of %s: the numbers of certificates (%d) and keys (%d) differ", what, n, m)
	}
	if c.ACME && len(k.ACME.Names) == 0 {
		k.problem(b, "tls.acme", `write acme { names = ["mta1.example.com"] }`,
			"tls of %s uses ACME, but acme has no names", what)
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
		k.problems.Add(b.Where(setting), hint, "%s: these networks together let %.0f %% of all %s addresses %s",
			setting, 100*share, family, what)
	}
}
