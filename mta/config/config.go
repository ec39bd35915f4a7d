// Package config has what may stand in the relay's one declarative file, its defaults, and the checks of
// what the parts say together. It starts no goroutines and keeps no state.
//
// The way through it: Load or Parse (package settings reads the file along the struct tags below,
// traffic.go adds what is known of large providers, check.go looks at what the parts say together), then
// Config.Traffic and its neighbours for what applies to a destination (traffic.go), Effective to print.
//
// Package settings documents the struct tags. The comments of fields with a tag are the manual: 'make generate'
// writes docs/configuration.md from them. "Default: ..." ends a comment where the default is not a value.
package config

import (
	"net/netip"
	"time"

	"example.org/mta/internal/certificates"
	"example.org/mta/internal/hours"
	"example.org/mta/internal/settings"
	"example.org/mta/submission/auth"
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

	// The relay's name: in Received and Message-ID, in greetings, and to other hosts unless a source has its own. It
	// must resolve to this machine in the DNS. Default: the machine's name.
	Hostname string `conf:"hostname" reload:"restart" node:"own"`
	// The directory of the queue. Only one relay at a time can use it.
	DataDir string `conf:"data_dir" default:"./mta-data" reload:"restart" node:"own"`
	// The address that gets mail for `<postmaster>` without a domain, and that reports come from. Default:
	// postmaster at `hostname`.
	Postmaster string `conf:"postmaster"`
	// Identifies this relay's accounting records. Default: `hostname`.
	NodeID string `conf:"nodeid" reload:"restart" node:"own"`
	// The user that the relay runs as when root starts it, with no privilege except binding to ports below 1024. Its
	// files must belong to this user or be readable by it. Without this setting a relay started by root stays root.
	// Default: the starting user.
	User string `conf:"user" reload:"restart" node:"own"`
	// Who finishes an [upgrade](upgrade.md): `manual`: an operator, with `mta upgrade finish`; `auto`: the relay, after
	// running for a day.
	Upgrade string `conf:"upgrade" default:"manual" oneof:"manual auto"`
	// The settings for [large providers](#presets) apply where the file has no other ones.
	Presets bool `conf:"presets" default:"true"`

	Entrances   `conf:",inline"`
	Resolver    Resolver       `conf:"resolver,block" reload:"restart" node:"own"`
	Queue       Queue          `conf:"queue,block" reload:"restart" node:"own"`
	Cluster     Cluster        `conf:"cluster,block" reload:"restart"`
	Router      Router         `conf:"router,block"`
	Delivery    Delivery       `conf:"delivery,block"`
	Log         Log            `conf:"log,block" node:"own"`
	Accounting  Accounting     `conf:"accounting,block"`
	DSN         DSN            `conf:"dsn,block"`
	TLSReports  TLSReports     `conf:"tls_reports,block" reload:"restart"`
	ReturnPaths ReturnPathKeys `conf:"return_path,block"`
	Suppression Suppression    `conf:"suppression,block"`
	Admission   Admission      `conf:"admission,block"`
	Checks      Checks         `conf:"checks,block"`
	Shutdown    Shutdown       `conf:"shutdown,block"`

	Senders      `conf:",inline"`
	Destinations `conf:",inline"`

	resolved *resolved         // what Traffic has worked out before
	derived  map[*string]bool  // settings that have what follows from others
	warnings []string          // of what was read and should be written otherwise
	waiting  []settings.Change // what the file has otherwise, and a restart would bring into force
}

// Entrances are the blocks of those who come to the relay: clients, operators, monitoring.
type Entrances struct {
	Listeners []*Listener `conf:"listener,block" node:"some"`
	APIs      []*API      `conf:"api,block" node:"some"`
	Milters   []*Milter   `conf:"milter,block" node:"order"`
	Users     Users       `conf:"users,block"`
	Keys      Keys        `conf:"keys,block"`
	Templates Templates   `conf:"templates,block"`
	ACME      ACME        `conf:"acme,block" reload:"restart"`
	HTTP      HTTP        `conf:"http,block"`
	Console   Console     `conf:"console,block" reload:"whole"`
	Control   Control     `conf:"control,block" reload:"restart" node:"own"`
}

