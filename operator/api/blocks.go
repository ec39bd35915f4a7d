package api

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// Blocks is what the server asks about the providers, sources, pools and tenants of the configuration. Each
// method gives a page of those that fit, as BlockFilter orders them: up to limit behind what after, the
// Next of the page before, stands for; "" is the beginning.
type Blocks interface {
	// Providers are those of the configuration, and "": the sites that are none's.
	Providers(ctx context.Context, f BlockFilter, after string, limit int) (ProviderList, error)
	Sources(ctx context.Context, f BlockFilter, after string, limit int) (SourceList, error)
	Pools(ctx context.Context, f BlockFilter, after string, limit int) (PoolList, error)
	// Tenants is given the recipients in the queue by tenant.
	Tenants(ctx context.Context, f BlockFilter, queued map[string]int, after string, limit int) (TenantList, error)
}

// BlockFilter says which blocks are meant, and what comes first; the zero BlockFilter fits all.
type BlockFilter struct {
	Names   []string  `q:"name" arg:"NAME" help:"any of these names"`
	Pool    string    `q:"pool" help:"only those of this <pool>"`
	Failing bool      `q:"failing" help:"only those whose last recipient failed"`
	Busy    bool      `q:"busy" help:"only those with mail or connections"` // of tenants, with mail in the queue
	Order   SiteOrder `q:"order" default:"name" help:"sort by <size> (the longest queue first) or name"`
}

// SiteOrder is the order of a listing of sites, sources, pools or tenants.
type SiteOrder string

// What comes first in a listing.
const (
	ByName SiteOrder = "name"
	BySize SiteOrder = "size" // the longest queue first
)

// SiteOrders are all of them.
var SiteOrders = []SiteOrder{ByName, BySize}

// Tally counts what became of recipients since the start of the relay.
type Tally struct {
	Accepted  int64     `json:"accepted,omitempty"` // of pools and tenants
	Delivered int64     `json:"delivered"`
	Deferred  int64     `json:"deferred"` // attempts that failed for now
	Bounced   int64     `json:"bounced"`
	Expired   int64     `json:"expired"`
	LastError *Reply    `json:"last_error,omitempty"` // the last failure, for now or for good
	ErrorAt   time.Time `json:"error_at,omitzero"`
}

// Load is what delivery has in hand, in transactions.
type Load struct {
	Connections int `json:"connections"` // those that are being opened included
	Waiting     int `json:"waiting"`     // transactions that no connection has
	Running     int `json:"running"`     // transactions on connections
}

// Source is a local address from which mail leaves.
type Source struct {
	Name    string   `json:"name"`
	Address string   `json:"address,omitempty"` // "": the system or a proxy chooses
	EHLO    string   `json:"ehlo"`
	Pools   []string `json:"pools"`
	State   string   `json:"state"`            // sending, warming, paused or missing
	Reason  string   `json:"reason,omitempty"` // why it is missing or paused, or where its warm-up stands
	Present bool     `json:"present"`          // whether this machine has the address; true where the system or a proxy chooses it
	Load    Load     `json:"load"`
	Tally   Tally    `json:"tally"`
	// Providers are its outcomes at each provider that it has attempted, by name; "" is the sites that are none's.
	Providers []SourceProvider `json:"providers"`
	// Suspended is what holds its mail for a site or host back for a while, the latest first: the first
	// MaxSourceSuspensions of Suspensions. Suspensions for all sources together are left out.
	Suspended   []SourceSuspension `json:"suspended"`
	Suspensions int                `json:"suspensions"`
}

// SourceProvider is the outcomes of a source's attempts at a provider since the start of the relay, in recipients.
type SourceProvider struct {
	Provider  string `json:"provider"`
	Delivered int64  `json:"delivered"`
	Deferred  int64  `json:"deferred"`
	Bounced   int64  `json:"bounced"`
	Expired   int64  `json:"expired"`
}

// SourceSuspension is a site or a host that gets no mail from a source for a while.
type SourceSuspension struct {
	Site   string    `json:"site,omitempty"`
	Host   string    `json:"host,omitempty"` // "ip:port", where it is of one host only
	Reason string    `json:"reason"`
	Begin  time.Time `json:"begin"`
	End    time.Time `json:"end"`
}

// MaxSourceSuspensions is how many suspensions a source is listed with.
const MaxSourceSuspensions = 20

// Provider is several sites with one budget.
type Provider struct {
	Name  string `json:"name"` // "": the sites that are none's
	Load  Load   `json:"load"`
	Tally Tally  `json:"tally"`
}

