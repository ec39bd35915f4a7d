package postfix

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"example.org/mta/importer"
	"example.org/mta/internal/network"
	"example.org/mta/internal/settings"
)

// incoming writes the listeners.
func (im *importing) incoming() {
	n := 0
	for _, s := range im.services {
		if s.kind == "pass" && s.command == "smtpd" {
			im.used[s.at] = true // of postscreen, whose entry is the listener
		}
		if s.kind != "inet" || s.command != "smtpd" && s.command != "postscreen" {
			continue
		}
		im.used[s.at] = true
		own := s.own
		if s.command == "postscreen" {
			im.top.Lost(s.at, "postscreen: the relay has greet_delay, and limits for strangers of its own", false)
			if d := im.behindPostscreen(); d != nil {
				own = d.own
			}
		}
		im.listener(s, scope{im, own})
		n++
	}
	im.writeMilters(n)
	if n == 0 {
		im.top.Comment("master.cf has no SMTP server: the relay listens on 127.0.0.1:2525")
	}
}

// behindPostscreen is the server to which postscreen passes connections, nil for none.
func (im *importing) behindPostscreen() *service {
	i := slices.IndexFunc(im.services, func(s *service) bool { return s.kind == "pass" && s.command == "smtpd" })
	if i < 0 {
		return nil
	}
	return im.services[i]
}

// protocols are the families of addresses that are in use.
func (s scope) protocols() (v4, v6 bool, at importer.Origin) {
	value, at, _ := s.text("inet_protocols")
	for _, p := range list(strings.ToLower(value)) {
		switch p {
		case "all":
			v4, v6 = true, true
		case "ipv4":
			v4 = true
		case "ipv6":
			v6 = true
		default:
			s.im.fail(at, "inet_protocols: %q is neither all, ipv4 nor ipv6: write one of these", importer.Short(p))
		}
	}
	return v4, v6, at
}

// anyAddress is that of a listener whose own has a fault: what else is wrong with it is found all the same.
var anyAddress = []string{"127.0.0.1:2525"}

// addresses are those on which a service listens.
func (im *importing) addresses(s *service) (all []string) {
	host, port := splitPort(s.name)
	if port == "" {
		host, port = "", s.name
	}
	port, err := portOf(port)
	if err != nil {
		im.fail(s.at, "%v", err)
		return anyAddress
	}
	if host != "" {
		if host == "localhost" {
			return []string{"127.0.0.1:" + port}
		}
		if _, err := netip.ParseAddr(host); err != nil {
			im.fail(s.at, "the host %q is not an IP address: write the address", importer.Short(host))
			return anyAddress
		}
		return []string{net.JoinHostPort(host, port)}
	}
	v4, v6, _ := scope{im: im}.protocols()
	value, at, _ := scope{im, s.own}.text("inet_interfaces")
	for _, item := range list(value) {
		a, err := netip.ParseAddr(strings.Trim(item, "[]"))
		switch {
		case item == "all" && !v6:
			all = append(all, "0.0.0.0:"+port)
		case item == "all":
			all = append(all, ":"+port)
		case item == "loopback-only" || item == "localhost":
			if v4 {
				all = append(all, "127.0.0.1:"+port)
			}
			if v6 {
				all = append(all, "[::1]:"+port)
			}
		case err == nil && (a.Is4() && v4 || a.Is6() && v6):
			all = append(all, net.JoinHostPort(a.String(), port))
		case err != nil:
			im.top.Lost(at, fmt.Sprintf("the address of %s depends on the machine: add it to the listener's address",
				item), false)
		}
	}
	return all
}

