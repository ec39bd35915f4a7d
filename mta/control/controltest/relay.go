// Package controltest has a relay for tests of what speaks to the control API: everything that
// package control asks of a relay, kept in memory. It starts no goroutines.
package controltest

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
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
	More     chan string       // further records, for those who follow
	State    control.Status
	Settings string                         // the configuration in force
	OnReload func() (control.Reload, error) // nil: nothing has changed
	Events   *slog.Logger                   // nil: nowhere

	KnownSites    []control.Site
	KnownHosts    []control.Host
	KnownSources  []control.Source
	KnownPools    []control.Pool
	KnownTenants  []control.Tenant
	Explanations  map[string]control.Explanation // by domain or id
	KnownWarmups  []control.Warmup
	KnownPlans    []control.WarmupPlan
	Conversation  []control.TraceLine
	TraceEnds     bool // when Conversation has been said
	Suppressed    []control.Suppression
	KnownPolicies []control.STSPolicy

	mu      sync.Mutex // guards Messages, KnownWarmups and Suppressed once the relay is in use, and changes
	changes []control.Change
}

var (
	_ control.Queue = (*Relay)(nil)
	_ control.Log   = (*Relay)(nil)
	_ control.Relay = (*Relay)(nil)
)

// Server makes a server of the API for r.
func (r *Relay) Server() *control.Server {
	return control.NewServer(control.Config{Queue: r, Log: r, Relay: r, Destinations: r, Blocks: r, Warmups: r, Suppressions: r, Tracer: r, Pauses: r, TLSReports: r, Admissions: r, TLSPolicies: r, Now: func() time.Time { return r.Now }, Events: cmp.Or(r.Events, slog.New(slog.DiscardHandler))})
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
func (r *Relay) Change(_ context.Context, c control.Change) (control.Changed, error) {
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

// Summary counts recipients by site.
func (r *Relay) Summary(_ context.Context, by control.SummaryBy, f control.Filter, limit int) (control.Summary, error) {
	if by != control.BySite {
		return control.Summary{}, fmt.Errorf("the queue was asked to count by %s", by)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := control.Summary{By: by, Bounds: bounds, Total: control.SummaryRow{Counts: make([]int, len(bounds)+1)}}
	rows := map[string]*control.SummaryRow{}
	for _, m := range r.selected(f) {
		column, _ := slices.BinarySearch(bounds, control.Age(r.Now.Sub(m.Received))+1)
		for _, rcpt := range m.Recipients {
			if rows[rcpt.Site] == nil {
				rows[rcpt.Site] = &control.SummaryRow{Key: rcpt.Site, Counts: make([]int, len(bounds)+1)}
			}
			for _, row := range []*control.SummaryRow{rows[rcpt.Site], &s.Total} {
				row.Total++
				row.Counts[column]++
			}
		}
	}
	for _, row := range rows {
		s.Rows = append(s.Rows, *row)
	}
	slices.SortFunc(s.Rows, func(a, b control.SummaryRow) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Key, b.Key))
	})
	if limit > 0 && len(s.Rows) > limit {
		s.More = len(s.Rows) - limit
		s.Rows = s.Rows[:limit]
	}
	return s, nil
}

// Read gives the records that have the words of q in them, which is as much of a search as a
// test needs.
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

func fitsRecord(q control.LogQuery, record string) bool {
	has := func(name, value string) bool {
		return value == "" || strings.Contains(record, `"`+name+`":"`+value+`"`)
	}
	typed := len(q.Types) == 0
	for _, t := range q.Types {
		typed = typed || has("type", t)
	}
	return typed && has("id", q.ID) && has("sender", q.Sender) && has("recipient", q.Recipient) && has("site", q.Site) && has("tenant", q.Tenant)
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

// ConfigObject gives Settings in one field.
func (r *Relay) ConfigObject() map[string]any { return map[string]any{"settings": r.Settings} }

// Config gives Settings.
func (r *Relay) Config() string { return r.Settings }
