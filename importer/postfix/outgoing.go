package postfix

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"example.org/mta/importer"
	"example.org/mta/internal/settings"
)

// outgoing writes sources, pools, and the blocks of destinations and senders.
func (im *importing) outgoing() {
	whole := scope{im: im}
	im.passwords = im.saslPasswords(whole)
	im.policies = whole.tablesOf("smtp_tls_policy_maps", false)
	im.everything = im.defaultHop(whole)
	routed := im.transportEntries(whole)
	im.poolOf(im.everything)
	effective := map[string]map[string]setting{"": im.everything.destination(im)}
	im.writeDefaults(whole, effective[""])
	if len(im.everything.hosts) > 0 {
		im.writeDomain("*", im.everything, effective)
	}
	im.addPolicies(routed)
	for _, p := range slices.SortedFunc(maps.Keys(routed), byWidth) {
		im.writeDomain(p, routed[p], effective)
	}
	im.senders(whole)
	im.unusedPasswords()
}

// byWidth orders patterns, the widest first.
func byWidth(a, b string) int {
	labels := func(p string) int {
		n := 2 * strings.Count(p, ".")
		if p == "*" {
			return -1
		}
		if !strings.HasPrefix(p, "*") {
			n += 1000
		}
		return n
	}
	return cmp.Or(cmp.Compare(labels(a), labels(b)), cmp.Compare(a, b))
}

// defaultHop is where mail goes that no table sends elsewhere.
func (im *importing) defaultHop(whole scope) *hop {
	relay, relayAt, _ := whole.text("relayhost")
	name, at, _ := whole.text("default_transport")
	named, nexthop := splitResult(name)
	t := im.transportNamed(named, at)
	if t == nil { // the import has failed; what else is wrong is found by a transport in its place
		t = im.transportOf(&service{name: "smtp", command: "smtp", maxproc: "-"})
	}
	h := &hop{transports: []*transport{t}, at: t.service.at}
	if relay != "" {
		nexthop, at = relay, relayAt
		h.at = relayAt
	}
	if nexthop != "" {
		h.hosts, h.names = im.nexthops(nexthop, "", at)
	}
	if t.command != "smtp" {
		im.fail(at, "mail leaves by %s, which is not an SMTP client: name a transport of the command smtp", t.command)
		h.transports[0] = im.transportOf(&service{name: "smtp", command: "smtp", maxproc: "-"})
	}
	return h
}

// hopOf reads the value of a transport table; nil if it is not carried, which is noted.
func (im *importing) hopOf(e *entry, domain string, base *hop) *hop {
	values := e.values
	if values == nil {
		values = []string{e.value}
	}
	h := &hop{at: e.at}
	for i, v := range values {
		name, nexthop := splitResult(unbrace(v))
		switch {
		case name == "" && nexthop == "":
			return nil // as if there were no entry
		case name == "":
			h.transports = append(h.transports, base.transports...)
		default:
			t := im.transportNamed(name, e.at)
			if t == nil {
				return nil
			}
			if !im.carries(t, e.at) {
				return nil
			}
			h.named = true
			if !slices.Contains(h.transports, t) {
				h.transports = append(h.transports, t)
			}
		}
		hosts, names := im.nexthops(nexthop, domain, e.at)
		if i > 0 && strings.Join(hosts, " ") != strings.Join(h.hosts, " ") {
			im.top.Noted(e.at, "the hosts of a route are tried in order, not at random")
			for j := range hosts {
				if !slices.Contains(h.hosts, hosts[j]) {
					h.hosts, h.names = append(h.hosts, hosts[j]), append(h.names, names[j])
				}
			}
			continue
		}
		h.hosts, h.names = hosts, names
	}
	h.reset = len(h.hosts) == 0
	return h
}

