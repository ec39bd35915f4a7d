package api

import (
	"cmp"
	"context"
	"strings"
	"time"
)

// Blocks is what the server asks about the providers, sources, pools and tenants of the configuration. Each
// method gives a page of those that fit, as BlockFilter orders them.
type Blocks interface {
	// Providers are those of the configuration, and "": the sites without one.
	Providers(context.Context, UnpooledFilter) (ProviderList, error)
	Sources(context.Context, BlockFilter) (SourceList, error)
	Pools(context.Context, UnpooledFilter) (PoolList, error)
	Tenants(context.Context, TenantFilter) (TenantList, error)
	SetWeight(ctx context.Context, pool string, w SetWeight) (WeightChanged, error)
}

// SetWeight gives a source of a pool another weight.
type SetWeight struct {
	Intent
	Source string `json:"source" q:"source"`            // one of the pool's
	Weight int    `json:"weight" q:"weight" max:"1000"` // 0 to 1000; at 0 it gets no new mail
	Own    bool   `json:"own,omitempty"`                // return to the weight of the configuration
}

// Check refuses a weight that none can be.
func (w *SetWeight) Check() error {
	if w.Source == "" {
		return Invalid("", "no source is given")
	}
	if w.Own && w.Weight != 0 {
		return Invalid("", "weight and own exclude each other")
	}
	if w.Weight < 0 || w.Weight > 1000 {
		return Invalid("", "weight: want a number from 0 to 1000, not %d", w.Weight)
	}
	return nil
}

// Weight is a source's part of a pool's mail, as an operator has set it.
type Weight struct {
	Pool   string    `json:"pool"`             // its name
	Source string    `json:"source"`           // its name
	Weight int       `json:"weight"`           // compared with the pool's other sources
	By     string    `json:"by"`               // who set it
	Reason string    `json:"reason,omitempty"` // for those who ask why
	Since  time.Time `json:"since"`            // when
}

// Compare orders weights by pool and source.
func (w *Weight) Compare(other *Weight) int {
	return cmp.Or(strings.Compare(w.Pool, other.Pool), strings.Compare(w.Source, other.Source))
}

// WeightList is all weights that operators have set.
type WeightList struct {
	Weights []Weight `json:"weights"` // by pool and source
}

// WeightChanged is a weight that was set.
type WeightChanged struct {
	Effect
	Weight
	Was int `json:"was"` // the weight before
}

// BlockFilter says which blocks are meant, what comes first, and which page is asked for; the zero BlockFilter fits
// all.
type BlockFilter struct {
	Names   []string  `q:"name" arg:"NAME" help:"any of these names"`
	Pool    string    `q:"pool" help:"only those of this <pool>"`
	Failing bool      `q:"failing" help:"only those whose last recipient failed"`
	Busy    bool      `q:"busy" help:"only those with mail or connections"` // of tenants, with mail in the queue
	Order   SiteOrder `q:"order" default:"name" options:"name,longest queue first,worst first" help:"sort by <size> (the longest queue first), worst (most mail that waits for more than its turn) or name"`
	Paging
}

// SiteOrder is the order of a listing of sites, sources, pools or tenants.
type SiteOrder string

// What comes first in a listing.
const (
	ByName SiteOrder = "name"
	BySize SiteOrder = "size" // the longest queue first
	// most mail that waits for more than its turn first
	ByWorst SiteOrder = "worst"
)

// SiteOrders are all of them.
var SiteOrders = []SiteOrder{ByName, BySize, ByWorst}

// Tally counts what became of recipients since the start of the relay.
type Tally struct {
	Accepted  int64     `json:"accepted,omitempty"`   // of pools and tenants
	Delivered int64     `json:"delivered"`            // taken by a host
	Deferred  int64     `json:"deferred"`             // attempts that failed for now
	Bounced   int64     `json:"bounced"`              // refused for good
	Expired   int64     `json:"expired"`              // given up after max_age
	LastError *Reply    `json:"last_error,omitempty"` // the last failure, for now or for good
	ErrorAt   time.Time `json:"error_at,omitzero"`    // when that was
}