// Senders are the blocks of mail by where it is from.
type Senders struct {
	Sources            []*Source       `conf:"source,block" node:"some"`
	Plans              []*Plan         `conf:"plan,block"`
	Pools              []*Pool         `conf:"pool,block"`
	Tenants            []*Tenant       `conf:"tenant,block"`
	DKIMs              []*DKIM         `conf:"dkim,block"`
	SenderDomainBlocks []*SenderDomain `conf:"sender_domain,block"`
	Mails              []*Mail         `conf:"mail,block" node:"order"`
	Streams            []*Stream       `conf:"stream,block"`
}

// Destinations are the blocks of mail by where it goes.
type Destinations struct {
	Defaults   Defaults    `conf:"defaults,block"`
	Providers  []*Provider `conf:"provider,block"`
	Domains    []*Domain   `conf:"domain,block"`
	Backoffs   []*Backoff  `conf:"backoff,block" node:"order"`
	Classifies []*Classify `conf:"classify,block" node:"order"`
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
//
// Accepts mail by SMTP. A file without listeners has one, named `smtp`, with the defaults here; in a file with
// listeners each needs an `address`. [submission.md](submission.md) has the replies that clients get.
type Listener struct {
	block
	Name string `conf:",label"`

	// One or more of `"ip:port"`; `":25"` is port 25 on all addresses of the machine. Default: `["127.0.0.1:2525"]`.
	Address []string `conf:"address" check:"listen" node:"own"`
	// The networks whose machines may send through the relay. `0.0.0.0/0` is an error: no single line makes an open
	// relay.
	RelayFrom []netip.Prefix `conf:"relay_from" default:"127.0.0.0/8 ::1/128"`
	// Load balancers and similar proxies whose connections begin with a PROXY protocol header; the client address in
	// the header then applies everywhere.
	ProxyFrom []netip.Prefix `conf:"proxy_from"`
	// The name in the greeting and in the reply to EHLO. Default: `hostname`.
	Banner string `conf:"banner" check:"hostname" node:"own"`
	// The tenant of mail that arrives here, unless [something else decides](submission.md#whose-mail-it-is); the
	// name of a `tenant` block.
	Tenant string `conf:"tenant"`
	// The networks whose clients name the tenant of each message in a field `X-MTA-Tenant`. To relay, they still need
	// `relay_from` or a login.
	TenantHeaderFrom []netip.Prefix `conf:"tenant_header_from"`
	// A header field in which clients name the pool of a message, such as `"X-Virtual-MTA"`: see
	// [submission.md](submission.md#fields-of-another-mail-server). It must begin with `X-`, like the two below.
	PoolHeader string `conf:"pool_header"`
	// A field with the campaign, such as `"X-Job"`, where the message has no `X-MTA-Campaign`.
	CampaignHeader string `conf:"campaign_header"`
	// A field with the envelope id, such as `"X-Envid"`, where MAIL has no ENVID.
	EnvIDHeader string `conf:"envid_header"`
	// The networks whose clients' `pool_header`, `campaign_header` and `envid_header` count. Those of users who have
	// logged in always count.
	HeadersFrom []netip.Prefix `conf:"headers_from"`
	// Header fields that are [removed](submission.md#removed-fields) from messages, such as `["Received",
	// "X-Internal-*"]`.
	HeadersRemove []FieldPattern `conf:"headers_remove"`
	// The `senders` of a tenant and of a user also apply to the addresses in the From field, not only to MAIL. A
	// message without exactly one readable From field is then refused.
	CheckFrom bool `conf:"check_from"`
	// The priority of mail without a tenant, from 0 (highest) to 5.
	Tier    int     `conf:"tier" min:"0" max:"5"`
	TLS     TLS     `conf:"tls,block"`
	Auth    Auth    `conf:"auth,block"`
	Inbound Inbound `conf:"inbound,block"`

	Bounds `conf:",inline"`

	// With `"domain"`, recipients whose domain [can't accept mail](submission.md#verified-recipients) are refused.
	VerifyRecipients string `conf:"verify_recipients" default:"off" oneof:"off domain"`
	// Networks whose [bare CR and LF](submission.md#line-ends-and-latin-1) become CRLF. Add the hosts of applications
	// that end lines in LF.
	NormaliseFrom []netip.Prefix `conf:"normalise_from" default:"127.0.0.0/8 ::1/128"`
	// How far ahead, 3650d at most, a message may be [scheduled](submission.md#scheduled-mail); with `"0s"` a message
	// with such a field is refused.
	MaxHold time.Duration `conf:"max_hold" default:"7d" min:"0" max:"3650d"`
}

// Bounds are those of a listener's sessions and messages.
type Bounds struct {
	// Octets of content; announced to clients as SIZE (RFC 1870). From 1KiB to 1GiB.
	MaxMessageSize Size `conf:"max_message_size" default:"50MiB" min:"1KiB" max:"1GiB"`
	// For each message, at least 100 (RFC 5321, 4.5.3.1.8). Further ones get a 452 and go into another transaction.
	MaxRecipients int `conf:"max_recipients" default:"1000" min:"100" max:"1000000"`
	// At a time, in [shares](submission.md#shares): one tenant or client has three quarters at most;
	// [strangers](submission.md#strangers) have less.
	MaxConnections int `conf:"max_connections" default:"10000" min:"1" node:"own"`
	// At a time, from one IPv4 address or one IPv6 /64.
	MaxConnectionsPerClient int `conf:"max_connections_per_client" default:"1000" min:"1"`
	// The delay before the greeting, 1m at most, for strangers; a client that sends earlier gets a 554.
	GreetDelay time.Duration `conf:"greet_delay" min:"0" max:"1m"`
	// The time for a client to send a command (RFC 5321, 4.5.3.2.7).
	CommandTimeout time.Duration `conf:"command_timeout" default:"5m" min:"1s"`
}

// TLS is how a listener speaks TLS with its clients.
//
// Within a listener: offers STARTTLS to clients, or TLS from the start.
type TLS struct {
	Certificates `conf:",inline"`

	// TLS from the first octet, as clients expect it on port 465 (RFC 8314, 3.3), in place of STARTTLS.
	Implicit bool `conf:"implicit"`
	// Request a certificate from clients. That of a user in the [users file](submission.md#logins) logs the client in;
	// any other has no effect.
	ClientCertificates bool `conf:"client_certificates"`
	// File in PEM form with the CAs whose client certificates count by name. Without it only fingerprints count.
	ClientCA string `conf:"client_ca"`
}

// Certificates names those of a server, in files or from ACME, and what its TLS has. Without any: no TLS.
type Certificates struct {
	// Files in PEM form, each with the chain of its certificate: `"cert.pem"`, or a list for several names or
	// algorithms. A client gets the first that matches its requested name (SNI) and algorithms, else the first of all.
	// The relay rereads the files when they change.
	Certificate []string `conf:"certificate" node:"own"`
	// Files in PEM form, in the order of `certificate`.
	Key []string `conf:"key" node:"own"`
	// Use the certificates of the [`acme`](#acme) block, too.
	ACME bool `conf:"acme"`
	// The lowest version of TLS: `"1.3"`, `"1.2"`, or `"1.1"` and `"1.0"` for old devices, which are not safe (RFC
	// 8996).
	MinVersion string `conf:"min_version" default:"1.2" oneof:"1.0 1.1 1.2 1.3"`
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
	// The address of [`/metrics`](accounting.md#metrics) and of [`/livez`, `/readyz` and
	// `/healthz`](monitoring.md#health); `""` disables them.
	Address string `conf:"address" default:"127.0.0.1:8025" check:"listen or off" reload:"restart" node:"own"`
	// The token that requests for `/metrics` must have (`Authorization: Bearer`).
	MetricsToken Secret `conf:"metrics_token"`
}

// Control is the unix socket that the command line speaks to.
//
// The socket for the command line. Users with write access to it can read and delete mail.
type Control struct {
	block
	// The file name of the socket. Default: control.sock in `data_dir`.
	Socket string `conf:"socket"`
	// The permissions of the socket.
	Mode Mode `conf:"mode" default:"0660"`
}

// Resolver asks the DNS.
//
// All names are looked up here. Names of web hooks, of brokers and of the server of `acme` that it doesn't find are
// looked up by the system as well.
type Resolver struct {
	block
	// `"ip"` or `"ip:port"` of recursive name servers, queried in this order. A server on the same machine is best.
	// Default: the system's.
	Servers []string `conf:"servers" check:"server"`
	// Networks, besides loopback, of servers that validate DNSSEC and are reached over a tamper-proof path: the relay
	// trusts their AD bit. All `servers` must be trusted, or none is.
	Trusted []netip.Prefix `conf:"trusted"`
	// The maximum time that a negative answer is cached (RFC 2308).
	NegativeTTL time.Duration `conf:"negative_ttl" default:"15m" min:"1s"`
}

// Queue is the store of accepted messages.
type Queue struct {
	block
	// The size of a journal file. From 1MiB to 2GiB.
	SegmentSize Size `conf:"segment_size" default:"64MiB" min:"1MiB" max:"2GiB"`
	// Memory for all incoming messages together: each has 64 KiB, its incomplete header section, and its content up to
	// `large_body`. When it is used up, clients get a 452.
	IncomingMemory Size `conf:"incoming_memory" default:"256MiB" min:"1MiB"`
	// Free disk space below which the relay accepts no mail: clients get a 452. `"0"` means twice `segment_size`. A
	// message above `large_body` is refused unless its whole size leaves one and a half times that free.
	MinFree Size `conf:"min_free" default:"256MiB" min:"0"`
	// Idempotency keys that are remembered, 1,000 to 16,000,000; each takes 40 octets of memory and about 200 on disk.
	// They are kept for a day, for scheduled mail until a day after its release, for [imported
	// mail](backup.md#moving-queued-mail) (counted separately, up to as many) for 30 days. When there are more, the
	// tenant with the most loses its oldest.
	IdempotencyKeys int `conf:"idempotency_keys" default:"1000000" min:"1000" max:"16000000"`
}

// Admission refuses mail while more is offered than can be kept.
//
// Overload protection: when more mail is submitted than the relay can store, it refuses the least important mail first,
// with 4xx ([admission.md](admission.md)). The defaults need no tuning.
type Admission struct {
	block
	// The controller that computes the share to refuse; or `"pid"`, for comparison; or `"off"`: nothing is refused
	// until connections, memory or disk run out.
	Mode string `conf:"mode" default:"utilisation" oneof:"utilisation pid off"`
	// The memory of the process. Mail is refused from 80 % of it on, and nearly all at 95 %. `"0"`: the limit of its
	// control group, or none if that has no limit.
	MemoryLimit Size `conf:"memory_limit" min:"0" node:"own"`
}

// Router finds out where mail goes.
//
// Decides where mail goes.
type Router struct {
	block
	// Deliver to IPv4 addresses.
	IPv4 bool `conf:"ipv4" default:"true" node:"own"`
	// Deliver to IPv6 addresses. Disable it on a machine without IPv6.
	IPv6 bool `conf:"ipv6" default:"true" node:"own"`
	// Accept mail exchangers at 127.0.0.0/8 and ::1. For tests only: anyone's DNS could direct mail back to this
	// machine.
	AllowLoopback bool `conf:"allow_loopback"`
	// Reject mail exchangers at [private addresses](routing.md), for a relay that can reach machines to which no
	// foreign DNS should direct it; `route` is not affected.
	RefusePrivate bool `conf:"refuse_private"`
}

// Delivery bounds the relay as a whole; what applies to a destination is Traffic.
//
// Limits for the relay as a whole. Those for each destination are under `defaults`.
type Delivery struct {
	block
	// Outgoing, at a time; a part is reserved for proven hosts ([delivery.md](delivery.md#places)). If the process
	// limit on open files is too low for this and the `max_connections` of listeners and APIs, the highest of them are
	// lowered to the same number, with a warning.
	MaxConnections int `conf:"max_connections" default:"1000" min:"1" reload:"restart" node:"own"`

	// Messages from all sources to all sites together, evenly paced.
	MaxMessageRate Rate `conf:"max_message_rate"`
	// Connections likewise.
	MaxConnectionRate Rate `conf:"max_connection_rate"`
}

// Log is the relay's own log, for people.
//
// The log for people, by default on standard error. For systemd's journal (`JOURNAL_STREAM`), lines have their level as
// priority, and no time. SIGHUP reopens the file, for logrotate.
type Log struct {
	block
	// `"debug"`, `"info"`, `"warn"` or `"error"`.
	Level string `conf:"level" default:"info" oneof:"debug info warn error"`
	// Or `"json"`.
	Format string `conf:"format" default:"text" oneof:"text json" reload:"restart"`
	// A file name, in an existing directory. Default: standard error.
	File string `conf:"file" reload:"restart"`
}

// Accounting is the log of what became of each message, for programs.
//
// The log for programs: the outcome of each message. See [accounting.md](accounting.md).
type Accounting struct {
	block
	// Write the accounting log.
	Enabled bool `conf:"enabled" default:"true" reload:"restart"`
	// The directory of the files, for this relay only; the relay creates it. Default: log in `data_dir`.
	Path string `conf:"path" reload:"restart" node:"own"`
	// A new file begins at this size,.
	RotateSize Size `conf:"rotate_size" default:"128MiB" min:"64KiB" node:"own"`
	// And at each multiple of this time, in UTC: shippers pick finished files up. At least 1m.
	RotateEvery time.Duration `conf:"rotate_every" default:"1d" min:"1m" node:"own"`
	// Files with only older records are deleted; `"0"` means never.
	Keep time.Duration `conf:"keep" default:"14d" min:"0"`
	// The oldest files are deleted while all together exceed this size; `"0"` means no limit. Files that a
	// [stream](#stream-name) has yet to read stay, up to its `hold` and as long as the queue's `min_free` is free.
	KeepSize Size `conf:"keep_size" default:"10GiB" min:"0" node:"own"`
	// Finished files are compressed, to a seventh or so; or `"off"`, for programs that read no zstd.
	Compress string `conf:"compress" default:"zstd" oneof:"zstd off"`
	// Up to 16 names of header fields, such as `["Subject", "X-Order"]`: all records of a message have them in
	// `headers`, decoded, the first of each name, up to 1 KiB each and 4 KiB together.
	Headers []string `conf:"headers"`
}

// DSN is how reports to senders look.
//
// Reports to senders (RFC 3464).
type DSN struct {
	block
	// The From field of reports. They are always sent with the null sender. Default: Mail Delivery System at
	// `postmaster`.
	From string `conf:"from"`
}

// Shutdown is how the relay stops.
type Shutdown struct {
	block
	// The time for open sessions and transactions to finish when the relay stops. Interrupted mail is tried again after
	// the start.
	Drain time.Duration `conf:"drain" default:"30s" min:"0"`
}

// Source is an IP address from which connections are made: this machine's or a proxy's.
//
// A local IP address for outgoing connections, of this machine or of a proxy ([delivery.md](delivery.md#sources)).
// Without any there is one named `default`, for which the system chooses the address.
type Source struct {
	block
	Name string `conf:",label"`
	// An address of this machine, or of the proxy. Forward and reverse DNS should match `ehlo`. A source with an
	// address reaches hosts of its family only. Default: the system's choice.
	Address netip.Addr `conf:"address" node:"own"`
	// The relay's name on connections from this source. Default: `hostname`.
	EHLO string `conf:"ehlo" check:"hostname" node:"own"`

	// The address that receivers see, where a NAT or a SOCKS5 proxy changes it. Only checks use it. Default: `address`.
	PublicAddress netip.Addr `conf:"public_address" node:"own"`

	// Connections are made through a [proxy](delivery.md#sources): `"socks5://host:port"` (RFC 1928), or
	// `"haproxy://host:port"` for one that accepts a PROXY protocol header of version 2. Of a SOCKS5 proxy, `address`
	// only sets the address family.
	Proxy Proxy `conf:"proxy"`
	// For a SOCKS5 proxy (RFC 1929). It goes to the proxy in clear text.
	ProxyUsername string `conf:"proxy_username"`
	// Likewise; best as `env("NAME")`.
	ProxyPassword Secret `conf:"proxy_password"`

	// Connections from this source to all sites together, at a time; 0 means no limit.
	ConnectionLimit int `conf:"connection_limit" min:"0"`
	// Messages from this source to all sites together.
	MaxMessageRate Rate `conf:"max_message_rate"`
	// Connections from this source to all sites together.
	MaxConnectionRate Rate `conf:"max_connection_rate"`
	// In a [cluster](cluster.md#shared-limits): these limits, and those of the blocks below, are each node's
	// own, and not those of all nodes together.
	LimitsPerNode bool `conf:"limits_per_node"`
	OwnLimits     `conf:",inline"`
}

// Pool is the sources that a tenant's mail may use.
//
// The sources that a tenant's mail may use. A pool named `default`, for mail without a tenant and for tenants that
// name none, has all sources that no pool dedicates, unless the file has a block for it. If a reload removes the pool
// that a message [names](http.md#fields), it leaves from its tenant's.
//
// All mail from an address must count toward its plan. So a source under a plan can't be shared, nor dedicated
// elsewhere without that plan; nor can another source with its address, with its SOCKS5 proxy, or without an address.
type Pool struct {
	block
	Name string `conf:",label"`
	// Names of sources that accept mail without a plan. A pool without any needs `dedicated` blocks.
	Shared []string `conf:"shared" node:"own"`
	// The handling of mail that exceeds the plans: `"shared"`: it uses a shared source; `"hold"`: it waits. A pool
	// without shared sources has `"hold"`.
	Overflow string `conf:"overflow" default:"shared" oneof:"shared hold"`
	// With `overflow = "shared"`: how long mail of tier 3 and later waits for a dedicated source before it uses a
	// shared one; mail of earlier tiers waits half a minute at most. Only as much mail waits as the plans can still
	// take in that time.
	Patience time.Duration `conf:"patience" min:"0s"`
	// Instead, a duration for each tier from 0 on: `["0s", "0s", "10m", "4h", "9h"]`; the last also
	// applies to the later tiers.
	TierPatience []time.Duration `conf:"tier_patience" min:"0s"`
	// How the mail is shared out among the shared sources, and among the dedicated ones, such as `["a=3", "b=0"]`: from
	// 0 to 1000, 1 for those left out. [`mta pools weight`](cli.md#mta-pools) overrules it.
	Weights   []SourceWeight `conf:"weights" node:"own"`
	Dedicated []*Dedicated   `conf:"dedicated,block" node:"some"`
	// In a [cluster](cluster.md#shared-limits): the limits of the blocks below are each node's own, and not
	// those of all nodes together.
	LimitsPerNode bool `conf:"limits_per_node"`
	OwnLimits     `conf:",inline"`
}

// Dedicated is a source of a pool that is its own.
//
// Within a pool: a source for this pool only, preferred to the shared ones. Several share the pool's mail.
type Dedicated struct {
	block
	Name string `conf:",label"` // of a source
	// The plan that the source warms up by. Without one the source is warm.
	Plan string `conf:"plan"`
	// Within `dedicated`, any number: mail with priority. A block matches mail that has one of the values of each of
	// its settings; one match is enough. Preferred mail leaves first, and other mail leaves enough tokens for a minute
	// of it. A pool without shared sources needs a dedicated one without `except`.
	Prefer []*Selector `conf:"prefer,block"`
	// Within `dedicated`, any number: mail that doesn't use the source, but another one of the pool.
	Except []*Selector `conf:"except,block"`
}

// Selector is some mail: that which has one of the values of each setting that is there.
type Selector struct {
	block
	// Names of tenants. Default: any.
	Tenants []string `conf:"tenant"`
	// From 0 to 5. Default: any.
	Tiers []int `conf:"tier" min:"0" max:"5"`
	// The value of the message's header field `X-MTA-Campaign`. Default: any.
	Campaigns []string `conf:"campaign"`
	// The domain of MAIL FROM. Default: any.
	SenderDomains []string `conf:"sender_domain"`
	// Header fields: `"X-MTA-Engaged: yes"` with that value, `"List-Id"` with any. Case doesn't matter, and only the
	// first line of a folded field counts. Recorded when a message arrives. A file has 32 at most. Default: any.
	Headers []string `conf:"header"`
}

// Mail is what is special about some mail, wherever it goes.
//
// How long and when some mail is tried, wherever it goes: by tenant, tier, campaign, sender's domain or header field.
// For each setting, the first block in the file counts that has it and matches.
//
//	mail "codes" {
//	  match { tier = [0] }
//	  match {
//	    tenant   = ["acme"]
//	    campaign = ["otp"]
//	  }
//	  max_age        = "10m"
//	  retry_interval = ["20s", "1m"]
//	}
type Mail struct {
	block
	Name string `conf:",label"`
	// Within `mail`, one or more: the mail that it is about, as in `prefer`.
	Match []*Selector `conf:"match,block"`
	// The age at which the mail expires, where it is less than `max_age` of the destination: the shorter one counts.
	MaxAge time.Duration `conf:"max_age" min:"1s"`
	// In place of the destination's, up to its `max_retry_interval`; or a list.
	RetryInterval Retry `conf:"retry_interval"`
	// In place of that of `defaults`; `"0"` means never.
	DelayWarning time.Duration `conf:"delay_warning" min:"0"`
	// The [sending hours](submission.md#sending-hours), such as `"08:00-20:00 Europe/Berlin"` or `"Mon-Fri 08:00-20:00
	// recipient Europe/Berlin"`.
	Window hours.Window `conf:"window"`
	// The [pace](submission.md#pace-of-a-campaign) of each campaign in recipients, such as `"10000/h"`.
	Pace Rate `conf:"pace"`
}

// DefaultPool is the pool of mail whose tenant names none. Unless the file has a pool of that
// name, it has all sources that are dedicated to none.
const DefaultPool = "default"

// Tenant is somebody on whose behalf mail is sent.
//
// A customer or application on whose behalf mail is sent.
type Tenant struct {
	block
	Name string `conf:",label"`
	// The name of a pool.
	Pool string `conf:"pool"`
	// The priority of the tenant's mail, from 0 (highest) to 5: mail of the first tier goes first, and each later tier
	// gets one turn in twenty. `MT-Priority` lowers it for a message.
	Tier int `conf:"tier" min:"0" max:"5"`
	// The number of turns of the tenant's mail for each turn of a tenant of weight 1, where mail of several tenants
	// waits. 1 to 1000.
	Weight int `conf:"weight" default:"1" min:"1" max:"1000"`

	// How long the tenant's mail waits for a dedicated source of its pool, whatever its tier. By default the pool
	// decides.
	Patience time.Duration `conf:"patience" min:"0s"`

	// All messages of the tenant, from all sources to all sites. Other tenants' mail overtakes the waiting mail.
	MaxMessageRate Rate `conf:"max_message_rate"`
	// The tenant's messages to a site from one source: a pool of two sources allows it twice.
	MaxMessageRatePerSource Rate `conf:"max_message_rate_per_source"`
	// In a [cluster](cluster.md#shared-limits): all limits of this block are each node's own, and not those of
	// all nodes together.
	LimitsPerNode bool `conf:"limits_per_node"`

	// The addresses in MAIL that the tenant may send as: domains (`"acme.example"`), all domains below one
	// (`"*.acme.example"`), addresses (`"news@b.example"`). Reports (null sender) are always allowed. Default: any.
	Senders []auth.Sender `conf:"senders"`
	// `"https://mail.acme.example/unsubscribe"`: the URL, as recipients reach it, of `/unsubscribe` of an
	// [`api`](#api-name) block, for [one-click unsubscribe](submission.md#one-click-unsubscribe).
	Unsubscribe string `conf:"unsubscribe"`
	// Add `List-Unsubscribe` with a mail address, `u-TOKEN@` the domain of the return path, to messages to one
	// recipient that have no such field.
	UnsubscribeMail bool       `conf:"unsubscribe_mail"`
	ReturnPath      ReturnPath `conf:",inline"`
	// The networks whose clients' mail belongs to the tenant, unless a user or field decides; the smallest matching
	// network wins. They can't relay without `relay_from`.
	Networks []netip.Prefix `conf:"networks"`

	// The messages accepted from the tenant, such as `"10/s"`; see [limits of
	// tenants](submission.md#limits-of-tenants).
	MaxSubmissionRate Rate `conf:"max_submission_rate"`
	// Open connections of the tenant's clients; 0: no limit of the tenant's own.
	MaxConnections int `conf:"max_connections" min:"0"`
	// The tenant's messages in the queue; 0: no limit.
	MaxQueuedMessages int `conf:"max_queued_messages" min:"0"`
	// Their size; 0: no limit. At least the largest `max_message_size` of the listeners.
	MaxQueuedBytes Size `conf:"max_queued_bytes" min:"0B"`
	// Requests by HTTP with all keys of the tenant, such as `"100/s"`; further ones get a 429 with the time to wait.
	MaxRequestRate Rate `conf:"max_request_rate"`
	// Recipients in these requests.
	MaxRecipientRate Rate `conf:"max_recipient_rate"`
	// Octets of their bodies; 0: no limit.
	MaxByteRate ByteRate `conf:"max_byte_rate" min:"0B/s"`
	// Mail over the rate, `max_queued_messages` or `max_queued_bytes`: `"refuse"` it with 450, or `"lower"` it to
	// tier 5.
	OverQuota string `conf:"over_quota" default:"refuse" oneof:"refuse lower"`
}

// Limited reports whether mail of the tenant can be over a limit.
func (t *Tenant) Limited() bool {
	return t.MaxSubmissionRate != (Rate{}) || t.MaxQueuedMessages > 0 || t.MaxQueuedBytes > 0
}