// carries reports whether a transport sends by SMTP, and notes the others.
func (im *importing) carries(t *transport, at importer.Origin) bool {
	switch t.command {
	case "smtp":
		return true
	case "error", "discard", "retry":
		im.top.Lost(at, fmt.Sprintf(
			"mail for such recipients would leave: the relay refuses, drops or holds none by destination (%s)",
			t.command), true)
	case "local", "virtual", "lmtp", "pipe", "spawn":
		im.top.Lost(at, fmt.Sprintf(
			"local delivery (%s) is out of scope: keep it on a mailbox server, and write a route to that", t.command),
			false)
	default:
		im.top.Lost(at, fmt.Sprintf("%s is not an SMTP client", t.command), true)
	}
	return false
}

// transportEntries reads transport_maps; a table for all keys changes im.everything.
func (im *importing) transportEntries(whole scope) map[string]*hop {
	routed := make(map[string]*hop)
	im.everything = im.senderDefault(whole, im.everything)
	base := im.everything
	tables := whole.tablesOf("transport_maps", false)
	all := answersAll(tables)
	if all != nil {
		if h := im.hopOf(all, "", base); h != nil && len(h.transports) > 0 {
			im.everything = h
		}
	}
	for _, t := range tables {
		for i := range t.entries {
			e := &t.entries[i]
			p, ok := pattern(e.key)
			switch {
			case !ok:
				im.top.Lost(e.at, "the key is not a domain, and routes are by domain", true)
			case all != nil:
				im.shadowed(e)
			case routed[p] == nil:
				im.transportEntry(e, p, base, routed)
			}
		}
	}
	return routed
}

// transportEntry reads the entry of a domain, or of "*".
func (im *importing) transportEntry(e *entry, p string, base *hop, routed map[string]*hop) {
	domain := p
	if strings.HasPrefix(p, "*") {
		domain = ""
	}
	h := im.hopOf(e, domain, base)
	switch {
	case h == nil:
	case p != "*":
		routed[p] = h
	case im.everything == base:
		im.everything = h
	}
}

// shadowed notes an entry of a domain that Postfix never comes to.
func (im *importing) shadowed(e *entry) {
	im.top.Lost(e.at, "it has no effect in Postfix: another table of the list has an answer for every address", false)
}

// senderDefault is the default where a table of senders has one value for all.
func (im *importing) senderDefault(whole scope, base *hop) *hop {
	im.bySender = whole.tablesOf("sender_dependent_default_transport_maps", false)
	if all := answersAll(im.bySender); all != nil {
		if h := im.hopOf(all, "", base); h != nil {
			if h.reset { // relayhost still applies
				h.hosts, h.names, h.reset = base.hosts, base.names, false
			}
			return h
		}
	}
	return base
}

// addPolicies adds the domains that have a TLS policy and no transport.
func (im *importing) addPolicies(routed map[string]*hop) {
	for _, t := range im.policies {
		for i := range t.entries {
			e := &t.entries[i]
			p, ok := pattern(e.key)
			if !ok || p == "*" || routed[p] != nil || strings.HasPrefix(p, "*") && answersAll(im.policies) != nil {
				continue
			}
			by := im.everything
			for _, w := range wider(p) {
				if routed[w] != nil {
					by = routed[w]
					break
				}
			}
			if len(by.hosts) == 0 {
				routed[p] = &hop{transports: by.transports, at: e.at, reset: by.reset}
			}
		}
	}
}

// policy finds the TLS policy of a next hop: of the domain where there are no hosts.
func (im *importing) policy(h *hop, p string) *entry {
	keys := h.names
	if len(keys) == 0 {
		keys = []string{p}
		if below, ok := strings.CutPrefix(p, "*"); ok {
			keys = []string{below}
		}
		for _, w := range wider(p) {
			keys = append(keys, w[1:])
		}
	} else if host, _, exact, err := nexthop(keys[0]); err == nil {
		keys = append(slices.Clone(keys[:1]), host)
		if exact {
			keys = append(keys, "["+host+"]")
		}
	}
	for _, k := range keys {
		for _, t := range im.policies {
			if e := t.find(k); e != nil {
				return e
			}
		}
	}
	return nil
}