// Load is what delivery has in hand, in transactions.
type Load struct {
	Connections int `json:"connections"` // those that are being opened included
	Waiting     int `json:"waiting"`     // transactions that no connection has
	Running     int `json:"running"`     // transactions on connections
}

// Source is a local address from which mail leaves.
type Source struct {
	Name    string   `json:"name"`              // of its block
	Address string   `json:"address,omitempty"` // an IP address; "": the system or a proxy chooses
	EHLO    string   `json:"ehlo"`              // what it calls itself
	Pools   []string `json:"pools"`             // that have it
	// its weight in those of them where it is not 1, by their names
	Weights map[string]int `json:"weights,omitempty"`
	// sending: it takes what its limits allow; warming: a plan bounds it; paused: its warm-up is stopped; missing:
	// this machine does not have the address
	State  string `json:"state" words:"sending,warming,paused,missing"`
	Reason string `json:"reason,omitempty"` // why it is missing or paused, or where its warm-up stands
	// whether this machine has the address; true where the system or a proxy chooses it
	Present bool  `json:"present"`
	Load    Load  `json:"load"`
	Tally   Tally `json:"tally"`
	// its outcomes at each provider that it has attempted, by name
	Providers []SourceProvider `json:"providers"`
	// what holds its mail for a site or host back for a while, the latest first; 20 at most. Suspensions for all
	// sources together are left out
	Suspended   []SourceSuspension `json:"suspended"`
	Suspensions int                `json:"suspensions"` // how many there are of them
	// mail that waits for this source alone, most recipients first
	WaitsFor []WaitsFor `json:"waits_for,omitempty"`
}

// SourceProvider is the outcomes of a source's attempts at a provider since the start of the relay, in recipients.
type SourceProvider struct {
	Provider  string `json:"provider"`  // its name; "": the sites without one
	Delivered int64  `json:"delivered"` // recipients
	Deferred  int64  `json:"deferred"`  // attempts that failed for now
	Bounced   int64  `json:"bounced"`   // recipients
	Expired   int64  `json:"expired"`   // recipients
}

// SourceSuspension is a site or a host that gets no mail from a source for a while.
type SourceSuspension struct {
	Site   string    `json:"site,omitempty"` // the site
	Host   string    `json:"host,omitempty"` // "ip:port", where it is of one host only
	Reason string    `json:"reason"`         // why
	Begin  time.Time `json:"begin"`          // since when
	End    time.Time `json:"end"`            // until when
}

// MaxSourceSuspensions is how many suspensions a source is listed with.
const MaxSourceSuspensions = 20

// Provider is several sites with one budget.
type Provider struct {
	Name  string `json:"name"` // of its block; "": the sites without one
	Load  Load   `json:"load"`
	Tally Tally  `json:"tally"`
	// what its mail waits for, most recipients first
	WaitsFor []WaitsFor `json:"waits_for,omitempty"`
}

// ProviderList is a page of providers.
type ProviderList struct {
	Providers []Provider `json:"providers"`      // in the order asked for
	Next      string     `json:"next,omitempty"` // cursor of the next page; left out on the last
}

// The states of a source.
const (
	SourceSending = "sending" // it takes whatever its limits allow
	SourceWarming = "warming" // a plan bounds what it takes
	SourcePaused  = "paused"  // by an operator, or its warm-up is stopped
	SourceMissing = "missing" // this machine does not have the address
)

// SourceStates are all of them.
var SourceStates = []string{SourceSending, SourceWarming, SourcePaused, SourceMissing}

