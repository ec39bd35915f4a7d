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
		lists, providers := []*patternList{list}, []string{""}
		if !slices.ContainsFunc(list.users, func(q *queue) bool { return c.rollups[q.domain] == nil }) {
			lists, providers = nil, nil
			for _, q := range list.users {
				own := *list
				own.users = []*queue{q}
				lists, providers = append(lists, &own), append(providers, q.domain)
			}
		}
		for _, l := range lists {
			c.inBackoff(l)
		}
		for i, r := range list.rules {
			for n, p := range providers {
				label := fmt.Sprintf("%s-%d", name, i+1)
				if len(providers) > 1 {
					label += "-" + p
				}
				c.faults.take(r.directive, c.writeRule(lists[n], r, label, p))
			}
		}
	}
}

// moreLines matches the code of a reply of several lines, such as 421-, where mta matches "421 4.7.0 text".
var moreLines = regexp.MustCompile(`(^|[\^(|/ ])([245][0-9][0-9])\\?-`)

// accepts matches patterns that begin with the code of a reply that accepts mail. As a rule such a pattern would keep
// the others from each refusal with 250 in its text.
var accepts = regexp.MustCompile(`^[\^( ]*2[0-9][0-9]($|[^0-9])`)

// writeRule makes one rule of a line of a list.
func (c *conversion) writeRule(list *patternList, r rule, label, provider string) error {
	if _, err := regexp.Compile("(?i)" + r.pattern); err != nil || r.pattern == "" {
		c.draft.Lost(r.Origin,
			"the pattern is not valid in RE2, which mta uses: write it without lookahead and references", true)
		return nil
	}
	if accepts.MatchString(r.pattern) {
		c.draft.Lost(r.Origin, "a reply that accepts mail is not asked for: a slow-down ends by itself", false)
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

// inBackoff finds what the queues that use a list have in backoff mode, for each source: the strictest limits and the
// longest times, since its rules are for all of them.
func (c *conversion) inBackoff(list *patternList) {
	perDay := func(s said) float64 { return s.value.(rate).perDay() / float64(c.parts(s)) }
	parts := func(s said) int { return s.value.(int) / c.parts(s) }
	if s, ok := c.ofAll(list, "backoff-max-msg-rate", 0, func(a, b said) bool {
		return a.value.(rate).count > 0 && (b.value.(rate).count == 0 || perDay(a) < perDay(b))
	}); ok {
		list.rate = s.value.(rate)
		list.rate.per *= time.Duration(c.parts(s))
	}
	if s, ok := c.ofAll(list, "backoff-max-smtp-out", 0, func(a, b said) bool {
		return a.value.(int) > 0 && (b.value.(int) == 0 || parts(a) < parts(b))
	}); ok && s.value.(int) > 0 {
		list.connections = max(1, parts(s))
	}
	longer := func(a, b said) bool { return a.value.(time.Duration) > b.value.(time.Duration) }
	retry, _ := c.ofAll(list, "backoff-retry-after", time.Hour, longer)
	normal, _ := c.ofAll(list, "backoff-to-normal-after", 24*time.Hour, longer) // never, and the longest that mta has
	list.retry, list.normal = retry.value.(time.Duration), normal.value.(time.Duration)
}

// ofAll is the value of a setting that counts for all queues that use a list, and notes at the others whose it is. A
// queue that names the list and not the setting has the usual one, unless that is 0.
func (c *conversion) ofAll(list *patternList, setting string, usual time.Duration, before func(a, b said) bool,
) (best said, ok bool) {
	whose := ""
	for _, q := range c.order {
		uses := slices.Contains(list.users, q)
		if !uses && (c.listed[q] || !c.usedByAll(list)) {
			continue
		}
		all := q.said[setting]
		if uses && len(all) == 0 && usual > 0 {
			all = []said{{value: usual}}
		}
		for _, s := range all {
			if !ok || before(s, best) {
				best, ok, whose = s, true, fmt.Sprintf("<domain %s>, which has none", q.domain)
			}
		}
	}
	if best.directive != nil {
		whose = fmt.Sprintf("%s:%d", best.File, best.Line)
	}
	for _, q := range c.order {
		if uses := slices.Contains(list.users, q); !uses && (c.listed[q] || !c.usedByAll(list)) {
			continue
		}
		for _, s := range q.said[setting] {
			if s.value != best.value {
				q.block.Noted(s.Origin, fmt.Sprintf("the rules of the list %s are for all that use it: %s %v counts, "+
					"that of %s", list.value, setting, written(best.value), whose))
			}
		}
	}
	return best, ok
}

// written is a value as mta.conf has it.
func written(value any) any {
	switch v := value.(type) {
	case rate:
		text, _ := v.text()
		return text
	case time.Duration:
		return span(v)
	}
	return value
}

// usedByAll reports whether the list is that of <domain *>, and so of all queues without one.
func (c *conversion) usedByAll(list *patternList) bool {
	return slices.ContainsFunc(list.users, func(q *queue) bool { return q.domain == "*" })
}
