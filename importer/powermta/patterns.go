package powermta

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"example.org/mta/importer"
)

// patternList is a <smtp-pattern-list>.
type patternList struct {
	*directive
	rules []rule
	users []*queue // in their order

	// In backoff mode; a rate without a count and no connections: no limit.
	retry, normal time.Duration
	rate          rate
	connections   int
}

// slows reports whether backoff mode is a slow-down.
func (l *patternList) slows() bool { return l.rate.count > 0 || l.connections > 0 }

// rule is a line of it.
type rule struct {
	*directive
	session bool
	pattern string
	actions map[string]string
}

// sessionWords begin patterns for replies to a session as a whole; the others are for replies to messages.
var sessionWords = map[string]bool{"reply": false, "mail-from": false, "rcpt-to": false, "data": false,
	"greeting": true, "connect": true, "ehlo": true, "helo": true}

func (c *conversion) collectPatterns(d *directive) error {
	name := strings.ToLower(unquote(d.value))
	if name == "" {
		return d.fault("smtp-pattern-list has no name: write <smtp-pattern-list name>")
	}
	list := &patternList{directive: d}
	for _, in := range d.inner {
		if r, err := readRule(in); c.faults.take(in, err) {
			list.rules = append(list.rules, r)
		}
	}
	c.patterns[name] = list
	return nil
}

// readRule reads a line of a list.
func readRule(d *directive) (rule, error) {
	r := rule{directive: d, actions: make(map[string]string)}
	session, known := sessionWords[d.name]
	text := d.value
	if !known || !strings.HasPrefix(text, "/") {
		return r, d.fault("%s is not a rule: write reply /pattern/ and an action", short(d.Directive))
	}
	end := closing(text)
	if end < 0 {
		return r, d.fault("the pattern %s has no closing slash: write one behind it", short(text))
	}
	r.session, r.pattern = session, strings.ReplaceAll(text[1:end], `\/`, "/")
	for _, a := range names(text[end+1:]) {
		key, value, _ := strings.Cut(strings.ToLower(a), "=")
		r.actions[key] = value
	}
	return r, nil
}

// closing finds the slash that ends a pattern, -1 if there is none.
func closing(text string) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '/':
			return i
		}
	}
	return -1
}

// readPatternList notes that a domain uses a list.
func readPatternList(c *conversion, q *queue, d *directive, _ *vmta) error {
	list := c.patterns[strings.ToLower(unquote(d.value))]
	if list == nil {
		return dangling{d.fault("smtp-pattern-list: there is no list %s: define it, or correct the name",
			short(d.value))}
	}
	if !slices.Contains(list.users, q) {
		list.users = append(list.users, q)
	}
	c.listed[q] = true
	return nil
}

// writePatterns makes backoff rules of the lists that domains use.
func (c *conversion) writePatterns() {
	for _, name := range slices.Sorted(maps.Keys(c.patterns)) {
		list := c.patterns[name]
		if len(list.users) == 0 {
			c.draft.Lost(list.Origin, "no domain uses the list", false)
			continue
		}
		providers := []string{""}
		if !slices.ContainsFunc(list.users, func(q *queue) bool { return c.rollups[q.domain] == nil }) {
			providers = nil
			for _, q := range list.users {
				providers = append(providers, q.domain)
			}
		}
		list.retry, list.normal = c.backoffTimes(list)
		c.backoffLimits(list)
		for i, r := range list.rules {
			for _, p := range providers {
				label := fmt.Sprintf("%s-%d", name, i+1)
				if len(providers) > 1 {
					label += "-" + p
				}
				c.faults.take(r.directive, c.writeRule(list, r, label, p))
			}
		}
	}
}

// moreLines matches the code of a reply of several lines, such as 421-, where mta matches "421 4.7.0 text".
var moreLines = regexp.MustCompile(`(^|[\^(|/ ])([245][0-9][0-9])\\?-`)

