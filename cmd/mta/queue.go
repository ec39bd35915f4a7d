package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/legible"
	"example.org/mta/operator/api"
	"example.org/mta/operator/everywhere"
	"example.org/mta/operator/listing"
)

const queueHelp = `List the queue of the running relay, and change its messages.

Select messages by id or by filters; all that are given must match. Without a
subcommand, 'mta queue' lists the queue.` + unconfirmed

const unconfirmed = `

There is no confirmation: --dry-run counts and changes nothing. To select the whole
queue, use --all.`

func newQueue(c *cli) *cobra.Command {
	q := listGroup("queue", "list the queue and change its messages", queueHelp,
		newQueueList(c), newQueueShow(c), newQueueSummary(c),
		newQueueExport(c), newQueueImport(c), newQueueFsck(c),
	)
	for _, x := range queueChanges {
		q.AddCommand(newQueueChange(c, x.action, x.done, x.short, x.long))
	}
	return q
}

// filterFlags are the flags by which commands mean mail.
type filterFlags struct{ filter api.Filter }

// with gives the filter that flags and ids make.
func (f *filterFlags) with(ids []string) (api.Filter, error) {
	f.filter.IDs = ids
	if f.filter.Domain != "" {
		domain, err := envelope.ToASCII(f.filter.Domain)
		if err != nil {
			return f.filter, usagef("--domain %s: %v", f.filter.Domain, err)
		}
		f.filter.Domain = domain
	}
	if err := f.filter.Check(); err != nil {
		return f.filter, usageError{err}
	}
	return f.filter, nil
}

// ageFlag is an age on the command line.
type ageFlag api.Age

var _ pflag.Value = (*ageFlag)(nil)

func (a *ageFlag) Set(s string) error {
	v, err := api.ParseAge(s)
	*a = ageFlag(v)
	return err
}

func (a *ageFlag) String() string {
	if *a == 0 {
		return ""
	}
	return api.Age(*a).String()
}

func (a *ageFlag) Type() string { return "age" }

