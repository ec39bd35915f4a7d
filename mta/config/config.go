// Package config has what may stand in the relay's one declarative file, its defaults, and the checks of
// what the parts say together. It starts no goroutines and keeps no state.
//
// The way through it: Load or Parse (package settings reads the file along the struct tags below,
// presets.go adds what is known of large providers, check.go looks at what the parts say together), then
// Config.Traffic and its neighbours for what applies to a destination (traffic.go), Effective to print.
//
// Package settings says what the struct tags mean. The example file and the manual page are tested
// against them.
package config

import (
	"net/netip"
	"time"

	"example.org/mta/internal/certificates"
	"example.org/mta/internal/settings"
	"example.org/mta/internal/users"
)

// Who finishes an upgrade.
const (
	UpgradeManual = "manual" // an operator, with 'mta upgrade finish'
	UpgradeAuto   = "auto"   // the relay, after a day
)

// Config is a whole configuration, with every default filled in. It is not changed after it was
// loaded, and is safe for use by many goroutines.
type Config struct {
	block

	// Hostname is how the relay calls itself in Received, Message-ID and EHLO.
	Hostname string `conf:"hostname" reload:"restart"`
	// DataDir is where the queue, the accounting log and the control socket are by default.
	DataDir string `conf:"data_dir" reload:"restart"`
	// Postmaster takes mail for <postmaster> and is the author of reports.
	Postmaster string `conf:"postmaster"`
	// NodeID tells this relay's accounting records from those of others.
	NodeID string `conf:"nodeid" reload:"restart"`
	// User is who the relay runs as when root starts it. "": root.
	User string `conf:"user" reload:"restart"`
	// Upgrade is who finishes an upgrade: until then the version before can be put back.
	Upgrade string `conf:"upgrade" oneof:"manual auto"`
	// Presets puts what is known of large providers behind the file's own provider blocks.
	Presets bool `conf:"presets"`

	Listeners   []*Listener    `conf:"listener,block"`
	APIs        []*API         `conf:"api,block"`
	Users       Users          `conf:"users,block"`
	Keys        Keys           `conf:"keys,block"`
	Templates   Templates      `conf:"templates,block"`
	ACME        ACME           `conf:"acme,block" reload:"restart"`
	HTTP        HTTP           `conf:"http,block"`
	Console     Console        `conf:"console,block" reload:"whole"`
	Control     Control        `conf:"control,block" reload:"restart"`
	Resolver    Resolver       `conf:"resolver,block" reload:"restart"`
	Queue       Queue          `conf:"queue,block" reload:"restart"`
	Router      Router         `conf:"router,block"`
	Delivery    Delivery       `conf:"delivery,block"`
	Log         Log            `conf:"log,block"`
	Accounting  Accounting     `conf:"accounting,block"`
	DSN         DSN            `conf:"dsn,block"`
	TLSReports  TLSReports     `conf:"tls_reports,block" reload:"restart"`
	ReturnPaths ReturnPathKeys `conf:"return_path,block"`
	Suppression Suppression    `conf:"suppression,block"`
	Admission   Admission      `conf:"admission,block"`
	Checks      Checks         `conf:"checks,block"`
	Shutdown    Shutdown       `conf:"shutdown,block"`

	Sources            []*Source       `conf:"source,block"`
	Plans              []*Plan         `conf:"plan,block"`
	Pools              []*Pool         `conf:"pool,block"`
	Tenants            []*Tenant       `conf:"tenant,block"`
	DKIMs              []*DKIM         `conf:"dkim,block"`
	SenderDomainBlocks []*SenderDomain `conf:"sender_domain,block"`
	Streams            []*Stream       `conf:"stream,block"`

	Defaults   Defaults    `conf:"defaults,block"`
	Providers  []*Provider `conf:"provider,block"`
	Domains    []*Domain   `conf:"domain,block"`
	Backoffs   []*Backoff  `conf:"backoff,block"`
	Classifies []*Classify `conf:"classify,block"`

	resolved *resolved         // what Traffic has worked out before
	derived  map[*string]bool  // settings that have what follows from others
	warnings []string          // of what was read and should be written otherwise
	waiting  []settings.Change // what the file has otherwise, and a restart would bring into force
}

