package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/settings"
)

// dedicated reports whether a pool has the source for its own.
func (c *Config) dedicated(source string) bool {
	return slices.ContainsFunc(c.Pools, func(p *Pool) bool {
		return slices.ContainsFunc(p.Dedicated, func(d *Dedicated) bool { return d.Name == source })
	})
}

// Sources lists the names of all sources of the pool, the dedicated ones first.
func (p *Pool) Sources() []string {
	return append(namesOf(p.Dedicated, func(d *Dedicated) string { return d.Name }), p.Shared...)
}

// SourceWeight is a source's part of a pool's mail, compared with the other sources.
type SourceWeight struct {
	Source string
	Weight int // 0 to MaxWeight
}

// MaxWeight is the largest weight of a source.
const MaxWeight = 1000

// UnmarshalText reads "source=weight".
func (w *SourceWeight) UnmarshalText(text []byte) error {
	i := strings.LastIndexByte(string(text), '=')
	n, err := strconv.Atoi(string(text[i+1:]))
	if i <= 0 || err != nil || n < 0 || n > MaxWeight {
		return settings.Wrong(`write a source and its weight, from 0 to 1000, such as "shared-1=3"`,
			"%s is not a weight of a source", settings.Quoted(string(text)))
	}
	*w = SourceWeight{string(text[:i]), n}
	return nil
}

// String gives the form that is read.
func (w SourceWeight) String() string { return fmt.Sprintf("%s=%d", w.Source, w.Weight) }

// WeightOf returns the weights of the pool's sources, nil when all are equal.
func (p *Pool) WeightOf() func(source string) int {
	if len(p.Weights) == 0 {
		return nil
	}
	return func(source string) int {
		for _, w := range p.Weights {
			if w.Source == source {
				return w.Weight
			}
		}
		return 1
	}
}

// weights complains of weights of sources that the pool doesn't have, or has twice, and of a pool without new mail.
func (k checker) weights(p *Pool) {
	seen := make(map[string]bool)
	for _, w := range p.Weights {
		switch {
		case !slices.Contains(p.Sources(), w.Source):
			k.problem(&p.block, "weights", "its sources: "+strings.Join(p.Sources(), ", "),
				"weights: pool %q does not have source %s", p.Name, settings.Quoted(w.Source))
		case seen[w.Source]:
			k.problem(&p.block, "weights", "remove one", "weights: source %q is there twice", w.Source)
		}
		seen[w.Source] = true
	}
	if of := p.WeightOf(); of != nil && len(p.Sources()) > 0 && !slices.ContainsFunc(p.Sources(), func(s string) bool {
		return of(s) > 0
	}) {
		k.problem(&p.block, "weights", "give one of its sources a weight of 1 or more",
			"weights: pool %q has no source left for new mail", p.Name)
	}
}

// PatienceOf is how long a tenant's mail of a tier waits for a dedicated source of the pool; nil is of no
// tenant.
func (p *Pool) PatienceOf(t *Tenant, tier int) time.Duration {
	switch {
	case t != nil && t.Set("patience"):
		return t.Patience
	case len(p.TierPatience) > 0:
		return p.TierPatience[min(tier, len(p.TierPatience)-1)]
	case tier >= DefaultTier:
		return p.Patience
	}
	return min(p.Patience, urgentPatience)
}

// patience complains of mail that would wait until it is given up.
func (k checker) patience(b *block, setting string, patience time.Duration) {
	if b.Set(setting) && patience > k.Defaults.Traffic.MaxAge {
		k.problem(b, setting, "write a shorter one, or a longer max_age in defaults",
			"%s: %s is longer than max_age, %s: mail would expire while it waits", setting, patience,
			k.Defaults.Traffic.MaxAge)
	}
}

// maxTiers is how many tiers there are.
const maxTiers = 6

// Mark takes a selector's header apart; false when there is none.
func Mark(header string) (name, value string, ok bool) {
	name, value, _ = strings.Cut(header, ":")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	printable := func(c rune) bool { return c > ' ' && c < 0x7f }
	ok = name != "" && len(header) <= maxMark && strings.IndexFunc(name, func(c rune) bool {
		return !printable(c)
	}) < 0 &&
		strings.IndexFunc(value, unicode.IsControl) < 0
	return name, value, ok
}

const (
	maxMark  = 200 // octets of a header that a selector looks for: they are kept with each message
	maxMarks = 32  // of these in a file
)

// Selectors lists those of all dedicated sources and mail blocks.
func (c *Config) Selectors() (all []*Selector) {
	for _, p := range c.Pools {
		for _, d := range p.Dedicated {
			all = append(append(all, d.Prefer...), d.Except...)
		}
	}
	for _, m := range c.Mails {
		all = append(all, m.Match...)
	}
	return all
}

