package api

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
)

// Destinations is what the server asks of delivery: what is known of where mail goes.
type Destinations interface {
	// Sites and Hosts give a page of what fits, in the order of names, sites in that of the filter.
	Sites(context.Context, SiteFilter) (SiteList, error)
	Hosts(context.Context, HostFilter) (HostList, error)
	// Forget makes hosts unknown again, so that they are tried as if for the first time.
	Forget(context.Context, Forget) (Forgotten, error)
	// Suspend sends nothing to a site for a while; Resume ends all suspensions of it.
	Suspend(context.Context, Suspend) (Suspended, error)
	Resume(context.Context, Resume) (Resumed, error)
	// SuspendHosts sends nothing to hosts for a while; ResumeHosts ends all suspensions of them.
	SuspendHosts(context.Context, SuspendHosts) (SuspendedHosts, error)
	ResumeHosts(context.Context, ResumeHosts) (ResumedHosts, error)
	Explain(context.Context, ExplainQuery) (Explanation, error)
	// STSPolicy gives what is known of a domain's MTA-STS policy; NotFound when nothing is. RefreshSTSPolicy looks it
	// up anew.
	STSPolicy(ctx context.Context, domain string) (STSPolicy, error)
	RefreshSTSPolicy(ctx context.Context, domain string, in Intent) (STSRefreshed, error)
	// Recent gives the latest outcomes of a site's mail, by the name of the site or of a domain that it serves.
	Recent(ctx context.Context, site string) (Recent, error)
}

// SiteFilter says which sites are meant, and which page of them; the zero SiteFilter fits all.
type SiteFilter struct {
	Names     []string  `q:"name" arg:"NAME" help:"any of these names; .example.com means all names with that ending"`
	Provider  string    `q:"provider" help:"sites of this <provider>"`
	Suspended bool      `q:"suspended" help:"only suspended sites"`
	Busy      bool      `q:"busy" help:"only sites with mail or connections"`
	Queued    bool      `q:"queued" label:"with mail queued" help:"only sites with queued mail"`
	Failing   bool      `q:"failing" help:"only sites whose last recipient failed"`
	Order     SiteOrder `q:"order" default:"name" options:"name,longest queue first,worst first" help:"sort by <size> (the longest queue first), worst (most mail that waits for more than its turn) or name"`
	Paging
}

// Fits reports whether a site is meant by all of a filter but its names.
func (f *SiteFilter) Fits(s *Site) bool {
	suspended := func(a SiteAction) bool { return a.What == SiteSuspended }
	return (f.Provider == "" || f.Provider == s.Provider) && (!f.Failing || s.Failing) && (!f.Queued || s.Queued > 0) &&
		(!f.Suspended || slices.ContainsFunc(s.Actions, suspended)) &&
		(!f.Busy || s.Connections+s.Waiting+s.Running+s.Parked+s.Deferred > 0)
}

// HostFilter says which hosts are meant, and which page of them; the zero HostFilter fits all.
type HostFilter struct {
	Names  []string  `q:"name" arg:"NAME" label:"Name or address" hint:"mx.example or .example" help:"any of these names or addresses; .example.com means all names with that ending"`
	State  HostState `q:"state" help:"hosts in this <state>: active, idle, retry, closed or unused"`
	Source string    `q:"source" help:"hosts that this <source> has contacted"`
	Order  SiteOrder `q:"order" default:"name" options:"name,most mail first,worst first" help:"sort by <size> (most mail of their sites), worst (most of it that waits for more than its turn) or name"`
	Paging
}

// Fits reports whether a host is meant by all of a filter but its names.
func (f *HostFilter) Fits(h *Host) bool {
	met := func(p HostPath) bool { return p.Source == f.Source }
	return (f.State == "" || f.State == h.State) && (f.Source == "" || slices.ContainsFunc(h.Paths, met))
}