// Warnings says, a sentence each with its place, what a file should say otherwise although it was read.
func (c *Config) Warnings() []string { return c.warnings }

// Keep puts into c, which was just read, what a running relay can't take over from it: settings
// and blocks marked for a restart stay as they are in old, which is in force. c must not be in
// use yet. What was kept is marked when c is printed, and Waiting has what the file says instead.
func (c *Config) Keep(old *Config) {
	c.waiting = settings.Keep(c, old, func(kept any) {
		if text, ok := kept.(*string); ok {
			delete(c.derived, text)
		}
	})
	c.derive(c.Hostname) // what follows from the kept settings follows from them now
}

// Waiting lists what the file has that takes a restart to come into force.
func (c *Config) Waiting() []settings.Change { return c.waiting }

// Effective prints what is in force, see settings.Print.
func Effective(c *Config) []byte { return settings.Print(c, c.waiting) }

// Listener takes mail in by SMTP.
type Listener struct {
	block
	Name string `conf:",label"`

	// Address has one or more "ip:port"; ":port" is every address of the machine.
	Address []string `conf:"address" check:"listen"`
	// RelayFrom is the networks that may relay; nobody else may. Empty: nobody.
	RelayFrom []netip.Prefix `conf:"relay_from"`
	// ProxyFrom is the networks whose connections begin with a PROXY protocol header.
	ProxyFrom []netip.Prefix `conf:"proxy_from"`
	// Banner is the name in the greeting and in the reply to EHLO. Default: Config.Hostname.
	Banner string `conf:"banner" check:"hostname"`
	// Tenant is on whose behalf mail is taken when nothing else says so. "": nobody's.
	Tenant string `conf:"tenant"`
	// TenantHeaderFrom is the networks whose clients name the tenant of a message in X-MTA-Tenant.
	TenantHeaderFrom []netip.Prefix `conf:"tenant_header_from"`
	// PoolHeader, CampaignHeader and EnvIDHeader are names of fields by which messages for another mail server
	// name their pool, their campaign and their envelope's id. "": none.
	PoolHeader     string `conf:"pool_header"`
	CampaignHeader string `conf:"campaign_header"`
	EnvIDHeader    string `conf:"envid_header"`
	// HeadersFrom is the networks whose clients' fields of these names count.
	HeadersFrom []netip.Prefix `conf:"headers_from"`
	// CheckFrom holds the addresses in From, too, to the senders of tenant and user.
	CheckFrom bool `conf:"check_from"`
	// Tier of mail that has no tenant, 0 (matters most) to 5.
	Tier int `conf:"tier" min:"0" max:"5"`
	// TLS offers STARTTLS, or begins with TLS, when it has a certificate.
	TLS TLS `conf:"tls,block"`
	// Auth offers AUTH, when it has mechanisms.
	Auth Auth `conf:"auth,block"`
	// Inbound takes reports about the relay's own mail, from anybody, when it has domains.
	Inbound Inbound `conf:"inbound,block"`

	MaxMessageSize           Size          `conf:"max_message_size" min:"1KiB" max:"1GiB"` // octets of content
	MaxRecipients            int           `conf:"max_recipients" min:"100" max:"1000000"` // per message; RFC 5321, 4.5.3.1.8 demands 100
	MaxConnections           int           `conf:"max_connections" min:"1"`                // at a time
	MaxConnectionsPerClient  int           `conf:"max_connections_per_client" min:"1"`     // at a time, from one IP address
	MaxMessagesPerConnection int           `conf:"max_messages_per_connection" min:"0"`    // 0: no limit
	MaxLineLength            Size          `conf:"max_line_length" min:"998B" max:"16MiB"` // octets without CRLF; RFC 5321, 4.5.3.1.6 demands 998
	MaxReceived              int           `conf:"max_received" min:"1"`                   // Received headers, against loops; RFC 5321, 6.3
	GreetDelay               time.Duration `conf:"greet_delay" min:"0" max:"1m"`           // silence that a client has to keep before the greeting; 0: none
	CommandTimeout           time.Duration `conf:"command_timeout" min:"1s"`               // wait for a command; RFC 5321, 4.5.3.2.7
	DataTimeout              time.Duration `conf:"data_timeout" min:"1s"`                  // for the whole content of a message
	MinDataRate              ByteRate      `conf:"min_data_rate" min:"1B/s"`               // slower content ends the session

	// VerifyRecipients says what is asked about a recipient before it is accepted: nothing, or
	// whether the DNS says that its domain takes no mail.
	VerifyRecipients string `conf:"verify_recipients" oneof:"off domain"`
	// BareNewline says what becomes of content with a CR or LF by itself.
	BareNewline string `conf:"bare_newline" oneof:"refuse normalise"`
	// NormaliseFrom is the networks whose bare CR and LF become CRLF, whatever BareNewline says.
	NormaliseFrom []netip.Prefix `conf:"normalise_from"`
	// NonUTF8Header says what becomes of a header section with octets that are no UTF-8.
	NonUTF8Header string `conf:"non_utf8_header" oneof:"refuse encode"`
	// MaxHold is how far ahead a message may be scheduled, by its header. 0: not at all.
	MaxHold time.Duration `conf:"max_hold" min:"0" max:"3650d"`
}

