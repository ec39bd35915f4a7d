package powermta

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"example.org/mta/internal/envelope"
	"example.org/mta/mta/importer"
)

// client is a <source>: the clients of a network, or those whose user names it.
type client struct {
	*directive
	name    string
	network netip.Prefix // invalid for a name
	set     map[string]*directive
}

// is reports whether a directive of the source says yes.
func (s *client) is(name string) bool {
	d := s.set[name]
	if d == nil {
		return false
	}
	on, _ := d.yes(d.value)
	return on
}

// sourceScope reads a <source>.
func (c *conversion) sourceScope(d *directive) error {
	s := &client{directive: d, set: make(map[string]*directive)}
	text := unquote(d.value)
	if name, named := strings.CutPrefix(text, "{"); named {
		s.name = strings.ToLower(strings.Trim(name, "{}"))
	} else {
		p, err := network(text)
		if err != nil {
			return d.fault("<source>: %s is neither a network nor a {name}", short(text))
		}
		s.network, s.name = p, p.String()
	}
	for _, in := range d.inner {
		if known, ok := sourceDirectives[in.name]; ok {
			if known {
				if _, err := in.yes(in.value); err != nil {
					return err
				}
			}
			s.set[in.name] = in
			continue
		}
		c.lose(c.draft.Inner("listener", "smtp"), in)
	}
	c.sources = append(c.sources, s)
	return nil
}

// sourceDirectives are those that are carried; true: their value is yes or no.
var sourceDirectives = map[string]bool{
	"always-allow-relaying": true, "require-auth": true, "smtp-service": true, "allow-unencrypted-plain-auth": true,
	"process-x-virtual-mta": true, "process-x-job": true, "process-x-envid": true,
	"default-virtual-mta": false, "jobid-header": false, "max-message-size": false,
}

// everybody reports whether a network is too large to be somebody's.
func everybody(p netip.Prefix) bool {
	return p.Addr().Is4() && p.Bits() < 8 || p.Addr().Is6() && p.Bits() < 16
}

// network reads "10.0.0.0/8", "127.0.0.1", and "0/0".
func network(text string) (netip.Prefix, error) {
	if text == "0/0" {
		return netip.ParsePrefix("0.0.0.0/0")
	}
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err == nil && p.Addr().Is4In6() {
		err = errors.New("an IPv4 address in the form of an IPv6 one")
	}
	return p.Masked(), err
}

// listen reads a smtp-listener, a line or a scope.
func (c *conversion) listen(d *directive) error {
	address, _ := cutWord(d.value)
	host, port, err := net.SplitHostPort(unquote(address))
	if err != nil {
		host, port = strings.Trim(unquote(address), "[]"), "25"
	}
	if host == "0/0" || host == "*" {
		host = ""
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if _, bad := netip.ParseAddr(host); err != nil || n == 0 || bad != nil && host != "" {
		return d.fault("smtp-listener: %s is not an address and port, such as 0.0.0.0:25", short(address))
	}
	c.draft.Inner("listener", "smtp").From(d.Origin)
	c.listens = append(c.listens, net.JoinHostPort(host, port))
	c.listenAt = append(c.listenAt, d)
	for _, in := range d.inner {
		c.lose(c.draft.Inner("listener", "smtp"), in)
	}
	return nil
}

// userScope reads a <smtp-user>.
func (c *conversion) userScope(d *directive) error {
	c.users = append(c.users, d)
	tenant := ""
	for _, in := range d.inner {
		switch in.name {
		case "source":
			tenant = strings.ToLower(strings.Trim(unquote(in.value), "{}"))
		case "password":
		default:
			c.lose(c.draft.Inner("listener", "smtp"), in)
		}
	}
	command := "mta user add " + shellWord(unquote(d.value))
	if tenant != "" {
		command += " --tenant " + shellWord(tenant)
		c.userTenants = append(c.userTenants, tenant)
	}
	c.draft.Inner("users").Noted(d.Origin, "the file has hashes of passwords: add the user by: "+command)
	return nil
}

func shellWord(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("@._-", r))
	}) {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}

// writeListeners writes the listener, and who may relay.
func (c *conversion) writeListeners() error {
	if len(c.listens)+len(c.sources)+len(c.users) == 0 && c.tlsFile == nil && c.maxIn == nil {
		return nil
	}
	b := c.draft.Inner("listener", "smtp")
	c.writeAddresses(b)
	c.writeRelaying(b)
	if err := c.writeSizes(b); err != nil {
		return err
	}
	c.writeFields(b)
	c.writeLogin(b)
	return nil
}

