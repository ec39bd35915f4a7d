package postfix

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/mta/importer"
	"example.org/mta/internal/settings"
)

// setting is one of a destination.
type setting struct {
	value any
	at    importer.Origin
}

// transport is an SMTP client of master.cf, with its parameters.
type transport struct {
	scope
	name     string
	command  string // "smtp", or what is out of scope
	service  *service
	sources  []string           // made for it
	settings map[string]setting // of destinations
}

// transportNamed finds a transport, or complains at the place that names it.
func (im *importing) transportNamed(name string, at importer.Origin) *transport {
	if t := im.transports[name]; t != nil {
		return t
	}
	for _, s := range im.services {
		if s.name == name && s.kind == "unix" {
			im.transports[name] = im.transportOf(s)
			return im.transports[name]
		}
	}
	if !im.partial {
		im.fail(at, "master.cf has no transport %q: add it, or correct the name", importer.Short(name))
	}
	return nil
}

// transportOf makes the transport of a service.
func (im *importing) transportOf(s *service) *transport {
	t := &transport{scope: scope{im, s.own}, name: s.name, command: s.command, service: s}
	im.used[s.at] = true
	if t.command == "smtp" {
		t.settings = im.destinationSettings(t)
	}
	return t
}

// param is the name of a parameter of the transport.
func (t *transport) param(suffix string) string { return t.name + suffix }

// destinationSettings are those that a transport gives to its destinations.
func (im *importing) destinationSettings(t *transport) map[string]setting {
	out := make(map[string]setting)
	queue := im.queueManager()
	if n, at, _ := queue.number(t.param("_destination_concurrency_limit")); n > 0 {
		out["connection_limit"] = setting{n, at}
	} else {
		out["connection_limit"] = setting{1000, at}
	}
	n, at, _ := queue.number(t.param("_destination_recipient_limit"))
	n = cmp.Or(n, 1000)
	out["max_recipients_per_batch"] = setting{n, at}
	if d, at, _ := queue.duration(t.param("_destination_rate_delay"), 's'); d > 0 {
		out["max_message_rate"] = setting{rateText(d), at}
		out["connection_limit"] = setting{1, at}
		if n == 1 {
			im.top.Noted(at,
				"with a recipient limit of 1, Postfix waits between messages to one recipient; the relay between "+
					"messages to the site")
		}
	}
	im.timeouts(t, out)
	im.connections(t, out)
	level, at := im.mainLevel(t)
	im.protection(t, level, nil, at, out)
	return out
}

// queueManager is where the limits of destinations and transports are looked up: they are parameters of the queue
// manager, whatever -o of a transport has.
func (im *importing) queueManager() scope {
	for _, s := range im.services {
		if s.command == "qmgr" || s.command == "oqmgr" {
			return scope{im, s.own}
		}
	}
	return scope{im: im}
}

// timeoutNames are the settings in timeouts, by the parameter.
var timeoutNames = []struct{ param, setting string }{
	{"smtp_connect_timeout", "connect"}, {"smtp_helo_timeout", "ehlo"}, {"smtp_mail_timeout", "mail"},
	{"smtp_rcpt_timeout", "rcpt"},
	{"smtp_data_init_timeout", "data"}, {"smtp_data_xfer_timeout", "block"}, {"smtp_data_done_timeout", "dot"},
	{"smtp_quit_timeout", "quit"},
}

func (im *importing) timeouts(t *transport, out map[string]setting) {
	for _, n := range timeoutNames {
		if d, at, set := t.duration(n.param, 's'); set && d >= time.Second {
			out["timeouts."+n.setting] = setting{settings.FormatDuration(d), at}
			if n.setting == "ehlo" {
				out["timeouts.greeting"] = setting{settings.FormatDuration(d), at}
			}
		}
	}
}

// connections are settings about their use.
func (im *importing) connections(t *transport, out map[string]setting) {
	if n, at, set := t.number("smtp_connection_reuse_count_limit"); set && n > 0 {
		out["max_deliveries_per_connection"] = setting{n, at}
	}
	if d, at, set := t.duration("smtp_connection_reuse_time_limit", 's'); set && d >= time.Second {
		out["active_timeout"] = setting{settings.FormatDuration(d), at}
	}
	value, at, set := t.text("smtp_discard_ehlo_keywords")
	if !set {
		return
	}
	var rest []string
	for _, word := range list(strings.ToLower(value)) {
		switch word {
		case "pipelining":
			out["pipelining"] = setting{"lockstep", at}
		case "chunking":
			if _, has := out["pipelining"]; !has {
				out["pipelining"] = setting{"pipelining", at}
			}
		case "silent-discard":
		default:
			rest = append(rest, word)
		}
	}
	if len(rest) > 0 {
		im.top.Lost(at, "the relay uses these extensions where a host offers them: "+strings.Join(rest, ", "), false)
	}
}