// TLS is how a listener speaks TLS with its clients.
type TLS struct {
	Certificates `conf:",inline"`

	Implicit bool `conf:"implicit"` // TLS from the first octet (RFC 8314, 3.3) in place of STARTTLS
	// ClientCertificates asks clients for one, which logs a user in.
	ClientCertificates bool   `conf:"client_certificates"`
	ClientCA           string `conf:"client_ca"` // PEM; names count in certificates that it has signed
}

// Certificates names those of a server, in files or from ACME, and what its TLS has. Without any: no TLS.
type Certificates struct {
	Certificate []string `conf:"certificate"` // PEM, each with its chain; the first is for who names no host
	Key         []string `conf:"key"`         // PEM, in the same order
	// ACME offers the certificates of Config.ACME, beside those in files.
	ACME bool `conf:"acme"`
	// MinVersion is the lowest version of TLS that clients may have.
	MinVersion string `conf:"min_version" oneof:"1.0 1.1 1.2 1.3"`
	// SessionTickets lets clients resume sessions (RFC 8446, 2.2).
	SessionTickets bool `conf:"session_tickets"`
}

// Enabled reports whether there is a certificate.
func (c Certificates) Enabled() bool { return len(c.Certificate) > 0 || c.ACME }

// Pairs lists the certificates with their keys.
func (c Certificates) Pairs() []certificates.Pair {
	pairs := make([]certificates.Pair, min(len(c.Certificate), len(c.Key)))
	for i := range pairs {
		pairs[i] = certificates.Pair{Certificate: c.Certificate[i], Key: c.Key[i]}
	}
	return pairs
}

// HTTP is the listener for metrics and the health check.
type HTTP struct {
	block
	Address string `conf:"address" check:"listen or off" reload:"restart"` // "ip:port"; "": none
	// MetricsToken is what those who ask for metrics must have; "": nothing.
	MetricsToken Secret `conf:"metrics_token"`
	// TopSites is how many sites have metrics of their own.
	TopSites int `conf:"top_sites" min:"0" max:"200"`
}

// Control is the unix socket that the command line speaks to.
type Control struct {
	block
	Socket string `conf:"socket"` // default: control.sock in DataDir
	Mode   Mode   `conf:"mode"`
}

