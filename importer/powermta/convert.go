package powermta

import (
	"slices"
	"strings"
	"time"

	"example.org/mta/importer"
	"example.org/mta/internal/envelope"
)

// conversion is what is known of the configuration while it is carried over.
type conversion struct {
	draft   *importer.Draft
	faults  *faults
	macros  map[string][]string
	readers map[string]domainReader

	vmtas    []*vmta // in their order
	vmtaOf   map[string]*vmta
	alike    []*vmta // the other virtual MTAs of the pool that is being read
	pools    []*pool
	poolOf   map[string]*pool
	rollups  map[string][]string     // the exchangers of each name in an mx-rollup-list
	queueTo  map[string][]string     // the domains whose mail a queue takes
	queuedBy map[string]*directive   // where it was said first
	patterns map[string]*patternList // smtp-pattern-list
	listed   map[*queue]bool         // those with a separate list
	queues   map[*importer.Block]*queue
	order    []*queue

	sources     []*client // <source>
	users       []*directive
	listens     []string
	listenAt    []*directive
	tlsFile     *directive
	signs       bool            // dkim-sign is on somewhere
	keyed       map[string]bool // domains that have a DKIM key
	maxIn       *directive
	servers     []string
	keep        time.Duration // of the accounting log
	keepAll     bool          // for ever
	userTenants []string
}

// convert makes the draft, which is of no use if there are faults.
func convert(path string, all []*directive, faults *faults) *importer.Draft {
	c := &conversion{
		faults: faults,
		draft: importer.New("From the PowerMTA configuration " + path +
			".\nEvery line names its origin; docs/moving-from-powermta.md explains what has no counterpart.\n"),
		macros: make(map[string][]string), rollups: make(map[string][]string), queueTo: make(map[string][]string),
		queuedBy: make(map[string]*directive),
		patterns: make(map[string]*patternList), listed: make(map[*queue]bool), vmtaOf: make(map[string]*vmta),
		poolOf: make(map[string]*pool), queues: make(map[*importer.Block]*queue), keyed: make(map[string]bool),
		readers: domainReaders(),
	}
	c.collect(all)
	c.writeProviders(all)
	for _, d := range all {
		faults.take(d, c.top(d))
	}
	c.writeListeners()
	c.writePools()
	c.writeLimits()
	c.writePatterns()
	c.writeLogins()
	return c.draft
}

// collect finds what other scopes refer to, wherever it stands.
func (c *conversion) collect(all []*directive) {
	for _, d := range all {
		switch d.name {
		case "domain-macro":
			c.faults.takeDefinition(d, c.collectMacro(d))
		case "mx-rollup-list":
			c.checkRollups(d)
		case "smtp-pattern-list":
			if d.scope {
				c.faults.takeDefinition(d, c.collectPatterns(d))
			}
		case "virtual-mta", "vmta":
			c.faults.takeDefinition(d, c.collectVMTA(d))
		case "virtual-mta-pool":
			c.faults.takeDefinition(d, c.collectPool(d))
		}
	}
	for _, d := range all { // macros are known by now
		if d.name != "domain" || !d.scope {
			continue
		}
		for _, in := range d.inner {
			if in.name == "queue-to" {
				domains, err := c.domains(d)
				if !c.faults.take(d, err) {
					continue
				}
				to := strings.ToLower(unquote(in.value))
				c.queueTo[to] = append(c.queueTo[to], domains...)
				if c.queuedBy[to] == nil {
					c.queuedBy[to] = in
				}
			}
		}
	}
	c.signs = signs(all)
}

func (c *conversion) collectMacro(d *directive) error {
	name, list := cutWord(d.value)
	if name == "" || list == "" {
		return d.fault("domain-macro: write a name and a list of domains")
	}
	if name = strings.ToLower(name); c.macros[name] != nil {
		c.draft.Noted(d.Origin, "the macro "+name+" is defined before too: the domains of all its definitions count")
	}
	c.macros[name] = append(c.macros[name], names(list)...)
	return nil
}

// signs reports whether some mail is signed.
func signs(all []*directive) bool {
	return slices.ContainsFunc(all, func(d *directive) bool {
		return d.name == "dkim-sign" &&
			!slices.Contains([]string{"no", "false", "off", "0"}, strings.ToLower(d.value)) || signs(d.inner)
	})
}

// checkRollups looks at the names that exchangers are known by.
func (c *conversion) checkRollups(d *directive) {
	d.inner = slices.DeleteFunc(d.inner, func(in *directive) bool {
		words := strings.Fields(in.Directive)
		if len(words) == 3 && strings.EqualFold(words[0], "mx") {
			words = words[1:]
		}
		if len(words) == 2 {
			return false
		}
		c.faults.takeDefinition(in,
			in.fault("%s is not a rule: write mx, the exchangers' name, such as *.example.net, and the name of the "+
				"domain that they are known by", short(in.Directive)))
		return true
	})
}

