package powermta

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/mta/importer"
	"example.org/mta/internal/envelope"
)

// reader of a directive of a domain; v is the virtual MTA in whose scope it stands, nil for none.
type domainReader func(c *conversion, q *queue, d *directive, v *vmta) error

// domainReaders are those of the directives of a domain that need more than a table.
func domainReaders() map[string]domainReader {
	return importer.ByName(map[string]domainReader{
		"retry-after":                   readRetry,
		"use-starttls require-starttls": readTLS,
		"route smtp-hosts":              readRoute,
		"auth-username auth-password":   readAuth,
		"type":                          readType,
		"smtp-pattern-list":             readPatternList,
		"backoff-retry-after backoff-to-normal-after":                        readBackoffTime,
		"backoff-max-msg-rate backoff-max-connect-rate backoff-max-smtp-out": readBackoffRate,
		"backoff-to-normal-after-delivery":                                   readNormal,
		"max-cold-virtual-mta-msg":                                           readCold,
		"ignore-chunking ignore-pipelining":                                  readPipelining,
		"dkim-sign dk-sign":                                                  readSign,
		"dkim-identity":                                                      readIdentity,
		"queue-to": noted(
			"the settings of that queue are written out in the blocks of the domains whose mail it takes"),
		"bounce-upon-no-mx": noted("a domain without MX records is reached at its own address (RFC 5321, 5.1); " +
			"one with neither bounces at once"),
	})
}

// noted returns a reader of directives that are as the relay is, whatever their value.
func noted(text string) domainReader {
	return func(_ *conversion, q *queue, d *directive, _ *vmta) error {
		q.block.Noted(d.Origin, text)
		return nil
	}
}

// readRetry reads one interval, which repeats, or a list.
func readRetry(_ *conversion, q *queue, d *directive, v *vmta) error {
	var list []string
	for _, text := range names(d.value) {
		t, err := d.duration(text)
		if err != nil {
			return err
		}
		list = append(list, span(max(t, time.Second)))
	}
	if len(list) == 0 {
		return d.fault("%s has no value: write times such as 10m,1h", d.name)
	}
	q.said["retry_interval"] = append(q.said["retry_interval"],
		said{directive: d, vmta: v, value: intervals(strings.Join(list, " "))})
	return nil
}

// intervals are retry intervals with spaces between.
type intervals string

// tlsLevel is a value of the setting tls.
type tlsLevel string

func readTLS(_ *conversion, q *queue, d *directive, v *vmta) error {
	on, err := d.yes(d.value)
	if err != nil {
		return err
	}
	level, strict := tlsLevel("opportunistic"), 2.0
	switch {
	case d.name == "require-starttls" && on:
		level, strict = "required", 1
	case d.name == "require-starttls":
		q.block.Noted(d.Origin, "that is the default")
		return nil
	case !on:
		level, strict = "off", 3
	}
	q.said["tls"] = append(q.said["tls"], said{directive: d, vmta: v, value: level, strict: strict})
	return nil
}

// readRoute reads the hosts of a route.
func readRoute(c *conversion, q *queue, d *directive, v *vmta) error {
	var route []string
	for _, text := range names(d.value) {
		if strings.Contains(text, "lookup-mx:") {
			q.block.Lost(d.Origin, "a route names hosts: the exchangers of another domain can't be one; write them out",
				true)
			return nil
		}
		bracketed := strings.HasPrefix(text, "[")
		name, port := text, "25"
		if h, p, err := net.SplitHostPort(text); err == nil {
			name, port = h, p
		}
		name = strings.Trim(name, "[]")
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return d.fault("%s: %s has no port from 1 to 65535: write it as host:port", d.name, short(text))
		}
		a, err := netip.ParseAddr(name)
		switch {
		case err == nil && a.Zone() == "":
			name = a.String()
		default:
			ascii, err := envelope.ToASCII(strings.ToLower(name))
			if err != nil || ascii == "" || strings.ContainsAny(ascii, ":[]%") {
				return d.fault("%s: %s is not a host: write a name or an address, and a port if it is not 25",
					d.name, short(text))
			}
			if name = ascii; !bracketed {
				q.block.Noted(d.Origin, "the host itself: MX records are not looked up for a route")
			}
		}
		route = append(route, "smtp://"+net.JoinHostPort(name, port))
	}
	if len(route) == 0 {
		return d.fault("%s names no host: write one, or remove the line", d.name)
	}
	c.setRoute(q, d, v, route)
	return nil
}