// Resolver asks the DNS.
type Resolver struct {
	block
	Servers []string `conf:"servers" check:"server"` // "ip" or "ip:port"; empty: the system's
	// Trusted are the networks, besides loopback, of servers whose DNSSEC validation is believed.
	Trusted      []netip.Prefix `conf:"trusted"`
	Timeout      time.Duration  `conf:"timeout" min:"100ms"` // for a whole look-up
	MaxLookups   int            `conf:"max_lookups" min:"1"` // questions under way at a time
	CacheEntries int            `conf:"cache_entries" min:"1"`
	MinTTL       time.Duration  `conf:"min_ttl" min:"1s"`
	MaxTTL       time.Duration  `conf:"max_ttl" min:"1s"`
	NegativeTTL  time.Duration  `conf:"negative_ttl" min:"1s"` // at most, for "no such name"
}

// Queue is the store of accepted messages.
type Queue struct {
	block
	SegmentSize Size `conf:"segment_size" min:"1MiB" max:"2GiB"` // of a journal file
	LargeBody   Size `conf:"large_body" min:"4KiB" max:"64MiB"`  // larger content gets a file of its own
	Cache       Size `conf:"cache" min:"1MiB"`                   // memory for envelopes and content
	// IncomingMemory is what messages that are coming in may take of memory, all together; beyond it
	// they are refused with 4xx.
	IncomingMemory Size `conf:"incoming_memory" min:"1MiB"`
	MinFree        Size `conf:"min_free" min:"0"` // free disk below which mail is refused with 4xx
	// IdempotencyKeys is how many keys of requests are remembered.
	IdempotencyKeys int `conf:"idempotency_keys" min:"1000" max:"16000000"`
}

// Admission refuses mail while more is offered than can be kept.
type Admission struct {
	block
	Mode string `conf:"mode" oneof:"utilisation pid off"`
	// SyncLatency is how long it may take to make a message durable before fewer are at a time.
	SyncLatency time.Duration `conf:"sync_latency" min:"1ms" max:"10s"`
	// MemoryLimit is what the process may take of memory. 0: as much as its control group, if that is limited.
	MemoryLimit Size `conf:"memory_limit" min:"0"`
	// MaxBacklog is the longest backlog, at the pace at which mail leaves. 0: any.
	MaxBacklog time.Duration `conf:"max_backlog" min:"0"`
}

// Router finds out where mail goes.
type Router struct {
	block
	Workers               int           `conf:"workers" min:"1"`                 // domains looked up at a time
	VerifyWorkers         int           `conf:"verify_workers" min:"1"`          // of those, for recipients to be verified at RCPT
	MaxMessageConcurrency int           `conf:"max_message_concurrency" min:"1"` // look-ups that each message may have in any case
	ScaleMaxConcurrency   int           `conf:"scale_max_concurrency" min:"1"`   // and this many for each free worker
	IPv4                  bool          `conf:"ipv4"`                            // deliver to IPv4 addresses
	IPv6                  bool          `conf:"ipv6"`                            // deliver to IPv6 addresses
	AllowLoopback         bool          `conf:"allow_loopback"`                  // mail exchangers may be on this machine: for tests
	RefusePrivate         bool          `conf:"refuse_private"`                  // mail exchangers may not be at private addresses
	Timeout               time.Duration `conf:"timeout" min:"1s"`                // for routing one domain, with all look-ups that this takes
	MaxRouteAge           time.Duration `conf:"max_route_age" min:"1s"`          // a route is kept as long as its DNS records, and no longer than this
}

// Delivery bounds the relay as a whole; what applies to a destination is Traffic.
type Delivery struct {
	block
	MaxConnections        int `conf:"max_connections" min:"1" reload:"restart"`         // outgoing, at a time
	MaxMessageConcurrency int `conf:"max_message_concurrency" min:"1" reload:"restart"` // connections that each message may have in any case
	ScaleMaxConcurrency   int `conf:"scale_max_concurrency" min:"1" reload:"restart"`   // and this many for each free one

	MaxMessageRate    Rate `conf:"max_message_rate"` // of all mail, from all sources. Zero: no limit
	MaxConnectionRate Rate `conf:"max_connection_rate"`
}

