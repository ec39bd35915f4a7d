package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/users"
)

const (
	kib = Size(1 << 10)
	mib = Size(1 << 20)
	gib = Size(1 << 30)
	day = 24 * time.Hour
)

// DefaultTier is that of mail of which nothing else is known.
const DefaultTier = 3

// builtIn is the defaults that don't depend on other settings.
func builtIn() *Config {
	smtp := &Listener{Name: "smtp"}
	smtp.SetDefaults()
	smtp.Address = []string{"127.0.0.1:2525"}
	return &Config{
		DataDir:   "./mta-data",
		Upgrade:   UpgradeManual,
		Presets:   true,
		Listeners: []*Listener{smtp},
		HTTP:      HTTP{Address: "127.0.0.1:8025", TopSites: 20},
		Users:     Users{Scheme: users.Argon2id},
		ACME:      ACME{Directory: "https://acme-v02.api.letsencrypt.org/directory"},
		Console:   Console{TLS: defaultCertificates},
		Control:   Control{Mode: 0o660},
		Resolver: Resolver{
			Timeout: 20 * time.Second, MaxLookups: 256, CacheEntries: 100_000,
			MinTTL: 5 * time.Second, MaxTTL: day, NegativeTTL: 15 * time.Minute,
		},
		Queue:       Queue{SegmentSize: 64 * mib, LargeBody: 256 * kib, Cache: 64 * mib, MinFree: 256 * mib, IncomingMemory: 256 * mib, IdempotencyKeys: 1_000_000},
		Router:      Router{Workers: 100, VerifyWorkers: 10, MaxMessageConcurrency: 2, ScaleMaxConcurrency: 10, IPv4: true, IPv6: true, Timeout: 45 * time.Second, MaxRouteAge: 5 * time.Minute},
		Delivery:    Delivery{MaxConnections: 1000, MaxMessageConcurrency: 2, ScaleMaxConcurrency: 10},
		Log:         Log{Level: "info", Format: "text"},
		Accounting:  Accounting{Enabled: true, RotateSize: 128 * mib, RotateEvery: day, Keep: 14 * day, KeepSize: 10 * gib, Compress: "off"},
		DSN:         DSN{ReturnLimit: 64 * kib},
		ReturnPaths: ReturnPathKeys{Valid: 30 * day},
		Suppression: Suppression{Mode: "refuse", FeedKeep: 90 * day, Flood: SuppressionFlood{Factor: 5, Share: 0.25, Min: 50}},
		Admission:   Admission{Mode: "utilisation", SyncLatency: 100 * time.Millisecond},
		Shutdown:    Shutdown{Drain: 30 * time.Second},
		Defaults:    Defaults{Traffic: builtInTraffic()},
	}
}

func (l *Listener) SetDefaults() {
	l.RelayFrom = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	l.VerifyRecipients = "off"
	l.TLS.Certificates = defaultCertificates
	l.Tier = DefaultTier
	l.MaxMessageSize = 50 * mib
	l.MaxRecipients = 1000
	l.MaxConnections = 10_000
	l.MaxConnectionsPerClient = 1000
	l.MaxLineLength = 64 * kib
	l.MaxReceived = 100 // RFC 5321, 6.3
	l.CommandTimeout = 5 * time.Minute
	l.DataTimeout = time.Hour
	l.MinDataRate = 512
	l.BareNewline = "refuse"
	l.NormaliseFrom = slices.Clone(l.RelayFrom) // this machine, 'mta sendmail' included
	l.NonUTF8Header = "encode"
	l.MaxHold = 7 * day
}

var defaultCertificates = Certificates{MinVersion: "1.2", SessionTickets: true}

func (a *API) SetDefaults() {
	a.TLS = defaultCertificates
	a.MaxRequest = 50 * mib
	a.MaxConnections = 1000
	a.VerifyRecipients = "off"
	a.MaxHold = 7 * day
}

// DefaultPatience is how long bulk mail waits for a dedicated source where the file doesn't say: an hour of most plans
// is an eighth of the day, or more.
const DefaultPatience = 9 * time.Hour

// urgentPatience is how long mail of the tiers before patience_tier waits at most. What a plan has saved up leaves
// within it, at its peak of 15 times the plan's pace; at once it is two recipients of most stages.
const urgentPatience = 30 * time.Second

func (p *Pool) SetDefaults() {
	p.Overflow = "shared"
	p.Patience, p.PatienceTier = DefaultPatience, DefaultTier
}

func (t *Tenant) SetDefaults() {
	t.Pool = DefaultPool
	t.Tier = DefaultTier
	t.Weight = 1
	t.OverQuota = "refuse"
}

func (p *Provider) SetDefaults() { p.Sparse() }

// SetDefaults leaves the settings of traffic to wider blocks.
func (d *Domain) SetDefaults() {
	d.Sparse()
	d.VerifyRecipients = "off"
}

func builtInTraffic() Traffic {
	return Traffic{
		ConnectionLimit:            10,
		MaxDeliveriesPerConnection: 100,
		MaxRecipientsPerBatch:      100, // what every host must take, RFC 5321, 4.5.3.1.8
		SMTPPort:                   25,
		RetryInterval:              Retry{First: 10 * time.Minute},
		MaxRetryInterval:           4 * time.Hour,
		MaxAge:                     5 * day, // RFC 5321, 4.5.4.1
		DelayWarning:               4 * time.Hour,
		HostRetryInterval:          time.Minute,
		MaxHostRetryInterval:       time.Hour,
		IdleTimeout:                30 * time.Second,
		ActiveTimeout:              5 * time.Minute,
		TLS:                        "opportunistic",
		TLSMinVersion:              "auto",
		MTASTS:                     true,
		DANE:                       true,
		Pipelining:                 "auto",
		Timeouts: Timeouts{ // RFC 5321, 4.5.3.2, but for connect and quit, which it leaves open
			Connect: time.Minute, Greeting: 5 * time.Minute, EHLO: 5 * time.Minute,
			Mail: 5 * time.Minute, Rcpt: 5 * time.Minute, Data: 2 * time.Minute,
			Block: 3 * time.Minute, Dot: 10 * time.Minute, Quit: 10 * time.Second,
		},
	}
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
	c.TLSReports.derive()
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
		all.SetDefaults()
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

// fill gives a setting that has no value of its own one that follows from others.
func (c *Config) fill(to *string, value string) {
	if *to == "" || c.derived[to] {
		*to = value
		c.derived[to] = true
	}
}

// systemHostname is the machine's name, or "localhost" when that is none that mail can have.
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
