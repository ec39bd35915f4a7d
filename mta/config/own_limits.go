package config

import (
	"slices"

	"example.org/mta/internal/settings"
)

// OwnLimits are the blocks of a source or a pool with limits for some destinations.
type OwnLimits struct {
	// Limits for a provider's sites. `connection_limit`, `max_message_rate` and `max_connection_rate` apply to each
	// site and to all of them together. The other settings, and what they count, are those of a `domain` block here.
	//
	//	source "ip1" {
	//	  provider "google" {
	//	    connection_limit = 3
	//	    max_message_rate = "10/min"
	//	  }
	//	}
	Providers []*ProviderLimits `conf:"provider,block"`
	// Limits for some recipient domains, beside those of `defaults`, `provider` and `domain` at the top of the file. Of
	// the source, of each pool that has it and of the destination, the smallest limit counts. Within the source or
	// pool, the most specific block wins, as in [`defaults`](#defaults).
	//
	// In a source: `connection_limit`, `max_message_rate`, `max_connection_rate` (at each site, from this source),
	// `max_deliveries_per_connection`, `max_recipients_per_batch`. In a pool the first three count all sources of the
	// pool together, whichever pool their mail is of; for each of the sources there are also
	// `connection_limit_per_source`, `max_message_rate_per_source` and `max_connection_rate_per_source`.
	Domains []*DomainLimits `conf:"domain,block"`
}

// ProviderLimits are those of a source or pool for a provider.
type ProviderLimits struct {
	block
	Name   string `conf:",label"`
	Limits `conf:",inline"`
}

// DomainLimits are those of a source or pool for some domains.
type DomainLimits struct {
	block
	Pattern Pattern `conf:",label"`
	Limits  `conf:",inline"`
}

func (p *ProviderLimits) SetDefaults() { p.Sparse() }
func (d *DomainLimits) SetDefaults()   { d.Sparse() }

// ownBlocks is what a source, or a pool that has it, has for some destinations.
type ownBlocks struct {
	*OwnLimits
	title, who string
	pooled     bool
}

// LimitsOf is what a source, or a pool that has it, allows at a destination. A zero field limits nothing.
type LimitsOf struct {
	Who      string // as "source a" or "pool b"
	Pooled   bool   // they are a pool's; a source's have none of the fields per source
	Limits          // at each site
	Together Limits // at the provider's sites together, without those per source and per connection

	title    string
	origins  settings.Origins
	together *block
}

// Origin gives the place where a limit was set, as `source "a", domain "example.net" (mta.conf:31)`.
func (l *LimitsOf) Origin(setting string) string { return l.title + ", " + l.origins.Of(setting) }

// OriginTogether does so for Together.
func (l *LimitsOf) OriginTogether(setting string) string {
	return l.title + ", " + l.together.Origin(setting)
}

// Settings lists the limits that are set, in the order of the manual.
func (l *LimitsOf) Settings() []string {
	return slices.DeleteFunc(settings.Names(&l.Limits), func(name string) bool { return l.origins[name] == nil })
}

// Value gives a limit as text.
func (l *LimitsOf) Value(setting string) string { return settings.Value(&l.Limits, setting) }

func (c *Config) indexOwn() map[string][]ownBlocks {
	own := make(map[string][]ownBlocks)
	for _, s := range c.Sources {
		if len(s.Providers)+len(s.Domains) > 0 {
			own[s.Name] = append(own[s.Name], ownBlocks{&s.OwnLimits, s.Title(), "source " + s.Name, false})
		}
	}
	for _, p := range c.Pools {
		for _, name := range p.Sources() {
			if len(p.Providers)+len(p.Domains) > 0 {
				own[name] = append(own[name], ownBlocks{&p.OwnLimits, p.Title(), "pool " + p.Name, true})
			}
		}
	}
	return own
}

// OwnLimits returns what a source and each pool that has it allow at a domain, in A-label form and lower case, whose
// hosts belong to provider, "" for none. It has only those that limit anything there.
func (c *Config) OwnLimits(source, domain, provider string) (all []LimitsOf) {
	for _, own := range c.resolved.own[source] {
		l := LimitsOf{Who: own.who, Pooled: own.pooled, title: own.title, origins: make(settings.Origins)}
		for _, p := range own.Providers {
			if p.Name == provider {
				l.Together, l.together = p.Limits, &p.block
				l.origins.Lay(&l.Limits, &p.Limits, &p.block)
			}
		}
		blocks := slices.Collect(matching(domain, func(p Pattern) *DomainLimits {
			if i := slices.IndexFunc(own.Domains, func(d *DomainLimits) bool { return d.Pattern == p }); i >= 0 {
				return own.Domains[i]
			}
			return nil
		}))
		for _, d := range slices.Backward(blocks) {
			l.origins.Lay(&l.Limits, &d.Limits, &d.block)
		}
		if len(l.origins) > 0 {
			all = append(all, l)
		}
	}
	return all
}

// sourceInstead names the settings that replace those per source in a source's own blocks.
var sourceInstead = map[string]string{
	"connection_limit_per_source":    "connection_limit",
	"max_message_rate_per_source":    "max_message_rate",
	"max_connection_rate_per_source": "max_connection_rate",
}

// ownLimits complains of limits of sources and pools that limit nothing.
func (k checker) ownLimits() {
	for _, s := range k.Sources {
		k.ownProviders(&s.OwnLimits)
		var blocks []*block
		for _, p := range s.Providers {
			blocks = append(blocks, &p.block)
		}
		for _, d := range s.Domains {
			blocks = append(blocks, &d.block)
		}
		for _, b := range blocks {
			for setting, instead := range sourceInstead {
				if b.Set(setting) {
					k.problem(b, setting, "write "+instead+": in a source it counts that source alone",
						"%s: %s has one source, as it is in %s", setting, b.Title(), s.Title())
				}
			}
		}
	}
	for _, p := range k.Pools {
		k.ownProviders(&p.OwnLimits)
	}
}

func (k checker) ownProviders(own *OwnLimits) {
	for _, p := range own.Providers {
		if k.resolved.providers[p.Name] == nil {
			k.reference(&p.block, "provider", "provider", p.Name, k.Names("provider"))
		}
	}
}
