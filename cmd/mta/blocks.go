package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/operator/api"
)

// tallyColumns are those of what was counted since the start of the relay.
var tallyColumns = []draw.Column{
	{Title: "DELIVERED", Right: true}, {Title: "DEFERRALS", Right: true}, {Title: "BOUNCED", Right: true},
}

// tallyCells are the cells for them: what expired has bounced, too.
func tallyCells(t *api.Tally) []string {
	return []string{fmt.Sprint(t.Delivered), fmt.Sprint(t.Deferred), fmt.Sprint(t.Bounced + t.Expired)}
}

// lastError is the last failure and how long ago it was, "" without one.
func (c *cli) lastError(t *api.Tally) string {
	if t.LastError == nil {
		return ""
	}
	return "last error " + c.since(t.ErrorAt) + " ago: " + t.LastError.String()
}

// notes joins those that are not empty.
func notes(all ...string) string {
	var some []string
	for _, n := range all {
		if n != "" {
			some = append(some, n)
		}
	}
	return strings.Join(some, "; ")
}

// blockList is a listing of blocks of the configuration.
type blockList struct {
	what  string // a source, a pool, a tenant
	short string
	long  string
	flags func(*cobra.Command, *api.BlockFilter)
	show  func(context.Context, *api.Client, api.BlockFilter, *pageFlags) error
}

// newBlockList makes its command.
func (c *cli) newBlockList(b blockList) *cobra.Command {
	var (
		f api.BlockFilter
		p pageFlags
	)
	cmd := &cobra.Command{
		Use:   b.what + "s [NAME...]",
		Short: b.short,
		Long:  b.long,
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := p.check(); err != nil {
				return err
			}
			f.Names = names
			client, err := c.client()
			if err != nil {
				return err
			}
			return b.show(cmd.Context(), client, f, &p)
		},
	}
	p.add(cmd, b.what+"s")
	flags := cmd.Flags()
	flags.BoolVar(&f.Failing, "failing", false, "only those whose last recipient failed")
	flags.BoolVar(&f.Busy, "busy", false, "only those with mail or connections")
	addOrder(cmd, &f.Order)
	if b.flags != nil {
		b.flags(cmd, &f)
	}
	return c.watchable(cmd)
}

// addOrder adds the flag of what comes first in a listing.
func addOrder(cmd *cobra.Command, order *api.SiteOrder) {
	cmd.Flags().StringVar((*string)(order), "order", string(api.BySize), "sort by `size` (the longest queue first) or name")
	oneOf(cmd, "order", api.SiteOrders)
}

const sinceStart = `
DELIVERED, DEFERRALS (temporary failures, each attempt) and BOUNCED (including expired)
count recipients since the start of the relay.`

func newSources(c *cli) *cobra.Command {
	cmd := c.newBlockList(blockList{
		what:  "source",
		short: "list the sources of the configuration",
		long: `List the sources: the connections from each, the transactions that wait for one and
those on connections. A source is sending; or warming, with the plan's stage; or paused,
by an operator or its warm-up; or missing, if this machine does not have its address.
` + sinceStart,
		flags: func(cmd *cobra.Command, f *api.BlockFilter) {
			cmd.Flags().StringVar(&f.Pool, "pool", "", "sources of this `pool`")
		},
		show: c.showSources,
	})
	cmd.ValidArgsFunction = c.complete(c.sourceNames)
	return cmd
}

func (c *cli) showSources(ctx context.Context, client *api.Client, f api.BlockFilter, p *pageFlags) error {
	all, next, err := collect(p, func(after string, limit int) ([]api.Source, string, error) {
		l, err := client.Sources(ctx, f, after, limit)
		return l.Sources, l.Next, err
	})
	if err != nil {
		return err
	}
	if p.asJSON {
		return writeJSON(c.out, api.SourceList{Sources: all, Next: next})
	}
	t := &draw.Table{Columns: append([]draw.Column{
		{Title: "SOURCE", Shrink: true}, {Title: "ADDRESS"}, {Title: "STATE", State: true},
		{Title: "CONNS", Right: true}, {Title: "WAITING", Right: true, Spare: true}, {Title: "RUNNING", Right: true, Spare: true},
	}, tallyColumns...), NoteTitle: "REASON"}
	for _, s := range all {
		t.Add(notes(s.Reason, c.lastError(&s.Tally)), append([]string{s.Name, orDash(s.Address), s.State,
			fmt.Sprint(s.Load.Connections), fmt.Sprint(s.Load.Waiting), fmt.Sprint(s.Load.Running)}, tallyCells(&s.Tally)...)...)
	}
	return c.showPage(t, len(all), "source", next)
}

// showPage prints a table, if it has rows, and what is not shown.
func (c *cli) showPage(t *draw.Table, rows int, what, next string) error {
	if rows > 0 {
		if err := t.Write(c.out, c.screen); err != nil {
			return err
		}
	}
	c.pageFooter(rows, what, next)
	return nil
}

func newPools(c *cli) *cobra.Command {
	cmd := c.newBlockList(blockList{
		what:  "pool",
		short: "list the pools of sources",
		long: `List the pools: their sources, the tenants that use them, the connections of the sources
and the transactions that wait for one or are on one, whatever pool they are for.
ACCEPTED counts recipients of the pool's tenants since the start of the relay.
` + sinceStart,
		show: c.showPools,
	})
	cmd.ValidArgsFunction = c.complete(c.poolNames)
	return cmd
}