// completeIDs offers the ids of queued messages.
func (c *cli) completeIDs(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	client, err := c.client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, err := api.OpList.Call(cmd.Context(), client,
		api.ListQuery{Page: api.Page{Order: api.NewestFirst, Recipients: 1}})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	for _, m := range list.Messages {
		ids = append(ids, fmt.Sprintf("%s\t%s from %s", m.ID, legible.Age(c.now().Sub(m.Received)),
			angled(draw.Clean(m.Sender))))
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

const queueListHelp = `List messages in the queue, a line for each recipient, with the
number of attempts, the time of the next one, and the last reply.

A page has --limit messages, and the first --recipients of each; the hint below it shows
how to get the next page.`

func newQueueList(c *cli) *cobra.Command {
	var (
		filters filterFlags
		page    api.Page
		asJSON  bool
		all     *bool
	)
	cmd := &cobra.Command{
		Use: "list [ID...]", Short: "list messages", Long: queueListHelp,
		Example: `  mta queue list --state deferred --older 2h
  mta queue list --domain example.org --order newest --limit 10
  mta queue list --tenant acme --limit 0 --json`,
		ValidArgsFunction: c.completeIDs,
		RunE: c.asking(func(ctx context.Context, client *api.Client, ids []string) error {
			f, err := filters.with(ids)
			if err != nil {
				return err
			}
			if page.Limit < 0 || page.Recipients < 0 {
				return usagef("--limit and --recipients can't be negative")
			}
			if *all {
				return c.queueListOfAll(ctx, f, page, asJSON)
			}
			return c.queueList(ctx, client, f, page, asJSON)
		}),
	}
	c.addParams(cmd, &filters.filter)
	c.addParams(cmd, &page)
	flags := cmd.Flags()
	flags.IntVar(&page.Limit, "limit", api.DefaultLimit, "messages on the page; 0: all")
	flags.StringVar(&page.After, "after", "", "continue after the previous page (`cursor`)")
	flags.BoolVar(&asJSON, "json", false, "print a line of JSON for each message")
	all = clusterFlag(cmd, rowsOfAll)
	return c.watchable(cmd)
}

func (c *cli) queueList(ctx context.Context, client *api.Client, f api.Filter, p api.Page, asJSON bool) error {
	e, shown := newEncoder(c.out), 0
	next, err := eachPage(ctx, client, f, p, func(l api.List) error {
		first := shown == 0
		shown += len(l.Messages)
		if asJSON { // an object on a line for each message
			for i := range l.Messages {
				if err := e.Encode(&l.Messages[i]); err != nil {
					return err
				}
			}
			return nil
		}
		t := tableOf(c, listing.Queue, listing.QueueRows(l.Messages))
		t.Untitled = !first
		return c.printTable(t)
	})
	if err == nil {
		c.queueFooter(shown, next, f.Empty())
	}
	return err
}

// queueFooter prints what of the queue is not shown, or that there is nothing.
func (c *cli) queueFooter(shown int, next string, whole bool) {
	switch {
	case next != "":
		fmt.Fprintf(c.err, "%s shown; for the next ones add: --after %s\n", plural(shown, "message"), next)
	case shown == 0 && whole:
		fmt.Fprintln(c.err, "the queue is empty")
	case shown == 0:
		fmt.Fprintln(c.err, "nothing in the queue matches")
	}
}

// eachPage asks for pages until there are p.Limit messages, or with 0 to the end, and gives the
// cursor of what follows.
func eachPage(ctx context.Context, client *api.Client, f api.Filter, p api.Page,
	each func(api.List) error) (next string, err error) {
	left := p.Limit
	for {
		p.Limit = api.MaxLimit
		if left > 0 {
			p.Limit = min(left, api.MaxLimit)
		}
		l, err := api.OpList.Call(ctx, client, api.ListQuery{Filter: f, Page: p})
		if err != nil {
			return "", err
		}
		if err := each(l); err != nil {
			return "", err
		}
		if l.Next == "" {
			return "", nil
		}
		p.After = l.Next
		// A page may have fewer messages than it could: the relay had much to look through.
		if left > 0 {
			if left -= len(l.Messages); left <= 0 {
				return l.Next, nil
			}
		}
	}
}

const queueShowHelp = `Show a message and each of its recipients in the queue: origin,
destination, last reply, next attempt and expiry.

Only --content shows headers and body, octet for octet unless standard output is a
terminal.`

func newQueueShow(c *cli) *cobra.Command {
	content := false
	cmd := ofAll(c, &cobra.Command{
		Use: "show ID", Short: "show a message", Long: queueShowHelp,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("want the id of one message, got %d", len(args))
			}
			f := api.Filter{IDs: args}
			if err := f.Check(); err != nil {
				return usageError{err}
			}
			return nil
		},
		ValidArgsFunction: c.completeIDs,
	}, whoeverHas, func([]string) bool { return true }, func(ctx context.Context, client *api.Client, ids []string) (
		m api.Item, err error) {
		if content {
			return m, c.content(ctx, client, api.OpContent, ids[0])
		}
		return api.OpShow.Call(ctx, client, api.None{}, ids[0])
	}, func(m api.Item) error {
		if content {
			return nil
		}
		return c.queueShow(m)
	})
	cmd.Flags().BoolVar(&content, "content", false, "print the content of the message, headers and body")
	cmd.MarkFlagsMutuallyExclusive("json", "content")
	cmd.MarkFlagsMutuallyExclusive("cluster", "content")
	return cmd
}

func (c *cli) queueShow(m api.Item) error {
	c.messageFacts(m)
	t := draw.New("REASON", "~RECIPIENT", "STATE", "~SITE", ">TRIES", ">NEXT", ">GIVEN UP IN")
	for _, r := range m.Recipients {
		end := "-"
		if !r.Expires.IsZero() {
			end = legible.Left(r.Expires.Sub(c.now()))
		}
		t.Add(r.Why(time.Local), angled(r.Address), r.State, cmp.Or(r.Site, "-"), r.Attempts,
			c.look().Next(&r).Text, end)
	}
	fmt.Fprintln(c.out)
	return t.Write(c.out, c.screen)
}