// listener writes one.
func (im *importing) listener(s *service, p scope) {
	addresses := im.addresses(s)
	if len(addresses) == 0 {
		return
	}
	name := s.name
	if host, port := splitPort(s.name); port != "" {
		name = strings.Trim(host+"-"+port, "-")
	}
	b := im.top.Inner("listener", name).From(s.at)
	b.Set("address", addresses, s.at)
	logins, usersOnly := im.relaying(s, b, p)
	im.listenerTLS(b, p, usersOnly)
	im.listenerAuth(b, p, logins, usersOnly)
	const (
		leastSize, mostSize             = 1 << 10, 1 << 30
		leastRecipients, mostRecipients = 100, 1_000_000 // the least: RFC 5321, 4.5.3.1.8
	)
	n, at, _ := p.number("message_size_limit")
	if n == 0 || n > mostSize {
		n = mostSize
		b.Noted(at, "the largest size that the relay takes is 1GiB")
	}
	b.Set("max_message_size", strconv.Itoa(max(n, leastSize))+"B", at)
	if n, at, _ := p.number("smtpd_recipient_limit"); n > 0 {
		b.Set("max_recipients", min(max(n, leastRecipients), mostRecipients), at)
		if n < leastRecipients {
			b.Lost(at, fmt.Sprintf("a message may have %d recipients, at least (RFC 5321, 4.5.3.1.8)", leastRecipients),
				true)
		}
	}
	server := s
	if s.command == "postscreen" {
		server = im.behindPostscreen()
	}
	if server != nil {
		limit, at := server.maxproc, server.at
		if limit == "-" {
			limit, at, _ = p.text("default_process_limit")
		}
		if n, err := strconv.Atoi(limit); err == nil && n > 0 {
			b.Set("max_connections", n, at)
		}
	}
	if n, at, _ := p.number("smtpd_client_connection_count_limit"); n > 0 {
		b.Set("max_connections_per_client", n, at)
	}
	if value, at, set := p.text("smtpd_timeout"); set {
		if d, err := parseTime(value, 's'); err != nil {
			im.fail(at, "smtpd_timeout: %v", err)
		} else if d > 0 {
			b.Set("command_timeout", settings.FormatDuration(d), at)
		}
	}
	hostname, _, _ := p.text("myhostname")
	if banner, at, set := p.text("smtpd_banner"); set {
		first, _, _ := strings.Cut(banner, " ")
		named := hostname != "" || strings.Contains(first, ".") // without a dot, it follows an empty $myhostname
		if named && first != "" && first != hostname {
			b.Set("banner", first, at)
		}
	}
	im.rates(p)
	im.milters(name, p)
}

// rates notes limits of clients that have no counterpart.
func (im *importing) rates(p scope) {
	for _, name := range []string{"smtpd_client_connection_rate_limit", "smtpd_client_message_rate_limit",
		"smtpd_client_recipient_rate_limit", "smtpd_client_auth_rate_limit",
		"smtpd_client_new_tls_session_rate_limit"} {
		if n, at, _ := p.number(name); n > 0 {
			im.top.Lost(at, "rates are by tenant: write tenant blocks with networks and max_submission_rate", true)
		}
	}
}

// lists are those of the restrictions that a client has to pass with mail for elsewhere.
var lists = []string{
	"smtpd_client_restrictions", "smtpd_helo_restrictions", "smtpd_sender_restrictions", "smtpd_relay_restrictions",
	"smtpd_recipient_restrictions",
	"smtpd_data_restrictions", "smtpd_end_of_data_restrictions",
}

// relaying finds out who may relay, and who may log in for that. It reports whether there are logins, and whether only
// users may relay.
func (im *importing) relaying(s *service, b *importer.Block, p scope) (logins, usersOnly bool) {
	networks := im.mynetworks(b, p)
	relayFrom := []string{}
	may, at := p.mayRelay(client{inside: true})
	if relay, _, _ := p.text("smtpd_relay_restrictions"); relay == "" {
		if recipient, _, _ := p.text("smtpd_recipient_restrictions"); recipient == "" {
			im.top.Lost(at, "nobody may relay: neither this nor smtpd_relay_restrictions has an entry, as in Postfix "+
				"without compatibility_level. Write into main.cf what 'postconf compatibility_level' prints, and "+
				"import again", false)
		}
	}
	if may && !im.proxied(s) { // else all clients of the proxy would be in its network
		for _, n := range networks {
			relayFrom = append(relayFrom, n.String())
		}
	}
	b.Set("relay_from", relayFrom, at)
	if value, at, set := p.text("smtpd_forbid_bare_newline"); (!set || value == "no" || value == "normalize") &&
		len(relayFrom) > 0 {
		if !set {
			at = importer.Origin{}
		}
		b.Set("normalise_from", relayFrom, at)
	}
	for _, name := range lists {
		im.restrictions(p, name)
	}
	im.restrictions(p, "smtpd_etrn_restrictions")
	if auth, _ := p.flag("smtpd_sasl_auth_enable"); !auth {
		return false, false
	}
	logins, at = p.mayRelay(client{user: true})
	if inside, _ := p.mayRelay(client{inside: true, user: true}); !logins && inside && !may {
		im.top.Lost(at, "users may relay from mynetworks only, and a listener can't join the two: give it an address "+
			"that others don't reach, then write auth", false)
	}
	return logins, len(relayFrom) == 0 && logins
}

