package config

import "time"

// Traffic is how mail goes to a destination. The same settings stand in the blocks defaults,
// provider and domain; each is taken from the most specific block that has it: a domain's own,
// then wider domain patterns, then the provider, then defaults.
type Traffic struct {
	// ConnectionLimit bounds the connections to a site at a time. In a provider block it bounds
	// all sites of the provider together as well, see Config.Budget.
	ConnectionLimit int `conf:"connection_limit" min:"1"`
	// ConnectionLimitPerHost bounds those to one host. 0: as the site's.
	ConnectionLimitPerHost int `conf:"connection_limit_per_host" min:"0"`
	// MaxDeliveriesPerConnection is how many messages a connection takes before it is closed.
	MaxDeliveriesPerConnection int `conf:"max_deliveries_per_connection" min:"1"`
	// MaxRecipientsPerBatch is how many recipients one transaction names at most.
	MaxRecipientsPerBatch int `conf:"max_recipients_per_batch" min:"1"`
	// MaxMessageRate and MaxConnectionRate pace what leaves for a site. Zero: no limit.
	MaxMessageRate    Rate `conf:"max_message_rate"`
	MaxConnectionRate Rate `conf:"max_connection_rate"`
	// SMTPPort is where hosts found by DNS listen.
	SMTPPort int `conf:"smtp_port" min:"1" max:"65535"`

	// RetryInterval and MaxRetryInterval are the waits after temporary failures.
	RetryInterval    Retry         `conf:"retry_interval"`
	MaxRetryInterval time.Duration `conf:"max_retry_interval" min:"1s"`
	// MaxAge is when a message that is still not delivered is given up.
	MaxAge time.Duration `conf:"max_age" min:"1m"`
	// DelayWarning is when the sender is told that a message is late. 0: never.
	DelayWarning time.Duration `conf:"delay_warning" min:"0"`

	// IdleTimeout closes a connection that has had nothing to do for so long; ActiveTimeout one
	// that was made so long ago.
	IdleTimeout   time.Duration `conf:"idle_timeout" min:"0"`
	ActiveTimeout time.Duration `conf:"active_timeout" min:"1s"`
	// BacklogThreshold is how many jobs wait for a connection before another one is made.
	BacklogThreshold int `conf:"backlog_threshold" min:"1"`

	// TLS is "opportunistic", "required" or "off".
	TLS string `conf:"tls" oneof:"opportunistic required off"`
	// Pipelining is how far commands run ahead of replies: "auto" is as far as the remote
	// offers, "pipelining" makes no use of CHUNKING, "lockstep" waits for each reply.
	Pipelining string `conf:"pipelining" oneof:"auto pipelining lockstep"`
	// AddressPreference is which addresses of a host are tried first: "any", "ipv4", "ipv6".
	AddressPreference string `conf:"address_preference" oneof:"any ipv4 ipv6"`

	Timeouts Timeouts `conf:"timeouts,block"`

	origin map[string]string // by setting: the block that it is from
}

// Timeouts bound each phase of a connection (RFC 5321, 4.5.3.2).
type Timeouts struct {
	Connect  time.Duration `conf:"connect" min:"1s"`
	Greeting time.Duration `conf:"greeting" min:"1s"`
	EHLO     time.Duration `conf:"ehlo" min:"1s"` // and STARTTLS and AUTH
	Mail     time.Duration `conf:"mail" min:"1s"`
	Rcpt     time.Duration `conf:"rcpt" min:"1s"`
	Data     time.Duration `conf:"data" min:"1s"`  // the reply to DATA
	Block    time.Duration `conf:"block" min:"1s"` // writing a piece of the content
	Dot      time.Duration `conf:"dot" min:"1s"`   // the reply to the content
	Quit     time.Duration `conf:"quit" min:"1s"`
}

// Retry is the waits after temporary failures: First doubling each time, or else List one after
// the other and then its last one for good.
type Retry struct {
	First time.Duration
	List  []time.Duration
}

// Defaults is the traffic settings of all destinations, and complete.
type Defaults struct {
	block
	Traffic Traffic `conf:",inline"`
}

// Provider is several sites with one budget.
type Provider struct {
	block
	Name string    `conf:",label"`
	MX   []Pattern `conf:"mx"` // names of mail exchangers
	// Traffic has only what the block sets; ask Config.Traffic for what applies.
	Traffic Traffic `conf:",inline"`
}

// Domain is what is special about some recipients' domains.
type Domain struct {
	block
	Pattern Pattern `conf:",label"`
	// Route is where mail goes instead of to the domain's exchangers, best first. Empty: by DNS.
	Route []Smarthost `conf:"route"`
	// Username and Password are for the hosts of Route.
	Username string `conf:"username"`
	Password Secret `conf:"password"`
	// Traffic has only what the block sets; ask Config.Traffic for what applies.
	Traffic Traffic `conf:",inline"`
}

// Budget is what the sites of a provider share. Zero is no limit.
type Budget struct {
	ConnectionLimit   int
	MaxMessageRate    Rate
	MaxConnectionRate Rate
}

type resolved struct{}
