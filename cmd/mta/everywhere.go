package main

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/operator/api"
	"example.org/mta/operator/everywhere"
	"example.org/mta/operator/listing"
)

// clusterFlag adds --cluster, by which a command asks all nodes.
func clusterFlag(cmd *cobra.Command, help string) *bool {
	return cmd.Flags().Bool("cluster", false, help)
}

const (
	rowsOfAll  = "list the rows of all nodes of the cluster"
	eachOfAll  = "ask each node of the cluster"
	whoeverHas = "ask all nodes of the cluster, and show the answer of the one that has it"
	actsOnAll  = "act at all nodes of the cluster"
)

// noCluster is why commands have no --cluster, by their first word.
var noCluster = map[string]string{
	"suppress": "all nodes share the suppression list", "key": "all nodes share API keys",
	"rule": "all nodes share rules", "pause": "all nodes share rules", "resume": "all nodes share rules",
	"cluster": "it is about the cluster already",
}

// withoutCluster is the error of --cluster at a command that doesn't have it.
func withoutCluster(cmd *cobra.Command) error {
	words := strings.Fields(cmd.CommandPath())
	why := "it is for one node; run it there"
	if len(words) > 1 && noCluster[words[1]] != "" {
		why = noCluster[words[1]]
	}
	return usagef("'%s' has no --cluster: %s", cmd.CommandPath(), why)
}

// unanswered is the error of the nodes that have failed, nil for none.
func unanswered(nodes []int, failed everywhere.Failures) error {
	if same := failed.Same(len(nodes)); same != nil || len(failed) == 0 {
		return same
	}
	return failed
}

// everyone gives the way to the running relay, and the nodes of its cluster.
func (c *cli) everyone(ctx context.Context) (*api.Client, []int, error) {
	client, err := c.client()
	if err != nil {
		return nil, nil, err
	}
	nodes, err := everywhere.Nodes(ctx, client)
	return client, nodes, err
}

// merged collects the listings of all nodes, and prints them as a table or as JSON, where they have the name of the
// rows' field in L.
func merged[L, T any](ctx context.Context, c *cli, table listing.Listing[T], order string, flags *pageFlags,
	nothing string, ask func(ctx context.Context, client *api.Client, after string, limit int) (L, error)) error {
	client, nodes, err := c.everyone(ctx)
	if err != nil {
		return err
	}
	rows := []everywhere.Row[T]{}
	next, failed, err := everywhere.Merge(ctx, nodes, flags.after, flags.limit, table.In(order),
		func(ctx context.Context, after string, limit int) ([]T, string, error) {
			l, err := ask(ctx, client, after, limit)
			page, next := api.RowsOf[T](&l)
			return *page, *next, err
		}, func(r everywhere.Row[T]) error {
			rows = append(rows, r)
			return nil
		})
	if err != nil {
		return err
	}
	if lost := unanswered(nodes, failed); len(failed) == len(nodes) {
		return lost
	}
	if flags.asJSON {
		err = writeJSON(c.out, withFailures(map[string]any{rowsField[L, T](): rows, "next": next}, failed))
	} else {
		err = printPage(c, everywhere.Listing(table), rows, next, nothing)
	}
	if err == nil {
		err = unanswered(nodes, failed)
	}
	return err
}

// withFailures is an answer in JSON with the nodes that lack in it.
func withFailures(answer map[string]any, failed everywhere.Failures) map[string]any {
	if len(failed) > 0 {
		answer["failed"] = failed
	}
	if answer["next"] == "" {
		delete(answer, "next")
	}
	return answer
}

// rowsField is the name of the rows in the JSON of a page.
func rowsField[L, T any]() string {
	page := reflect.TypeFor[L]()
	for i := range page.NumField() {
		if f := page.Field(i); f.Type == reflect.TypeFor[[]T]() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			return name
		}
	}
	panic("no rows in " + page.String())
}