// proxied reports whether a proxy names the clients of a service.
func (im *importing) proxied(s *service) bool {
	name := s.command + "_upstream_proxy_protocol"
	own, set := s.own[name]
	if !set {
		own = im.main[name]
	}
	return strings.TrimSpace(own.raw) != ""
}

// client is who asks to relay: from within mynetworks, logged in, or both.
type client struct{ inside, user bool }

// mayRelay reports whether a client may relay, and which list of restrictions decides that. Each list can refuse it.
func (p scope) mayRelay(c client) (bool, importer.Origin) {
	grants := "smtpd_relay_restrictions"
	if value, _, _ := p.text(grants); value == "" {
		grants = "smtpd_recipient_restrictions"
	}
	outcome, grantedAt := p.outcome(grants, c)
	if outcome != permitted {
		return false, grantedAt
	}
	for _, name := range lists {
		if outcome, at := p.outcome(name, c); outcome == refused {
			return false, at
		}
	}
	return true, grantedAt
}

// Outcomes of a list of restrictions.
const (
	undecided = iota
	permitted
	refused
)

// outcome is that of a list for a client with mail for elsewhere. Those of tables are not known.
func (p scope) outcome(name string, c client) (int, importer.Origin) {
	value, at, _ := p.text(name)
	if late, _ := p.flag("smtpd_delay_reject"); !late &&
		(name == "smtpd_client_restrictions" || name == "smtpd_helo_restrictions") {
		c.user = false // it is asked before the login
	}
	items := restrictionsOf(value)
	for i, item := range items {
		if i > 0 && items[i-1] == "warn_if_reject" {
			continue
		}
		switch item {
		case "permit_mynetworks":
			if c.inside {
				return permitted, at
			}
		case "permit_sasl_authenticated":
			if c.user {
				return permitted, at
			}
		case "permit":
			return permitted, at
		case "reject", "defer", "defer_if_permit", "reject_unauth_destination", "defer_unauth_destination":
			return refused, at
		}
	}
	return undecided, at
}

// restrictionsOf gives the items of a list of restrictions. Postfix takes their names in any case.
func restrictionsOf(value string) []string { return list(strings.ToLower(value)) }

// known restrictions are those that the relay has by itself.
var known = map[string]bool{
	"permit_mynetworks": true, "permit_sasl_authenticated": true, "permit_auth_destination": true,
	"reject_unauth_destination": true,
	"defer_unauth_destination":  true, "reject": true, "defer": true, "reject_unauth_pipelining": true,
	"reject_non_fqdn_recipient": true,
	"reject_non_fqdn_sender":    true, "reject_unknown_recipient_domain": true,
}

// restrictions notes those that have no counterpart.
func (im *importing) restrictions(p scope, name string) {
	value, at, set := p.text(name)
	if !set {
		return
	}
	items := restrictionsOf(value)
	for i, item := range items {
		switch {
		case known[item] || strings.Contains(item, ":") && i > 0 && strings.HasPrefix(items[i-1], "check_"):
		case item == "permit":
			if name == "smtpd_relay_restrictions" || name == "smtpd_recipient_restrictions" {
				im.top.Noted(at, "permit: the relay is open to nobody but relay_from and users")
			}
		case strings.HasPrefix(item, "check_"):
			im.top.Lost(at, item+" of a table: who may send is relay_from, users and tenants (senders)", true)
		case strings.HasPrefix(item, "permit_") && strings.HasSuffix(item, "clientcerts"):
			im.top.Lost(at, item+": write client_certificates, and a user with the certificate's fingerprint", false)
		case item == "reject_unknown_sender_domain" || item == "reject_sender_login_mismatch" ||
			item == "reject_authenticated_sender_login_mismatch" || item == "reject_known_sender_login_mismatch":
			im.top.Lost(at, item+": write senders of users and tenants", true)
		case strings.HasPrefix(item, "reject_") || strings.HasPrefix(item, "defer_"):
			im.top.Lost(at, item+" is a rule for mail from strangers, which the relay does not take", true)
		case strings.HasPrefix(item, "permit_"):
			im.top.Lost(at, item+" has no counterpart", false)
		case item == "warn_if_reject" || i > 0 && (strings.HasPrefix(items[i-1], "check_") ||
			strings.Contains(items[i-1], "_rbl_") || strings.Contains(items[i-1], "_rhsbl_") ||
			strings.Contains(items[i-1], "_dnswl_") || strings.Contains(items[i-1], "_rhswl_") ||
			items[i-1] == "sleep"):
		default:
			im.top.Lost(at, item+" has no counterpart", true)
		}
	}
}

