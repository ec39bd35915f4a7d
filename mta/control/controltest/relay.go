// Package controltest has a relay for tests of what speaks to the control API: everything that
// package control asks of a relay, kept in memory. It starts no goroutines.
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

	"example.org/mta/mta/control"
)

// Relay is a queue, a log and a relay. The fields are set before it is used.
type Relay struct {
	Now      time.Time // ages are counted from it
	Messages []control.Item
	Contents map[string]string // by id
	Records  []string          // of the log, oldest first
	Damage   error             // of the log, after them
	More     chan string       // further records, for those who follow
	State    control.Status
	Settings string                         // the configuration in force
	OnReload func() (control.Reload, error) // nil: nothing has changed
	OnDiffer func() (control.Reload, error) // nil: the file has what is in force
	Upgraded bool                           // the upgrade is finished
	Audit    control.Audit                  // nil: actions are not written down
	Events   *slog.Logger                   // nil: nowhere

	KnownSites       []control.Site
	KnownHosts       []control.Host
	KnownSources     []control.Source
	KnownPools       []control.Pool
	KnownProviders   []control.Provider
	KnownConnections []control.Connection
	KnownOutcomes    []control.RecentOutcome // of each site, the newest first
	KnownTenants     []control.Tenant
	Explanations     map[string]control.Explanation // by domain or id
	KnownWarmups     []control.Warmup
	KnownPlans       []control.WarmupPlan
	Simulated        *control.SimulateWarmup // what was asked last
	Conversation     []control.TraceLine
	TraceEnds        bool // when Conversation has been said
	Suppressed       []control.Suppression
	Pending          []control.Suppression // set aside
	KnownPolicies    []control.STSPolicy
	KnownKeys        []control.APIKey

	mu      sync.Mutex // guards Messages, KnownWarmups, KnownKeys, Suppressed and Pending once the relay is in use, and changes
	changes []control.Change
	taken   map[string]bool // ids of other relays
}

var (
	_ control.Queue = (*Relay)(nil)
	_ control.Log   = (*Relay)(nil)
	_ control.Relay = (*Relay)(nil)
)

// Server makes a server of the API for r.
func (r *Relay) Server() *control.Server {
	return control.NewServer(control.Config{Queue: r, Log: r, Relay: r, Destinations: r, Blocks: r, Warmups: r, Suppressions: r, Bounces: r, Tracer: r, OpenConnections: r, Pauses: r, Streams: r, TLSReports: r, Inbound: r, Admissions: r, APIKeys: r, TLSPolicies: r, Histories: r, Upgrades: r, Backups: r, Moves: r, Audit: r.Audit, Now: func() time.Time { return r.Now }, Events: cmp.Or(r.Events, slog.New(slog.DiscardHandler))})
}

// Changes gives the changes that were asked for, dry runs included.
func (r *Relay) Changes() []control.Change {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.changes)
}

