// Package controltest has a relay for tests of what speaks to the control API: everything that
// package api asks of a relay, kept in memory. It starts no goroutines.
package controltest

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.org/mta/operator/api"
)

// Relay is a queue, a log and a relay. The fields are set before it is used.
type Relay struct {
	Now      time.Time // ages are counted from it
	Messages []api.Item
	Contents map[string]string // by id
	Records  []string          // of the log, oldest first
	Damage   error             // of the log, after them
	More     chan string       // further records, for those who follow
	State    api.Status
	Settings string                     // the configuration in force
	OnReload func() (api.Reload, error) // nil: nothing has changed
	OnDiffer func() (api.Reload, error) // nil: the file has what is in force
	Upgraded bool                       // the upgrade is finished
	Audit    api.Audit                  // nil: actions are not written down
	Events   *slog.Logger               // nil: nowhere

	KnownSites       []api.Site
	KnownHosts       []api.Host
	KnownSources     []api.Source
	KnownPools       []api.Pool
	KnownProviders   []api.Provider
	KnownConnections []api.Connection
	KnownOutcomes    []api.RecentOutcome // of each site, the newest first
	KnownTenants     []api.Tenant
	Explanations     map[string]api.Explanation // by domain or id
	KnownWarmups     []api.Warmup
	KnownPlans       []api.WarmupPlan
	Simulated        *api.SimulateWarmup // what was asked last
	Conversation     []api.TraceLine
	TraceEnds        bool // when Conversation has been said
	Suppressed       []api.Suppression
	Pending          []api.Suppression // set aside
	KnownPolicies    []api.STSPolicy
	KnownKeys        []api.APIKey

	mu      sync.Mutex // guards Messages, KnownWarmups, KnownKeys, Suppressed and Pending once the relay is in use, and changes
	changes []api.Change
	taken   map[string]bool // ids of other relays
}

var (
	_ api.Queue = (*Relay)(nil)
	_ api.Log   = (*Relay)(nil)
	_ api.Relay = (*Relay)(nil)
)

// Server makes a server of the API for r.
func (r *Relay) Server() *api.Server {
	return api.NewServer(api.Config{Queue: r, Log: r, Relay: r, Destinations: r, Blocks: r, Warmups: r, Suppressions: r, Bounces: r, Tracer: r, OpenConnections: r, Pauses: r, Streams: r, TLSReports: r, Inbound: r, Admissions: r, APIKeys: r, TLSPolicies: r, Histories: r, Upgrades: r, Backups: r, Moves: r, Audit: r.Audit, Now: func() time.Time { return r.Now }, Events: cmp.Or(r.Events, slog.New(slog.DiscardHandler))})
}

// Changes gives the changes that were asked for, dry runs included.
func (r *Relay) Changes() []api.Change {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.changes)
}

// List gives a page. The cursor is the id of the last message of the page before.
func (r *Relay) List(_ context.Context, f api.Filter, p api.Page) (api.List, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	items := r.selected(f)
	slices.SortFunc(items, func(a, b api.Item) int { return compare(p.Order, a, b) })
	if p.After != "" {
		last := slices.IndexFunc(items, func(i api.Item) bool { return i.ID == p.After })
		if last < 0 {
			return api.List{}, api.Invalid("take it from the page before", "cursor %q is none", p.After)
		}
		items = items[last+1:]
	}
	l := api.List{Messages: items}
	if len(items) > p.Limit {
		l.Messages = items[:p.Limit]
		l.Next = items[p.Limit-1].ID
	}
	for i := range l.Messages {
		m := &l.Messages[i]
		if p.Recipients > 0 && len(m.Recipients) > p.Recipients {
			m.Recipients = m.Recipients[:p.Recipients]
		}
	}
	return l, nil
}

func compare(o api.Order, a, b api.Item) int {
	switch o {
	case api.NewestFirst:
		return cmp.Compare(b.ID, a.ID)
	case api.NextAttempt:
		if c := next(a).Compare(next(b)); c != 0 {
			return c
		}
	}
	return cmp.Compare(a.ID, b.ID)
}

func next(i api.Item) time.Time {
	first := time.Unix(1<<40, 0)
	for _, r := range i.Recipients {
		if !r.Next.IsZero() && r.Next.Before(first) {
			first = r.Next
		}
	}
	return first
}

// selected gives what fits, as copies.
func (r *Relay) selected(f api.Filter) []api.Item {
	var items []api.Item
	for _, m := range r.Messages {
		if !r.fits(f, m) {
			continue
		}
		m.Recipients = slices.DeleteFunc(slices.Clone(m.Recipients), func(rcpt api.RecipientStatus) bool { return !fitsRecipient(f, rcpt) })
		if len(m.Recipients) == 0 {
			continue
		}
		m.Matching = len(m.Recipients)
		m.HeloName, m.Protocol, m.Session, m.EnvID = "", "", "", ""
		m.Meta, m.Pool, m.Key, m.Expires = nil, "", "", time.Time{}
		items = append(items, m)
	}
	return items
}

