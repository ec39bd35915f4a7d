package powermta

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"example.org/mta/importer"
)

// queue is what several scopes say of the mail for one domain.
type queue struct {
	block  *importer.Block
	domain string
	said   map[string][]said // by the setting

	username, password *directive // at the hosts of its route
}

// own gives the block with a source's limits for the queue's mail.
func (c *conversion) own(q *queue, source string) *importer.Block {
	b, wide := c.draft.Inner("source", source), q.block.Labels()
	switch {
	case c.rollups[q.domain] != nil:
		return b.Inner("provider", wide...)
	case len(wide) == 0: // defaults
		return b.Inner("domain", "*")
	}
	return b.Inner("domain", wide...)
}

// said is what one directive says.
type said struct {
	*directive
	vmta   *vmta   // nil: all of them
	of     *vmta   // the one for which one of all of them counts; nil: not known yet
	value  any     // int, rate, time.Duration or string
	strict float64 // the smallest is the strictest
}

// kinds of settings, by how two values become one.
const perSource, perSourceRate, plainSpan = "limit", "rate", "span"

// carried are the directives of a domain that have a counterpart.
var carried = map[string]struct{ setting, kind string }{
	"max-smtp-out":                  {"connection_limit_per_source", perSource},
	"max-smtp-out-per-source-ip":    {"connection_limit_per_source", perSource},
	"source-ip-max-smtp-out":        {"connection_limit_per_source", perSource},
	"max-msg-rate":                  {"max_message_rate_per_source", perSourceRate},
	"max-msg-per-hour":              {"max_message_rate_per_source", perSourceRate},
	"source-ip-max-msg-rate":        {"max_message_rate_per_source", perSourceRate},
	"max-connect-rate":              {"max_connection_rate_per_source", perSourceRate},
	"source-ip-max-connect-rate":    {"max_connection_rate_per_source", perSourceRate},
	"max-msg-per-connection":        {"max_deliveries_per_connection", perSource},
	"max-rcpt-per-message":          {"max_recipients_per_batch", perSource},
	"max-rcpt-per-transaction":      {"max_recipients_per_batch", perSource},
	"bounce-after":                  {"max_age", plainSpan},
	"connect-timeout":               {"connect", plainSpan},
	"smtp-greeting-timeout":         {"greeting", plainSpan},
	"data-send-timeout":             {"block", plainSpan},
	"smtp-data-termination-timeout": {"dot", plainSpan},
	"connection-idle-timeout":       {"idle_timeout", plainSpan},
}

// least are the smallest values that mta takes.
var least = map[string]time.Duration{"max_age": time.Minute, "idle_timeout": time.Second, "connect": time.Second,
	"greeting": time.Second, "block": time.Second, "dot": time.Second}

// domainScope reads a <domain>, of a virtual MTA unless v is nil.
func (c *conversion) domainScope(d *directive, v *vmta) error {
	domains, err := c.domains(d)
	if err != nil {
		return err
	}
	if taken := c.queueTo[domains[0]]; taken != nil && len(domains) == 1 {
		domains = c.queueDomains(d, domains[0])
	}
	for _, name := range domains {
		b := c.block(name)
		if b == nil {
			c.draft.Lost(d.Origin, fmt.Sprintf("%s is not a domain that mail can have", short(name)), true)
			continue
		}
		b.From(d.Origin)
		q := c.queues[b]
		if q == nil {
			q = &queue{block: b, domain: name, said: make(map[string][]said)}
			c.queues[b] = q
			c.order = append(c.order, q)
		}
		for _, in := range d.inner {
			c.faults.take(in, c.domainDirective(q, in, v))
		}
	}
	return nil
}

// queueDomains are the domains whose mail goes to a queue: its settings become theirs.
func (c *conversion) queueDomains(d *directive, name string) []string {
	domains := slices.Clone(c.queueTo[name])
	slices.Sort(domains)
	domains = slices.Compact(domains)
	limited := slices.ContainsFunc(d.inner, func(in *directive) bool {
		k := carried[in.name].kind
		return k == perSourceRate || in.name == "max-smtp-out"
	})
	if len(domains) > 1 && limited {
		c.draft.Lost(d.Origin,
			fmt.Sprintf("the limits of the queue %s hold for all its %d domains together; here they hold for each "+
				"site: write a provider block with the exchangers of these domains", name, len(domains)), true)
	}
	if c.rollups[name] != nil {
		domains = append(domains, name) // what its exchangers take is in the queue too
	}
	return domains
}