// messageFacts prints what is true of the message as a whole.
func (c *cli) messageFacts(m api.Item) {
	f := c.facts(12)
	f.add("message", "%s", m.ID)
	if m.Unreadable {
		f.add("damaged", "its record can't be read: 'mta queue fsck' says where, 'mta queue retry' tries again")
	} else {
		f.add("received", "%s", moment(m.Received, c.now()))
		f.add("sender", "%s", angled(m.Sender))
		f.add("size", "%s", plural(int(m.Size), "octet"))
	}
	if m.Peer != "" {
		by := ""
		for _, w := range []struct{ word, value string }{{"user", m.User}, {"as", m.HeloName}, {"by", m.Protocol},
			{"session", m.Session}} {
			if w.value != "" {
				by += " " + w.word + " " + w.value
			}
		}
		f.add("from", "%s%s", m.Peer, by)
	}
	f.some("tenant", m.Tenant)
	f.some("campaign", m.Campaign)
	f.some("tags", strings.Join(m.Tags, ", "))
	f.some("meta", string(m.Meta))
	f.some("pool", m.Pool)
	f.some("key", m.Key)
	f.some("moved from", m.MovedFrom)
	f.add("tier", "%d", m.Tier)
	f.at("expires", m.Expires)
	f.some("envid", m.EnvID)
	f.add("recipients", "%d in the queue of %d", m.Matching, m.Total)
}

// contentOp is a row of the table that gives the content of a mail.
type contentOp = api.Op[api.None, any]

// content prints a content: as it is, or on a terminal without what would drive it.
func (c *cli) content(ctx context.Context, client *api.Client, row contentOp, id string) error {
	if !c.screen.TTY {
		return row.Copy(ctx, client, c.out, api.None{}, id)
	}
	return c.cleanContent(ctx, client, row, id)
}

func (c *cli) cleanContent(ctx context.Context, client *api.Client, row contentOp, id string) error {
	r, w := io.Pipe()
	go func() { w.CloseWithError(row.Copy(ctx, client, w, api.None{}, id)) }()
	defer r.Close()
	return writeClean(c.out, r)
}