// mynetworks reads the networks that may relay.
func (im *importing) mynetworks(b *importer.Block, p scope) (networks []netip.Prefix) {
	value, at, set := p.text("mynetworks")
	if !set {
		style, at, _ := p.text("mynetworks_style")
		if interfaces, _, _ := p.text("inet_interfaces"); interfaces != "loopback-only" && style != "" {
			if _, wrote := im.main["mynetworks_style"]; wrote {
				im.top.Noted(at,
					"the machine's own networks are not guessed: only this machine may relay; add networks to "+
						"relay_from")
			} else {
				b.Comment("mynetworks is not set: Postfix takes the machine's own addresses; here only loopback may " +
					"relay")
			}
		}
		return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	}
	var excluded []netip.Prefix // from what follows
	for _, item := range list(value) {
		if strings.HasPrefix(item, "#") {
			im.fail(at,
				"mynetworks: # begins a comment at the start of a line only: write the comment on a line before")
			break
		}
		pattern, not := strings.CutPrefix(item, "!")
		parts := im.network(pattern, at)
		if not && isHostname(pattern) {
			im.top.Lost(at, item+" is not excluded: the networks around it may relay", true)
		}
		if not {
			excluded = append(excluded, parts...)
			continue
		}
		parts = im.notOpen(parts, at) // as a whole: what is left of it would be open, too
		if len(excluded) > maxExcluded {
			im.fail(at, "mynetworks: more than %d networks are excluded: write the parts that remain", maxExcluded)
			break
		}
		for _, q := range excluded {
			var rest []netip.Prefix
			for _, n := range parts {
				rest = append(rest, network.Without(n, q)...)
			}
			parts = rest
		}
		for _, n := range parts {
			if !slices.Contains(networks, n) {
				networks = append(networks, n)
			}
		}
	}
	return networks
}

// maxExcluded bounds how many networks are cut out of others.
const maxExcluded = 100

// notOpen leaves networks out that would make an open relay.
func (im *importing) notOpen(networks []netip.Prefix, at importer.Origin) (out []netip.Prefix) {
	for _, n := range networks {
		if n.Bits() <= 2 {
			im.top.Lost(at, n.String()+" is left out: it would make an open relay", true)
			continue
		}
		out = append(out, n)
	}
	return out
}