// setRoute writes the route of a queue's mail, where it can have one.
func (c *conversion) setRoute(q *queue, d *directive, v *vmta, route []string) {
	b := c.routed(q)
	switch {
	case b == nil:
		q.block.Lost(d.Origin, "a route belongs to a domain: write a domain block for each of those that it is for",
			true)
	case v != nil && b.Has("route"):
		b.Lost(d.Origin, "all sources take the same route: that of the line before", true)
	default:
		b.Set("route", route, d.Origin)
		if v != nil {
			b.Noted(d.Origin, fmt.Sprintf("the route is for mail from all sources, not from %s alone", v.name))
		}
	}
}

// routed is the block that can have a route for a queue's mail, nil for none.
func (c *conversion) routed(q *queue) *importer.Block {
	switch {
	case q.domain == "*":
		return c.draft.Inner("domain", "*")
	case c.rollups[q.domain] != nil:
		return nil
	}
	return q.block
}

// readAuth notes the login at the hosts of a route.
func readAuth(c *conversion, q *queue, d *directive, _ *vmta) error {
	half := &q.username
	if d.name == "auth-password" {
		half = &q.password
	}
	switch old := *half; {
	case c.routed(q) == nil || unquote(d.value) == "":
		q.block.Lost(d.Origin, "a login belongs to the route of a domain", false)
	case old != nil && old.value != d.value:
		q.block.Lost(d.Origin, fmt.Sprintf("all sources log in alike: as line %d says", old.Line), false)
	default:
		*half = d
	}
	return nil
}

// writeLogins writes the logins that are complete and have a route.
func (c *conversion) writeLogins() {
	for _, q := range c.order {
		if q.username == nil && q.password == nil {
			continue
		}
		b := c.routed(q)
		if b.Has("route") && q.username != nil && q.password != nil {
			b.Set("username", unquote(q.username.value), q.username.Origin)
			b.SetSecret("password", q.domain, unquote(q.password.value), q.password.Origin)
			if b.Has("tls") {
				b.Set("tls", "verified", q.password.Origin)
			}
			b.Noted(q.password.Origin, "the password is sent over TLS only, to a host with a certificate for its name")
			continue
		}
		for _, d := range []*directive{q.username, q.password} {
			if d != nil {
				b.Lost(d.Origin, "a login needs a route, a username and a password", false)
			}
		}
	}
}

func readType(c *conversion, q *queue, d *directive, v *vmta) error {
	switch strings.ToLower(d.value) {
	case "smtp":
		q.block.Noted(d.Origin, "that is the only way")
		return nil
	case "discard":
		c.setRoute(q, d, v, []string{"discard"})
		return nil
	}
	q.block.Lost(d.Origin,
		fmt.Sprintf("mta delivers by SMTP only: this mail would be sent and not be treated as type %s; write a route "+
			"for it", plainWord(d.value)), true)
	return nil
}

func plainWord(s string) string {
	w, _ := cutWord(s)
	return w
}

func readBackoffTime(_ *conversion, q *queue, d *directive, v *vmta) error {
	var longest time.Duration
	for _, text := range names(d.value) {
		if never(text) {
			longest = 24 * time.Hour
			continue
		}
		t, err := d.duration(text)
		if err != nil {
			return err
		}
		longest = max(longest, t)
	}
	q.said[d.name] = append(q.said[d.name], said{directive: d, vmta: v, value: longest})
	q.block.Noted(d.Origin,
		"in the backoff rules that are made of the domain's smtp-pattern-list, a day at most; other refusals are the "+
			"built-in rules' business")
	return nil
}