// selectors complains of selectors that select nothing that there is.
func (k checker) selectors() {
	marks := make(map[string]bool)
	for _, s := range k.Selectors() {
		if len(s.Tenants)+len(s.Tiers)+len(s.Campaigns)+len(s.SenderDomains)+len(s.Headers) == 0 {
			k.problem(&s.block, "",
				`write, for example, header = ["X-MTA-Engaged: yes"]; or tenant, tier, campaign or sender_domain`,
				"%s selects no mail: it has no condition", s.Title())
		}
		k.names(&s.block, "tenant", "tenant", s.Tenants, k.Names("tenant"))
		for _, d := range s.SenderDomains {
			if a, err := envelope.ToASCII(d); err != nil || a != strings.ToLower(d) {
				k.problem(&s.block, "sender_domain", "write the domain in A-label form, such as news.example.com",
					"sender_domain: %q is not a domain", d)
			}
		}
		for _, h := range s.Headers {
			if _, _, ok := Mark(h); !ok {
				k.problem(&s.block, "header",
					fmt.Sprintf(`write a field and its value, such as "X-MTA-Engaged: yes", in %d octets at most`,
						maxMark), "header: %q is not a header field", h)
			}
			if marks[strings.ToLower(h)] = true; len(marks) == maxMarks+1 {
				k.problem(&s.block, "header", "remove some", "header: more than %d header fields in the file", maxMarks)
			}
		}
	}
	for _, p := range k.Pools {
		excepts := func(d *Dedicated) bool { return len(d.Except) > 0 }
		if len(p.Shared) == 0 && len(p.Dedicated) > 0 && !slices.ContainsFunc(p.Dedicated, func(d *Dedicated) bool {
			return !excepts(d)
		}) {
			k.problem(&p.Dedicated[0].block, "except",
				`write shared = ["name of a source"] in the pool, or remove except from one of its dedicated sources`,
				"pool %q has no source for mail that its dedicated sources exclude", p.Name)
		}
	}
}

func (k checker) pools() {
	k.selectors()
	for _, p := range k.Pools {
		k.pool(p)
	}
	k.defaultPool()
	for _, t := range k.Tenants {
		k.patience(&t.block, "patience", t.Patience)
	}
	told := make(map[beside]bool)
	for _, w := range k.warming() {
		if !w.source.Address.IsValid() {
			told[beside{&w.at.block, w.source}] = true
			k.nameless(w)
		}
	}
	for _, w := range k.warming() {
		if !told[beside{&w.at.block, w.source}] {
			k.bound(w, told)
		}
	}
}

func (k checker) pool(p *Pool) {
	k.weights(p)
	if len(p.Shared) == 0 && len(p.Dedicated) == 0 && p.Title() != "" {
		k.problem(&p.block, "shared", `write shared = ["name of a source"], or dedicated "name of a source" {}`,
			"pool %q has no sources", p.Name)
	} else if len(p.Shared) == 0 && p.Overflow == "shared" && !p.Failed("shared") {
		k.problem(&p.block, "overflow",
			`write shared = ["name of a source"], or overflow = "hold" to make that mail wait`,
			`overflow: pool %q has no shared sources for the mail that exceeds the plans of its dedicated ones`, p.Name)
	}
	k.patience(&p.block, "patience", p.Patience)
	if n := len(p.TierPatience); n > 0 {
		k.patience(&p.block, "tier_patience", slices.Max(p.TierPatience))
		switch {
		case n > maxTiers:
			k.problem(&p.block, "tier_patience", "remove the last ones",
				"tier_patience: has %d durations, but there are %d tiers", n, maxTiers)
		case p.Set("patience"):
			k.problem(&p.block, "tier_patience", "remove patience",
				"tier_patience: replaces patience")
		}
	}
	k.names(&p.block, "shared", "source", p.Shared, k.Names("source"))
	for _, d := range p.Dedicated {
		if k.Source(d.Name) == nil {
			k.reference(&d.block, "dedicated", "source", d.Name, k.Names("source"))
		}
		if slices.Contains(p.Shared, d.Name) {
			k.problem(&d.block, "dedicated", "remove it from one of them",
				"source %q is both dedicated and shared in pool %q", d.Name, p.Name)
		}
		if d.Plan != "" && k.WarmupPlan(d.Plan) == nil {
			k.reference(&d.block, "plan", "plan", d.Plan, k.WarmupPlans())
		}
	}
}

