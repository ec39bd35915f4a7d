package powermta

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"example.org/mta/importer"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/network"
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
		p, err := parseNetwork(text)
		if err != nil {
			return d.fault("<source>: %s is neither a network nor a {name}: write one such as 192.0.2.0/24",
				short(text))
		}
		s.network, s.name = p, p.String()
	}
	if i := slices.IndexFunc(c.sources, func(other *client) bool {
		return other.name == s.name && other.network == s.network
	}); i >= 0 {
		s = c.sources[i] // another scope for the same clients
		c.draft.Inner("listener", "smtp").From(d.Origin)
	} else {
		c.sources = append(c.sources, s)
	}
	for _, in := range d.inner {
		if known, ok := sourceDirectives[in.name]; ok {
			if known {
				if _, err := in.yes(in.value); !c.faults.take(in, err) {
					continue
				}
			}
			s.set[in.name] = in
			continue
		}
		c.lose(c.draft.Inner("listener", "smtp"), in)
	}
	return nil
}

// sourceDirectives are those that are carried; true: their value is yes or no.
var sourceDirectives = map[string]bool{
	"always-allow-relaying": true, "require-auth": true, "smtp-service": true, "allow-unencrypted-plain-auth": true,
	"process-x-virtual-mta": true, "process-x-job": true, "process-x-envid": true,
	"remove-received-headers": true, "remove-header": false,
	"default-virtual-mta": false, "jobid-header": false, "max-message-size": false,
}

// everybody reports whether a network is too large to be somebody's.
func everybody(p netip.Prefix) bool {
	return p.Addr().Is4() && p.Bits() < 8 || p.Addr().Is6() && p.Bits() < 16
}

// parseNetwork reads "10.0.0.0/8", "127.0.0.1", and "0/0".
func parseNetwork(text string) (netip.Prefix, error) {
	if text == "0/0" {
		return netip.ParsePrefix("0.0.0.0/0")
	}
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil && a.Zone() == "" {
		a = a.Unmap()
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
		return d.fault("smtp-listener: %s is not an address and port: write one such as 0.0.0.0:25", short(address))
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
	for _, in := range d.inner {
		if in.name != "source" && in.name != "password" {
			c.lose(c.draft.Inner("listener", "smtp"), in)
		}
	}
	command := "mta user add " + shellWord(unquote(d.value))
	if tenant := userSource(d); tenant != "" {
		command += " --tenant " + shellWord(tenant)
		c.userTenants = append(c.userTenants, tenant)
	}
	c.draft.Inner("users").Noted(d.Origin, "the file has hashes of passwords: add the user by: "+command)
	return nil
}

// userSource is the name of a user's <source>, "" for none.
func userSource(d *directive) (name string) {
	for _, in := range d.inner {
		if in.name == "source" {
			name = strings.ToLower(strings.Trim(unquote(in.value), "{}"))
		}
	}
	return name
}

func shellWord(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("@._-", r))
	}) {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}