// Log is the relay's own log, for people.
type Log struct {
	block
	Level  string `conf:"level" oneof:"debug info warn error"`
	Format string `conf:"format" oneof:"text json" reload:"restart"`
	File   string `conf:"file" reload:"restart"` // "": standard error
}

// Accounting is the log of what became of each message, for programs.
type Accounting struct {
	block
	Enabled     bool          `conf:"enabled" reload:"restart"`
	Path        string        `conf:"path" reload:"restart"` // a directory; default: log in DataDir
	RotateSize  Size          `conf:"rotate_size" min:"64KiB"`
	RotateEvery time.Duration `conf:"rotate_every" min:"1m"`
	Keep        time.Duration `conf:"keep" min:"0"`      // 0: for ever
	KeepSize    Size          `conf:"keep_size" min:"0"` // of all files together; 0: no limit
	Compress    string        `conf:"compress" oneof:"off zstd"`
	Headers     []string      `conf:"headers"` // names of fields
}

// DSN is how reports to senders look.
type DSN struct {
	block
	From        string `conf:"from"`                             // default: Mail Delivery System <Postmaster>
	ReturnLimit Size   `conf:"return_limit" min:"0" max:"64MiB"` // larger messages come back as headers only
}

// Shutdown is how the relay stops.
type Shutdown struct {
	block
	Drain time.Duration `conf:"drain" min:"0"` // for what is under way
}

// Source is an IP address from which connections are made: this machine's or a proxy's.
type Source struct {
	block
	Name    string     `conf:",label"`
	Address netip.Addr `conf:"address"`               // zero: the system, or the proxy, chooses
	EHLO    string     `conf:"ehlo" check:"hostname"` // default: Config.Hostname

	// PublicAddress is the address that receivers see, where a NAT or a proxy changes it: for checks of the
	// DNS. Zero: Address.
	PublicAddress netip.Addr `conf:"public_address"`

	// Proxy is through what connections are made. Zero: none.
	Proxy Proxy `conf:"proxy"`
	// ProxyUsername and ProxyPassword are for a SOCKS5 proxy (RFC 1929).
	ProxyUsername string `conf:"proxy_username"`
	ProxyPassword Secret `conf:"proxy_password"`

	// What leaves from here for all sites together. Zero: no limit.
	ConnectionLimit   int  `conf:"connection_limit" min:"0"` // at a time
	MaxMessageRate    Rate `conf:"max_message_rate"`
	MaxConnectionRate Rate `conf:"max_connection_rate"`
}

// Pool is the sources that a tenant's mail may use.
type Pool struct {
	block
	Name   string   `conf:",label"`
	Shared []string `conf:"shared"` // names of sources
	// Overflow is what becomes of mail that no dedicated source has room for: "shared", it takes a
	// shared source at once, or "hold", it waits. Without shared sources it is "hold".
	Overflow string `conf:"overflow" oneof:"shared hold"`
	// Patience is how long mail waits for a dedicated source before it overflows, as much as the plans can
	// still take; of the tiers before PatienceTier half a minute at most.
	Patience     time.Duration `conf:"patience" min:"0s"`
	PatienceTier int           `conf:"patience_tier" min:"0" max:"5"`
	// TierPatience has, in the place of these, one for each tier from 0 on; the last is that of all later ones.
	TierPatience []time.Duration `conf:"tier_patience" min:"0s"`
	// Dedicated sources are preferred to the shared ones.
	Dedicated []*Dedicated `conf:"dedicated,block"`
}