// writeRule makes one rule of a line of a list.
func (c *conversion) writeRule(list *patternList, r rule, label, provider string) error {
	if _, err := regexp.Compile("(?i)" + r.pattern); err != nil || r.pattern == "" {
		c.draft.Lost(r.Origin,
			"the pattern is not valid in RE2, which mta uses: write it without lookahead and references", true)
		return nil
	}
	var (
		off time.Duration
		err error
	)
	suspend, fewer, note := time.Duration(0), time.Duration(0), ""
	_, disables := r.actions["disable-source-ip"]
	_, skips := r.actions["skip-mx"]
	switch {
	case r.actions["mode"] == "backoff":
		suspend, fewer = list.retry, list.normal
		if list.slows() {
			suspend = 0
		}
		if disables {
			if off, err = disabled(r); err != nil {
				return err
			}
			suspend = max(suspend, off)
		}
		note = fmt.Sprintf("the site waits for %s as for backoff-retry-after, then has half of the connections",
			span(suspend))
		if list.slows() {
			note = "the site is slowed down for the source; then the rate doubles, step by step"
		}
	case r.actions["mode"] == "normal":
		note = "a rule without an action: it only keeps later rules from acting"
	case disables:
		if suspend, err = disabled(r); err != nil {
			return err
		}
		note = "the source stops sending to the site for that time"
	case skips:
		note = "hosts that turn the relay away are left out for host_retry_interval"
	default:
		c.draft.Lost(r.Origin,
			"the relay has no such action: it bounces by the code of a reply, and classifies by its text",
			r.actions["mode"] != "")
		return nil
	}
	if text := r.actions["backoff-to-normal-after"]; text != "" && !never(text) {
		if fewer, err = r.duration(text); err != nil {
			return err
		}
	}
	b := c.draft.Inner("backoff", label).From(r.Origin)
	if provider != "" {
		b.Set("provider", provider, importer.Origin{})
	} else if list.users[0].domain != "*" {
		note += "; at any site, and not only at those of the domains that use the list"
	}
	b.Set("pattern", moreLines.ReplaceAllString(r.pattern, "$1$2[ -]"), importer.Origin{})
	if r.session {
		b.Set("session", true, importer.Origin{})
	}
	if suspend = min(suspend, 24*time.Hour); suspend > 0 {
		b.Set("suspend", span(suspend), importer.Origin{})
		b.Set("by_source", true, importer.Origin{})
	}
	switch fewer = min(fewer, 24*time.Hour); {
	case fewer > 0 && r.actions["mode"] == "backoff" && list.slows():
		if text, _ := list.rate.text(); list.rate.count > 0 {
			b.Set("rate", cmp.Or(text, "1/d"), importer.Origin{})
		}
		if list.connections > 0 {
			b.Set("connections", list.connections, importer.Origin{})
		}
		b.Set("slow", span(max(fewer, 10*time.Second)), importer.Origin{})
		b.Set("by_source", true, importer.Origin{})
	case fewer > 0:
		b.Set("fewer", span(fewer), importer.Origin{})
	}
	b.Noted(r.Origin, note)
	return nil
}

// disabled is for how long a rule keeps a source from a site.
func disabled(r rule) (time.Duration, error) {
	if text := r.actions["reenable-after"]; text != "" && !never(text) {
		return r.duration(text)
	}
	return 24 * time.Hour, nil
}

// backoffLimits finds what the queues that use a list may have in backoff mode, for each source: the strictest.
func (c *conversion) backoffLimits(list *patternList) {
	for _, q := range c.order {
		if !slices.Contains(list.users, q) && (c.listed[q] || !c.usedByAll(list)) {
			continue
		}
		for _, s := range q.said["backoff-max-msg-rate"] {
			r := s.value.(rate)
			r.per *= time.Duration(c.parts(s))
			if r.count > 0 && (list.rate.count == 0 || r.perDay() < list.rate.perDay()) {
				list.rate = r
			}
		}
		for _, s := range q.said["backoff-max-smtp-out"] {
			if n := s.value.(int); n > 0 && (list.connections == 0 || n/c.parts(s) < list.connections) {
				list.connections = max(1, n/c.parts(s))
			}
		}
	}
}

// usedByAll reports whether the list is that of <domain *>, and so of all queues without one.
func (c *conversion) usedByAll(list *patternList) bool {
	return slices.ContainsFunc(list.users, func(q *queue) bool { return q.domain == "*" })
}

// backoffTimes are how long the queues that use a list wait in backoff mode, and how long it lasts: the longest of all.
// The list of <domain *> is that of all queues without one.
func (c *conversion) backoffTimes(list *patternList) (retry, normal time.Duration) {
	for _, q := range list.users {
		r, n := time.Hour, 24*time.Hour // never, and the longest that mta has
		for _, s := range q.said["backoff-retry-after"] {
			r = s.value.(time.Duration)
		}
		for _, s := range q.said["backoff-to-normal-after"] {
			n = s.value.(time.Duration)
		}
		retry, normal = max(retry, r), max(normal, n)
	}
	if !c.usedByAll(list) {
		return retry, normal
	}
	for _, q := range c.order {
		if c.listed[q] {
			continue
		}
		for _, s := range q.said["backoff-retry-after"] {
			retry = max(retry, s.value.(time.Duration))
		}
		for _, s := range q.said["backoff-to-normal-after"] {
			normal = max(normal, s.value.(time.Duration))
		}
	}
	return retry, normal
}