// domainDirective reads a line of a <domain>.
func (c *conversion) domainDirective(q *queue, d *directive, v *vmta) error {
	if known, ok := carried[d.name]; ok {
		return c.say(q, d, v, known.setting, known.kind)
	}
	if read, ok := c.readers[d.name]; ok {
		return read(c, q, d, v)
	}
	c.lose(q.block, d)
	return nil
}

// say notes what a directive says of a setting.
func (c *conversion) say(q *queue, d *directive, v *vmta, setting, kind string) error {
	text := d.value
	if strings.HasPrefix(d.name, "source-ip-") {
		_, text = cutWord(text) // the address: the strictest of all counts
	}
	if text == "" {
		return d.fault("%s has no value: write one, or remove the line", d.name)
	}
	s := said{directive: d, vmta: v}
	switch kind {
	case perSource:
		n, err := d.number(text)
		if err != nil {
			return err
		}
		if s.value = n; n == 0 && setting == "connection_limit_per_source" && !unlimited(text) {
			q.block.Lost(d.Origin, "0 stops the mail: use 'mta pause' for that", true)
			return nil
		}
	case perSourceRate:
		if d.name == "max-msg-per-hour" && !strings.Contains(text, "/") && !unlimited(text) {
			text += "/h"
		}
		r, stopped, err := d.rate(text)
		switch {
		case err != nil:
			return err
		case stopped:
			q.block.Lost(d.Origin, "0 stops the mail: use 'mta pause' for that", true)
			return nil
		}
		s.value = r
	case plainSpan:
		if never(text) {
			q.block.Lost(d.Origin, "there is always a limit here: the default applies", false)
			return nil
		}
		t, err := d.duration(text)
		if err != nil {
			return err
		}
		if t < least[setting] {
			q.block.Noted(d.Origin, "the least that mta takes is "+span(least[setting]))
			t = least[setting]
		}
		s.value = t
	}
	for _, s.vmta = range append([]*vmta{v}, c.alike...) {
		s.strict = c.strict(s, setting)
		q.said[setting] = append(q.said[setting], s)
	}
	return nil
}

// strict is how strict a limit is for each source: the smallest is the strictest.
func (c *conversion) strict(s said, setting string) float64 {
	switch v := s.value.(type) {
	case int:
		switch {
		case v == 0:
			return math.Inf(1)
		case setting == "connection_limit_per_source":
			return float64(max(1, v/c.parts(s)))
		}
		return float64(v)
	case rate:
		if v.count == 0 {
			return math.Inf(1)
		}
		return v.perDay() / float64(c.parts(s))
	}
	return 0
}

// parts is among how many sources a limit is shared: the addresses of a virtual MTA share those of a queue, and each
// has those of an address for itself.
func (c *conversion) parts(s said) int {
	switch {
	case s.limitOf().byAddress:
		return 1
	case cmp.Or(s.vmta, s.of) != nil:
		return len(cmp.Or(s.vmta, s.of).sources)
	}
	return c.mostAddresses()
}

// writeLimits writes the settings of all queues.
func (c *conversion) writeLimits() {
	var star *queue
	for _, q := range c.order {
		if q.domain == "*" {
			star = q
		}
	}
	for _, q := range c.order {
		for _, name := range slices.Sorted(maps.Keys(q.said)) {
			if !strings.HasPrefix(name, "backoff-") { // see writePatterns
				all := c.withRollup(q, name, c.withStars(q, star, name))
				if c.differs(name, all) {
					c.writeBySource(q, name, all)
				} else {
					c.writeSetting(q, name, all)
				}
			}
		}
	}
}

// withStars adds what <domain *> says, for everybody whose mail for this domain it still limits: mail must not be sent
// faster because another scope, or the other kind of limit, names the domain.
func (c *conversion) withStars(q, star *queue, setting string) []said {
	all := q.said[setting]
	if star == nil || star == q {
		return all
	}
	here, anywhere := make(map[limitOf]bool), make(map[limitOf]bool)
	for _, s := range all {
		here[s.limitOf()], anywhere[s.limitOf()] = true, true
	}
	for _, s := range star.said[setting] {
		anywhere[s.limitOf()] = true
	}
	all = slices.Clip(all)
	for _, s := range star.said[setting] {
		of := s.limitOf()
		everyVMTA := of.vmta == nil && len(c.vmtas) > 0 && !slices.ContainsFunc(c.vmtas, func(v *vmta) bool {
			return !anywhere[limitOf{v, of.byAddress}]
		})
		if !here[of] && !everyVMTA {
			all = append(all, s)
		}
	}
	return all
}

// limitOf is what a narrower scope overrides: limits of a queue and of an address hold beside each other.
type limitOf struct {
	vmta      *vmta
	byAddress bool
}

