package config

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/settings"
)

const day = 24 * time.Hour

// DefaultTier is that of mail of which nothing else is known.
const DefaultTier = 3

// builtIn is the defaults that don't depend on other settings: those of the tags default.
func builtIn() *Config {
	c, smtp := new(Config), &Listener{Name: "smtp"}
	settings.Defaults(c)
	settings.Defaults(smtp)
	smtp.Address = []string{"127.0.0.1:2525"}
	c.Listeners = []*Listener{smtp}
	return c
}

// SetDefaults sets what other code knows by its name.
func (l *Listener) SetDefaults() { l.Tier = DefaultTier }

// LargeBody is the content, in octets, above which a message has a separate file in the queue.
const LargeBody = 256 << 10

// DefaultPatience is how long bulk mail waits for a dedicated source where the file doesn't say: an hour of most plans
// is an eighth of the day, or more.
const DefaultPatience = 9 * time.Hour

// urgentPatience is how long mail of the tiers before DefaultTier waits at most. What a plan has saved up leaves
// within it, at its peak of 15 times the plan's pace; at once it is two recipients of most stages.
const urgentPatience = 30 * time.Second

func (p *Pool) SetDefaults()   { p.Patience = DefaultPatience }
func (t *Tenant) SetDefaults() { t.Pool, t.Tier = DefaultPool, DefaultTier }

// Provider and domain leave the settings of traffic to wider blocks.
func (p *Provider) SetDefaults() { p.Sparse() }

func (d *Domain) SetDefaults() {
	d.Sparse()
	d.VerifyRecipients = "off"
}

// derive fills in the defaults that depend on other settings or on the machine.
func (c *Config) derive(hostname string) {
	if c.derived == nil {
		c.derived = make(map[*string]bool)
	}
	fill := c.fill
	fill(&c.Hostname, hostname)
	fill(&c.Postmaster, "postmaster@"+c.Hostname)
	fill(&c.NodeID, c.Hostname)
	fill(&c.ACME.Path, filepath.Join(c.DataDir, "acme"))
	fill(&c.Control.Socket, filepath.Join(c.DataDir, "control.sock"))
	fill(&c.Accounting.Path, filepath.Join(c.DataDir, "log"))
	fill(&c.DSN.From, "Mail Delivery System <"+c.Postmaster+">")
	c.deriveDKIM()
	c.deriveReturnPaths()
	for _, l := range c.Listeners {
		fill(&l.Banner, c.Hostname)
	}
	if len(c.Sources) == 0 {
		c.Sources = []*Source{{Name: DefaultPool}}
	}
	for _, s := range c.Sources {
		fill(&s.EHLO, c.Hostname)
	}
	if !slices.ContainsFunc(c.Pools, func(p *Pool) bool { return p.Name == DefaultPool }) {
		all := &Pool{Name: DefaultPool}
		settings.Defaults(all)
		for _, s := range c.Sources {
			if !c.dedicated(s.Name) {
				all.Shared = append(all.Shared, s.Name)
			}
		}
		if len(all.Shared) > 0 {
			c.Pools = append(c.Pools, all)
		}
	}
	for _, p := range c.Pools {
		if len(p.Shared) == 0 && !p.Set("overflow") {
			p.Overflow = "hold"
		}
	}
	for _, t := range c.Tenants {
		for _, p := range c.Pools {
			if p.Name == t.Pool && !t.Set("patience") {
				t.Patience = p.PatienceOf(nil, t.Tier)
			}
		}
	}
}

// fill gives a setting without a value one that follows from others.
func (c *Config) fill(to *string, value string) {
	if *to == "" || c.derived[to] {
		*to = value
		c.derived[to] = true
	}
}

// systemHostname is the machine's name, or "localhost" when mail can't have that.
func systemHostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	if name, err = envelope.ToASCII(name); err != nil || name == "" {
		return "localhost"
	}
	return name
}
