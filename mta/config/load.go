package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/settings"
)

// schema is what the struct tags refer to.
func schema() *settings.Schema {
	remedies := make(map[string]string)
	for _, of := range []any{new(Defaults), new(Provider), new(Domain)} {
		for f := range settings.Fields(reflect.ValueOf(of).Elem()) {
			remedies["ProviderLimits "+f.Name], remedies["DomainLimits "+f.Name] = notOwn, notOwn
		}
	}
	return &settings.Schema{Checks: checks, Remedies: remedies, Retired: retired}
}

// notOwn is the hint about a setting of a destination that sources and pools can't have.
const notOwn = "write it in a provider or domain block at the top of the file: it applies to all sources; the blocks " +
	"of a source or pool have limits only"

// retired are the settings of earlier versions, by the type of their block: what holds instead. A file that still has
// one is read with a warning.
var retired = map[string]string{
	"Router workers":                 "the relay looks up 100 domains at a time",
	"Router verify_workers":          "a tenth of the look-ups may serve listeners",
	"Router max_message_concurrency": tenth,
	"Router scale_max_concurrency":   tenth,
	"Router timeout":                 "routing a domain may take 45 seconds",
	"Router max_route_age":           "a route is kept for as long as its DNS records, and 5 minutes at most",

	"Delivery max_message_concurrency": tenth,
	"Delivery scale_max_concurrency":   tenth,

	"Resolver timeout":       "a look-up may take 20 seconds",
	"Resolver max_lookups":   "256 look-ups run at a time",
	"Resolver cache_entries": "100,000 answers are cached",
	"Resolver min_ttl":       "answers are cached for 5 seconds at least",
	"Resolver max_ttl":       "answers are cached for a day at most",

	"Queue large_body": "content above 256 KiB has a separate file",
	"Queue cache":      "64 MiB of what is due stay in memory; the page cache of the system has the rest",

	"Listener max_line_length":             "a line may have 64 KiB",
	"Listener max_received":                "100 Received fields are a loop",
	"Listener data_timeout":                "a message may take an hour",
	"Listener min_data_rate":               "content must keep up 512 bytes a second",
	"Listener max_messages_per_connection": "max_submission_rate limits a tenant",
	"Listener bare_newline":                `normalise_from names the clients whose line ends are repaired`,
	"Listener non_utf8_header":             "header fields that are not UTF-8 are encoded (RFC 2047)",

	"Auth user_in_received": "the Received field does not name users; the accounting log does",

	"HTTP top_sites":         "the 20 sites with the fullest queues have metrics of their own",
	"Admission sync_latency": "storing a message may take 100 ms, above which fewer are stored at a time",
	"Admission max_backlog":  "a queue is there to be filled; max_queued_messages limits a tenant",
	"DSN return_limit":       "larger messages than 64 KiB are returned as headers only",

	"TLSReports organization": "the domain of from is the organization",
	"TLSReports contact":      "from is the contact",
	"ReturnPathKeys valid":    "a token counts for 30 days",

	"Suppression feed_keep":   `write keep in a block of the class, as in class "InvalidRecipient" { keep = "30d" }`,
	"Suppression feed_status": `feed = true goes by the class of a refusal; class "NAME" blocks change which`,
	"Suppression flood":       "five times the usual share of unknown recipients, and 50 a day, are a flood",

	"Plan ease_out":            "the last caps double each day for 3 days before they end",
	"Plan mode":                `the pool decides about mail that exceeds the plan: overflow = "shared" or "hold"`,
	"Plan burst":               pacing,
	"Plan bucket_seconds":      pacing,
	"Plan peak":                pacing,
	"Plan sliding_hour_factor": pacing,
	"Plan hour":                "an hour of a plan has 60 minutes",
	"PlanHealth refusals":      classes,
	"PlanHealth bounces":       classes,
	"PlanPause share":          pause,
	"PlanPause seconds":        pause,
	"PlanPause probe":          pause,
	"Pool patience_tier":       "tier_patience has a time for each tier",
	"Tenant submission_burst":  "as many messages may come at once as a second of max_submission_rate holds",
	"ACME path":                "certificates are in the folder acme in data_dir: move them there before the restart",
	"session_tickets":          "clients may resume sessions",
	"backlog_threshold":        "another connection opens when mail would wait for more than a round trip",
}

const (
	tenth   = "a message always has two, and may have a tenth of those that are free"
	pacing  = "the relay uses the tested pacing; 'mta warmup simulate' tries others, in a plan file"
	classes = "the classes that count are those of docs/bounces.md"
	pause   = "a provider that refuses half of the sample gets no mail for 15 minutes, then 5 recipients"
)

// Load reads the file at path, and the files that it names (certificates). env looks up
// environment variables, as os.Getenv does. When the content is wrong the error is
// settings.Problems.
func Load(path string, env func(string) string) (*Config, error) {
	src, err := settings.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	c, problems := parse(src, path, env, systemHostname)
	if problems.Err() == nil {
		checkFiles(c, problems)
		if err := c.shortenHours(env(testHours)); err != nil {
			return nil, err
		}
	}
	return checked(c, problems)
}

// Parse reads a configuration that is in memory and looks at nothing else on the machine but
// its name. filename is for messages. When the content is wrong the error is
// settings.Problems.
func Parse(src []byte, filename string, env func(string) string) (*Config, error) {
	return checked(parse(src, filename, env, systemHostname))
}

func checked(c *Config, problems *settings.Collector) (*Config, error) {
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// Default is what is in force without a file: mail is taken from this machine only, on
// 127.0.0.1:2525, and kept in ./mta-data.
func Default() *Config {
	c := builtIn()
	c.complete(systemHostname())
	return c
}

// parse gives a configuration that is complete only when there are no problems.
func parse(src []byte, filename string, env func(string) string,
	hostname func() string) (*Config, *settings.Collector) {
	c := builtIn()
	listeners := c.Listeners
	c.Listeners = nil
	problems, parsed := schema().Read(src, filename, env, c)
	if len(c.Listeners) == 0 {
		c.Listeners = listeners
	}
	if parsed {
		c.warnings = problems.Warnings
		c.complete(hostname())
		c.check(problems)
	}
	return c, problems
}

// complete adds what the file leaves to presets, to other settings and to the machine.
func (c *Config) complete(hostname string) {
	c.addPresets()
	c.addPlanPresets()
	c.derive(hostname)
	c.index()
}

// The kinds of values that know no mail.
type (
	Size     = settings.Size
	ByteRate = settings.ByteRate
	Rate     = settings.Rate
	Mode     = settings.Mode
	Secret   = settings.Secret
	Retry    = settings.Retry

	block = settings.Block // where a block and its settings stand in the file
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
	fill(&c.Cluster.Path, filepath.Join(c.DataDir, "cluster"))
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