// Names reports whether one of names is meant by patterns; no patterns mean everything.
func Names(patterns []string, names ...string) bool {
	for _, p := range patterns {
		for _, n := range names {
			if p = strings.ToLower(p); p == strings.ToLower(n) ||
				strings.HasPrefix(p, ".") && strings.HasSuffix(strings.ToLower(n), p) {
				return true
			}
		}
	}
	return len(patterns) == 0
}

// HostState is Finch's classification of a host.
type HostState string

// The states of a host, seen from a source or from all of them together.
const (
	HostActive HostState = "active" // has busy connections
	HostIdle   HostState = "idle"   // has connections, none of them busy
	HostRetry  HostState = "retry"  // could not be reached, or turned us away
	HostClosed HostState = "closed" // had a connection not long ago
	HostUnused HostState = "unused" // nothing is known of it
)

// HostStates are all of them, what is most alive first.
var HostStates = []HostState{HostActive, HostIdle, HostRetry, HostClosed, HostUnused}

// Site is the hosts that serve some domains, as one budget.
type Site struct {
	Name        string `json:"name"`               // by which it is known here: its first exchanger, as a rule
	Provider    string `json:"provider,omitempty"` // its operator, when configured
	Connections int    `json:"connections"`        // live now
	SlowStart   int    `json:"slow_start"`         // connections that it has earned by taking mail
	// recipients that wait for a connection within delivery, or for the look-up of their route
	Waiting  int `json:"waiting"`
	Running  int `json:"running"`  // recipients on connections
	Parked   int `json:"parked"`   // recipients that wait in the queue, since delivery has enough mail for the site
	Deferred int `json:"deferred"` // recipients that were tried and wait for their time
	// recipients in the queue that are known to be for it, in whatever state
	Queued   int          `json:"queued"`
	Tally    Tally        `json:"tally"`
	Usual    float64      `json:"usual,omitempty"`    // messages a second, over the last day; 0: not known
	LastGood time.Time    `json:"last_good,omitzero"` // when it last took a message
	Why      string       `json:"why,omitempty"`      // what the first of those that wait waits for
	Until    time.Time    `json:"until,omitzero"`     // when that ends, where it is known
	Actions  []SiteAction `json:"actions,omitempty"`  // in force
	// what its mail waits for, most recipients first
	WaitsFor []WaitsFor `json:"waits_for,omitempty"`
	Failing  bool       `json:"-"` // the last recipient failed; for SiteFilter
}

// SiteSuspended is what a SiteAction is that lets nothing leave.
const SiteSuspended = "suspended"

// SiteAction is something that holds mail for a site or a host back for a while: by an operator, or
// by the relay itself on account of a reply.
type SiteAction struct {
	What   string    `json:"what"`             // suspended, slowed, fewer connections
	Source string    `json:"source,omitempty"` // mail from this source only; "": all
	Reason string    `json:"reason"`           // an operator's words, or the reply that led to it
	Begin  time.Time `json:"begin"`            // since when
	End    time.Time `json:"end"`              // until when
	// what mail waits for meanwhile; left out where an operator acted
	Waits parking.Reason `json:"waits,omitempty"`
	// messages a second that a slow-down lets through; 0: no limit
	Rate        float64 `json:"rate,omitempty"`
	Connections int     `json:"connections,omitempty"` // connections that a slow-down leaves; 0: no limit
}