// readBackoffRate reads what a queue in backoff mode may have.
func readBackoffRate(_ *conversion, q *queue, d *directive, v *vmta) error {
	s := said{directive: d, vmta: v}
	if d.name == "backoff-max-smtp-out" {
		n, err := d.number(d.value)
		if err != nil {
			return err
		}
		s.value = n
	} else {
		r, _, err := d.rate(d.value)
		if err != nil {
			return err
		}
		s.value = r
	}
	if d.name == "backoff-max-connect-rate" {
		q.block.Noted(d.Origin,
			"backing off, the relay limits messages and connections, and not the rate of connections")
		return nil
	}
	q.said[d.name] = append(q.said[d.name], s)
	q.block.Noted(d.Origin, "in the backoff rules that are made of the domain's smtp-pattern-list, for each source")
	return nil
}

func readNormal(_ *conversion, q *queue, d *directive, _ *vmta) error {
	if _, err := d.yes(d.value); err != nil {
		return err
	}
	q.block.Noted(d.Origin, "an action of a backoff rule ends after its time, and not with the next delivery")
	return nil
}

func readPipelining(_ *conversion, q *queue, d *directive, v *vmta) error {
	on, err := d.yes(d.value)
	if err != nil {
		return err
	}
	if !on {
		q.block.Noted(d.Origin, "that is the default")
		return nil
	}
	s := said{directive: d, vmta: v, value: "pipelining", strict: 2}
	if d.name == "ignore-pipelining" {
		s.value, s.strict = "lockstep", 1
	}
	q.said["pipelining"] = append(q.said["pipelining"], s)
	return nil
}

func readSign(_ *conversion, q *queue, d *directive, _ *vmta) error {
	on, err := d.yes(d.value)
	if strings.EqualFold(d.value, "if-x-dkim-options-present") {
		on, err = true, nil
	}
	switch {
	case err != nil:
		return err
	case d.name == "dk-sign":
		q.block.Lost(d.Origin, "DomainKeys (RFC 4870) is historic: DKIM replaces it", false)
	case on:
		q.block.Noted(d.Origin, "dkim blocks sign by the domain in From, for all recipients")
	default:
		q.block.Noted(d.Origin, "dkim blocks sign by the domain in From: mail to this domain, too")
	}
	return nil
}

func readIdentity(c *conversion, q *queue, d *directive, _ *vmta) error {
	if strings.EqualFold(d.value, "sender-or-from") {
		q.block.Noted(d.Origin, "the domain in From decides, as DMARC requires")
		return nil
	}
	q.block.Lost(d.Origin,
		"the domain in From decides which key signs: to sign the mail of other domains, add them to senders of a "+
			"dkim block", c.signs)
	return nil
}

// domainKey makes a dkim block of selector, domain and file.
func (c *conversion) domainKey(d *directive, note string) error {
	words := names(d.value)
	if len(words) < 3 {
		return d.fault("domain-key: write the selector, the domain and the file, with commas between them")
	}
	selector, domain, file := words[0], strings.ToLower(words[1]), unquote(words[len(words)-1])
	ascii, err := envelope.ToASCII(domain)
	if !c.signs {
		c.draft.Lost(d.Origin, "dkim-sign is on nowhere, so the key signs no mail", false)
		return nil
	}
	label, badLabel := envelope.ToASCII(strings.ToLower(selector))
	if err != nil || ascii == "" || strings.ContainsAny(ascii, "*[") || badLabel != nil || label == "" ||
		strings.HasPrefix(label, "[") || file == "" {
		c.draft.Lost(d.Origin,
			"a key needs the domain that it signs for: write a dkim block for each; "+
				"until then their mail is not signed",
			true)
		return nil
	}
	b := c.draft.Inner("dkim", ascii)
	b.Set("domain", ascii, importer.Origin{})
	if old := b.Find("key", label); old != nil {
		b.Noted(d.Origin, "the selector has a key already: that of the line before")
		return nil
	}
	if c.keyed[ascii] {
		b.Lost(d.Origin,
			"one key of each algorithm signs for a domain: remove one of them, or give the key a day in from on "+
				"which it takes over", true)
		return nil
	}
	c.keyed[ascii] = true
	b.Inner("key", label).From(d.Origin).Set("file", file, importer.Origin{})
	if note != "" {
		b.Noted(d.Origin, note)
	}
	return nil
}

func sortedUnique(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}
