package control

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
)

// summarise counts by any key. By site the queue knows the numbers; by state it knows them for
// each state; for the rest every message is looked at, which takes its time when there are
// millions.
func (s *Server) summarise(ctx context.Context, by SummaryBy, f Filter, limit int) (Summary, error) {
	switch by {
	case BySite:
		return s.config.Queue.Summary(ctx, BySite, f, limit)
	case ByState:
		return s.summariseStates(ctx, f, limit)
	}
	sum := newSummer(by, s.config.Now())
	page := Page{Limit: MaxLimit}
	for {
		l, err := s.config.Queue.List(ctx, f, page)
		if err != nil {
			return Summary{}, err
		}
		for i := range l.Messages {
			sum.add(&l.Messages[i])
		}
		if page.After = l.Next; page.After == "" || ctx.Err() != nil {
			return sum.summary(limit), ctx.Err()
		}
	}
}

func (s *Server) summariseStates(ctx context.Context, f Filter, limit int) (Summary, error) {
	sum := newSummer(ByState, s.config.Now())
	for _, state := range States {
		if f.State != "" && f.State != state {
			continue
		}
		only := f
		only.State = state
		sites, err := s.config.Queue.Summary(ctx, BySite, only, 1)
		if err != nil {
			return Summary{}, err
		}
		sum.bounds = sites.Bounds
		if sites.Total.Total > 0 {
			sum.rows[string(state)] = &SummaryRow{string(state), sites.Total.Total, sites.Total.Counts}
		}
	}
	return sum.summary(limit), nil
}

// summer adds up recipients.
type summer struct {
	by     SummaryBy
	now    time.Time
	bounds []Age
	rows   map[string]*SummaryRow
}

func newSummer(by SummaryBy, now time.Time) *summer {
	s := &summer{by: by, now: now, rows: make(map[string]*SummaryRow)}
	for bound := 5 * time.Minute; bound <= 1280*time.Minute; bound *= 2 { // as qshape's
		s.bounds = append(s.bounds, Age(bound))
	}
	return s
}

func (s *summer) add(m *Item) {
	column := len(s.bounds)
	if i := slices.IndexFunc(s.bounds, func(b Age) bool { return Age(s.now.Sub(m.Received)) < b }); i >= 0 {
		column = i
	}
	for i := range m.Recipients {
		key := s.key(m, &m.Recipients[i])
		row := s.rows[key]
		if row == nil {
			row = &SummaryRow{Key: key, Counts: make([]int, len(s.bounds)+1)}
			s.rows[key] = row
		}
		row.Total++
		row.Counts[column]++
	}
}

func (s *summer) key(m *Item, r *RecipientStatus) string {
	switch s.by {
	case ByDomain:
		return domainOf(r.Address)
	case ByTenant:
		return m.Tenant
	}
	return domainOf(m.Sender)
}

func domainOf(address string) string {
	return strings.ToLower(address[strings.LastIndexByte(address, '@')+1:])
}

// summary puts the rows in order and leaves out those beyond limit, if that is not 0.
func (s *summer) summary(limit int) Summary {
	out := Summary{By: s.by, Bounds: s.bounds, Rows: []SummaryRow{}, Total: SummaryRow{Counts: make([]int, len(s.bounds)+1)}}
	for _, row := range s.rows {
		out.Rows = append(out.Rows, *row)
		out.Total.Total += row.Total
		for i, n := range row.Counts {
			out.Total.Counts[i] += n
		}
	}
	slices.SortFunc(out.Rows, func(a, b SummaryRow) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Key, b.Key))
	})
	if limit > 0 && len(out.Rows) > limit {
		out.More = len(out.Rows) - limit
		out.Rows = out.Rows[:limit]
	}
	return out
}
