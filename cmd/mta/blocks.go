package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

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
		long: `List the sources: the connections from each, the transactions that are READY for one
and those RUNNING on one. A source is sending; or warming, with the plan's stage; or paused,
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
	l, err := collect(p, func(l *api.SourceList) (*[]api.Source, *string) { return &l.Sources, &l.Next },
		func(after string, limit int) (api.SourceList, error) { return client.Sources(ctx, f, after, limit) })
	if err != nil {
		return err
	}
	if p.asJSON {
		return writeJSON(c.out, l)
	}
	return printPage(c, listing.Sources, l.Sources, "source", l.Next)
}

func newPools(c *cli) *cobra.Command {
	cmd := c.newBlockList(blockList{
		what:  "pool",
		short: "list the pools of sources",
		long: `List the pools: their sources, the tenants that use them, the connections of the sources
and the transactions that are READY for one or RUNNING on one, whatever pool they are for.
ACCEPTED counts recipients of the pool's tenants since the start of the relay.
` + sinceStart,
		show: c.showPools,
	})
	cmd.ValidArgsFunction = c.complete(c.poolNames)
	return cmd
}

func (c *cli) showPools(ctx context.Context, client *api.Client, f api.BlockFilter, p *pageFlags) error {
	l, err := collect(p, func(l *api.PoolList) (*[]api.Pool, *string) { return &l.Pools, &l.Next },
		func(after string, limit int) (api.PoolList, error) { return client.Pools(ctx, f, after, limit) })
	if err != nil {
		return err
	}
	if p.asJSON {
		return writeJSON(c.out, l)
	}
	return printPage(c, listing.Pools, l.Pools, "pool", l.Next)
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
	l, err := collect(p, func(l *api.TenantList) (*[]api.Tenant, *string) { return &l.Tenants, &l.Next },
		func(after string, limit int) (api.TenantList, error) { return client.Tenants(ctx, f, after, limit) })
	if err != nil {
		return err
	}
	if p.asJSON {
		return writeJSON(c.out, l)
	}
	if limits {
		limited := slices.DeleteFunc(l.Tenants, func(t api.Tenant) bool { return t.Use == nil })
		return printPage(c, listing.TenantLimits, limited, "tenant", l.Next)
	}
	return printPage(c, listing.Tenants, l.Tenants, "tenant", l.Next)
}