func (r *Relay) fits(f api.Filter, m api.Item) bool {
	age := api.Age(r.Now.Sub(m.Received))
	sender := f.Sender
	if sender == "<>" {
		sender = ""
	}
	return (len(f.IDs) == 0 || slices.Contains(f.IDs, m.ID)) &&
		(f.Tenant == "" || f.Tenant == m.Tenant) && (f.Campaign == "" || f.Campaign == m.Campaign) &&
		(f.Tag == "" || slices.Contains(m.Tags, f.Tag)) &&
		(f.Sender == "" || strings.EqualFold(sender, m.Sender)) &&
		(f.Older == 0 || age >= f.Older) && (f.Newer == 0 || age < f.Newer)
}

func fitsRecipient(f api.Filter, r api.RecipientStatus) bool {
	return (f.Domain == "" || strings.EqualFold(f.Domain, domain(r.Address))) &&
		(f.Recipient == "" || strings.EqualFold(f.Recipient, r.Address)) &&
		(f.Site == "" || f.Site == r.Site) && (f.State == "" || f.State == r.State)
}

func domain(address string) string { return address[strings.LastIndexByte(address, '@')+1:] }

// Get gives a message.
func (r *Relay) Get(_ context.Context, id string) (api.Item, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.Messages {
		if m.ID == id {
			m.Matching = len(m.Recipients)
			return m, nil
		}
	}
	return api.Item{}, api.NotFound("what became of it is in the log: mta log --id "+id, "message %s is not in the queue", id)
}

// Content gives what a message says.
func (r *Relay) Content(_ context.Context, id string) (io.ReadCloser, error) {
	text, ok := r.Contents[id]
	if !ok {
		return nil, api.NotFound("", "message %s is not in the queue", id)
	}
	return io.NopCloser(strings.NewReader(text)), nil
}

// Change acts on what fits, and notes what was asked.
func (r *Relay) Change(ctx context.Context, c api.Change) (api.Changed, error) {
	err := expected(c.Intent, func(dry api.Intent) (int, error) {
		would := c
		would.Intent = dry
		done, err := r.Change(ctx, would)
		return done.Recipients, err
	})
	if err != nil {
		return api.Changed{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = append(r.changes, c)
	done := api.Changed{}
	for i := range r.Messages {
		m := &r.Messages[i]
		if !r.fits(c.Filter, *m) {
			continue
		}
		var left []api.RecipientStatus
		for _, rcpt := range m.Recipients {
			if !fitsRecipient(c.Filter, rcpt) || c.Action == api.Retry && (rcpt.State == api.StateHeld || rcpt.Asked != "") || c.Action == api.Release && rcpt.State != api.StateHeld {
				left = append(left, rcpt)
				continue
			}
			done.Recipients++
			if rcpt.State == api.StateActive && (c.Action == api.Hold || c.Action == api.Bounce) && !c.DryRun {
				done.Later++
				rcpt.Asked = c.Action
				left = append(left, rcpt)
				continue
			}
			if c.Action == api.Reroute && !c.DryRun {
				rcpt.Rerouted = &api.Rerouted{Reroutes: c.Reroutes}
				if c.Own {
					rcpt.Rerouted = nil
				}
			}
			if after, stays := act(c.Action, rcpt); stays {
				left = append(left, after)
			}
		}
		if !c.DryRun {
			m.Recipients = left
		}
	}
	if !c.DryRun {
		r.Messages = slices.DeleteFunc(r.Messages, func(m api.Item) bool { return len(m.Recipients) == 0 })
	}
	return done, nil
}

func act(a api.Action, r api.RecipientStatus) (after api.RecipientStatus, stays bool) {
	switch a {
	case api.Hold:
		r.State = api.StateHeld
	case api.Reroute:
		if r.State == api.StateDeferred || r.State == api.StateWaiting {
			r.State, r.Next = api.StateDue, time.Time{}
		}
	case api.Release, api.Retry:
		r.State, r.Next = api.StateDue, time.Time{}
	default:
		return r, false
	}
	return r, true
}

var bounds = []api.Age{
	api.Age(5 * time.Minute), api.Age(10 * time.Minute), api.Age(20 * time.Minute), api.Age(40 * time.Minute), api.Age(80 * time.Minute),
	api.Age(160 * time.Minute), api.Age(320 * time.Minute), api.Age(640 * time.Minute), api.Age(1280 * time.Minute),
}

// Summary counts recipients.
func (r *Relay) Summary(_ context.Context, by api.SummaryBy, f api.Filter, p api.SummaryPage) (api.Summary, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := api.Summary{By: by, Bounds: bounds, Total: api.SummaryRow{Counts: make([]int, len(bounds)+1)}, Exact: true, Complete: true}
	rows := map[string]*api.SummaryRow{}
	for _, m := range r.selected(f) {
		column, _ := slices.BinarySearch(bounds, api.Age(r.Now.Sub(m.Received))+1)
		for _, rcpt := range m.Recipients {
			name := named(by, &m, &rcpt)
			if rows[name] == nil {
				rows[name] = &api.SummaryRow{Key: name, Counts: make([]int, len(bounds)+1), States: map[api.State]int{}}
			}
			for _, row := range []*api.SummaryRow{rows[name], &s.Total} {
				row.Total++
				row.Counts[column]++
			}
			rows[name].States[rcpt.State]++
		}
	}
	for _, row := range rows {
		s.Rows = append(s.Rows, *row)
	}
	slices.SortFunc(s.Rows, func(a, b api.SummaryRow) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Key, b.Key))
	})
	s.Cut(p.Limit)
	return s, nil
}