func (s said) limitOf() limitOf {
	return limitOf{s.vmta, strings.Contains(s.name, "source-ip")}
}

// writeSetting writes the strictest of what is said of a setting, and notes on the others.
func (c *conversion) writeSetting(q *queue, setting string, all []said) {
	best := slices.MinFunc(all, func(a, b said) int {
		if x := cmp.Compare(a.strict, b.strict); x != 0 {
			return x
		}
		return cmp.Compare(rank(a), rank(b)) // of equals, what holds for all
	})
	for _, s := range all {
		if s.directive != best.directive && s.value != best.value {
			reason := fmt.Sprintf("mta has one %s for all sources: that of %s:%d", setting, best.File, best.Line)
			if s.strict != 0 || best.strict != 0 {
				reason = fmt.Sprintf("the strictest %s counts, that of %s:%d", setting, best.File, best.Line)
			}
			q.block.Noted(s.Origin, reason)
		} else if s.directive != best.directive {
			q.block.Noted(s.Origin, "the same as "+fmt.Sprintf("%s:%d", best.File, best.Line))
		}
	}
	left := func(v *vmta) bool {
		return !slices.ContainsFunc(all, func(s said) bool { return s.vmta == nil || s.vmta == v })
	}
	if slices.ContainsFunc(c.vmtas, left) {
		q.block.Noted(best.Origin,
			fmt.Sprintf("mta has one %s for all sources: the other virtual MTAs get it too", setting))
	}
	c.put(q, setting, best)
}

// ownNames are the settings that sources have for a destination, by those of the destination.
var ownNames = map[string]string{
	"connection_limit_per_source":    "connection_limit",
	"max_message_rate_per_source":    "max_message_rate",
	"max_connection_rate_per_source": "max_connection_rate",
	"max_deliveries_per_connection":  "max_deliveries_per_connection",
	"max_recipients_per_batch":       "max_recipients_per_batch",
}

// differs reports whether virtual MTAs have different limits.
func (c *conversion) differs(setting string, all []said) bool {
	return ownNames[setting] != "" && len(c.vmtas) > 1 && slices.ContainsFunc(all, func(s said) bool {
		return s.vmta != nil || ownNames[setting] != setting && !s.limitOf().byAddress && c.unequal()
	})
}

// unequal reports whether virtual MTAs have different numbers of addresses, which share a limit.
func (c *conversion) unequal() bool {
	return slices.ContainsFunc(c.vmtas, func(v *vmta) bool { return len(v.sources) != len(c.vmtas[0].sources) })
}

// writeBySource writes the limits of each virtual MTA into its sources, and the loosest of them for the destination.
func (c *conversion) writeBySource(q *queue, setting string, all []said) {
	var loosest said
	bounded, sum, inForce := true, 0, make(map[*vmta]said)
	for _, v := range c.vmtas {
		s, ok := c.inForceOf(q, v, setting, all)
		if inForce[v] = s; !ok {
			bounded = false
		} else if loosest.directive == nil || s.strict > loosest.strict {
			loosest = s
		}
		if n := s.strict; ok && !math.IsInf(n, 1) {
			sum += int(n) * len(v.sources)
		} else {
			sum += defaultConnections * len(v.sources)
		}
	}
	for _, v := range c.vmtas {
		s := inForce[v]
		own := s.vmta != nil && slices.Contains(q.said[setting], s)
		other := s.vmta == nil && (s.strict < loosest.strict || !bounded) // that of <domain *> in it has its block
		if s.directive == nil || math.IsInf(s.strict, 1) || !own && !other {
			continue
		}
		value, note := c.share(s)
		for _, source := range v.sources {
			b := c.own(q, source)
			if note != "" {
				b.Noted(s.Origin, note)
			}
			b.Set(ownNames[setting], value, s.Origin)
		}
	}
	for _, s := range q.said[setting] {
		if !slices.ContainsFunc(c.vmtas, func(v *vmta) bool { return inForce[v].directive == s.directive }) {
			q.block.Noted(s.Origin, "each virtual MTA has a stricter limit or its own")
		}
	}
	if bounded {
		c.put(q, setting, loosest)
	} else if setting == "connection_limit_per_source" {
		q.block.Set("connection_limit", max(sum, defaultConnections), importer.Origin{})
	}
}

// defaultConnections is the relay's limit where nothing sets one.
const defaultConnections = 10