// network reads an item of mynetworks: a network, a file or a table of networks.
func (im *importing) network(item string, at importer.Origin) []netip.Prefix {
	switch {
	case strings.HasPrefix(item, "!"):
		im.top.Lost(at, item+
			": in a file or table, a network can't be excluded from a larger one: write it into mynetworks", true)
		return nil
	case strings.HasPrefix(item, "/"):
		data, shown, err := im.file(item, maxTable)
		if err != nil {
			im.fail(at, "mynetworks: %v", err)
			return nil
		}
		var all []netip.Prefix
		for _, l := range logicalLines(data) {
			for _, word := range list(l.text) {
				all = append(all, im.network(word, importer.Origin{File: shown, Line: l.number, Directive: l.text})...)
			}
		}
		return all
	}
	if kind, _, ok := strings.Cut(item, ":"); ok && (kind == "cidr" || kind == "hash" || kind == "texthash" ||
		kind == "proxy" || kind == "inline" || kind == "lmdb" || kind == "btree" || kind == "regexp" ||
		kind == "pcre") {
		t, reason, err := im.table(item, at, false)
		if err != nil || reason != "" {
			if err != nil {
				im.fail(at, "mynetworks: %v", err)
			} else {
				im.top.Lost(at, reason, true)
			}
			return nil
		}
		var all []netip.Prefix
		for i := range t.entries {
			e := &t.entries[i]
			if strings.EqualFold(e.value, "reject") {
				im.top.Lost(e.at, "a network can't be excluded from a larger one: write the parts", true)
				continue
			}
			all = append(all, im.network(e.key, e.at)...)
		}
		return all
	}
	if isHostname(item) {
		im.top.Lost(at, item+" is a name, and clients are known by their address: add its network to relay_from", false)
		return nil
	}
	n, err := parseNetwork(item)
	if err != nil {
		im.fail(at, "mynetworks: %v", err)
		return nil
	}
	return []netip.Prefix{n}
}

// isHostname reports whether an item of mynetworks is a name, and no malformed network.
func isHostname(s string) bool {
	return !strings.ContainsAny(s, ":/[]") && strings.ContainsFunc(s, unicode.IsLetter)
}

// parseNetwork reads "192.0.2.0/24", "[2001:db8::]/32", "192.0.2.1" and "[::1]".
func parseNetwork(s string) (netip.Prefix, error) {
	text := strings.NewReplacer("[", "", "]", "").Replace(s)
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return unmapped(netip.PrefixFrom(a, a.BitLen())), nil
	}
	n, err := netip.ParsePrefix(text)
	if err != nil {
		return n, fmt.Errorf("%q is not a network: write one such as 192.0.2.0/24", importer.Short(s))
	}
	if n.Masked() != n {
		return n, fmt.Errorf("%q has bits beyond its mask: write %s", importer.Short(s), n.Masked())
	}
	return unmapped(n), nil
}

// unmapped gives IPv4 addresses within IPv6 as IPv4.
func unmapped(n netip.Prefix) netip.Prefix {
	if n.Addr().Is4In6() && n.Bits() >= 96 {
		return netip.PrefixFrom(n.Addr().Unmap(), n.Bits()-96)
	}
	return n
}

// listenerTLS writes TLS of a listener.
func (im *importing) listenerTLS(b *importer.Block, p scope, usersOnly bool) {
	level, at, _ := p.text("smtpd_tls_security_level")
	use, _ := p.flag("smtpd_use_tls")
	enforce, atEnforce := p.flag("smtpd_enforce_tls")
	switch {
	case level == "" && enforce:
		level, at = "encrypt", atEnforce
	case level == "" && use:
		level = "may"
	}
	implicit, atImplicit := p.flag("smtpd_tls_wrappermode")
	if (level == "" || level == "none") && !implicit {
		return
	}
	certificates, keys, atCert := im.certificates(p)
	if len(certificates) == 0 {
		im.top.Lost(at, "there is no certificate for TLS: write certificate and key", level == "encrypt" || implicit)
		return
	}
	in := b.Inner("tls")
	in.Set("certificate", certificates, atCert)
	in.Set("key", keys, atCert)
	if implicit {
		in.Set("implicit", true, atImplicit)
	} else if level == "encrypt" && !usersOnly { // users log in under TLS only
		im.top.Lost(at, "a listener can't demand STARTTLS of clients without a login: write implicit = true, or auth "+
			"with required = true", true)
	}
	for _, name := range []string{"smtpd_tls_mandatory_protocols", "smtpd_tls_protocols"} {
		if v, at, set := p.text(name); set {
			if lowest := lowestVersion(v); lowest != "" && lowest != "1.2" {
				in.Set("min_version", lowest, at)
			}
		}
	}
	ask, atAsk := p.flag("smtpd_tls_ask_ccert")
	require, atRequire := p.flag("smtpd_tls_req_ccert")
	if ask || require {
		if require {
			atAsk = atRequire
			im.top.Lost(atAsk,
				"a certificate is asked for and not required: write auth with EXTERNAL and required = true", true)
		}
		in.Set("client_certificates", true, atAsk)
		im.top.Inner("users").Set("file", "/etc/mta/users", atAsk) // who has which certificate
	}
}