func (c *cli) showPools(ctx context.Context, client *api.Client, f api.BlockFilter, p *pageFlags) error {
	all, next, err := collect(p, func(after string, limit int) ([]api.Pool, string, error) {
		l, err := client.Pools(ctx, f, after, limit)
		return l.Pools, l.Next, err
	})
	if err != nil {
		return err
	}
	if p.asJSON {
		return writeJSON(c.out, api.PoolList{Pools: all, Next: next})
	}
	t := &draw.Table{Columns: append([]draw.Column{
		{Title: "POOL", Shrink: true}, {Title: "SHARED", Right: true, Spare: true}, {Title: "DEDICATED", Right: true, Spare: true}, {Title: "TENANTS", Right: true, Spare: true},
		{Title: "CONNS", Right: true}, {Title: "WAITING", Right: true, Spare: true}, {Title: "RUNNING", Right: true, Spare: true}, {Title: "ACCEPTED", Right: true},
	}, tallyColumns...), NoteTitle: "REASON"}
	for _, x := range all {
		t.Add(notes(x.Paused, c.lastError(&x.Tally)), append([]string{x.Name, fmt.Sprint(len(x.Shared)), fmt.Sprint(len(x.Dedicated)), fmt.Sprint(x.Tenants),
			fmt.Sprint(x.Load.Connections), fmt.Sprint(x.Load.Waiting), fmt.Sprint(x.Load.Running), fmt.Sprint(x.Tally.Accepted)}, tallyCells(&x.Tally)...)...)
	}
	return c.showPage(t, len(all), "pool", next)
}

func newTenants(c *cli) *cobra.Command {
	limits := false
	cmd := c.newBlockList(blockList{
		what:  "tenant",
		short: "list the tenants of the configuration",
		long: `List the tenants: the pool and the tier of each, and the outcomes of its mail. The name
"-" stands for all mail without a tenant. QUEUED counts the recipients in the queue,
ACCEPTED those since the start of the relay.

--limits shows what each tenant uses of what it may submit, as used/limit: connections,
messages in the queue and their size. OVER is the limit that the next message would be
over; REFUSED counts connections and messages that were refused for a limit since the
start of the relay, LOWERED those that over_quota = "lower" moved to the last tier.
` + sinceStart,
		flags: func(cmd *cobra.Command, f *api.BlockFilter) {
			cmd.Flags().StringVar(&f.Pool, "pool", "", "tenants of this `pool`")
			cmd.Flags().Bool("queued", false, "")
			_ = cmd.Flags().MarkHidden("queued") // the queue of each was once counted only on demand
			cmd.Flags().BoolVar(&limits, "limits", false, "show what each uses of its limits")
		},
		show: func(ctx context.Context, client *api.Client, f api.BlockFilter, p *pageFlags) error {
			return c.showTenants(ctx, client, f, p, limits)
		},
	})
	cmd.ValidArgsFunction = c.complete(c.tenantNames)
	return cmd
}

func (c *cli) showTenants(ctx context.Context, client *api.Client, f api.BlockFilter, p *pageFlags, limits bool) error {
	all, next, err := collect(p, func(after string, limit int) ([]api.Tenant, string, error) {
		l, err := client.Tenants(ctx, f, after, limit)
		return l.Tenants, l.Next, err
	})
	if err != nil {
		return err
	}
	if p.asJSON {
		return writeJSON(c.out, api.TenantList{Tenants: all, Next: next})
	}
	if limits {
		return c.showPage(tenantLimits(all), len(all), "tenant", next)
	}
	t := &draw.Table{Columns: append([]draw.Column{
		{Title: "TENANT", Shrink: true}, {Title: "POOL"}, {Title: "TIER", Right: true}, {Title: "QUEUED", Right: true}, {Title: "ACCEPTED", Right: true},
	}, tallyColumns...), NoteTitle: "REASON"}
	for _, x := range all {
		t.Add(notes(x.Paused, c.lastError(&x.Tally)), append([]string{orDash(x.Name), x.Pool, numberOrDash(x.Tier), fmt.Sprint(x.Queued), fmt.Sprint(x.Tally.Accepted)}, tallyCells(&x.Tally)...)...)
	}
	return c.showPage(t, len(all), "tenant", next)
}

func numberOrDash(n *int) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

// tenantLimits is the table of what tenants use of their limits. Mail of nobody in particular has none.
func tenantLimits(all []api.Tenant) *draw.Table {
	t := &draw.Table{Columns: []draw.Column{
		{Title: "TENANT", Shrink: true}, {Title: "CONNS", Right: true}, {Title: "RATE", Right: true}, {Title: "MESSAGES", Right: true}, {Title: "SIZE", Right: true},
		{Title: "IF OVER", Spare: true}, {Title: "OVER"}, {Title: "REFUSED", Right: true}, {Title: "LOWERED", Right: true},
	}}
	for i := range all {
		u := all[i].Use
		if u == nil {
			continue
		}
		t.Add("", all[i].Name, ofLimit(fmt.Sprint(u.Connections), fmt.Sprint(u.MaxConnections), u.MaxConnections > 0), orDash(u.MaxSubmissionRate),
			ofLimit(fmt.Sprint(u.QueuedMessages), fmt.Sprint(u.MaxQueuedMessages), u.MaxQueuedMessages > 0),
			ofLimit(shortSize(u.QueuedBytes), shortSize(u.MaxQueuedBytes), u.MaxQueuedBytes > 0), u.OverQuota, orDash(u.Over), fmt.Sprint(total(u.Refused)), fmt.Sprint(total(u.Lowered)))
	}
	return t
}

// ofLimit is "used/limit", or what is used where there is no limit.
func ofLimit(used, limit string, limited bool) string {
	if !limited {
		return used
	}
	return used + "/" + limit
}

func total(counts map[string]int64) (n int64) {
	for _, c := range counts {
		n += c
	}
	return n
}