// whole makes a command show a listing without pages.
func whole[L, T any](c *cli, cmd *cobra.Command, table listing.Listing[T], row api.Op[api.None, L], none string,
) *cobra.Command {
	ask := func(ctx context.Context, client *api.Client, _ []string) (L, error) {
		return row.Call(ctx, client, api.None{})
	}
	answers(c, cmd, ask, func(l L) error {
		rows, _ := api.RowsOf[T](&l)
		if len(*rows) == 0 {
			fmt.Fprintln(c.err, none)
		}
		return c.printTable(tableOf(c, table, *rows))
	})
	here, all := cmd.RunE, clusterFlag(cmd, rowsOfAll)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !*all {
			return here(cmd, args)
		}
		flags := pageFlags{asJSON: asJSON(cmd)}
		return merged(cmd.Context(), c, table, "", &flags, none,
			func(ctx context.Context, client *api.Client, _ string, _ int) (L, error) {
				return ask(ctx, client, args)
			})
	}
	return cmd
}

// asJSON reports whether a command has --json.
func asJSON(cmd *cobra.Command) bool {
	is, _ := cmd.Flags().GetBool("json")
	return is
}

// ofAll is answers for a command that asks all nodes with --cluster: it shows the answer of each, or, if the arguments
// name a thing that one of them has, of that one.
func ofAll[A any](c *cli, cmd *cobra.Command, help string, one func(args []string) bool, ask asker[A],
	show func(A) error) *cobra.Command {
	answers(c, cmd, ask, show)
	here, all := cmd.RunE, clusterFlag(cmd, help)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !*all {
			return here(cmd, args)
		}
		client, nodes, err := c.everyone(cmd.Context())
		if err != nil {
			return err
		}
		var found []everywhere.Row[A]
		var failed everywhere.Failures
		if one(args) {
			found = make([]everywhere.Row[A], 1)
			found[0], err = everywhere.First(cmd.Context(), nodes, func(ctx context.Context) (A, error) {
				return ask(ctx, client, args)
			})
		} else {
			found, failed = everywhere.Ask(cmd.Context(), nodes, func(ctx context.Context, _ int) (A, error) {
				return ask(ctx, client, args)
			})
		}
		switch {
		case err != nil, len(found) == 0:
		case asJSON(cmd) && one(args):
			err = writeJSON(c.out, found[0])
		case asJSON(cmd):
			err = writeJSON(c.out, withFailures(map[string]any{"nodes": found}, failed))
		default:
			err = showEach(c, found, show)
		}
		if err == nil {
			err = unanswered(nodes, failed)
		}
		return err
	}
	return cmd
}

// showEach shows answers under the numbers of their nodes.
func showEach[A any](c *cli, found []everywhere.Row[A], show func(A) error) error {
	for i, row := range found {
		if i > 0 {
			fmt.Fprintln(c.out)
		}
		c.facts(12).add("node", "%d", row.Node)
		if err := show(*row.Value); err != nil {
			return err
		}
	}
	return nil
}

// queueListOfAll lists the queues of all nodes.
func (c *cli) queueListOfAll(ctx context.Context, f api.Filter, p api.Page, lines bool) error {
	client, nodes, err := c.everyone(ctx)
	if err != nil {
		return err
	}
	e, shown, rows := newEncoder(c.out), 0, []everywhere.Row[listing.Queued]{}
	next, failed, err := everywhere.Merge(ctx, nodes, p.After, p.Limit, queueOrder(p.Order),
		func(ctx context.Context, after string, limit int) ([]api.Item, string, error) {
			q := api.ListQuery{Filter: f, Page: p}
			q.After, q.Limit = after, min(limit, queuePage)
			l, err := api.OpList.Call(ctx, client, q)
			return l.Messages, l.Next, err
		}, func(r everywhere.Row[api.Item]) error {
			if shown++; lines {
				return e.Encode(r)
			}
			for _, q := range listing.QueueRows([]api.Item{*r.Value}) {
				rows = append(rows, everywhere.Row[listing.Queued]{Node: r.Node, Value: &q})
			}
			return nil
		})
	if err != nil {
		return err
	}
	if err := c.printTable(tableOf(c, everywhere.Listing(listing.Queue), rows)); err != nil {
		return err
	}
	if lost := unanswered(nodes, failed); lost != nil {
		return lost
	}
	c.queueFooter(shown, next, f.Empty())
	return nil
}

// queuePage is how many messages of another node are asked for at a time: an answer of 16 MiB has them with 10
// recipients each, whatever their replies say.
const queuePage = 200