// certificates lists the files of a listener's certificates and keys.
func (im *importing) certificates(p scope) (certificates, keys []string, at importer.Origin) {
	if chains, at, _ := p.text("smtpd_tls_chain_files"); chains != "" {
		certificates, keys = im.chains(list(chains), at)
		return certificates, keys, at
	}
	for _, x := range [][2]string{{"smtpd_tls_cert_file", "smtpd_tls_key_file"},
		{"smtpd_tls_eccert_file", "smtpd_tls_eckey_file"}} {
		if c, atCert, _ := p.text(x[0]); c != "" && c != "none" {
			k, _, _ := p.text(x[1])
			certificates, keys, at = append(certificates, c), append(keys, k), atCert
		}
	}
	return certificates, keys, at
}

// chains makes pairs of the files of smtpd_tls_chain_files: each key begins a chain, whose certificates follow it, in
// the same file or in others.
func (im *importing) chains(files []string, at importer.Origin) (certificates, keys []string) {
	var guessed []bool // of each key: what is in its file
	var unread []string
	for _, f := range files {
		key, certificate, read := im.pemOf(f)
		if !read {
			unread = append(unread, f)
		}
		switch {
		case key:
			keys, certificates = append(keys, f), append(certificates, "")
		case len(keys) == 0:
			im.top.Lost(at, f+" has no key before it: write certificate and key", false)
			continue
		}
		last := len(keys) - 1
		if key {
			guessed = append(guessed, !read)
		}
		switch {
		case certificate && certificates[last] == "":
			certificates[last] = f
		case certificate:
			im.top.Lost(at, f+" continues the chain of "+certificates[last]+": append it to that file", false)
		}
	}
	for i := len(keys) - 1; i >= 0; i-- {
		if certificates[i] == "" && guessed[i] {
			certificates[i] = keys[i]
		}
		if certificates[i] == "" {
			im.top.Lost(at, keys[i]+" has no certificate after it: write certificate and key", false)
			keys, certificates = slices.Delete(keys, i, i+1), slices.Delete(certificates, i, i+1)
		}
	}
	if len(unread) > 0 {
		im.top.Noted(at, "the keys and certificates in "+strings.Join(unread, ", ")+
			" can't be read here: which file has which is a guess by the names")
	}
	return certificates, keys
}

// pemOf reports what is in a file: a key, certificates or both. Of one that can't be read, often since keys are for
// root only, the name shows that; where it doesn't, it has both.
func (im *importing) pemOf(file string) (key, certificate, read bool) {
	if data, _, err := im.file(file, maxTable); err == nil {
		key, certificate = bytes.Contains(data, []byte("PRIVATE KEY-----")),
			bytes.Contains(data, []byte("-----BEGIN CERTIFICATE"))
		if key || certificate {
			return key, certificate, true
		}
	}
	name := strings.ToLower(path.Base(file))
	key = strings.Contains(name, "key")
	certificate = !key && (strings.Contains(name, "cert") || strings.Contains(name, "chain") ||
		strings.HasSuffix(name, ".crt"))
	return key || !certificate, certificate || !key, false
}

// listenerAuth writes the logins of a listener.
func (im *importing) listenerAuth(b *importer.Block, p scope, logins, usersOnly bool) {
	on, at := p.flag("smtpd_sasl_auth_enable")
	if !on {
		return
	}
	if !logins {
		_, refusedAt := p.mayRelay(client{user: true})
		im.top.Noted(refusedAt, "users from outside mynetworks may not relay: the listener has no logins")
		return
	}
	if b.Find("tls") == nil {
		im.top.Lost(at, "logins need TLS: write a certificate, then auth", false)
		return
	}
	in := b.Inner("auth")
	in.Set("mechanisms", []string{"PLAIN", "LOGIN"}, at)
	if usersOnly {
		in.Set("required", true, at)
	}
	im.top.Inner("users").Set("file", "/etc/mta/users", at)
	im.top.Noted(at, "users and passwords are in Dovecot or Cyrus SASL: create them with 'mta user add'")
	p.text("smtpd_sasl_type")
	p.text("smtpd_sasl_path")
	p.flag("smtpd_tls_auth_only")
}