// writeAddresses writes those that are listened at, each once: all addresses of the machine include the others.
func (c *conversion) writeAddresses(b *importer.Block) {
	var taken []string
	for i, a := range c.listens {
		host, port, _ := net.SplitHostPort(a)
		all := func(h string) bool { ip, err := netip.ParseAddr(h); return h == "" || err == nil && ip.IsUnspecified() }
		overlaps := func(other string) bool {
			h, p, _ := net.SplitHostPort(other)
			return p == port && (h == host || all(h) || all(host))
		}
		if slices.ContainsFunc(taken, overlaps) {
			b.Noted(c.listenAt[i].Origin, "another smtp-listener has the address")
			if all(host) {
				taken = append(slices.DeleteFunc(taken, overlaps), a)
			}
			continue
		}
		taken = append(taken, a)
	}
	if len(taken) == 0 {
		b.Comment("No smtp-listener names an address.")
		taken = []string{"127.0.0.1:2525"}
	}
	b.Set("address", taken, importer.Origin{})
}

// writeRelaying works out relay_from: the networks that relay without a login, less those within that do not.
func (c *conversion) writeRelaying(b *importer.Block) {
	var allowed []netip.Prefix
	sorted := slices.Clone(c.sources)
	slices.SortStableFunc(sorted, func(a, b *client) int { return a.network.Bits() - b.network.Bits() })
	for _, s := range sorted {
		if !s.network.IsValid() {
			b.From(s.Origin)
			continue
		}
		b.From(s.Origin)
		relays := s.is("always-allow-relaying") && !s.is("require-auth") && (s.set["smtp-service"] == nil || s.is("smtp-service"))
		var rest []netip.Prefix
		for _, p := range allowed {
			rest = append(rest, without(p, s.network)...)
		}
		switch allowed = rest; {
		case relays && everybody(s.network):
			b.Lost(s.set["always-allow-relaying"].Origin, "everybody could relay: this would be an open relay; name your networks in relay_from", true)
		case relays:
			allowed = append(allowed, s.network)
		}
		for _, name := range []string{"always-allow-relaying", "require-auth", "smtp-service"} {
			if d := s.set[name]; d != nil && !(name == "always-allow-relaying" && relays && everybody(s.network)) {
				c.draft.Inner("listener", "smtp").From(d.Origin)
			}
		}
	}
	list := make([]string, 0, len(allowed))
	for _, p := range allowed {
		list = append(list, p.String())
	}
	b.Set("relay_from", sortedUnique(list), importer.Origin{})
}

// without gives the networks of p that are not in q.
func without(p, q netip.Prefix) []netip.Prefix {
	switch {
	case !p.Overlaps(q):
		return []netip.Prefix{p}
	case q.Bits() <= p.Bits():
		return nil
	}
	low := netip.PrefixFrom(p.Addr(), p.Bits()+1)
	high := netip.PrefixFrom(setBit(p.Addr(), p.Bits()), p.Bits()+1)
	return append(without(low, q), without(high, q)...)
}

// setBit gives the address with one more bit set, counted from the highest.
func setBit(a netip.Addr, n int) netip.Addr {
	octets := a.AsSlice()
	octets[n/8] |= 1 << (7 - n%8)
	out, _ := netip.AddrFromSlice(octets)
	return out
}

// writeSizes writes the largest message that all clients may send.
func (c *conversion) writeSizes(b *importer.Block) error {
	least, at := int64(0), (*directive)(nil)
	for _, s := range c.sources {
		d := s.set["max-message-size"]
		if d == nil {
			continue
		}
		n, err := d.octets(d.value)
		if err != nil {
			return err
		}
		if n == 0 || n > 1<<30 {
			n = 1 << 30
		}
		if n < 1<<10 {
			b.Noted(d.Origin, "the least that mta takes is 1KiB")
			n = 1 << 10
		}
		if at != nil && n != least {
			b.Noted(d.Origin, "a listener has one size for all clients: the smallest counts")
		} else {
			b.From(d.Origin)
		}
		if at == nil || n < least {
			least, at = n, d
		}
	}
	if at != nil {
		text := strconv.FormatInt(least, 10) + "B"
		for _, u := range []struct {
			name string
			n    int64
		}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
			if least%u.n == 0 {
				text = strconv.FormatInt(least/u.n, 10) + u.name
				break
			}
		}
		b.Set("max_message_size", text, at.Origin)
	}
	if c.maxIn != nil {
		if n, err := c.maxIn.number(c.maxIn.value); err != nil {
			return err
		} else if n > 0 {
			b.Set("max_connections", n, c.maxIn.Origin)
		}
	}
	return nil
}