// defaultPool complains when the pool that nobody wrote has nothing to send from.
func (k checker) defaultPool() {
	p := k.Pool(DefaultPool)
	if p.Title() != "" || len(p.Shared) > 0 {
		return
	}
	who := ""
	for _, t := range k.Tenants {
		if t.Pool == DefaultPool {
			who = fmt.Sprintf("tenant %q", t.Name)
		}
	}
	for _, l := range k.Listeners {
		if l.Tenant == "" {
			who = fmt.Sprintf("mail from listener %q, which has no tenant,", l.Name)
		}
	}
	if who == "" {
		return
	}
	first := &k.Config.block
	for _, p := range slices.Backward(k.Pools) {
		for _, d := range p.Dedicated {
			first = &d.block
		}
	}
	k.problem(first, "dedicated", `write another source, or name its sources: pool "default" { ... }`,
		"%s has no source: each is dedicated to a pool", who)
}

// warming is a source under a plan.
type warming struct {
	source *Source
	plan   string
	pool   *Pool
	at     *Dedicated
}

// warming lists the sources under plans, each once. The first plan that the file gives a source is
// taken for the one that is meant.
func (k checker) warming() []warming {
	var all []warming
	for _, p := range k.Pools {
		for _, d := range p.Dedicated {
			s := k.Source(d.Name)
			seen := func(w warming) bool { return w.source == s }
			if s != nil && k.WarmupPlan(d.Plan) != nil && !slices.ContainsFunc(all, seen) {
				all = append(all, warming{s, d.Plan, p, d})
			}
		}
	}
	return all
}

// nameless complains of a plan for whatever address the system or a proxy chooses.
func (k checker) nameless(w warming) {
	if w.source.Failed("address") {
		return
	}
	k.problem(&w.at.block, "plan",
		fmt.Sprintf(`write its address: source %q { address = "192.0.2.20" }`, w.source.Name),
		"source %q has no address, which a plan requires", w.source.Name)
}

// bound complains of whatever would let mail leave from w's address and not count for its plan.
func (k checker) bound(w warming, told map[beside]bool) {
	for _, p := range k.Pools {
		for _, name := range p.Shared {
			if s := k.Source(name); s != nil && p.Title() != "" {
				k.unplanned(w, s, &p.block, "shared", "shared in "+p.Title(), told)
			}
		}
		for _, d := range p.Dedicated {
			s := k.Source(d.Name)
			if s == nil || d.Plan != "" && k.WarmupPlan(d.Plan) == nil {
				continue // said before
			}
			if d.Plan != w.plan || s.Address != w.source.Address && sameProxy(s, w.source) {
				k.unplanned(w, s, &d.block, "plan", "dedicated in "+p.Title()+underPlan(d.Plan), told)
			}
		}
	}
	if p := k.Pool(DefaultPool); p.Title() == "" {
		for _, name := range p.Shared { // nobody wrote it: the source itself is in the way
			if s := k.Source(name); s.Title() != "" {
				k.unplanned(w, s, &s.block, "address",
					`in pool "default", which has all sources that no pool dedicates,`, told)
			}
		}
	}
}

// beside is a source in a place where it is used beside a plan.
type beside struct {
	place  *block
	source *Source
}

// unplanned complains, once, of a source that is used beside w's plan, when its mail could leave from
// w's address.
func (k checker) unplanned(w warming, s *Source, b *block, setting, used string, told map[beside]bool) {
	if told[beside{b, s}] {
		return
	}
	reason, hint := "",
		fmt.Sprintf("all mail from an address counts toward its plan: remove it here, or write dedicated %q { plan = "+
			"%q }", s.Name, w.plan)
	switch {
	case s == w.source:
		reason = " and"
	case s.Address == w.source.Address:
		reason = fmt.Sprintf(" and has the address of %q, which", w.source.Name)
	case sameProxy(s, w.source):
		reason = fmt.Sprintf(" and may have the address of %q, which", w.source.Name)
		hint = "a SOCKS5 proxy chooses the address itself: use another proxy for this source"
	case !s.Address.IsValid() && s.Proxy.Kind == "":
		reason = fmt.Sprintf(" and may have the address of %q, which", w.source.Name)
		hint = fmt.Sprintf("the system chooses the address of this source: write source %q { address = ... }", s.Name)
	default:
		return
	}
	told[beside{b, s}] = true
	k.problem(b, setting, hint, "source %q is %s%s warms up by plan %q in %s", s.Name, used, reason,
		w.plan, w.pool.Title())
}

// sameProxy reports whether a SOCKS5 proxy could choose one address for both.
func sameProxy(a, b *Source) bool {
	return a.Proxy.Kind == SOCKS5 && a.Proxy == b.Proxy && (!a.Address.IsValid() || a.Address.Is4() == b.Address.Is4())
}

func underPlan(plan string) string {
	if plan == "" {
		return " without a plan"
	}
	return fmt.Sprintf(" by plan %q", plan)
}