// inForceOf is the strictest limit of a virtual MTA; one that warms up in place of another has that one's.
func (c *conversion) inForceOf(q *queue, v *vmta, setting string, all []said) (best said, ok bool) {
	if v.directive.name == "auto-cold-virtual-mta" {
		for _, p := range c.vmtas {
			if p.cold == v.name {
				v = p
			}
		}
	}
	own := make(map[bool]bool) // the virtual MTA has this kind of limit for the destination: it overrides that of all
	for _, s := range q.said[setting] {
		own[s.limitOf().byAddress] = own[s.limitOf().byAddress] || s.vmta == v
	}
	for _, s := range all {
		if s.vmta != v && (s.vmta != nil || own[s.limitOf().byAddress]) {
			continue
		}
		if s.vmta == nil {
			s.of = v
			s.strict = c.strict(s, setting)
		}
		if !ok || s.strict < best.strict || s.strict == best.strict && rank(s) > rank(best) {
			best, ok = s, true
		}
	}
	return best, ok
}

// share is a limit as it is written for each source, and what to note.
func (c *conversion) share(s said) (value any, note string) {
	k := c.parts(s)
	if k > 1 {
		note = fmt.Sprintf("a virtual MTA here has %d addresses, each a source: each has its part of the limit", k)
	}
	if n, number := s.value.(int); number {
		if ownNames[carried[s.name].setting] != "connection_limit" {
			return n, ""
		}
		return max(1, n/k), note
	}
	r := s.value.(rate)
	r.per *= time.Duration(k)
	text, exact := r.text()
	if text == "" {
		return "1/d", "the least rate that mta has is 1/d"
	} else if !exact && note == "" {
		note = "the rate is rounded down"
	}
	return text, note
}

func rank(s said) int {
	if s.vmta == nil {
		return 0
	}
	return 1
}

// put writes one setting.
func (c *conversion) put(q *queue, setting string, s said) {
	b := q.block
	switch v := s.value.(type) {
	case int:
		c.putNumber(q, setting, v, s)
	case rate:
		c.putRate(q, setting, v, s)
	case time.Duration:
		if slices.Contains([]string{"connect", "greeting", "block", "dot"}, setting) {
			b = b.Inner("timeouts")
		}
		b.Set(setting, span(v), s.Origin)
	case tlsLevel:
		b.Set(setting, string(v), s.Origin)
	case intervals:
		b.Set(setting, strings.Fields(string(v)), s.Origin)
	case string:
		b.Set(setting, v, s.Origin)
	}
}

// putNumber writes a limit of the connections, or of what each of them takes.
func (c *conversion) putNumber(q *queue, setting string, n int, s said) {
	const many = 1_000_000
	if setting != "connection_limit_per_source" {
		n = cmp.Or(n, many)
		q.block.Set(setting, n, s.Origin)
		c.overPresets(q, setting, float64(n), n, s)
		return
	}
	all := c.addresses()
	if n == 0 {
		q.block.Set("connection_limit", many, s.Origin)
		return
	}
	if k := c.parts(s); k > 1 && n > 1 {
		q.block.Noted(s.Origin,
			fmt.Sprintf("a virtual MTA here has %d addresses, each a source: each has its part of the limit", k))
		n = max(1, n/k)
	}
	q.block.Set("connection_limit", min(n*all, many*10), importer.Origin{})
	q.block.Set(setting, n, s.Origin)
	c.overPresets(q, setting, float64(n), n, s)
	if c.rollups[q.domain] != nil && all > 1 {
		q.block.Noted(s.Origin,
			"the limit is for each source and site; connection_limit holds for all of them together")
	}
}

// putRate writes a rate of each source.
func (c *conversion) putRate(q *queue, setting string, r rate, s said) {
	if r.count == 0 {
		q.block.Set(setting, "none", s.Origin)
		return
	}
	if k := c.parts(s); k > 1 {
		q.block.Noted(s.Origin,
			fmt.Sprintf("a virtual MTA here has %d addresses, each a source: each has its part of the rate", k))
		r.per *= time.Duration(k)
	}
	text, exact := r.text()
	if text == "" {
		q.block.Lost(s.Origin, "the least rate that mta has is 1/d", true)
		text = "1/d"
	} else if !exact {
		q.block.Noted(s.Origin, "the rate is rounded down")
	}
	q.block.Set(setting, text, s.Origin)
	c.overPresets(q, setting, r.perDay(), text, s)
	if c.rollups[q.domain] == nil {
		return
	}
	whole := rate{r.count * int64(c.addresses()), r.per} // the budget of the provider: all sources, all sites
	if text, _ := whole.text(); text != "" {
		q.block.Set(strings.TrimSuffix(setting, "_per_source"), text, importer.Origin{})
	}
}