// names splits a list.
func names(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
}

// domains lists what a <domain> is about, with macros put in.
func (c *conversion) domains(d *directive) (all []string, _ error) {
	for _, name := range names(d.value) {
		found, err := c.expand(d, strings.ToLower(unquote(name)), 0)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
		if len(all) > maxDomains {
			return nil, d.fault("more than %d domains: write a pattern such as *.example.com", maxDomains)
		}
	}
	if len(all) == 0 {
		return nil, d.fault("<%s> names no domain: write one, or * for all", d.name)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// expand puts the domains of macros into a name.
func (c *conversion) expand(d *directive, name string, depth int) (all []string, _ error) {
	before, rest, ok := strings.Cut(name, "$")
	if !ok {
		if below, both := strings.CutPrefix(name, "[*.]"); both {
			return []string{below, "*." + below}, nil
		}
		return []string{name}, nil
	}
	end := 0
	for end < len(rest) && (rest[end] >= 'a' && rest[end] <= 'z' || rest[end] >= '0' && rest[end] <= '9' ||
		rest[end] == '-' || rest[end] == '_') {
		end++
	}
	macro, rest := rest[:end], rest[end:]
	domains, known := c.macros[macro]
	if !known {
		return nil, dangling{
			d.fault("$%s: there is no domain-macro of this name: define it, or correct the name", macro)}
	}
	if depth == 4 {
		return nil, d.fault("$%s: more than %d macros inside one another: write the domains out", macro, depth)
	}
	for _, one := range domains {
		found, err := c.expand(d, before+strings.ToLower(one)+rest, depth+1)
		if err != nil {
			return nil, err
		}
		if all = append(all, found...); len(all) > maxDomains {
			return nil, d.fault("$%s: more than %d domains: write a pattern such as *.example.com", macro, maxDomains)
		}
	}
	return all, nil
}

// block gives the block of the draft for a domain's settings, nil for a name that can't be one.
func (c *conversion) block(domain string) *importer.Block {
	if domain == "*" {
		return c.draft.Inner("defaults")
	}
	if c.rollups[domain] != nil {
		return c.draft.Inner("provider", domain)
	}
	wide, name := "", domain
	if below, ok := strings.CutPrefix(domain, "*."); ok {
		wide, name = "*.", below
	}
	ascii, err := envelope.ToASCII(name)
	if err != nil || ascii == "" || strings.ContainsAny(name, "*[/{") {
		return nil
	}
	return c.draft.Inner("domain", wide+ascii)
}

// top carries over what stands outside all scopes, and the scopes themselves.
func (c *conversion) top(d *directive) error {
	switch d.name {
	case "domain-macro":
		c.draft.Carried(d.Origin)
	case "mx-rollup-list":
		return nil // see writeProviders
	case "smtp-pattern-list":
		return nil // see writePatterns
	case "bounce-category-patterns":
		c.draft.Lost(d.Origin,
			"the relay classifies replies by the rules of docs/bounces.md, which know codes and large providers; "+
				"write classify blocks for what 'mta bounce unknown' lists", false)
	case "domain":
		return c.domainScope(d, nil)
	case "virtual-mta", "vmta":
		return c.vmtaScope(d)
	case "virtual-mta-pool":
		return c.poolScope(d)
	case "source":
		return c.sourceScope(d)
	case "smtp-user":
		return c.userScope(d)
	case "acct-file":
		return c.acctScope(d)
	case "smtp-listener":
		return c.listen(d)
	default:
		return c.global(d)
	}
	return nil
}

// writeProviders makes a provider of each name in a mx-rollup-list.
func (c *conversion) writeProviders(all []*directive) {
	taken := make(map[string]bool) // an exchanger belongs to one provider
	good := make(map[string][]string)
	for _, d := range all {
		if d.name != "mx-rollup-list" {
			continue
		}
		for _, in := range d.inner {
			words := strings.Fields(strings.ToLower(in.Directive))
			mx, name := words[len(words)-2], words[len(words)-1]
			host := strings.TrimPrefix(mx, "*.")
			ascii, err := envelope.ToASCII(host)
			mx = strings.TrimSuffix(mx, host) + ascii
			switch {
			case err != nil || ascii == "" || strings.ContainsAny(host, "*[/$"):
				c.draft.Lost(in.Origin,
					"a provider is known by names of exchangers, such as *.example.net, and not by other patterns",
					true)
			case taken[mx]:
				c.draft.Noted(in.Origin, "an exchanger belongs to one provider: that of the line before")
			default:
				taken[mx] = true
				good[name] = append(good[name], mx)
				c.draft.Inner("provider", name).From(in.Origin).Set("mx", good[name], importer.Origin{})
			}
		}
	}
	c.rollups = good
}