// List gives a page. The cursor is the id of the last message of the page before.
func (r *Relay) List(_ context.Context, f control.Filter, p control.Page) (control.List, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	items := r.selected(f)
	slices.SortFunc(items, func(a, b control.Item) int { return compare(p.Order, a, b) })
	if p.After != "" {
		last := slices.IndexFunc(items, func(i control.Item) bool { return i.ID == p.After })
		if last < 0 {
			return control.List{}, control.Invalid("take it from the page before", "cursor %q is none", p.After)
		}
		items = items[last+1:]
	}
	l := control.List{Messages: items}
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

func compare(o control.Order, a, b control.Item) int {
	switch o {
	case control.NewestFirst:
		return cmp.Compare(b.ID, a.ID)
	case control.NextAttempt:
		if c := next(a).Compare(next(b)); c != 0 {
			return c
		}
	}
	return cmp.Compare(a.ID, b.ID)
}

func next(i control.Item) time.Time {
	first := time.Unix(1<<40, 0)
	for _, r := range i.Recipients {
		if !r.Next.IsZero() && r.Next.Before(first) {
			first = r.Next
		}
	}
	return first
}

// selected gives what fits, as copies.
func (r *Relay) selected(f control.Filter) []control.Item {
	var items []control.Item
	for _, m := range r.Messages {
		if !r.fits(f, m) {
			continue
		}
		m.Recipients = slices.DeleteFunc(slices.Clone(m.Recipients), func(rcpt control.RecipientStatus) bool { return !fitsRecipient(f, rcpt) })
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

func (r *Relay) fits(f control.Filter, m control.Item) bool {
	age := control.Age(r.Now.Sub(m.Received))
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

func fitsRecipient(f control.Filter, r control.RecipientStatus) bool {
	return (f.Domain == "" || strings.EqualFold(f.Domain, domain(r.Address))) &&
		(f.Recipient == "" || strings.EqualFold(f.Recipient, r.Address)) &&
		(f.Site == "" || f.Site == r.Site) && (f.State == "" || f.State == r.State)
}

func domain(address string) string { return address[strings.LastIndexByte(address, '@')+1:] }

// Get gives a message.
func (r *Relay) Get(_ context.Context, id string) (control.Item, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.Messages {
		if m.ID == id {
			m.Matching = len(m.Recipients)
			return m, nil
		}
	}
	return control.Item{}, control.NotFound("what became of it is in the log: mta log --id "+id, "message %s is not in the queue", id)
}

// Content gives what a message says.
func (r *Relay) Content(_ context.Context, id string) (io.ReadCloser, error) {
	text, ok := r.Contents[id]
	if !ok {
		return nil, control.NotFound("", "message %s is not in the queue", id)
	}
	return io.NopCloser(strings.NewReader(text)), nil
}

// Change acts on what fits, and notes what was asked.
func (r *Relay) Change(ctx context.Context, c control.Change) (control.Changed, error) {
	err := expected(c.Intent, func(dry control.Intent) (int, error) {
		would := c
		would.Intent = dry
		done, err := r.Change(ctx, would)
		return done.Recipients, err
	})
	if err != nil {
		return control.Changed{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = append(r.changes, c)
	done := control.Changed{}
	for i := range r.Messages {
		m := &r.Messages[i]
		if !r.fits(c.Filter, *m) {
			continue
		}
		var left []control.RecipientStatus
		for _, rcpt := range m.Recipients {
			if !fitsRecipient(c.Filter, rcpt) || c.Action == control.Retry && (rcpt.State == control.StateHeld || rcpt.Asked != "") || c.Action == control.Release && rcpt.State != control.StateHeld {
				left = append(left, rcpt)
				continue
			}
			done.Recipients++
			if rcpt.State == control.StateActive && (c.Action == control.Hold || c.Action == control.Bounce) && !c.DryRun {
				done.Later++
				rcpt.Asked = c.Action
				left = append(left, rcpt)
				continue
			}
			if c.Action == control.Reroute && !c.DryRun {
				rcpt.Rerouted = &control.Rerouted{Reroutes: c.Reroutes}
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
		r.Messages = slices.DeleteFunc(r.Messages, func(m control.Item) bool { return len(m.Recipients) == 0 })
	}
	return done, nil
}

func act(a control.Action, r control.RecipientStatus) (after control.RecipientStatus, stays bool) {
	switch a {
	case control.Hold:
		r.State = control.StateHeld
	case control.Reroute:
		if r.State == control.StateDeferred || r.State == control.StateWaiting {
			r.State, r.Next = control.StateDue, time.Time{}
		}
	case control.Release, control.Retry:
		r.State, r.Next = control.StateDue, time.Time{}
	default:
		return r, false
	}
	return r, true
}

var bounds = []control.Age{
	control.Age(5 * time.Minute), control.Age(10 * time.Minute), control.Age(20 * time.Minute), control.Age(40 * time.Minute), control.Age(80 * time.Minute),
	control.Age(160 * time.Minute), control.Age(320 * time.Minute), control.Age(640 * time.Minute), control.Age(1280 * time.Minute),
}

// Summary counts recipients.
func (r *Relay) Summary(_ context.Context, by control.SummaryBy, f control.Filter, p control.SummaryPage) (control.Summary, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := control.Summary{By: by, Bounds: bounds, Total: control.SummaryRow{Counts: make([]int, len(bounds)+1)}, Exact: true, Complete: true}
	rows := map[string]*control.SummaryRow{}
	for _, m := range r.selected(f) {
		column, _ := slices.BinarySearch(bounds, control.Age(r.Now.Sub(m.Received))+1)
		for _, rcpt := range m.Recipients {
			name := named(by, &m, &rcpt)
			if rows[name] == nil {
				rows[name] = &control.SummaryRow{Key: name, Counts: make([]int, len(bounds)+1), States: map[control.State]int{}}
			}
			for _, row := range []*control.SummaryRow{rows[name], &s.Total} {
				row.Total++
				row.Counts[column]++
			}
			rows[name].States[rcpt.State]++
		}
	}
	for _, row := range rows {
		s.Rows = append(s.Rows, *row)
	}
	slices.SortFunc(s.Rows, func(a, b control.SummaryRow) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Key, b.Key))
	})
	s.Cut(p.Limit)
	return s, nil
}

// named gives the name of a recipient in a summary.
func named(by control.SummaryBy, m *control.Item, rcpt *control.RecipientStatus) string {
	switch by {
	case control.BySite:
		return rcpt.Site
	case control.ByDomain:
		return domain(rcpt.Address)
	case control.ByTenant:
		return m.Tenant
	case control.ByCampaign:
		return m.Campaign
	case control.BySenderDomain:
		return domain(m.Sender)
	case control.ByState:
		return string(rcpt.State)
	}
	return ""
}

// Read gives the records since q.Since that have the words of q in them, which is as much of a
// search as a test needs.
func (r *Relay) Read(ctx context.Context, q control.LogQuery, each func([]byte) error, flush func()) error {
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
func (r *Relay) Newest(_ context.Context, q control.LogQuery, after string, limit int) (p control.LogPage, err error) {
	skip := 0
	if after != "" {
		if skip, err = strconv.Atoi(after); err != nil {
			return p, control.Invalid("give after what the page before ended with", "after: %q is no cursor of the log", after)
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

func fitsRecord(q control.LogQuery, record string) bool {
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
func (r *Relay) Status() control.Status { return r.State }

// Reload calls OnReload.
func (r *Relay) Reload(context.Context) (control.Reload, error) {
	if r.OnReload == nil {
		return control.Reload{}, nil
	}
	return r.OnReload()
}

// PreviewReload calls OnReload, too: who sets it must not mind.
func (r *Relay) PreviewReload(ctx context.Context) (control.Reload, error) { return r.Reload(ctx) }

// ConfigChanges calls OnDiffer.
func (r *Relay) ConfigChanges() (control.Reload, error) {
	if r.OnDiffer == nil {
		return control.Reload{}, nil
	}
	return r.OnDiffer()
}

// ConfigObject gives Settings in one field.
func (r *Relay) ConfigObject() map[string]any { return map[string]any{"settings": r.Settings} }

// Config gives Settings.
func (r *Relay) Config() string { return r.Settings }
