package config

import (
	"strings"

	"example.org/mta/bounce/returnpath"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/settings"
)

// ReturnPathKeys is what the tokens in return paths are signed by, and how long they are good.
//
// The signature of the tokens in return paths: see [bounces.md](bounces.md#return-path). The domains stand in
// `tenant` and [`sender_domain`](#sender_domain-pattern) blocks.
type ReturnPathKeys struct {
	block
	// One or more secrets of at least 32 octets, best as `[env("RETURN_PATH_SECRET")]`: the first signs, all verify.
	// Relays that share a domain must share the secret. Default: `return-path-secret` in `data_dir`.
	Secrets []Secret `conf:"secrets"`
}

// SenderDomain is what is special about mail from some senders' domains, in MAIL.
//
// The return path, the pool and the route of mail from a sender's domain, in MAIL: `"example.com"` is that domain
// only, `"*.example.com"` all below it, `"*"` all. For each of the three, the most specific block that has it
// decides, and overrules the tenant; `return_path = ""` turns it off. A `route` of the recipient's domain overrules one
// here, except that of `domain "*"`. Of the other settings for destinations, those of `defaults` and `domain "*"`
// apply. Reports (null sender) have no sender's domain.
type SenderDomain struct {
	block
	Pattern    Pattern    `conf:",label"`
	ReturnPath ReturnPath `conf:",inline"`
	// The name of a pool. The `pool` of a [`domain`](#domain-pattern) block of the recipient's domain overrules it.
	// Default: the tenant's.
	Pool string `conf:"pool"`
	// Smarthosts are where the mail goes, unless a block narrower than "*" has a route for the recipient's domain.
	Smarthosts `conf:",inline"`
}

// ReturnPath is where reports about mail go that was delivered: to a separate address for each message, which
// stands in MAIL FROM in place of the sender. Domain "": to the sender.
type ReturnPath struct {
	// A domain, such as `"b.acme.example"`, to which bounces and complaints come back: see
	// [bounces.md](bounces.md#return-path). A `sender_domain` block of the sender's domain overrules a tenant.
	Domain string `conf:"return_path" check:"domain or empty"`
	// With `return_path`: a transaction for each recipient, so that each token names one.
	PerRecipient bool `conf:"per_recipient"`
}

// On reports whether there is one.
func (r ReturnPath) On() bool { return r.Domain != "" }

// maxReturnPath leaves space for the local part within a path of 256 octets (RFC 5321, 4.5.3.1.3).
const maxReturnPath = 200

func checkReturnPath(s string) error {
	if s == "" {
		return nil
	}
	if a, err := envelope.ToASCII(s); err != nil || a == "" || strings.HasPrefix(s, "[") || len(a) > maxReturnPath {
		return settings.Wrong(`write a domain whose MX leads to this relay, such as "b.example.com"`,
			"%s is not a domain for return paths", settings.Quoted(s))
	}
	return nil
}

// ReturnPathFor gives the return path of a tenant's mail by its sender: that of the sender's domain, as the most
// specific block has it, else the tenant's. The null sender has none.
func (c *Config) ReturnPathFor(tenant string, sender envelope.Address) ReturnPath {
	if !c.resolved.returnPaths || sender.Null() {
		return ReturnPath{}
	}
	if b := c.senderBlock(sender, func(s *SenderDomain) bool { return s.Set("return_path") }); b != nil {
		return b.ReturnPath
	}
	if t := c.Tenant(tenant); t != nil {
		return t.ReturnPath
	}
	return ReturnPath{}
}

// ReturnPathDomains lists the domains of return paths, in the order of the file, each once.
func (c *Config) ReturnPathDomains() (domains []string) {
	seen := make(map[string]bool)
	for _, r := range c.returnPaths() {
		if r.On() && !seen[r.Domain] {
			seen[r.Domain] = true
			domains = append(domains, r.Domain)
		}
	}
	return domains
}

// ReturnPathTenants lists the tenants whose mail may have a return path at a domain; none: it may be anybody.
func (c *Config) ReturnPathTenants(domain string) (tenants []string) {
	for _, d := range c.SenderDomainBlocks {
		if d.ReturnPath.Domain == domain {
			of := c.TenantsOf(string(d.Pattern))
			if len(of) == 0 {
				return nil
			}
			tenants = append(tenants, of...)
		}
	}
	for _, t := range c.Tenants {
		if t.ReturnPath.Domain == domain {
			tenants = append(tenants, t.Name)
		}
	}
	return tenants
}

// returnPaths gives all that the file has.
func (c *Config) returnPaths() (all []*ReturnPath) {
	for _, t := range c.Tenants {
		all = append(all, &t.ReturnPath)
	}
	for _, d := range c.SenderDomainBlocks {
		all = append(all, &d.ReturnPath)
	}
	return all
}

// deriveReturnPaths puts the domains into A-label form.
func (c *Config) deriveReturnPaths() {
	for _, r := range c.returnPaths() {
		if ascii, err := envelope.ToASCII(r.Domain); err == nil {
			r.Domain = ascii // else complained of
		}
	}
}

func (k checker) returnPathKeys() {
	b := &k.ReturnPaths
	if len(b.Secrets) > 0 {
		if _, err := b.Keys(); err != nil {
			k.problem(&b.block, "secrets",
				`write secrets = [env("RETURN_PATH_SECRET")], with the same secret on all relays that get one `+
					"another's reports", "secrets: %s", err)
		}
	}
	for _, d := range k.SenderDomainBlocks {
		if strings.HasPrefix(string(d.Pattern), "[") {
			k.problem(&d.block, "", `write a domain, such as sender_domain "example.com"`,
				"%s is not a domain", d.Title())
		}
		if !d.Set("return_path") && d.Pool == "" && !d.Set("route") {
			k.problem(&d.block, "return_path", `write return_path = "b.example.com", or "" for none; or pool, or route`,
				"%s has neither return_path nor pool nor route, and so no effect", d.Title())
		}
		k.perRecipient(&d.block, d.ReturnPath)
	}
	for _, t := range k.Tenants {
		k.perRecipient(&t.block, t.ReturnPath)
		if t.UnsubscribeMail && len(k.ReturnPathDomains()) == 0 {
			k.problem(&t.block, "unsubscribe_mail", `also write return_path = "b.example.com"`,
				"unsubscribe_mail of tenant %q has no effect: its mail has no return path", t.Name)
		}
	}
}

func (k checker) perRecipient(b *block, r ReturnPath) {
	if r.PerRecipient && !r.On() {
		k.problem(b, "per_recipient", `also write return_path = "b.example.com"`,
			"per_recipient of %s has no effect without return_path", b.Title())
	}
}

// Keys are those of Secrets.
func (b *ReturnPathKeys) Keys() (*returnpath.Keys, error) {
	secrets := make([][]byte, len(b.Secrets))
	for i, s := range b.Secrets {
		secrets[i] = []byte(s)
	}
	return returnpath.New(returnpath.Valid, secrets...)
}