// named gives the name of a recipient in a summary.
func named(by api.SummaryBy, m *api.Item, rcpt *api.RecipientStatus) string {
	switch by {
	case api.BySite:
		return rcpt.Site
	case api.ByDomain:
		return domain(rcpt.Address)
	case api.ByTenant:
		return m.Tenant
	case api.ByCampaign:
		return m.Campaign
	case api.BySenderDomain:
		return domain(m.Sender)
	case api.ByState:
		return string(rcpt.State)
	}
	return ""
}

// Read gives the records since q.Since that have the words of q in them, which is as much of a
// search as a test needs.
func (r *Relay) Read(ctx context.Context, q api.LogQuery, each func([]byte) error, flush func()) error {
	var fit []string
	for _, record := range r.Records {
		if fitsRecord(q, record) {
			fit = append(fit, record)
		}
	}
	if q.Last > 0 && len(fit) > q.Last {
		fit = fit[len(fit)-q.Last:]
	}
	for _, record := range fit {
		if err := each([]byte(record)); err != nil {
			return err
		}
	}
	if r.Damage != nil {
		return r.Damage
	}
	for q.Follow {
		flush()
		select {
		case record := <-r.More:
			if !fitsRecord(q, record) {
				continue
			}
			if err := each([]byte(record)); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Newest gives a page of the records that Read gives. The cursor counts those of the pages before.
func (r *Relay) Newest(_ context.Context, q api.LogQuery, after string, limit int) (p api.LogPage, err error) {
	skip := 0
	if after != "" {
		if skip, err = strconv.Atoi(after); err != nil {
			return p, api.Invalid("give after what the page before ended with", "after: %q is no cursor of the log", after)
		}
	}
	n := 0
	for _, record := range slices.Backward(r.Records) {
		p.Looked += int64(len(record)) + 1
		if !fitsRecord(q, record) {
			continue
		}
		if n++; n <= skip {
			continue
		}
		if len(p.Records) == limit {
			p.Next = strconv.Itoa(n - 1)
			return p, nil
		}
		p.Records = append(p.Records, json.RawMessage(record))
	}
	p.Complete = true
	return p, nil
}

func fitsRecord(q api.LogQuery, record string) bool {
	var when struct {
		Time time.Time `json:"event_time"`
	}
	if json.Unmarshal([]byte(record), &when) == nil && !when.Time.IsZero() && when.Time.Before(q.Since) {
		return false
	}
	has := func(name, value string) bool {
		return value == "" || strings.Contains(record, `"`+name+`":"`+value+`"`)
	}
	typed := len(q.Types) == 0
	for _, t := range q.Types {
		typed = typed || has("type", t)
	}
	classed := len(q.Classes) == 0
	for _, c := range q.Classes {
		classed = classed || has("bounce_classification", c)
	}
	return typed && classed && has("id", q.ID) && has("sender", q.Sender) && has("recipient", q.Recipient) && has("site", q.Site) && has("tenant", q.Tenant)
}

// Status gives State.
func (r *Relay) Status() api.Status { return r.State }

// Reload calls OnReload.
func (r *Relay) Reload(context.Context) (api.Reload, error) {
	if r.OnReload == nil {
		return api.Reload{}, nil
	}
	return r.OnReload()
}

// PreviewReload calls OnReload, too: who sets it must not mind.
func (r *Relay) PreviewReload(ctx context.Context) (api.Reload, error) { return r.Reload(ctx) }

// ConfigChanges calls OnDiffer.
func (r *Relay) ConfigChanges() (api.Reload, error) {
	if r.OnDiffer == nil {
		return api.Reload{}, nil
	}
	return r.OnDiffer()
}

// ConfigObject gives Settings in one field.
func (r *Relay) ConfigObject() map[string]any { return map[string]any{"settings": r.Settings} }

// Config gives Settings.
func (r *Relay) Config() string { return r.Settings }