// Dedicated is a source of a pool that is its own.
type Dedicated struct {
	block
	Name string `conf:",label"` // of a source
	// Plan is the warm-up plan that the source is bound to. "": it is warm.
	Plan string `conf:"plan"`
	// Prefer is mail that goes before other mail, and Except mail that doesn't take the source.
	Prefer []*Selector `conf:"prefer,block"`
	Except []*Selector `conf:"except,block"`
}

// Selector is some mail: that which has one of the values of each setting that is there.
type Selector struct {
	block
	Tenants       []string `conf:"tenant"`
	Tiers         []int    `conf:"tier" min:"0" max:"5"`
	Campaigns     []string `conf:"campaign"`
	SenderDomains []string `conf:"sender_domain"`
	Headers       []string `conf:"header"` // "Name: value", or "Name" for any value
}

// DefaultPool is the pool of mail whose tenant names none. Unless the file has a pool of that
// name, it has all sources that are dedicated to none.
const DefaultPool = "default"

// Tenant is somebody on whose behalf mail is sent.
type Tenant struct {
	block
	Name string `conf:",label"`
	Pool string `conf:"pool"`
	Tier int    `conf:"tier" min:"0" max:"5"`
	// Weight is how many turns the tenant's mail has for each one of a tenant of weight 1, wherever mail of
	// several waits.
	Weight int `conf:"weight" min:"1" max:"1000"`

	// Patience replaces the pool's for the tenant's mail, of all tiers, where the file has it.
	Patience time.Duration `conf:"patience" min:"0s"`

	// MaxMessageRate paces all mail of the tenant, MaxMessageRatePerSource that from one source to a site.
	// Zero: no limit.
	MaxMessageRate          Rate `conf:"max_message_rate"`
	MaxMessageRatePerSource Rate `conf:"max_message_rate_per_source"`

	// Senders are the addresses that the tenant may send as: domains, "*.domain", addresses. Empty: any.
	Senders []users.Sender `conf:"senders"`
	// Unsubscribe is the URL, as recipients reach it, of the route /unsubscribe of an api block: links to it are
	// added to messages (RFC 8058). "": none are.
	Unsubscribe string `conf:"unsubscribe"`
	// UnsubscribeMail adds the address that unsubscribes the recipient, at the domain of the return path, to
	// messages that have no List-Unsubscribe.
	UnsubscribeMail bool       `conf:"unsubscribe_mail"`
	ReturnPath      ReturnPath `conf:",inline"`
	// Networks are those whose clients' mail is the tenant's when nothing else says whose it is.
	Networks []netip.Prefix `conf:"networks"`

	// MaxSubmissionRate paces the messages that are accepted; SubmissionBurst is how many may come at once, 0
	// for what a second holds.
	MaxSubmissionRate Rate `conf:"max_submission_rate"`
	SubmissionBurst   int  `conf:"submission_burst" min:"0"`
	// MaxConnections bounds the open connections of clients. 0: no limit.
	MaxConnections int `conf:"max_connections" min:"0"`
	// MaxQueuedMessages and MaxQueuedBytes bound what is in the queue. 0: no limit.
	MaxQueuedMessages int  `conf:"max_queued_messages" min:"0"`
	MaxQueuedBytes    Size `conf:"max_queued_bytes" min:"0B"`
	// What the tenant's keys may ask for by HTTP, all together. Zero: no limit.
	MaxRequestRate   Rate     `conf:"max_request_rate"`
	MaxRecipientRate Rate     `conf:"max_recipient_rate"`
	MaxByteRate      ByteRate `conf:"max_byte_rate" min:"0B/s"` // of request bodies
	// OverQuota is what becomes of mail that is over the rate or one of the quotas: "lower" takes it in the
	// last tier.
	OverQuota string `conf:"over_quota" oneof:"refuse lower"`
}

// Limited reports whether mail of the tenant can be over a limit.
func (t *Tenant) Limited() bool {
	return t.MaxSubmissionRate != (Rate{}) || t.MaxQueuedMessages > 0 || t.MaxQueuedBytes > 0
}