// writeFields writes which header fields of PowerMTA count, and whose.
func (c *conversion) writeFields(b *importer.Block) {
	var from []string
	used := map[string]string{}
	set := func(setting, field string, d *directive) {
		lower := strings.ToLower(field)
		switch {
		case !strings.HasPrefix(lower, "x-") || len(lower) < 3 || len(lower) > 100 || strings.HasPrefix(lower, "x-mta-") || strings.ContainsFunc(lower, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ':' }):
			b.Lost(d.Origin, "the field is removed from messages, so it must begin with X-: have the application send X-MTA-Campaign", false)
		case used[setting] != "" && used[setting] != lower:
			b.Lost(d.Origin, "a listener has one field for this purpose: that of the line before", false)
		case used[setting] == "":
			for _, other := range used {
				if other == lower {
					b.Lost(d.Origin, "the field has another meaning already", false)
					return
				}
			}
			used[setting] = lower
			b.Set(setting, field, d.Origin)
		default:
			b.From(d.Origin)
		}
	}
	for _, s := range c.sources {
		any := false
		for _, f := range []struct{ directive, setting, field string }{
			{"process-x-virtual-mta", "pool_header", "X-Virtual-MTA"}, {"jobid-header", "campaign_header", ""},
			{"process-x-job", "campaign_header", "X-Job"}, {"process-x-envid", "envid_header", "X-Envid"},
		} {
			d := s.set[f.directive]
			switch {
			case d == nil:
			case f.field == "":
				any = true
				set(f.setting, unquote(d.value), d)
			case s.is(f.directive) && f.setting == "campaign_header" && used[f.setting] != "" && s.set["jobid-header"] != nil:
				b.From(d.Origin)
			case s.is(f.directive):
				any = true
				set(f.setting, f.field, d)
			default:
				b.From(d.Origin)
			}
		}
		if any && s.network.IsValid() {
			if everybody(s.network) {
				b.Noted(s.Origin, "the fields count for users who have logged in, and for the networks in headers_from: not for everybody")
			} else {
				from = append(from, s.network.String())
			}
		}
	}
	if len(from) > 0 && len(used) > 0 {
		b.Set("headers_from", sortedUnique(from), importer.Origin{})
	}
}

// writeLogin writes how users log in.
func (c *conversion) writeLogin(b *importer.Block) {
	logins := len(c.users) > 0
	for _, s := range c.sources {
		if d := s.set["require-auth"]; d != nil && s.is("require-auth") {
			logins = true
		}
		if d := s.set["allow-unencrypted-plain-auth"]; d != nil {
			if s.is("allow-unencrypted-plain-auth") {
				b.Lost(d.Origin, "passwords are accepted over TLS only; auth { clear_on_loopback = true } lets programs on this machine log in without", false)
			} else {
				b.From(d.Origin)
			}
		}
	}
	if c.tlsFile != nil {
		words := strings.Fields(c.tlsFile.value)
		switch {
		case len(words) == 1:
			tls := b.Inner("tls")
			tls.Set("certificate", []string{unquote(words[0])}, c.tlsFile.Origin)
			tls.Set("key", []string{unquote(words[0])}, importer.Origin{})
		default:
			b.Lost(c.tlsFile.Origin, "the key must not have a password: remove it with openssl, and write certificate and key", true)
			c.tlsFile = nil
		}
	}
	if !logins {
		return
	}
	c.draft.Inner("users").Set("file", "/etc/mta/users", importer.Origin{})
	auth := b.Inner("auth")
	auth.Set("mechanisms", []string{"PLAIN", "LOGIN"}, importer.Origin{})
	if c.tlsFile == nil {
		auth.Set("clear_on_loopback", true, importer.Origin{})
		auth.Comment("No certificate is named: only programs on this machine can log in. Write tls { certificate = [...] key = [...] }.")
	}
}

// writeTenants makes a tenant of each source with a virtual MTA for mail that names none.
func (c *conversion) writeTenants(plans map[string]string) error {
	made := make(map[string]bool)
	for _, s := range c.sources {
		d := s.set["default-virtual-mta"]
		if d == nil {
			continue
		}
		name := strings.ToLower(unquote(d.value))
		members := c.membersOf(name)
		if members == nil {
			return d.fault("default-virtual-mta: there is no virtual MTA or pool %s", short(name))
		}
		all := s.network.IsValid() && everybody(s.network)
		label := s.name
		if all {
			label = "default"
		}
		b := c.draft.Inner("pool", label)
		if label != name && (made[label] || c.membersOf(label) != nil) {
			b.Lost(d.Origin, fmt.Sprintf("the pool %s is there already: give its mail to a tenant with the pool %s", label, name), false)
			continue
		}
		made[label] = true
		b.From(d.Origin)
		if label != name {
			c.members(b, members, plans)
		}
		if all {
			continue
		}
		t := c.draft.Inner("tenant", label).From(s.Origin)
		t.Set("pool", label, d.Origin)
		if s.network.IsValid() {
			t.Set("networks", []string{s.network.String()}, importer.Origin{})
		}
	}
	for _, name := range c.userTenants {
		c.draft.Inner("tenant", name)
	}
	return nil
}

// membersOf are the virtual MTAs of that name, or of the pool of that name.
func (c *conversion) membersOf(name string) (all []*vmta) {
	for _, p := range c.pools {
		if p.name == name {
			for _, m := range p.members {
				member, _ := cutWord(m.value)
				if v := c.vmta(unquote(member)); v != nil {
					all = append(all, v)
				}
			}
			return all
		}
	}
	if v := c.vmta(name); v != nil {
		return []*vmta{v}
	}
	return nil
}

// hostname gives a name in the form that settings take, "" for none.
func hostname(s string) string {
	ascii, err := envelope.ToASCII(strings.ToLower(unquote(s)))
	if err != nil || strings.HasPrefix(ascii, "[") {
		return ""
	}
	return ascii
}