// Host is one address of a mail exchanger and what was learned of it.
type Host struct {
	Name        string    `json:"name"`        // of the exchanger
	Address     string    `json:"address"`     // "ip:port"
	State       HostState `json:"state"`       // the most alive one of its paths
	Connections int       `json:"connections"` // live now
	Backlog     int       `json:"backlog"`     // transactions on them
	Broken      *Broken   `json:"broken,omitempty"`
	Mode        string    `json:"mode,omitempty"` // how far commands run ahead: lock-step, pipelining, chunking
	// transactions that may be under way at a time; 0: not known
	Window     int      `json:"window,omitempty"`
	Extensions []string `json:"extensions,omitempty"` // of EHLO
	MaxRcpt    int      `json:"max_rcpt,omitempty"`   // recipients in a transaction that it takes; 0: not said
	MaxMail    int      `json:"max_mail,omitempty"`   // transactions in a connection; 0: not known
	// TLS failed: opportunistic mail goes in clear text until then
	PlainUntil time.Time    `json:"plain_until,omitzero"`
	TLS        *HostTLS     `json:"tls,omitempty"`     // of the last connection; left out for clear text
	Actions    []SiteAction `json:"actions,omitempty"` // by which nothing is sent to it for a while, in force
	Paths      []HostPath   `json:"paths,omitempty"`   // the host as each source sees it
	// what queued mail of its sites waits for, most first; at each host of a site
	WaitsFor []WaitsFor `json:"waits_for,omitempty"`
}

// HostTLS is how the last connection to a host was protected.
type HostTLS struct {
	Version string `json:"version"` // as "TLSv1.3"
	Cipher  string `json:"cipher"`  // as "TLS_AES_128_GCM_SHA256"
	// PKIX, STS or DANE; left out when nothing vouches for the certificate
	VerifiedBy  string `json:"verified_by,omitempty"`
	Unverified  string `json:"unverified,omitempty"`  // then: why
	Certificate string `json:"certificate,omitempty"` // its name
}

// HostPath is a host as one source sees it.
type HostPath struct {
	Source      string    `json:"source"`      // whose
	State       HostState `json:"state"`       // seen from the source
	Connections int       `json:"connections"` // live now
	Backlog     int       `json:"backlog"`     // transactions on them
	Broken      *Broken   `json:"broken,omitempty"`
	LastMade    time.Time `json:"last_made,omitzero"` // when a connection was last begun
}

// Broken is why a host is left alone, and until when.
type Broken struct {
	Failures int       `json:"failures"` // in a row
	Since    time.Time `json:"since"`    // the first of them
	RetryAt  time.Time `json:"retry_at"` // not tried before
	Reply    Reply     `json:"reply"`    // of the last failure
}

// SiteList is a page of sites.
type SiteList struct {
	Sites []Site `json:"sites"`          // by name
	Next  string `json:"next,omitempty"` // cursor of the next page; "" when this is the last
}

// HostList is a page of hosts.
type HostList struct {
	Hosts []Host `json:"hosts"`          // by name and address
	Next  string `json:"next,omitempty"` // cursor of the next page; absent when this is the last
}

// Forget names hosts that become unknown again, by name or address.
type Forget struct {
	Intent
	Hosts []string `json:"hosts" q:"host"` // names or addresses
}

// Forgotten is how many hosts those were.
type Forgotten struct {
	Effect
	Hosts int `json:"hosts"` // that were known
}

// SuspendHosts names hosts that get nothing for a while.
type SuspendHosts struct {
	Intent
	Hosts []string `json:"hosts" q:"host" arg:"NAME"` // names or addresses
	// mail from this source only; all when absent
	Source string `json:"source,omitempty" q:"source" help:"only mail from this <source>"`
	For    Age    `json:"for" q:"for" help:"the duration, such as 90s, 15m, 2h; 30d at most"` // at most MaxSuspension
	Reason string `json:"reason,omitempty"`                                                   // for those who ask why
}

// SuspendedHosts is what a SuspendHosts did.
type SuspendedHosts struct {
	Effect
	Hosts int       `json:"hosts"` // that were known by those names
	Until time.Time `json:"until"` // when mail is sent again
}

// ResumeHosts says which hosts are sent to again.
type ResumeHosts struct {
	Intent
	Hosts []string `json:"hosts" q:"host"` // names or addresses
}

// ResumedHosts is what a ResumeHosts ended.
type ResumedHosts struct {
	Effect
	Hosts int `json:"hosts"` // that were known by those names
	Ended int `json:"ended"` // suspensions, of all sources
}