// writeClean shows content on a terminal, see clean.
func writeClean(w io.Writer, r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if line != "" || err == nil {
			fmt.Fprintln(w, draw.Clean(line))
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

const queueSummaryHelp = `Count the recipients in the queue by site and by age, like Postfix's qshape. T is the
total of a row; each further column counts the recipients younger than its title that
are not in an earlier column, and the last one the rest.

High counts in the first columns are incoming mail; in the middle columns of one row, a
site that is slow or refuses mail; in the last columns of all rows, a problem of this
relay.`

func newQueueSummary(c *cli) *cobra.Command {
	var (
		filters filterFlags
		q       api.SummaryQuery
	)
	cmd := &cobra.Command{
		Use: "summary", Short: "count recipients by site and age", Long: queueSummaryHelp, Args: noArgs,
	}
	all := clusterFlag(cmd, "add up the queues of all nodes of the cluster")
	answers(c, cmd, func(ctx context.Context, client *api.Client, _ []string) (s wholeSummary, err error) {
		f, err := filters.with(nil)
		if err == nil && q.Limit < 0 {
			err = usagef("--limit can't be negative")
		}
		switch {
		case err != nil:
		case *all:
			s.Summary, s.Failed, err = c.summaryOfAll(ctx, q.By, f, q.Limit)
		default:
			s.Summary, err = client.WholeSummary(ctx, q.By, f, q.Limit)
		}
		return s, err
	}, func(s wholeSummary) error {
		if err := summaryTable(s.Summary).Write(c.out, c.screen); err != nil {
			return err
		}
		if s.More > 0 {
			fmt.Fprintf(c.err, "%s not shown: --limit 0 shows all\n", plural(s.More, "row"))
		}
		return nil
	})
	c.addParams(cmd, &filters.filter)
	c.addParams(cmd, &q, "by")
	cmd.Flags().IntVar(&q.Limit, "limit", 20, "rows at most; 0: all")
	return c.watchable(cmd)
}

// wholeSummary is one of all nodes, but those that have failed.
type wholeSummary struct {
	api.Summary
	Failed everywhere.Failures `json:"failed,omitempty"`
}

func (s wholeSummary) lacks() error {
	if len(s.Failed) == 0 {
		return nil
	}
	return s.Failed
}

// summaryTable has a column for what rows can be off by only if some can.
func summaryTable(s api.Summary) *draw.Table {
	inError := slices.ContainsFunc(s.Rows, func(r api.SummaryRow) bool { return r.Error > 0 })
	t := draw.New("", "~"+string(s.By), ">T")
	for _, b := range s.Bounds {
		t.Columns = append(t.Columns, draw.Column{Title: legible.Age(time.Duration(b)), Right: true})
	}
	oldest := "all"
	if n := len(s.Bounds); n > 0 {
		oldest = legible.Age(time.Duration(s.Bounds[n-1])) + "+"
	}
	t.Columns = append(t.Columns, draw.Column{Title: oldest, Right: true})
	if inError {
		t.Columns = append(t.Columns, draw.Column{Title: "ERROR", Right: true})
	}
	total := s.Total
	total.Key = "TOTAL"
	rows := append([]api.SummaryRow{total}, s.Rows...)
	if s.Other != nil {
		other := *s.Other
		other.Key = "other"
		rows = append(rows, other)
	}
	for _, row := range rows {
		cells := []any{cmp.Or(row.Key, "-"), row.Total}
		for _, n := range row.Counts {
			cells = append(cells, n)
		}
		if inError {
			cells = append(cells, row.Error)
		}
		t.Add("", cells...)
	}
	return t
}

// queueChanges are the commands that change messages, each with the word for what has become of the recipients.
var queueChanges = []struct {
	action            api.Action
	done, short, long string
}{
	{api.Hold, "held", "make no attempts until released", `Hold the selected recipients: no attempts until
they are released. An attempt in progress continues; recipients that it does not deliver
are held afterwards, and counted separately. Held mail expires like all mail.`},
	{api.Release, "released", "release held messages", `Undo a hold: the selected recipients are tried as before.`},
	{api.Retry, "due now", "try now", `Try the selected recipients now, within the
limits of their sites. The command names any remaining obstacle, such as a suspension or
the retry time of a host that does not answer; --now removes it. Scheduled mail keeps
its time without --scheduled.`},
	{api.Bounce, "bounced", "give up and send a report to the sender", `Give up the selected recipients. Their senders get a report, as if the mail had been
refused.`},
	{api.Remove, "removed", "give up without a report", `Remove the selected recipients from the queue, without a report to the sender.

With --receipt, remove exactly what another relay has accepted, by the receipt of 'mta
queue import'. What has left the queue meanwhile is counted.`},
	{api.Reroute, "rerouted", "send by another pool or route", `Send the selected recipients from the sources of
another pool (--pool), or by the route of a domain block (--route), such as a smarthost,
until they have left the queue. They are due immediately; held and scheduled mail stays
so. An attempt in progress continues, and counts if it delivers.

--own ends this, and so does a reload that removes the pool or the route; 'mta explain
ID' shows it. A suspension of one pool's sources at a site does not stop another's.`},
}

// newQueueChange makes the command of an action; done is the word for what has become of the
// recipients.
func newQueueChange(c *cli, action api.Action, done, short, long string) *cobra.Command {
	var (
		filters filterFlags
		change  = api.Change{Action: action}
		asJSON  bool
		receipt string
		all     *bool
	)
	cmd := &cobra.Command{
		Use: string(action) + " [ID...]", Short: short,
		Long:              long + unconfirmed,
		ValidArgsFunction: c.completeIDs,
		RunE: c.asking(func(ctx context.Context, client *api.Client, ids []string) (err error) {
			if change.Filter, err = filters.with(ids); err != nil {
				return err
			}
			if receipt != "" {
				if *all {
					return usagef("--receipt names what this relay has: leave out --cluster")
				}
				if !change.Filter.Empty() || change.All {
					return usagef("--receipt says what is meant: leave out ids, filters and --all")
				}
				return c.removeByReceipt(ctx, client, receipt, change.Intent, asJSON)
			}
			if change.Filter.Empty() && !change.All {
				return hinted{usagef("no message is named and no filter given"), "to mean the whole queue, add: --all"}
			}
			if change.All && !change.Filter.Empty() {
				return usagef("--all means everything: leave out either it or the ids and filters")
			}
			if way := change.Reroutes != (api.Reroutes{}); action == api.Reroute && way == change.Own {
				return hinted{usagef("want a way for the mail"),
					"as in: --pool NAME or --route DOMAIN; --own ends an earlier reroute"}
			}
			if *all {
				return c.changeAtAll(ctx, &change, done, asJSON)
			}
			result, err := api.OpChange.Call(ctx, client, change)
			switch {
			case err != nil:
				return err
			case asJSON:
				return writeJSON(c.out, result)
			}
			c.queueChanged(&change, &result, done)
			return nil
		}),
	}
	c.addParams(cmd, &filters.filter)
	own := map[api.Action][]string{api.Retry: {"now", "scheduled"}, api.Reroute: {"pool", "route", "own"}}
	c.addParams(cmd, &change, append(own[action], "all")...)
	changeFlags(cmd, &change.Intent)
	if action == api.Remove {
		cmd.Flags().StringVar(&receipt, "receipt", "",
			"remove what another relay has, as this `file` says; - is standard input")
	}
	all = clusterFlag(cmd, actsOnAll)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// queueChanged prints what a change did.
func (c *cli) queueChanged(change *api.Change, result *api.Changed, done string) {
	if change.DryRun {
		done = "would be " + done
	}
	if n := result.Recipients - result.Later; n > 0 || result.Later == 0 {
		fmt.Fprintf(c.out, "%s %s\n", plural(n, "recipient"), done)
	}
	if result.Later > 0 {
		fmt.Fprintf(c.out, "%s on a connection: %s\n", plural(result.Later, "recipient"), whenItEnds[change.Action])
	}
	if why := nothingDone[change.Action]; result.Recipients == 0 && result.Scheduled == 0 &&
		len(result.Obstacles) == 0 && why != "" {
		fmt.Fprintln(c.err, why)
	}
	c.inTheWay(result, change.Now)
}

// inTheWay prints what keeps mail from leaving though it is due.
func (c *cli) inTheWay(result *api.Changed, removed bool) {
	if n := result.Scheduled; n > 0 {
		fmt.Fprintf(c.err, "%s scheduled for later, unchanged; to release scheduled mail too: --scheduled\n",
			plural(n, "recipient"))
	}
	removable := false
	for _, o := range result.Obstacles {
		where, until, remedy := "", "", ""
		if o.Site != "" {
			where = " for " + o.Site
		}
		if !o.Until.IsZero() {
			until = ", until " + moment(o.Until, c.now())
		}
		if removable = removable || o.Remedy == "" && !o.Stays; o.Remedy != "" {
			remedy = "; to end that: " + draw.Clean(o.Remedy)
		}
		fmt.Fprintf(c.err, "%s%s can't leave: %s%s\n", plural(o.Recipients, "recipient"), draw.Clean(where),
			draw.Clean(o.Why), until+remedy)
	}
	switch {
	case result.Ended > 0:
		fmt.Fprintf(c.err, "%s ended\n", plural(result.Ended, "obstacle"))
	case removable && !removed:
		fmt.Fprintln(c.err, "to end them: --now")
	}
}

// whenItEnds says what becomes of recipients that are on a connection.
var whenItEnds = map[api.Action]string{
	api.Hold:    "held when the attempt ends, unless it delivers",
	api.Bounce:  "bounced when the attempt ends, unless it delivers",
	api.Remove:  "removed when the attempt ends",
	api.Reroute: "rerouted when the attempt ends, unless it delivers",
	api.Retry:   "tried again at once if the attempt fails",
}

// nothingDone says why an action found nothing to do, though what was meant may be in the queue.
var nothingDone = map[api.Action]string{
	api.Hold:    "all matching recipients are already held, or final",
	api.Reroute: "no matching recipient can be rerouted; with --own: none is",
	api.Release: "no matching recipient is held",
	api.Retry: "no matching recipient waits for its time; held ones are tried after 'mta queue release', or with " +
		"--now",
}

// queueListOfAll lists the queues of all nodes.
func (c *cli) queueListOfAll(ctx context.Context, f api.Filter, p api.Page, lines bool) error {
	client, nodes, err := c.everyone(ctx)
	if err != nil {
		return err
	}
	if len(f.IDs) > 0 {
		f.IDs = nowAt(ctx, client, nodes, f.IDs)
	}
	e, shown, rows := newEncoder(c.out), 0, []everywhere.Row[listing.Queued]{}
	next, failed, err := everywhere.Merge(ctx, nodes, p.After, p.Limit, queueOrder(p.Order),
		func(m *api.Item) string { return m.ID },
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
	if next != "" || len(failed) == 0 {
		c.queueFooter(shown, next, f.Empty())
	}
	if lines && len(failed) > 0 && len(failed) < len(nodes) {
		err = e.Encode(withFailures(map[string]any{}, failed))
	}
	return cmp.Or(err, unanswered(nodes, failed))
}

// mostMoves bounds how often a message is followed from node to node.
const mostMoves = 16

// nowAt gives the ids that messages have now, of those that they have at any node or had before they moved. What none
// has in its queue keeps its id.
func nowAt(ctx context.Context, client *api.Client, nodes []int, ids []string) (now []string) {
	queued := make(map[string]bool)
	for next, n := ids, 0; len(next) > 0 && n < mostMoves; n++ {
		moved := make(map[string]bool)
		lists, _ := everywhere.Ask(ctx, nodes, func(ctx context.Context, _ int) (api.List, error) {
			return api.OpList.Call(ctx, client, api.ListQuery{Filter: api.Filter{IDs: next},
				Page: api.Page{Recipients: 1, Limit: api.MaxLimit}})
		})
		var later []string
		for _, l := range lists {
			for i := range l.Value.Messages {
				queued[l.Value.Messages[i].ID] = true
			}
			for id, as := range l.Value.Moved {
				moved[id] = true
				later = append(later, as...)
			}
		}
		for _, id := range next {
			if id = strings.ToLower(id); (queued[id] || !moved[id]) && !slices.Contains(now, id) {
				now = append(now, id)
			}
		}
		next = later
	}
	return now
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
		change.Filter.IDs = nowAt(ctx, client, nodes, change.Filter.IDs)
		if asked, sum.Failed, err = whereIs(ctx, client, nodes, change.Filter.IDs, at); err != nil {
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
	sum.DryRun, sum.Failed = change.DryRun, append(sum.Failed, failed...)
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
// have answered; one that is at two nodes is refused.
func whereIs(ctx context.Context, client *api.Client, nodes []int, ids []string, at map[int][]string) (having []int,
	failed everywhere.Failures, err error) {
	lists, failed := everywhere.Ask(ctx, nodes, func(ctx context.Context, _ int) (has []string, err error) {
		_, err = eachPage(ctx, client, api.Filter{IDs: ids}, api.Page{Recipients: 1}, func(l api.List) error {
			for i := range l.Messages {
				has = append(has, l.Messages[i].ID)
			}
			return nil
		})
		return has, err
	})
	found := map[string]int{}
	for _, l := range lists {
		for _, id := range *l.Value {
			if found[id] != 0 {
				return nil, nil, everywhere.Two("nothing was changed: message "+id, found[id], l.Node)
			}
			found[id] = l.Node
		}
		if at[l.Node] = *l.Value; len(*l.Value) > 0 {
			having = append(having, l.Node)
		}
	}
	for _, id := range ids {
		if found[strings.ToLower(id)] == 0 {
			err = api.NotFound("nothing was changed; 'mta log --id' at each node shows what has become of it",
				"message %s is in no node's queue", id)
			if len(failed) > 0 {
				err = fmt.Errorf("message %s is not in the queue of a node that has answered\n%w", id, failed)
			}
			return nil, nil, err
		}
	}
	return having, failed, nil
}
