package delivery

import (
	"time"

	"example.org/mta/delivery/smtpclient"
	"example.org/mta/destdb"
	"example.org/mta/internal/gcra"
)

// Scope bounds what goes on at one time within a host, a site, a source and so on. Zero fields are
// no limit.
type Scope struct {
	Connections    int
	MessageRate    gcra.Rate // transactions begun
	ConnectionRate gcra.Rate // connections begun
}

// Least returns the smaller of each limit of both.
func (s Scope) Least(o Scope) Scope {
	return Scope{Smaller(s.Connections, o.Connections), slower(s.MessageRate, o.MessageRate),
		slower(s.ConnectionRate, o.ConnectionRate)}
}

// Smaller returns the smaller of two limits, of which 0 is none.
func Smaller(a, b int) int {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

func slower(a, b gcra.Rate) gcra.Rate {
	if a.Unlimited() || !b.Unlimited() && b.Interval() > a.Interval() {
		return b
	}
	return a
}

// Share adds a scope that bounds anything to Shared.
func (l *Limits) Share(name string, s Scope) {
	if s != (Scope{}) {
		l.Shared = append(l.Shared, NamedScope{name, s})
	}
}

// NamedScope is a scope with its name for explanations, by which lanes share it.
type NamedScope struct {
	Name string
	Scope
}

// Limits is what applies to the mail of one tenant from one source to one site. The zero value
// bounds nothing but what has a default.
type Limits struct {
	Relay    Scope // all mail; the limit on connections is Config.MaxConnections
	Host     Scope // each host, from all sources; its rates are not used
	Site     Scope // the site, from all sources
	Path     Scope // the site, from this source
	Source   Scope // this source, to all sites
	Provider Scope // the provider's sites together, from all sources
	Tenant   Scope // this tenant's mail in all; of this and what follows the message rate alone is used
	// TenantPath is this tenant's mail from this source to this site.
	TenantPath Scope
	// Shared are further scopes, in which the mail counts together with that of other lanes that have them.
	Shared []NamedScope
	// Divided are limits that other relays share, too, see Config.Divider: those of all mail, or a tenant's message
	// rate.
	Divided []NamedScope
	Rules   []RuleRate // operators' rules that are for the mail

	MaxDeliveriesPerConnection int           // 100
	MaxRecipients              int           // in a transaction: 100 (RFC 5321, 4.5.3.1.8)
	IdleTimeout                time.Duration // 30 s
	ActiveTimeout              time.Duration // 5 min; a connection that old takes no more jobs

	// HostRetry is how long a broken host is left alone after its first failure, and at most.
	HostRetry, MaxHostRetry time.Duration // 1 min, 1 h

	ConnectTimeout   time.Duration // 30 s
	HandshakeTimeout time.Duration // greeting to the last step before mail, all together: 5 min
	Timeouts         smtpclient.Timeouts
	MaxMode          smtpclient.Mode // zero: the best that the host offers
}

// RuleRate is the rate of all messages together that an operator's rule slows.
type RuleRate struct {
	Rule   int // its number
	Rate   gcra.Rate
	Why    string // the rule in words, with OfAllRelays if it is shared
	Tenant string // the only one whose mail it is for; "": others' too
	Source string // the only one whose mail it slows; "": that of others, too
	Shared string // its name among the relays that share it, see Config.Divider; "": this one has it for itself
}

func (r *RuleRate) scope() NamedScope { return NamedScope{r.Shared, Scope{MessageRate: r.Rate}} }

func (l *Limits) backoff() destdb.Backoff {
	return destdb.Backoff{First: l.HostRetry, Max: l.MaxHostRetry}
}

// FillIn gives l with defaults in place of what is zero and must have a value.
func (l Limits) FillIn() Limits {
	or(&l.MaxDeliveriesPerConnection, 100)
	or(&l.MaxRecipients, 100)
	or(&l.IdleTimeout, 30*time.Second)
	or(&l.ActiveTimeout, 5*time.Minute)
	or(&l.HostRetry, time.Minute)
	or(&l.MaxHostRetry, time.Hour)
	or(&l.ConnectTimeout, 30*time.Second)
	or(&l.HandshakeTimeout, 5*time.Minute)
	return l
}

func or[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}