// Suspend says what is not to be sent.
type Suspend struct {
	Intent
	// the name of a site, or a domain that it serves
	Site string `json:"site" q:"site" arg:"SITE"`
	// mail from this source only; all when absent
	Source string `json:"source,omitempty" q:"source" help:"only mail from this <source>"`
	For    Age    `json:"for" q:"for" help:"the duration, such as 90s, 15m, 2h; 30d at most"` // at most MaxSuspension
	Reason string `json:"reason,omitempty"`                                                   // for those who ask why
}

// MaxSuspension bounds how long nothing may be sent: what is forgotten should end by itself.
const MaxSuspension = Age(30 * 24 * time.Hour)

// Suspended is what a Suspend did.
type Suspended struct {
	Effect
	Site    string    `json:"site"`           // its name
	Until   time.Time `json:"until"`          // when mail is sent again
	Domains int       `json:"domains"`        // how many domains the site is known to serve just now
	Some    []string  `json:"some,omitempty"` // the latest used of them, ten at most
}

// Resume says which site is sent to again.
type Resume struct {
	Intent
	Site string `json:"site" q:"site"` // the name of a site, or a domain that it serves
}

// Resumed is what a Resume ended.
type Resumed struct {
	Effect
	Site  string `json:"site"`  // its name
	Ended int    `json:"ended"` // suspensions, of all sources
}

// Check refuses a Forget of nothing.
func (f *Forget) Check() error { return someNamed("forget", "host", f.Hosts) }

// Check refuses a SuspendHosts of nothing, and a time that can't be meant.
func (s *SuspendHosts) Check() error {
	return cmp.Or(someNamed("suspend", "host", s.Hosts), checkSuspension(s.For))
}

// Check refuses a ResumeHosts of nothing.
func (r *ResumeHosts) Check() error { return someNamed("resume", "host", r.Hosts) }

// Check refuses a Suspend of nothing, and a time that can't be meant.
func (s *Suspend) Check() error {
	return cmp.Or(someNamed("suspend", "site", s.Site), checkSuspension(s.For))
}

// Check refuses a Resume of nothing.
func (r *Resume) Check() error { return someNamed("resume", "site", r.Site) }

// someNamed refuses a request to do something to no object of a kind.
func someNamed[T ~string | ~[]string](do, kind string, names T) error {
	if len(names) == 0 {
		return Invalid("", "%s: no %s is named", do, kind)
	}
	return nil
}

// checkSuspension refuses times that are not valid, or too long.
func checkSuspension(a Age) error {
	if a <= 0 || a > MaxSuspension {
		return Invalid("", "for: want a time of at most %v, not %v", MaxSuspension, a)
	}
	return nil
}

// Recent is the latest outcomes of a site's mail, the newest first. Those of a site to which nothing was sent for long
// may be forgotten, and all are after a restart.
type Recent struct {
	Site string `json:"site"` // its name
	// of recipients, whatever they were, the newest first; 50 at most
	Outcomes []RecentOutcome `json:"outcomes"`
	// those that failed, for now or for good, the newest first; 10 at most
	Errors []RecentOutcome `json:"errors"`
}

// RecentOutcome is what became of a recipient at one attempt.
type RecentOutcome struct {
	Time    time.Time `json:"time"`                                               // when it ended
	Outcome string    `json:"outcome" words:"delivered,deferred,bounced,expired"` // what became of the recipient
	Message string    `json:"message"`                                            // the id of the message
	Source  string    `json:"source,omitempty"`                                   // from which it was sent
	Host    string    `json:"host,omitempty"`                                     // the name of the exchanger
	Address string    `json:"address,omitempty"`                                  // "ip:port" of the host
	Session string    `json:"session,omitempty"`                                  // the connection's, as in logs
	// of the reply; left out for one that has none
	Class     string `json:"class,omitempty"`
	Attempted bool   `json:"attempted"` // false: it failed before anything was sent
	Reply     Reply  `json:"reply"`
}

// The outcomes of an attempt.
const (
	OutcomeDelivered = "delivered"
	OutcomeDeferred  = "deferred"
	OutcomeBounced   = "bounced"
	OutcomeExpired   = "expired"
)

