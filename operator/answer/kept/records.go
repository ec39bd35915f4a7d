package kept

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"example.org/mta/mta/accounting"
	"example.org/mta/operator/api"
)

// Log is the accounting log of a running relay.
type Log struct {
	Writer *accounting.Writer // nil: switched off
	Out    *slog.Logger
}

// flushWait is how long a page of the newest records waits for those that are on their way to the disk.
const flushWait = 100 * time.Millisecond

// Read implements api.Log.
func (l Log) Read(ctx context.Context, q api.LogQuery, each func([]byte) error, flush func()) error {
	if err := l.flush(ctx); err != nil {
		return err
	}
	return logDamage(l.Writer.Read(ctx, logQuery(q), each, flush))
}

// logDamage has damage in the words of the API: all that can be read was given.
func logDamage(err error) error {
	if damaged := (*accounting.DamagedError)(nil); errors.As(err, &damaged) {
		return &api.LogDamaged{Text: damaged.Error()}
	}
	return err
}

// Newest implements api.Log.
func (l Log) Newest(ctx context.Context, q api.LogQuery, after string, limit int) (api.LogPage, error) {
	soon, cancel := context.WithTimeout(ctx, flushWait)
	defer cancel()
	if after != "" {
		cancel() // those that are on their way are on no page but the first
	}
	if err := l.flush(soon); err != nil {
		return api.LogPage{}, err
	}
	return logPage(l.Writer.Newest(ctx, logQuery(q), after, limit))
}

// Following implements api.Log.
func (l Log) Following(ctx context.Context, q api.LogQuery, after string, limit int) (api.LogPage, error) {
	soon, cancel := context.WithTimeout(ctx, flushWait)
	defer cancel()
	if err := l.flush(soon); err != nil {
		return api.LogPage{}, err
	}
	return logPage(l.Writer.Following(ctx, logQuery(q), after, limit))
}

// Count implements api.Log.
func (l Log) Count(ctx context.Context, q api.LogCountQuery) (api.LogCounts, error) {
	if err := l.flush(ctx); err != nil {
		return api.LogCounts{}, err
	}
	return logCounts(q.By)(l.Writer.Count(ctx, logQuery(q.LogQuery), string(q.By), q.Limit))
}

// flush has the latest records written, as long as ctx allows.
func (l Log) flush(ctx context.Context) error {
	if l.Writer == nil {
		return api.Unavailable("set accounting { enabled = true }", "the accounting log is switched off")
	}
	if err := l.Writer.Flush(ctx); err != nil && ctx.Err() == nil {
		// On a full disk, of all times, the log must be readable.
		l.Out.Warn("the latest accounting records are not in the log yet", "error", err)
	}
	return nil
}

// LogFiles are those of an accounting log in a directory.
type LogFiles string

// Read calls each with the records that fit, oldest first.
func (f LogFiles) Read(ctx context.Context, q api.LogQuery, each func([]byte) error) error {
	return accounting.Read(ctx, string(f), logQuery(q), each, nil)
}

// Newest is as Log.Newest.
func (f LogFiles) Newest(ctx context.Context, q api.LogQuery, after string, limit int) (api.LogPage, error) {
	return logPage(accounting.Newest(ctx, string(f), logQuery(q), after, limit))
}

// Count is as Log.Count.
func (f LogFiles) Count(ctx context.Context, q api.LogCountQuery) (api.LogCounts, error) {
	return logCounts(q.By)(accounting.Count(ctx, string(f), logQuery(q.LogQuery), string(q.By), q.Limit))
}

func logCounts(by api.LogBy) func(accounting.Counts, error) (api.LogCounts, error) {
	return func(c accounting.Counts, err error) (api.LogCounts, error) {
		out := api.LogCounts{By: by, Records: c.Records, Others: c.Others, Left: c.Left, Exact: c.Exact,
			Looked: c.Looked}
		for _, g := range c.Groups {
			out.Groups = append(out.Groups, api.LogCount{Name: g.Name, Count: g.Count,
				Share: float64(g.Count) / float64(c.Records), Reply: api.ReplyOf(g.Reply)})
		}
		if c.Damage != nil {
			out.Damaged = c.Damage.Error()
		}
		return out, err
	}
}

func logQuery(q api.LogQuery) accounting.Query {
	out := accounting.Query{
		ID: q.ID, Sender: q.Sender, Recipient: q.Recipient, Domain: q.Domain, Site: q.Site, Tenant: q.Tenant,
		Campaign: q.Campaign, Provider: q.Provider, Source: q.Source, Classes: q.Classes,
		Since: q.Since, Until: q.Until, Last: q.Last, Follow: q.Follow,
	}
	for _, t := range q.Types {
		out.Types = append(out.Types, accounting.Type(t))
	}
	return out
}

func logPage(p accounting.Page, err error) (api.LogPage, error) {
	if errors.Is(err, accounting.ErrCursor) {
		err = api.Invalid("give after what the page before ended with", "after: %v", err)
	}
	out := api.LogPage{Next: p.Next, Looked: p.Looked, Complete: p.Complete}
	for _, record := range p.Records {
		out.Records = append(out.Records, record)
	}
	if p.Damage != nil {
		out.Damaged = p.Damage.Error()
	}
	return out, err
}