// writeDomain writes the block of a destination, as far as it differs from what it inherits.
func (im *importing) writeDomain(p string, h *hop, effective map[string]map[string]setting) {
	want := h.destination(im)
	if e := im.policy(h, p); e != nil {
		fields := list(e.value)
		if len(fields) == 0 {
			im.fail(e.at, "the policy has no level of TLS: write one such as encrypt")
			return
		}
		im.used[e.at] = true
		im.protection(h.transports[0], fields[0], fields[1:], e.at, want)
	}
	inherited := maps.Clone(effective[""])
	var chain []string // of the wider blocks, the widest first
	if p != "*" {
		chain = wider(p)
		chain = append(chain, "*")
		slices.Reverse(chain)
	}
	routeAbove, poolAbove := false, "default"
	for _, w := range chain {
		maps.Copy(inherited, effective[w])
		if r, ok := effective[w]["route"]; ok {
			routeAbove = r.value.(bool)
		}
		if pool, ok := effective[w]["pool"]; ok {
			poolAbove = pool.value.(string)
		}
	}
	b := im.top.Inner("domain", p).From(h.at)
	own := make(map[string]setting)
	if len(h.hosts) > 0 {
		own["route"] = setting{true, h.at}
		b.Set("route", routeOf(h), h.at)
		im.login(b, h, want)
	} else if routeAbove {
		own["route"] = setting{false, h.at}
		b.Set("route", []string{}, h.at)
	}
	bySender := slices.ContainsFunc(im.bySender, func(t *table) bool { return len(t.entries) > 0 })
	if pool := im.poolOf(h); pool != poolAbove || h.named && bySender && p != "*" {
		own["pool"] = setting{pool, h.at}
		b.Set("pool", pool, h.at)
	}
	im.writeSettings(b, want, inherited)
	maps.Copy(own, want)
	effective[p] = own
}

// routeOf writes the hosts of a hop; TLS from the first octet where the transport has it.
func routeOf(h *hop) (route []string) {
	scheme := "smtp://"
	if wrapped, _ := h.transports[0].flag("smtp_tls_wrappermode"); wrapped {
		scheme = "smtps://"
	}
	for _, host := range h.hosts {
		route = append(route, scheme+host)
	}
	return route
}

// order of settings in a block.
var order = []string{
	"connection_limit", "connection_limit_per_source", "max_deliveries_per_connection", "max_recipients_per_batch",
	"max_message_rate",
	"max_message_rate_per_source", "active_timeout", "tls", "tls_min_version", "tls_ca", "tls_certificate",
	"tls_key", "pipelining",
}

// unset are the values that take back a setting of a wider block.
var unset = map[string]any{"max_message_rate": "none", "max_message_rate_per_source": "none",
	"connection_limit_per_source": 0, "tls_min_version": "auto", "pipelining": "auto",
	"max_deliveries_per_connection": 100, "active_timeout": "5m"}

func (im *importing) writeSettings(b *importer.Block, want, inherited map[string]setting) {
	for _, name := range order {
		s, has := want[name]
		before, had := inherited[name]
		switch {
		case has && (!had || before.value != s.value):
			b.Set(name, s.value, s.at)
		case !has && had && unset[name] != nil:
			b.Set(name, unset[name], importer.Origin{})
		}
	}
	for _, n := range append(timeoutNames, struct{ param, setting string }{"", "greeting"}) {
		s, has := want["timeouts."+n.setting]
		if before, had := inherited["timeouts."+n.setting]; has && (!had || before.value != s.value) {
			b.Inner("timeouts").Set(n.setting, s.value, s.at)
		}
	}
}