// queueOrder compares messages of several nodes.
func queueOrder(o api.Order) func(a, b *api.Item) int {
	return func(a, b *api.Item) int {
		switch o {
		case api.NewestFirst:
			return strings.Compare(b.ID, a.ID)
		case api.NextAttempt:
			return nextOf(a).Compare(nextOf(b))
		}
		return strings.Compare(a.ID, b.ID)
	}
}

// never is after all times.
var never = time.Unix(1<<40, 0)

// nextOf is when a message is tried next, by the recipients that are shown.
func nextOf(m *api.Item) time.Time {
	next := never
	for i := range m.Recipients {
		r := &m.Recipients[i]
		waits := r.State == api.StateHeld || r.State == api.StateWaiting && r.Next.IsZero()
		if !waits && r.Next.Before(next) {
			next = r.Next
		}
	}
	return next
}

// summaryOfAll counts the queues of all nodes together.
func (c *cli) summaryOfAll(ctx context.Context, by api.SummaryBy, f api.Filter, limit int) (sum api.Summary,
	failed everywhere.Failures, err error) {
	client, nodes, err := c.everyone(ctx)
	if err != nil {
		return sum, nil, err
	}
	found, failed := everywhere.Ask(ctx, nodes, func(ctx context.Context, _ int) (api.Summary, error) {
		return client.WholeSummary(ctx, by, f, 0)
	})
	for i, row := range found {
		if i == 0 {
			sum = *row.Value
		} else {
			sum = api.AddSummaries(sum, *row.Value)
		}
	}
	if sum.Cut(limit); len(found) == 0 {
		err = unanswered(nodes, failed)
	}
	return sum, failed, err
}

// changedAtAll is what a change did at all nodes but those that have failed.
type changedAtAll struct {
	api.Changed
	Failed everywhere.Failures `json:"failed,omitempty"`
}

// changeAtAll acts on the queues of all nodes. Messages that are named are looked for first, and acted on where they
// are.
func (c *cli) changeAtAll(ctx context.Context, change *api.Change, done string, asJSON bool) error {
	client, nodes, err := c.everyone(ctx)
	if err != nil {
		return err
	}
	var sum changedAtAll
	asked, at := nodes, map[int][]string{}
	if len(change.Filter.IDs) > 0 {
		if asked, err = whereIs(ctx, client, nodes, change.Filter.IDs, at); err != nil {
			return err
		}
	}
	found, failed := everywhere.Ask(ctx, asked, func(ctx context.Context, node int) (api.Changed, error) {
		q := *change
		if len(q.Filter.IDs) > 0 {
			q.Filter.IDs = at[node]
		}
		return api.OpChange.Call(ctx, client, q)
	})
	for _, row := range found {
		sum.Changed = api.AddChanged(sum.Changed, *row.Value)
	}
	sum.DryRun, sum.Failed = change.DryRun, failed
	switch {
	case len(found) == 0:
	case asJSON:
		err = writeJSON(c.out, sum)
	default:
		c.queueChanged(change, &sum.Changed, done)
	}
	if err == nil {
		err = unanswered(nodes, sum.Failed)
	}
	return err
}

// whereIs notes which nodes have which messages in their queues. A message that is nowhere is not found, if all nodes
// have answered.
func whereIs(ctx context.Context, client *api.Client, nodes []int, ids []string, at map[int][]string) (having []int,
	err error) {
	lists, failed := everywhere.Ask(ctx, nodes, func(ctx context.Context, _ int) (has []string, err error) {
		_, err = eachPage(ctx, client, api.Filter{IDs: ids}, api.Page{Recipients: 1}, func(l api.List) error {
			for i := range l.Messages {
				has = append(has, l.Messages[i].ID)
			}
			return nil
		})
		return has, err
	})
	found := map[string]bool{}
	for _, l := range lists {
		for _, id := range *l.Value {
			at[l.Node], found[id] = append(at[l.Node], id), true
		}
		if len(at[l.Node]) > 0 {
			having = append(having, l.Node)
		}
	}
	for _, id := range ids {
		if !found[strings.ToLower(id)] {
			err = api.NotFound("nothing was changed; 'mta log --id' at each node shows what has become of it",
				"message %s is in no node's queue", id)
			if len(failed) > 0 {
				err = fmt.Errorf("message %s is not in the queue of a node that has answered\n%w", id, failed)
			}
			return nil, err
		}
	}
	return having, nil
}