// OutcomeNames are all of them.
var OutcomeNames = []string{OutcomeDelivered, OutcomeDeferred, OutcomeBounced, OutcomeExpired}

// ExplainQuery says what must be explained: Domain or ID.
type ExplainQuery struct {
	Domain string `q:"domain" help:"of a recipient; this or id"` // in A-label form
	Tenant string `q:"tenant" help:"mail of this <tenant> for the domain"`
	ID     string `q:"id" help:"of a message in the queue"`
}

// Explanation is why mail waits, or what would happen to it.
type Explanation struct {
	Message      *ExplainedMessage `json:"message,omitempty"` // when one was asked about
	Destinations []Destination     `json:"destinations"`      // the one that was asked about, or those of the message
}

// MaxExplained bounds the recipients of an explanation: each can take a look-up.
const MaxExplained = 10

// ExplainedMessage is what becomes of a message.
type ExplainedMessage struct {
	ID         string               `json:"id"`               // of the message
	Sender     string               `json:"sender"`           // empty: the null sender
	Tenant     string               `json:"tenant,omitempty"` // on whose behalf
	Source     string               `json:"source"`           // that its transactions use
	Received   time.Time            `json:"received"`         // when it was accepted
	Recipients []ExplainedRecipient `json:"recipients"`       // those in the queue
	More       int                  `json:"more,omitempty"`   // recipients in the queue that were left out
}

// ExplainedRecipient is a recipient and why it is still here.
type ExplainedRecipient struct {
	Status RecipientStatus `json:"status"`
	Why    string          `json:"why"`            // one sentence
	Until  time.Time       `json:"until,omitzero"` // when that ends, where it is known
}

// Destination is all that decides what becomes of mail for a domain.
type Destination struct {
	Domain string    `json:"domain"`         // A-label form
	Now    string    `json:"now"`            // one sentence: what happens to mail for it now
	Until  time.Time `json:"until,omitzero"` // when that ends, where it is known
	// of operators that are for the mail, in words, the strictest first
	Rules []string `json:"rules,omitempty"`

	Steps        []string  `json:"steps"`                  // how the route was found
	Failure      *Reply    `json:"failure,omitempty"`      // why there is no route
	RouteExpires time.Time `json:"route_expires,omitzero"` // until when the route holds
	Site         string    `json:"site,omitempty"`         // the hosts as one budget
	Provider     string    `json:"provider,omitempty"`     // operator of the site
	// what is demanded of connections: opportunistic, required, verified, off
	TLS         string   `json:"tls,omitempty"`
	TLSOrigin   string   `json:"tls_origin,omitempty"`   // what made it so
	TLSPolicies []string `json:"tls_policies,omitempty"` // that the domain and its hosts publish
	// MTASTS is the domain's policy, nil when it has none.
	MTASTS *STSPolicy `json:"mta_sts,omitempty"`
	Auth   bool       `json:"auth,omitempty"` // credentials are sent

	Hosts []TierHost `json:"hosts"` // in the order in which they are tried
	Pool  string     `json:"pool"`  // of sources
	// of other tenants, whose mail for the domain takes other sources; absent for a message
	OtherPools []OtherPool         `json:"other_pools,omitempty"`
	Sources    []DestinationSource `json:"sources"` // of the pool, or the one that the message has
	Limits     []Limit             `json:"limits"`  // in force

	Connections int          `json:"connections"`       // of the site
	SlowStart   int          `json:"slow_start"`        // connections that it has earned
	Actions     []SiteAction `json:"actions,omitempty"` // in force
	Lanes       []Lane       `json:"lanes,omitempty"`   // the mail within delivery, by source
	Queued      QueuedCounts `json:"queued"`
	Ceiling     Ceiling      `json:"ceiling"`
}

// OtherPool is a pool of sources, and the tenants whose mail takes it.
type OtherPool struct {
	Name    string   `json:"name"`    // of the pool
	Tenants []string `json:"tenants"` // by name
}