// writeDefaults writes what applies to all destinations.
func (im *importing) writeDefaults(whole scope, want map[string]setting) {
	b := im.top.Inner("defaults")
	if e := answersAll(im.policies); e != nil {
		if fields := list(e.value); len(fields) > 0 && len(im.everything.hosts) == 0 {
			im.protection(im.everything.transports[0], fields[0], fields[1:], e.at, want)
		}
	}
	im.writeSettings(b, want, nil)
	var least time.Duration // between attempts
	for _, x := range []struct {
		param, setting string
		unit           byte
	}{
		{"minimal_backoff_time", "retry_interval", 's'}, {"maximal_backoff_time", "max_retry_interval", 's'},
		{"maximal_queue_lifetime", "max_age", 'd'}, {"delay_warning_time", "delay_warning", 'h'},
	} {
		d, at, _ := im.queueManager().duration(x.param, x.unit)
		if d < time.Minute && x.setting == "max_age" {
			im.top.Noted(at, "the relay keeps mail that it can't deliver for a minute at least")
			d = time.Minute
		}
		if d == 0 && x.setting != "delay_warning" {
			im.fail(at, "%s: it must be more than zero: write a time such as 300s", x.param)
			continue
		}
		if x.setting == "max_retry_interval" && d < least {
			im.top.Noted(at, "it is shorter than minimal_backoff_time, which counts")
			d = least
		}
		if x.setting == "retry_interval" {
			least = d
		}
		b.Set(x.setting, settings.FormatDuration(d), at)
	}
	age, _, _ := im.queueManager().duration("maximal_queue_lifetime", 'd')
	if d, at, set := im.queueManager().duration("bounce_queue_lifetime", 'd'); set && d != age {
		im.top.Lost(at, "reports have the max_age of other mail", false)
	}
	if port, at, set := whole.text("smtp_tcp_port"); set {
		if p, err := portOf(port); err != nil {
			im.fail(at, "smtp_tcp_port: %v", err)
		} else {
			var n int
			fmt.Sscan(p, &n)
			b.Set("smtp_port", n, at)
		}
	}
}

// senders writes the blocks of senders' domains.
func (im *importing) senders(whole scope) {
	relays := whole.tablesOf("sender_dependent_relayhost_maps", false)
	for i, tables := range [][]*table{im.bySender, relays} {
		for _, t := range tables {
			for j := range t.entries {
				e := &t.entries[j]
				domain, ok := strings.CutPrefix(e.key, "@")
				if p, is := pattern(domain); !ok || !is || strings.ContainsAny(p, "*[") {
					im.top.Lost(e.at, "pools and routes are by the sender's domain, not by address", true)
					continue
				}
				if answersAll(tables) != nil {
					im.shadowed(e)
				} else if i == 0 {
					im.senderTransport(domain, e)
				} else {
					im.senderRelay(domain, e)
				}
			}
			if t.any != nil && i == 1 {
				im.top.Lost(t.any.at, "write it as relayhost", true)
			}
		}
	}
}

func (im *importing) senderTransport(domain string, e *entry) {
	h := im.hopOf(e, "", im.everything)
	if h == nil {
		return
	}
	b := im.top.Inner("sender_domain", domain).From(e.at)
	if pool := im.poolOf(h); pool != "default" {
		b.Set("pool", pool, e.at)
	}
	if relay, _, _ := (scope{im: im}).text("relayhost"); len(h.hosts) > 0 && relay == "" {
		b.Set("route", routeOf(h), e.at)
		im.login(b, h, map[string]setting{})
	}
	want, has := h.destination(im), im.everything.destination(im)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if s := want[name]; has[name].value != s.value {
			im.top.Lost(s.at, fmt.Sprintf("%s has no setting by sender: that of the destination applies", name), true)
		}
	}
	if !b.Has("pool") && !b.Has("route") {
		b.Set("pool", "default", e.at)
	}
}

func (im *importing) senderRelay(domain string, e *entry) {
	if strings.EqualFold(e.value, "DUNNO") {
		return
	}
	h := &hop{transports: im.everything.transports, at: e.at}
	h.hosts, h.names = im.nexthops(e.value, "", e.at)
	if len(h.hosts) == 0 {
		return
	}
	b := im.top.Inner("sender_domain", domain).From(e.at)
	b.Set("route", routeOf(h), e.at)
	im.login(b, h, map[string]setting{})
	if p := im.policy(h, domain); p != nil {
		im.used[p.at] = true
		im.top.Lost(p.at, "the route of a sender's domain has the TLS of defaults", true)
	}
}