// ProviderList is a page of providers.
type ProviderList struct {
	Providers []Provider `json:"providers"`
	Next      string     `json:"next,omitempty"` // cursor of the next page; "" when this is the last
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
	Name      string   `json:"name"`
	Shared    []string `json:"shared"`
	Dedicated []string `json:"dedicated"`
	Tenants   int      `json:"tenants"`
	Paused    string   `json:"paused,omitempty"` // by whom and why; "": it is not
	Load      Load     `json:"load"`
	Tally     Tally    `json:"tally"`
}

// Tenant is on whose behalf mail is sent. The one without a name is all mail of nobody in particular.
type Tenant struct {
	Name   string     `json:"name"`
	Pool   string     `json:"pool"`
	Tier   *int       `json:"tier,omitempty"`   // of the tenant; other mail has its listener's
	Queued int        `json:"queued"`           // recipients in the queue
	Paused string     `json:"paused,omitempty"` // the tenant, its pool or everything: by whom and why; "": none is
	Tally  Tally      `json:"tally"`
	Rates  Rates      `json:"rates"`
	Use    *TenantUse `json:"use,omitempty"` // of a tenant that the configuration has
}

// TenantUse is what a tenant uses of what it may submit. A limit that is left out is none.
type TenantUse struct {
	Connections       int              `json:"connections"`
	MaxConnections    int              `json:"max_connections,omitempty"`
	MaxSubmissionRate string           `json:"max_submission_rate,omitempty"`
	QueuedMessages    int64            `json:"queued_messages"` // with those that are coming in
	MaxQueuedMessages int64            `json:"max_queued_messages,omitempty"`
	QueuedBytes       int64            `json:"queued_bytes"` // the same
	MaxQueuedBytes    int64            `json:"max_queued_bytes,omitempty"`
	OverQuota         string           `json:"over_quota"`     // refuse or lower: what becomes of mail over the rate or a quota
	Over              string           `json:"over,omitempty"` // the limit that the next message would be over: rate, messages or bytes
	Refused           map[string]int64 `json:"refused"`        // connections and messages, by the limit that they were over
	Lowered           map[string]int64 `json:"lowered"`        // messages that went to the last tier, by the same
}

// SourceList is a page of sources.
type SourceList struct {
	Sources []Source `json:"sources"`
	Next    string   `json:"next,omitempty"` // cursor of the next page; "" when this is the last
}

// PoolList is a page of pools.
type PoolList struct {
	Pools []Pool `json:"pools"`
	Next  string `json:"next,omitempty"`
}

// TenantList is a page of tenants.
type TenantList struct {
	Tenants []Tenant `json:"tenants"`
	Next    string   `json:"next,omitempty"`
}

// The requests for pages of blocks.
type (
	blockQuery struct {
		BlockFilter
		Paging
	}
	unpooledQuery struct {
		BlockFilter `without:"pool"`
		Paging
	}
	tenantQuery struct {
		BlockFilter
		Queued bool `q:"queued" help:"without effect: the queue of each is always counted"`
		Paging
	}
)

func (s *Server) tenants(r *http.Request, q tenantQuery) (TenantList, error) {
	sum, err := s.config.Queue.Summary(r.Context(), ByTenant, Filter{}, SummaryPage{}) // from counters
	if err != nil {
		return TenantList{}, err
	}
	queued := make(map[string]int, len(sum.Rows))
	for _, row := range sum.Rows {
		queued[row.Key] = row.Total
	}
	return s.config.Blocks.Tenants(r.Context(), q.BlockFilter, queued, q.After, q.Limit)
}

// Providers gives a page of the providers that fit.
func (c *Client) Providers(ctx context.Context, f BlockFilter, after string, limit int) (ProviderList, error) {
	return opProviders.call(ctx, c, unpooledQuery{f, Paging{after, limit}})
}

// Sources gives a page of the sources that fit.
func (c *Client) Sources(ctx context.Context, f BlockFilter, after string, limit int) (SourceList, error) {
	return opSources.call(ctx, c, blockQuery{f, Paging{after, limit}})
}

// Pools gives a page of the pools that fit.
func (c *Client) Pools(ctx context.Context, f BlockFilter, after string, limit int) (PoolList, error) {
	return opPools.call(ctx, c, unpooledQuery{f, Paging{after, limit}})
}

// Tenants gives a page of the tenants that fit.
func (c *Client) Tenants(ctx context.Context, f BlockFilter, after string, limit int) (TenantList, error) {
	return opTenants.call(ctx, c, tenantQuery{f, false, Paging{after, limit}})
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