// TierHost is a host in its place in a route.
type TierHost struct {
	Tier int  `json:"tier"` // 1 is tried first
	Host Host `json:"host"`
}

// DestinationSource is an address that mail for a destination can leave from.
type DestinationSource struct {
	Name    string `json:"name"`              // of the source
	Address string `json:"address,omitempty"` // "": the system chooses
	EHLO    string `json:"ehlo"`              // what it calls itself
	Reaches int    `json:"reaches"`           // hosts of the route, by the families of their addresses
	Warmup  string `json:"warmup,omitempty"`  // where its warm-up stands; absent when it has none
}

// Limit is a setting in force and the block of the configuration that made it.
type Limit struct {
	Setting string `json:"setting"`       // its name in the configuration
	Value   string `json:"value"`         // in force
	Scope   string `json:"scope"`         // what it bounds: "site mx.example"
	Origin  string `json:"origin"`        // `provider "google" (mta.conf:31)`, or "default"
	Now     string `json:"now,omitempty"` // how much of it is used
}

// Lane is the mail from one source to one site within delivery, counted in transactions.
type Lane struct {
	Source  string    `json:"source"`         // whose
	Waiting int       `json:"waiting"`        // no connection has them
	Running int       `json:"running"`        // on connections
	Opening int       `json:"opening"`        // connections on their way
	Why     string    `json:"why,omitempty"`  // what the first that waits waits for
	Until   time.Time `json:"until,omitzero"` // when that ends, where it is known
	// whose rate why is: other tenants' mail goes past it; left out: it holds for all
	Tenant    string    `json:"tenant,omitempty"`
	Oldest    time.Time `json:"oldest,omitzero"`     // since when the oldest waits
	Drain     string    `json:"drain,omitempty"`     // the rate to which it is held after an outage
	DrainEnds time.Time `json:"drain_ends,omitzero"` // about when what piled up in an outage will be gone
}

// QueuedCounts are recipients in the queue. One that nobody has looked at yet is not known by its
// site: those are in Unsorted, for all destinations together.
type QueuedCounts struct {
	// waiting in the queue: delivery has enough mail for the site, or the route is being looked up
	Parked   int `json:"parked"`
	Active   int `json:"active"`   // handed to delivery: they wait there, or are on connections
	Due      int `json:"due"`      // next in line for an attempt
	Deferred int `json:"deferred"` // wait for their time
	Held     int `json:"held"`     // stopped by an operator
	Unsorted int `json:"unsorted"` // of all destinations: not looked at yet
	// waiting for the warm-ups of the pool's sources, for all domains of the provider together
	Warmup int `json:"warmup"`
	Hours  int `json:"hours"` // waiting for sending hours
	Paced  int `json:"paced"` // waiting for the pace of their campaign
	// wait for the end of the pause that keeps the mail back, all of those that it keeps together
	Paused   int    `json:"paused"`
	PausedBy string `json:"paused_by,omitempty"` // that pause, as "domain example.net"
}

// Ceiling is the most messages a second that the limits let through.
type Ceiling struct {
	PerSecond float64  `json:"per_second"`       // meaningless without Binds; 0 with it: nothing leaves now
	Binds     string   `json:"binds,omitempty"`  // the limit that binds; "": no rate is limited
	Others    []string `json:"others,omitempty"` // limits on the rate that do not bind
}

// Check makes the domain and the id those of the queue.
func (q *ExplainQuery) Check() error {
	if (q.Domain == "") == (q.ID == "") {
		return Invalid("", "explain: want either a domain or the id of a message")
	}
	if q.ID != "" {
		id, err := envelope.ParseID(q.ID)
		if err != nil {
			return Invalid("", "%v", err)
		}
		q.ID = id.String()
		return nil
	}
	domain, err := envelope.ToASCII(q.Domain)
	if err != nil {
		return Invalid("", "domain %q: %v", q.Domain, err)
	}
	q.Domain = domain
	return nil
}