// makeSources writes the sources of a transport, once.
func (im *importing) makeSources(t *transport) []string {
	if t.sources != nil {
		return t.sources
	}
	four, at4 := im.bindAddress(t, "smtp_bind_address", netip.Addr.Is4)
	six, at6 := im.bindAddress(t, "smtp_bind_address6", netip.Addr.Is6)
	v4, v6, atFamilies := t.protocols()
	if !v4 {
		four = netip.Addr{}
	}
	if !v6 {
		six = netip.Addr{}
	}
	all4, all6, _ := scope{im: im}.protocols()
	if (v4 != all4 || v6 != all6) && !four.IsValid() && !six.IsValid() {
		im.top.Lost(atFamilies,
			"a source without an address uses all families: give it the address from which this mail is to leave", true)
	}
	switch {
	case four.IsValid() && six.IsValid():
		t.sources = []string{t.name, t.name + "-6"}
		im.source(t, t.name, four, at4)
		im.source(t, t.name+"-6", six, at6)
	case six.IsValid():
		t.sources = []string{t.name}
		im.source(t, t.name, six, at6)
	default:
		t.sources = []string{t.name}
		im.source(t, t.name, four, at4)
	}
	if four.IsValid() != six.IsValid() && v4 && v6 {
		at := at4
		if six.IsValid() {
			at = at6
		}
		im.top.Noted(at,
			"a source has one address: mail for hosts of the other family waits until you add a source for it to the "+
				"pool")
	}
	return t.sources
}

// bindAddress is that of a transport: by its parameter, or the only address of inet_interfaces.
func (im *importing) bindAddress(t *transport, name string,
	family func(netip.Addr) bool) (netip.Addr, importer.Origin) {
	value, at, _ := t.text(name)
	if value != "" {
		a, err := netip.ParseAddr(strings.Trim(value, "[]"))
		if err != nil || !family(a) {
			im.fail(at, "%s: %q is not an address of its family: write one", name, importer.Short(value))
			return netip.Addr{}, at
		}
		if !a.IsUnspecified() {
			return a, at
		}
		return netip.Addr{}, at
	}
	interfaces, at, _ := t.text("inet_interfaces")
	var found []netip.Addr
	for _, item := range list(interfaces) {
		if a, err := netip.ParseAddr(strings.Trim(item, "[]")); err == nil && family(a) {
			found = append(found, a)
		}
	}
	if len(found) == 1 && !found[0].IsLoopback() && !found[0].IsUnspecified() {
		return found[0], at
	}
	return netip.Addr{}, importer.Origin{}
}

// source writes one.
func (im *importing) source(t *transport, name string, a netip.Addr, at importer.Origin) {
	b := im.top.Inner("source", name).From(t.service.at)
	if a.IsValid() {
		b.Set("address", a.String(), at)
	}
	hostname, _, _ := scope{im: im}.text("myhostname")
	if helo, at, _ := t.text("smtp_helo_name"); helo != "" && helo != hostname {
		b.Set("ehlo", helo, at)
	}
	limit, at := t.service.maxproc, t.service.at
	if limit == "-" {
		limit, at, _ = t.text("default_process_limit")
	}
	if n, err := strconv.Atoi(limit); err != nil || n < 0 {
		im.fail(at, "the limit of processes, %q, is not a whole number: write one, or -", importer.Short(limit))
	} else if n > 0 {
		b.Set("connection_limit", n, at)
	}
	if d, at, _ := im.queueManager().duration(t.param("_transport_rate_delay"), 's'); d > 0 {
		b.Set("max_message_rate", rateText(d), at)
		if len(t.sources) > 1 {
			im.top.Noted(at, "each of the two sources has the rate")
		}
	}
}

// poolOf writes the pool of a hop's transports and gives its name.
func (im *importing) poolOf(h *hop) string {
	var names, sources []string
	for _, t := range h.transports {
		names = append(names, t.name)
		sources = append(sources, im.makeSources(t)...)
	}
	name := strings.Join(names, "-")
	if len(name) > 60 {
		name = fmt.Sprintf("%s-and-%d-more", names[0], len(names)-1)
	}
	if h == im.everything {
		name = "default"
	}
	for pool, has := range im.pools {
		if strings.Join(has, " ") == strings.Join(sources, " ") {
			return pool
		}
	}
	for i := 2; im.pools[name] != nil; i++ {
		name = fmt.Sprintf("%s-%d", strings.Join(names[:1], ""), i)
	}
	im.pools[name] = sources
	im.top.Inner("pool", name).From(h.at).Set("shared", sources, importer.Origin{})
	return name
}

// destination merges the settings of a hop's transports: each has its own limits at a destination, so that all together
// have their sum, and one source the largest.
func (h *hop) destination(im *importing) map[string]setting {
	out := make(map[string]setting)
	maps.Copy(out, h.transports[0].settings)
	if len(h.transports) == 1 {
		return out
	}
	sum, most, at := 0, 0, out["connection_limit"].at
	for _, t := range h.transports {
		n := t.settings["connection_limit"].value.(int)
		sum, most = sum+n, max(most, n)
		if n != out["connection_limit"].value {
			im.top.Noted(t.settings["connection_limit"].at,
				"the sources of a pool have one limit at a destination, the largest of their transports'")
		}
		for _, name := range slices.Sorted(maps.Keys(t.settings)) {
			s := t.settings[name]
			if name != "connection_limit" && out[name].value != s.value {
				im.top.Lost(s.at, fmt.Sprintf("the transports of one pool have one value of %s here: that of %s counts",
					name, h.transports[0].name), true)
			}
		}
	}
	out["connection_limit"] = setting{min(sum, 100_000), at}
	out["connection_limit_per_source"] = setting{most, at}
	if rate, ok := out["max_message_rate"]; ok {
		delete(out, "max_message_rate")
		out["max_message_rate_per_source"] = rate
	}
	return out
}