// Pool is the sources that mail of some tenants may take. Load is that of its sources, whatever pools
// they are of.
type Pool struct {
	Name      string   `json:"name"`      // of its block
	Shared    []string `json:"shared"`    // sources
	Dedicated []string `json:"dedicated"` // sources
	Tenants   int      `json:"tenants"`   // how many have it
	// of its sources, by name: their weights where they are not 1
	Weights map[string]int `json:"weights,omitempty"`
	Paused  string         `json:"paused,omitempty"` // by whom and why; left out: it is not
	Load    Load           `json:"load"`
	Tally   Tally          `json:"tally"`
	// mail that waits for its warm-ups or the end of its pause, most recipients first
	WaitsFor []WaitsFor `json:"waits_for,omitempty"`
}

// Tenant is on whose behalf mail is sent. The one without a name is all mail of nobody in particular.
type Tenant struct {
	Name string `json:"name"` // of its block; "" is all mail of nobody in particular
	Pool string `json:"pool"` // whose sources its mail takes
	// 0 matters most, 5 least; missing for mail of nobody in particular, which has its listener's
	Tier   *int `json:"tier,omitempty"`
	Queued int  `json:"queued"` // recipients in the queue
	// the tenant, its pool or everything: by whom and why; left out: none is
	Paused string     `json:"paused,omitempty"`
	Tally  Tally      `json:"tally"`
	Rates  Rates      `json:"rates"`
	Use    *TenantUse `json:"use,omitempty"` // of a tenant that the configuration has
	// what its mail waits for in the queue, most recipients first; left out if millions are queued
	WaitsFor []WaitsFor `json:"waits_for,omitempty"`
}

// TenantUse is what a tenant uses of what it may submit. A limit that is left out does not exist.
type TenantUse struct {
	Connections    int `json:"connections"`               // open connections of its clients
	MaxConnections int `json:"max_connections,omitempty"` // how many there may be
	// of messages that are accepted, such as 10/s
	MaxSubmissionRate string `json:"max_submission_rate,omitempty"`
	// its messages in the queue, with those that are coming in
	QueuedMessages    int64 `json:"queued_messages"`
	MaxQueuedMessages int64 `json:"max_queued_messages,omitempty"` // how many there may be
	QueuedBytes       int64 `json:"queued_bytes"`                  // their size
	MaxQueuedBytes    int64 `json:"max_queued_bytes,omitempty"`    // the size they may have
	// what becomes of mail over the rate or a quota: refuse or lower
	OverQuota string `json:"over_quota"`
	// the limit that the next message would be over: rate, messages or bytes; left out: none
	Over string `json:"over,omitempty"`
	// connections and messages that were refused since the start, by the limit: rate, messages, bytes, connections
	// or share
	Refused map[string]int64 `json:"refused"`
	// messages that were moved to the last tier since the start, by the limit
	Lowered map[string]int64 `json:"lowered"`
}

// SourceList is a page of sources.
type SourceList struct {
	Sources []Source `json:"sources"`        // in the order that was asked for
	Next    string   `json:"next,omitempty"` // cursor of the next page; missing when this is the last
}

// PoolList is a page of pools.
type PoolList struct {
	Pools []Pool `json:"pools"`          // in the order that was asked for
	Next  string `json:"next,omitempty"` // cursor of the next page; missing when this is the last
}

// TenantList is a page of tenants.
type TenantList struct {
	Tenants []Tenant `json:"tenants"`        // in the order that was asked for
	Next    string   `json:"next,omitempty"` // cursor of the next page; missing when this is the last
}

// UnpooledFilter is a BlockFilter for what is in no pool.
type UnpooledFilter struct {
	BlockFilter `without:"pool"`
}

// TenantFilter is a BlockFilter for tenants.
type TenantFilter struct {
	BlockFilter
	Queued bool `q:"queued" help:"without effect: the queue of each is always counted"`
}

// BlockNamed reports whether a block is meant by a filter's names.
func (f *BlockFilter) BlockNamed(name string) bool {
	for _, n := range f.Names {
		if strings.EqualFold(n, name) {
			return true
		}
	}
	return len(f.Names) == 0
}
