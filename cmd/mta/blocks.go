package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

const sinceStart = `
DELIVERED, DEFERRALS (temporary failures, each attempt) and BOUNCED (including expired)
count recipients since the start of the relay.`

func newSources(c *cli) *cobra.Command {
	return c.watchable(newList(c, list[api.BlockFilter]{
		use: "sources [NAME...]", short: "list the sources of the configuration",
		long: `List the sources: the connections from each, the transactions that are READY for one
and those RUNNING on one. A source is sending; or warming, with the plan's stage; or paused,
by an operator or its warm-up; or missing, if this machine does not have its address.
` + sinceStart,
		what: "sources", filter: api.BlockFilter{Order: api.BySize}, names: c.sourceNames,
		show: pages[api.BlockFilter, api.SourceList, api.Source]{
			table: listing.Sources, ask: (*api.Client).Sources,
			of: func(l *api.SourceList) (*[]api.Source, *string) { return &l.Sources, &l.Next },
		}.show,
	}))
}

// poolFilter is that of blocks, except that no pool is in a pool.
type poolFilter struct {
	api.BlockFilter `without:"pool"`
}

func newPools(c *cli) *cobra.Command {
	return c.watchable(newList(c, list[poolFilter]{
		use: "pools [NAME...]", short: "list the pools of sources",
		long: `List the pools: their sources, the tenants that use them, the connections of the sources
and the transactions that are READY for one or RUNNING on one, whatever pool they are for.
ACCEPTED counts recipients of the pool's tenants since the start of the relay.
` + sinceStart,
		what: "pools", filter: poolFilter{api.BlockFilter{Order: api.BySize}}, names: c.poolNames,
		show: pages[poolFilter, api.PoolList, api.Pool]{
			table: listing.Pools,
			ask: func(client *api.Client, ctx context.Context, f poolFilter, after string, limit int) (api.PoolList, error) {
				return client.Pools(ctx, f.BlockFilter, after, limit)
			},
			of: func(l *api.PoolList) (*[]api.Pool, *string) { return &l.Pools, &l.Next },
		}.show,
	}))
}

func newTenants(c *cli) *cobra.Command {
	limits := false
	usual := pages[api.BlockFilter, api.TenantList, api.Tenant]{
		table: listing.Tenants, ask: (*api.Client).Tenants,
		of: func(l *api.TenantList) (*[]api.Tenant, *string) { return &l.Tenants, &l.Next },
	}
	cmd := newList(c, list[api.BlockFilter]{
		use: "tenants [NAME...]", short: "list the tenants of the configuration",
		long: `List the tenants: the pool and the tier of each, and the outcomes of its mail. The name
"-" stands for all mail without a tenant. QUEUED counts the recipients in the queue,
ACCEPTED those since the start of the relay.

--limits shows what each tenant uses of what it may submit, as used/limit: connections,
messages in the queue and their size. OVER is the limit that the next message would be
over; REFUSED counts connections and messages that were refused for a limit since the
start of the relay, LOWERED those that over_quota = "lower" moved to the last tier.
` + sinceStart,
		what: "tenants", filter: api.BlockFilter{Order: api.BySize}, names: c.tenantNames,
		show: func(ctx context.Context, c *cli, client *api.Client, f api.BlockFilter, p *pageFlags) error {
			if !limits || p.asJSON {
				return usual.show(ctx, c, client, f, p)
			}
			l, err := collect(p, usual.of, func(after string, limit int) (api.TenantList, error) {
				return client.Tenants(ctx, f, after, limit)
			})
			if err != nil {
				return err
			}
			limited := slices.DeleteFunc(l.Tenants, func(t api.Tenant) bool { return t.Use == nil })
			return printPage(c, listing.TenantLimits, limited, l.Next)
		},
	})
	cmd.Flags().Bool("queued", false, "")
	_ = cmd.Flags().MarkHidden("queued") // the queue of each was once counted only on demand
	cmd.Flags().BoolVar(&limits, "limits", false, "show what each uses of its limits")
	return c.watchable(cmd)
}