// writeListeners writes the listener, and who may relay.
func (c *conversion) writeListeners() {
	if len(c.listens)+len(c.sources)+len(c.users) == 0 && c.tlsFile == nil && c.maxIn == nil {
		return
	}
	b := c.draft.Inner("listener", "smtp")
	c.writeAddresses(b)
	c.writeRelaying(b)
	c.writeSizes(b)
	c.writeFields(b)
	c.writeRemoved(b)
	c.writeLogin(b)
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

// writeRelaying writes relay_from: the networks that relay without a login.
func (c *conversion) writeRelaying(b *importer.Block) {
	for _, s := range c.sources {
		b.From(s.Origin)
		if relays(s) && everybody(s.network) {
			b.Lost(s.set["always-allow-relaying"].Origin,
				"everybody could relay: this would be an open relay; name your networks in relay_from", true)
		}
		if d := s.set["smtp-service"]; d != nil && !s.is("smtp-service") && len(c.users) > 0 {
			b.Lost(d.Origin, "users may log in from everywhere: block the network in the firewall", true)
		}
		for _, name := range []string{"always-allow-relaying", "require-auth", "smtp-service"} {
			if d := s.set[name]; d != nil {
				b.From(d.Origin)
			}
		}
	}
	b.Set("relay_from", c.networks(relays), importer.Origin{})
}

// relays reports whether the clients of a network relay without a login.
func relays(s *client) bool {
	return s.network.IsValid() && s.is("always-allow-relaying") && !s.is("require-auth") &&
		(s.set["smtp-service"] == nil || s.is("smtp-service"))
}

// networks lists those whose clients may do something, less those within them that may not. Everybody is not listed.
func (c *conversion) networks(may func(*client) bool) []string {
	var allowed []netip.Prefix
	for _, s := range slices.SortedStableFunc(slices.Values(c.sources), func(a, b *client) int {
		return a.network.Bits() - b.network.Bits()
	}) {
		if !s.network.IsValid() {
			continue
		}
		var rest []netip.Prefix
		for _, p := range allowed {
			rest = append(rest, network.Without(p, s.network)...)
		}
		if allowed = rest; may(s) && !everybody(s.network) {
			allowed = append(allowed, s.network)
		}
	}
	list := make([]string, 0, len(allowed))
	for _, p := range allowed {
		list = append(list, p.String())
	}
	return sortedUnique(list)
}

// writeSizes writes the largest message that all clients may send.
func (c *conversion) writeSizes(b *importer.Block) {
	least, at := int64(0), (*directive)(nil)
	for _, s := range c.sources {
		d := s.set["max-message-size"]
		if d == nil {
			continue
		}
		n, err := d.octets(d.value)
		if !c.faults.take(d, err) {
			continue
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
		if n, err := c.maxIn.number(c.maxIn.value); c.faults.take(c.maxIn, err) && n > 0 {
			b.Set("max_connections", n, c.maxIn.Origin)
		}
	}
}

// fields are the directives that make a header field count, with the setting for the field.
var fields = []struct{ directive, setting, field string }{
	{"process-x-virtual-mta", "pool_header", "X-Virtual-MTA"}, {"jobid-header", "campaign_header", ""},
	{"process-x-job", "campaign_header", "X-Job"}, {"process-x-envid", "envid_header", "X-Envid"},
}

// writeFields writes which header fields of PowerMTA count, and whose.
func (c *conversion) writeFields(b *importer.Block) {
	used := make(map[string]string) // the field of a setting, in lower case
	for _, s := range c.sources {
		for _, f := range fields {
			switch d := s.set[f.directive]; {
			case d == nil:
			case f.field == "":
				setField(b, used, f.setting, unquote(d.value), d)
			case !s.is(f.directive) || f.setting == "campaign_header" && used[f.setting] != "" &&
				s.set["jobid-header"] != nil:
				b.From(d.Origin)
			default:
				setField(b, used, f.setting, f.field, d)
			}
		}
	}
	// One list is for all fields, so that whose X-Job counts could name a pool, too.
	may := namesField
	if used["pool_header"] != "" {
		may = func(s *client) bool { return s.is("process-x-virtual-mta") }
		c.poolsOfUsers(b)
	}
	for _, s := range c.sources {
		switch {
		case !s.network.IsValid() || !namesField(s):
		case everybody(s.network):
			b.Noted(s.Origin,
				"the fields count for users who have logged in, and for the networks in headers_from: "+
					"not for everybody")
		case !may(s):
			for _, f := range fields {
				if d := s.set[f.directive]; d != nil && (f.field == "" || s.is(f.directive)) {
					b.Lost(d.Origin,
						"clients of this network may not choose the pool, so none of their fields count: have the "+
							"applications send X-MTA-Campaign", false)
				}
			}
		}
	}
	if from := c.networks(may); len(from) > 0 && len(used) > 0 {
		b.Set("headers_from", from, importer.Origin{})
	}
}

// writeRemoved writes which header fields are removed, for all clients of the listener.
func (c *conversion) writeRemoved(b *importer.Block) {
	var names []string
	for _, s := range c.sources {
		if d := s.set["remove-received-headers"]; d != nil {
			if b.From(d.Origin); s.is(d.name) {
				names = append(names, "Received")
			}
		}
		if d := s.set["remove-header"]; d != nil {
			for name := range strings.SplitSeq(unquote(d.value), ",") {
				switch name = strings.TrimSpace(name); strings.ToLower(name) {
				case "":
				case "from", "mime-version", "content-type", "content-transfer-encoding":
					b.Lost(d.Origin, "messages need the field", false)
				default:
					names = append(names, name)
				}
			}
			b.From(d.Origin)
		}
	}
	if len(names) > 0 {
		b.Set("headers_remove", sortedUnique(names), importer.Origin{})
	}
}

// namesField reports whether some field of a client's messages counts.
func namesField(s *client) bool {
	return s.set["jobid-header"] != nil || s.is("process-x-virtual-mta") || s.is("process-x-job") ||
		s.is("process-x-envid")
}

// setField writes the field of a setting.
func setField(b *importer.Block, used map[string]string, setting, field string, d *directive) {
	lower := strings.ToLower(field)
	for other, name := range used {
		if name == lower && other != setting {
			b.Lost(d.Origin, "the field has another meaning already", false)
			return
		}
	}
	switch {
	case !strings.HasPrefix(lower, "x-") || len(lower) < 3 || len(lower) > 100 || strings.HasPrefix(lower, "x-mta-") ||
		strings.ContainsFunc(lower, func(r rune) bool {
			return r <= ' ' || r >= 0x7f || r == ':'
		}):
		b.Lost(d.Origin,
			"the field is removed from messages, so it must begin with X-: have the application send X-MTA-Campaign",
			false)
	case used[setting] == "":
		used[setting] = lower
		b.Set(setting, field, d.Origin)
	case used[setting] != lower:
		b.Lost(d.Origin, "a listener has one field for this purpose: that of the line before", false)
	default:
		b.From(d.Origin)
	}
}

// poolsOfUsers notes users who can choose the pool here, and could not in PowerMTA.
func (c *conversion) poolsOfUsers(b *importer.Block) {
	for _, u := range c.users {
		could := slices.ContainsFunc(c.sources, func(s *client) bool {
			return (s.name == userSource(u) || s.network.IsValid() && everybody(s.network)) &&
				s.is("process-x-virtual-mta")
		})
		if !could {
			b.Lost(u.Origin,
				"every user may choose a pool without a tenant: write tenant blocks with the pools that this user "+
					"may not choose", true)
		}
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
				b.Lost(d.Origin,
					"passwords are accepted over TLS only; auth { clear_on_loopback = true } lets programs on this "+
						"machine log in without", false)
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
			b.Lost(c.tlsFile.Origin,
				"the key must not have a password: remove it with openssl, and write certificate and key", true)
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
		auth.Comment("No certificate is named: only programs on this machine can log in. Write tls { certificate = " +
			"[...] key = [...] }.")
	}
}

// writeTenants makes a tenant of each source with a virtual MTA for mail that names none.
func (c *conversion) writeTenants(plans map[string]string) {
	made := make(map[string]bool)
	for _, s := range c.sources {
		d := s.set["default-virtual-mta"]
		if d == nil {
			continue
		}
		name := strings.ToLower(unquote(d.value))
		members := c.membersOf(name)
		if members == nil {
			c.faults.take(d,
				dangling{d.fault(
					"default-virtual-mta: there is no virtual MTA or pool %s: define it, or correct the name",
					short(name))})
			continue
		}
		all := s.network.IsValid() && everybody(s.network)
		label := s.name
		if all {
			label = "default"
		}
		b := c.draft.Inner("pool", label)
		if label != name && (made[label] || c.membersOf(label) != nil) {
			b.Lost(d.Origin, fmt.Sprintf("the pool %s is there already: give its mail to a tenant with the pool %s",
				label, name), false)
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
}

// membersOf are the virtual MTAs of that name, or of the pool of that name.
func (c *conversion) membersOf(name string) (all []*vmta) {
	if p := c.poolOf[name]; p != nil {
		for _, m := range p.members {
			member, _ := cutWord(m.value)
			if v := c.vmta(unquote(member)); v != nil {
				all = append(all, v)
			}
		}
		return all
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
