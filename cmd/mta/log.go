package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/bounce"
	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/legible"
	"example.org/mta/internal/linelog"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
	"example.org/mta/operator/answer/kept"
	"example.org/mta/operator/api"
	"example.org/mta/operator/audit"
	"example.org/mta/operator/everywhere"
	"example.org/mta/operator/listing"
)

const logHelp = `Search the accounting log, which has a record for each accepted
message, each attempt and each final outcome, oldest first. All given filters must
match; without any, the newest 50 records are shown. With a filter, --follow shows new
records only, unless --since, --last or --id asks for more.

A time is an age (2h: two hours ago), a date, a date and time, or a time of today:
 2026-11-21, "2026-11-21 10:00", 10:00.`

func newLog(c *cli) *cobra.Command {
	var (
		q      api.LogQuery
		newest bool
		asJSON bool
		format string
		counts api.LogCountQuery
		all    bool
	)
	cmd := &cobra.Command{
		Use: "log", Short: "search, follow and count the accounting log", Long: logHelp,
		Example: `  mta log --follow
  mta log --id 01knd1p5c0002
  mta log --type Bounce --since 1d --json
  mta log --count-by site --class SpamBlock --since 1d`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if q.Last < 0 {
				return usagef("--last can't be negative")
			}
			if err := checkRecords(&q); err != nil {
				return err
			}
			if q.ID != "" {
				if _, err := envelope.ParseID(q.ID); err != nil {
					return usageError{err}
				}
			}
			changed := cmd.Flags().Changed
			if counts.By != "" {
				if q.Last != 0 || q.Follow || newest || format != "" {
					return usagef("--count-by counts all that match: leave out --last, --follow, --newest, --format")
				}
				counts.LogQuery = q
				return c.logCounts(cmd.Context(), counts, asJSON, all)
			}
			if changed("limit") {
				return usagef("--limit bounds what --count-by shows: of records, --last does")
			}
			switch {
			case !narrowed(cmd):
				q.Last = defaultLast
			case q.Follow && !changed("since") && !changed("last") && !changed("id"):
				q.Since = c.now()
			}
			if newest && q.Follow {
				return usagef("--follow gives the oldest records first: leave out --newest")
			}
			if all && !newest && q.Last > mostLogged {
				return hinted{usagef("--last: %d is too large for the logs of all nodes", q.Last),
					fmt.Sprintf("make it %d at most, or add --newest", mostLogged)}
			}
			switch {
			case format == "pmta" && asJSON:
				return usagef("--format pmta and --json are two formats")
			case format == "pmta" && all:
				return usagef("--format pmta has no column for the node: leave out --cluster")
			case format == "pmta":
				return c.logPowerMTA(cmd.Context(), records{q, newest, all})
			case format != "":
				return hinted{usagef("--format: unknown format %q", format), "valid formats: pmta"}
			}
			return c.log(cmd.Context(), records{q, newest, all}, asJSON)
		},
	}
	flags := cmd.Flags()
	c.addParams(cmd, &q)
	flags.BoolVar(&newest, "newest", false, "the newest first: the first ones come at once, however large the log is")
	flags.BoolVar(&asJSON, "json", false,
		"print the records unchanged: a line of JSON for each, which begins with node if --cluster is given; of "+
			"counts, one object")
	flags.BoolVar(&all, "cluster", false,
		"search, follow or count the logs of all nodes of the cluster, whose numbers stand before the records")
	flags.StringVar((*string)(&counts.By), "count-by", "",
		"count the records by a `property` instead: "+joined(api.LogBys))
	flags.IntVar(&counts.Limit, "limit", defaultCounts, "with --count-by: how many values, the most frequent")
	oneOf(cmd, "count-by", api.LogBys)
	flags.StringVar(&format, "format", "",
		"pmta: print CSV as PowerMTA's accounting files have it, a `format` for scripts")
	oneOf(cmd, "format", []string{"pmta"})
	oneOf(cmd, "type", accounting.Types)
	oneOf(cmd, "class", bounce.Names())
	return cmd
}

// checkRecords refuses types and classes that no record has, and a time that ends before it begins.
func checkRecords(q *api.LogQuery) error {
	if !q.Until.IsZero() && q.Until.Before(q.Since) {
		return usagef("--until is before --since: no record can match")
	}
	for _, t := range q.Types {
		if !slices.Contains(accounting.Types, accounting.Type(t)) {
			return hinted{usagef("--type: unknown type %q", t), "valid types: " + joined(accounting.Types)}
		}
	}
	for _, name := range q.Classes {
		if _, err := bounce.ParseClass(name); err != nil {
			return hinted{usagef("--class: unknown class %q", name), "valid classes: " + joined(bounce.Names())}
		}
	}
	return nil
}

const (
	defaultLast   = 50
	defaultCounts = 20
)

// narrowed reports whether the command line says which records are wanted.
func narrowed(cmd *cobra.Command) bool {
	for _, name := range []string{"type", "id", "sender", "recipient", "domain", "site", "tenant", "class", "since",
		"until", "last"} {
		if cmd.Flags().Changed(name) {
			return true
		}
	}
	return false
}

// parseTime reads a time in one of the ways that the help names. "" gives the zero time.
func (c *cli) parseTime(flag, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if a, err := api.ParseAge(s); err == nil {
		return c.now().Add(-time.Duration(a)), nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	if t, err := time.ParseInLocation("15:04", s, time.Local); err == nil {
		y, m, d := c.now().Local().Date()
		return time.Date(y, m, d, t.Hour(), t.Minute(), 0, 0, time.Local), nil
	}
	return time.Time{}, usagef(`%s: %q is not a time: write it as 2h, 2026-11-21, "2026-11-21 10:00" or 10:00`, flag, s)
}

// records is what a command asks of the log.
type records struct {
	api.LogQuery
	newest bool // first
	all    bool // nodes of the cluster
}

func (c *cli) log(ctx context.Context, q records, asJSON bool) error {
	show := c.logLine
	if asJSON {
		show = func(node int, record []byte) error {
			if record = legible.AppendJSON(nil, record); q.all && len(record) > 1 && record[0] == '{' {
				record = append(fmt.Appendf(nil, `{"node":%d,`, node), record[1:]...)
			}
			_, err := fmt.Fprintf(c.out, "%s\n", record)
			return err
		}
	}
	return c.logEach(ctx, q, show)
}

// logCounts prints how many records that fit have each value of a property.
func (c *cli) logCounts(ctx context.Context, q api.LogCountQuery, asJSON, all bool) error {
	if !slices.Contains(api.LogBys, q.By) {
		return hinted{usagef("--count-by: %q is not a valid property", q.By), "valid properties: " + joined(api.LogBys)}
	}
	if q.Limit < 1 || q.Limit > api.MaxLimit {
		return usagef("--limit: %d is not a valid number (want 1 to %d)", q.Limit, api.MaxLimit)
	}
	count := c.countHere
	if all {
		count = c.countAll
	}
	l, failed, lost := count(ctx, q)
	if lost != nil && len(failed) == 0 {
		return lost
	}
	var err error
	if asJSON {
		err = writeJSON(c.out, struct {
			api.LogCounts
			Failed everywhere.Failures `json:"failed,omitempty"`
		}{l, failed})
	} else if err = printPage(c, listing.LogCounts, l.Groups, "", "no record matches"); l.Records > 0 {
		fmt.Fprintln(c.err, l.Line())
	}
	if err == nil && l.Damaged != "" {
		err = errors.New(l.Damaged)
	}
	return errors.Join(err, lost)
}

// countHere counts in the log of this node.
func (c *cli) countHere(ctx context.Context, q api.LogCountQuery) (l api.LogCounts, _ everywhere.Failures, err error) {
	client, err := c.client()
	if err != nil {
		return l, nil, err
	}
	l, err = api.OpLogCounts.Call(ctx, client, q)
	if c.notRunning(err) {
		var files kept.LogFiles
		if files, err = c.logFiles(err); err == nil {
			l, err = files.Count(ctx, q)
		}
	}
	return l, nil, err
}

// countAll counts in the logs of all nodes. The error has the nodes without an answer.
func (c *cli) countAll(ctx context.Context, q api.LogCountQuery) (l api.LogCounts, failed everywhere.Failures,
	err error) {
	client, nodes, err := c.everyone(ctx)
	if err != nil {
		return l, nil, err
	}
	limit := q.Limit
	q.Limit = api.MaxLimit
	found, failed := everywhere.Ask(ctx, nodes, func(ctx context.Context, _ int) (api.LogCounts, error) {
		return api.OpLogCounts.Call(ctx, client, q)
	})
	if len(found) == 0 {
		return l, nil, unanswered(nodes, failed)
	}
	return everywhere.Counts(found, limit), failed, unanswered(nodes, failed)
}

// logEach shows the records that fit, with the number of the node that has them, 0 for this one.
func (c *cli) logEach(ctx context.Context, q records, show func(node int, record []byte) error) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	any := false
	here := func(record []byte) error { any = true; return show(0, record) }
	switch {
	case q.all && q.Follow:
		err = c.followAll(ctx, client, q, show)
	case q.all:
		err = c.searchAll(ctx, client, q, func(node int, record []byte) error {
			any = true
			return show(node, record)
		})
	case q.newest:
		err = c.searchNewest(ctx, client, q.LogQuery, here)
	default:
		err = c.search(ctx, client, q.LogQuery, here)
	}
	if err == nil && !any && !q.Follow {
		fmt.Fprintln(c.err, "no record matches")
	}
	return err
}

// entry is a record, and when it was made.
type entry struct {
	record []byte
	at     time.Time
}

// entriesOf gives the records of a page, newest first. One that can't be read has the time of its newer neighbour, or
// of the older one at the begin of a page; on a page without any that can be read it is now. So it hides none of other
// nodes, and no older ones of its own.
func entriesOf(page []json.RawMessage, now time.Time) []entry {
	entries := make([]entry, len(page))
	var at time.Time
	for i, text := range page {
		if r, err := accounting.Parse(text); err == nil && !r.Time.IsZero() {
			at = r.Time
		}
		entries[i] = entry{text, at}
	}
	for i := len(entries) - 1; i >= 0; i-- {
		if entries[i].at.IsZero() {
			entries[i].at = now
		}
		now = entries[i].at
	}
	return entries
}

// mostLogged is how many records of all nodes are kept to be shown in the reverse of the order in which they come.
const mostLogged = 10_000

// searchAll gives the records of all nodes that fit to each: q.Last of them, 0 is all.
func (c *cli) searchAll(ctx context.Context, client *api.Client, q records,
	each func(node int, record []byte) error) error {
	nodes, err := everywhere.Nodes(ctx, client)
	if err != nil {
		return err
	}
	last := q.Last
	q.Last = 0
	var damaged damages
	var rows []everywhere.Row[entry]
	_, failed, err := everywhere.Merge(ctx, nodes, "", last, func(a, b *entry) int { return b.at.Compare(a.at) },
		func(e *entry) string { return string(e.record) },
		func(ctx context.Context, after string, limit int) (entries []entry, next string, err error) {
			p, err := client.NewestRecords(ctx, q.LogQuery, after, limit)
			damaged.add(ctx, p.Damaged)
			return entriesOf(p.Records, c.now()), p.Next, err
		}, func(r everywhere.Row[entry]) error {
			if q.newest {
				return each(r.Node, r.Value.record)
			}
			if len(rows) == mostLogged {
				return hinted{fmt.Errorf("more than %d records match", mostLogged),
					fmt.Sprintf("add --last %d or less, or --newest", mostLogged)}
			}
			rows = append(rows, r)
			return nil
		})
	for i := len(rows) - 1; i >= 0 && err == nil; i-- {
		err = each(rows[i].Node, rows[i].Value.record)
	}
	if err == nil {
		err = errors.Join(unanswered(nodes, failed), damaged.err())
	}
	return err
}

const (
	followEvery = time.Second      // between two questions to a node
	joinEvery   = 10 * time.Second // between two looks for nodes that have joined
)

// followAll gives the records of all nodes to each as they come, after those of before that fit. Records of one node
// are in their order.
func (c *cli) followAll(ctx context.Context, client *api.Client, q records,
	each func(node int, record []byte) error) error {
	nodes, err := everywhere.Nodes(ctx, client)
	if err != nil {
		return err
	}
	before := q
	before.Follow, q.Last, q.Follow = false, 0, false
	ask := func(ctx context.Context, after string) (api.LogPage, error) {
		return client.FollowingRecords(ctx, q.LogQuery, after, api.MaxLimit)
	}
	found, failed := everywhere.Ask(ctx, nodes, func(ctx context.Context, _ int) (api.LogPage, error) {
		return ask(ctx, "")
	})
	if len(found) == 0 {
		return unanswered(nodes, failed)
	}
	f := follower{c: c, ask: ask, each: each, from: make(map[int]string)}
	for _, row := range found {
		f.from[row.Node] = row.Value.Next
	}
	err = c.searchAll(ctx, client, before, func(node int, record []byte) error {
		_, at, err := accounting.ParseEventID(linelog.EventID(record))
		if from, asked := f.from[node]; asked && err == nil && at.String() >= from {
			return nil // it is followed
		}
		return each(node, record)
	})
	if lost := (everywhere.Failures)(nil); err != nil && !errors.As(err, &lost) {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	defer all.Wait()
	for begun := make(map[int]bool); ctx.Err() == nil; pause(ctx, joinEvery) {
		for _, node := range nodes {
			if from := f.from[node]; !begun[node] {
				begun[node] = true
				all.Go(func() { cancel(f.follow(api.AtNode(ctx, node), node, from)) })
			}
		}
		if more, err := everywhere.Nodes(ctx, client); err == nil {
			nodes = more
		}
	}
	switch err := context.Cause(ctx); {
	case api.Down(err):
		fmt.Fprintln(c.err, "the relay has stopped")
	case !errors.Is(err, context.Canceled):
		return err
	}
	return nil
}

// follower follows the logs of nodes.
type follower struct {
	c    *cli
	ask  func(ctx context.Context, after string) (api.LogPage, error)
	from map[int]string // where records will come; without it they come from the first answer on

	mu   sync.Mutex // while each or c.err is used
	each func(node int, record []byte) error
}

// follow gives the records of the node of ctx to each, until ctx ends, the relay here is gone, or each fails.
func (f *follower) follow(ctx context.Context, node int, from string) error {
	silent := false
	note := func(format string, args ...any) {
		f.mu.Lock()
		defer f.mu.Unlock()
		fmt.Fprintf(f.c.err, "mta: "+format+"\n", args...)
	}
	for ctx.Err() == nil {
		page, err := f.ask(ctx, from)
		switch {
		case ctx.Err() != nil:
		case api.Down(err):
			return err
		case err != nil && !silent:
			note("%s; its records come when it answers", everywhere.Failure{Node: node, Err: err})
		case err == nil && silent:
			note("node %d answers again", node)
		}
		silent = err != nil
		if err == nil {
			from = page.Next
			if page.Damaged != "" {
				note("node %d: %s", node, page.Damaged)
			}
			if err := f.show(node, page.Records); err != nil {
				return err
			}
		}
		if err != nil || page.Complete {
			pause(ctx, followEvery)
		}
	}
	return ctx.Err()
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (f *follower) show(node int, records []json.RawMessage) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, record := range records {
		if err := f.each(node, record); err != nil {
			return err
		}
	}
	return nil
}

// damages is what nodes report of their logs. It is safe for concurrent use.
type damages struct {
	mu     sync.Mutex // guards byNode
	byNode map[int]string
}

// add notes what a page of the node of ctx lacks.
func (d *damages) add(ctx context.Context, lacks string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byNode == nil {
		d.byNode = make(map[int]string)
	}
	if lacks != "" {
		d.byNode[api.NodeOf(ctx)] = lacks
	}
}

// err is the damage of all nodes, in their order.
func (d *damages) err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []error
	for _, node := range slices.Sorted(maps.Keys(d.byNode)) {
		all = append(all, fmt.Errorf("node %d: %s", node, d.byNode[node]))
	}
	return errors.Join(all...)
}

// search gives the records that fit to each.
func (c *cli) search(ctx context.Context, client *api.Client, q api.LogQuery, each func(record []byte) error) error {
	err := client.Log(ctx, q, each)
	switch {
	case q.Follow && errors.Is(err, context.Canceled):
		return nil
	case q.Follow && err == nil:
		fmt.Fprintln(c.err, "the relay has stopped")
	case c.notRunning(err) && !q.Follow:
		files, err := c.logFiles(err)
		if err != nil {
			return err
		}
		return files.Read(ctx, q, each)
	}
	return err
}

// searchNewest gives the records that fit to each, newest first: q.Last of them, 0 is all.
func (c *cli) searchNewest(ctx context.Context, client *api.Client, q api.LogQuery,
	each func(record []byte) error) error {
	all, missing, damaged := q.Last == 0, q.Last, ""
	q.Last = 0
	ask := client.NewestRecords
	for after := ""; ; {
		limit := api.MaxLimit
		if !all {
			limit = min(limit, missing)
		}
		p, err := ask(ctx, q, after, limit)
		if c.notRunning(err) && after == "" {
			var files kept.LogFiles
			if files, err = c.logFiles(err); err == nil {
				ask = files.Newest
				continue
			}
		}
		if err != nil {
			return err
		}
		for _, record := range p.Records {
			if err := each(record); err != nil {
				return err
			}
		}
		damaged = cmp.Or(damaged, p.Damaged)
		missing -= len(p.Records)
		if after = p.Next; after == "" || !all && missing == 0 {
			break
		}
	}
	if damaged != "" {
		return errors.New(damaged)
	}
	return nil
}

// logFiles returns the log of a relay that doesn't run: that is when it is wanted most. It fails with down if there is
// none.
func (c *cli) logFiles(down error) (kept.LogFiles, error) {
	w, err := c.find()
	if err != nil {
		return "", err
	}
	if !c.readsFiles(w.Accounting) {
		return "", down
	}
	return kept.LogFiles(w.Accounting), nil
}

// readsFiles reports whether a directory of a relay that doesn't run is there, and that it is read instead.
func (c *cli) readsFiles(dir string) bool {
	_, err := os.Stat(dir)
	if err == nil {
		fmt.Fprintf(c.err, "the relay is not running: reading %s\n", dir)
	}
	return err == nil
}

// logLine prints a record for people.
func (c *cli) logLine(node int, line []byte) error {
	prefix := ""
	if node != 0 {
		prefix = fmt.Sprintf("%4d  ", node)
	}
	r, err := accounting.Parse(line)
	if err != nil {
		_, err := fmt.Fprintln(c.out, prefix+draw.Clean(string(line))) // shown all the same
		return err
	}
	id := "-"
	if r.ID != 0 {
		id = r.ID.String()
	}
	text := fmt.Sprintf("%s%s  %-16s  %-13s  %s", prefix, r.Time.Local().Format(time.DateTime), r.Type, id, logText(r))
	text = draw.Wrap(draw.Clean(text), c.screen.Width, 4)
	_, err = fmt.Fprintln(c.out,
		strings.Replace(text, string(r.Type), c.screen.Coloured(string(r.Type), colourOf(string(r.Type))), 1))
	return err
}

// logText is what happened to whom.
func logText(r *accounting.Record) string {
	reply := (&api.Reply{Code: r.Response.Code, Enhanced: r.Response.Enhanced.String(), Text: r.Response.Text,
		Command: r.Response.Command}).String()
	switch r.Type {
	case accounting.Warmup:
		return strings.TrimSpace(r.EgressSource + " " + r.Response.Text)
	case accounting.Lost:
		return plural(int(r.Count), "record") + " could not be written"
	case accounting.Reception:
		later := ""
		if !r.Release.IsZero() {
			later = ", scheduled for " + r.Release.Local().Format(time.DateTime)
		}
		return fmt.Sprintf("%s -> %s%s, %s%s", angled(string(r.Sender)), angled(string(r.Recipient)), from(r.Peer),
			plural(int(r.Size), "octet"), later)
	case accounting.Rejection:
		often := ""
		if r.Count > 1 {
			often = fmt.Sprintf(", and %d more like it", r.Count-1)
		}
		return fmt.Sprintf("%s -> %s%s: %s%s", angled(string(r.Sender)), angled(string(r.Recipient)),
			from(r.Peer), reply, often)
	case accounting.Feedback:
		reply = cmp.Or(r.FeedbackType(), "feedback") + " report" + from(r.Peer)
	case accounting.Unsubscribe:
		reply = "unsubscribed, request" + from(r.Peer)
	}
	at := ""
	if r.Site != "" {
		at = " at " + r.Site
	}
	class := ""
	if r.Class != "" {
		class = " (" + r.Class + ")"
	}
	return fmt.Sprintf("%s%s: %s%s", angled(string(r.Recipient)), at, reply, class)
}

// from names the client that submitted a message, "" for messages of the relay itself.
func from(p accounting.Peer) string {
	switch {
	case p.Addr.IsValid():
		return " from " + p.Name + "[" + p.Addr.String() + "]"
	case p.Name != "":
		return " from " + p.Name
	}
	return ""
}

// acctColumns are those of an acct-file of PowerMTA.
var acctColumns = []string{
	"type", "timeLogged", "timeQueued", "orig", "rcpt", "dsnAction", "dsnStatus", "dsnDiag", "dsnMta", "bounceCat",
	"srcType", "srcMta",
	"dlvType", "dlvSourceIp", "dlvDestinationIp", "dlvSize", "vmta", "vmtaPool", "jobId", "queue",
}

// acctTypes are the types of records that acct-files have, with their letter and DSN action.
var acctTypes = map[accounting.Type][2]string{
	accounting.Reception: {"r", ""}, accounting.Delivery: {"d", "relayed"},
	accounting.TransientFailure: {"t", "delayed"},
	accounting.Bounce:           {"b", "failed"}, accounting.Expiration: {"b", "failed"},
	accounting.AdminBounce: {"b", "failed"},
}

// acctCategories are the bounce categories of PowerMTA, by our class; others are "other".
var acctCategories = map[string]string{
	"InvalidRecipient": "bad-mailbox", "BadDomain": "bad-domain", "InactiveMailbox": "inactive-mailbox",
	"QuotaIssues": "quota-issues",
	"SpamBlock":   "spam-related", "SpamContent": "spam-related", "SpamRelated": "spam-related",
	"VirusRelated":  "virus-related",
	"PolicyRelated": "policy-related", "InvalidSender": "invalid-sender", "RoutingErrors": "routing-errors",
	"ProtocolErrors": "protocol-errors",
}

// logPowerMTA prints the records that acct-files have, as CSV with a header line. Lines end in \n, as those of PowerMTA
// on Linux do: scripts that split them have no \r in the last column.
func (c *cli) logPowerMTA(ctx context.Context, q records) error {
	w := csv.NewWriter(c.out)
	write := func(line []string) error {
		if err := w.Write(line); err != nil {
			return err
		}
		w.Flush() // a line that is followed has to appear
		return w.Error()
	}
	if err := write(acctColumns); err != nil {
		return err
	}
	return c.logEach(ctx, q, func(_ int, line []byte) error {
		r, err := accounting.Parse(line)
		if err != nil || acctTypes[r.Type][0] == "" {
			return nil // no record, or none that CSV could have
		}
		return write(acctLine(r))
	})
}

// acctLine gives the columns of a record.
func acctLine(r *accounting.Record) []string {
	const layout = "2006-01-02 15:04:05-0700"
	kind, peer := acctTypes[r.Type], address(r.Peer.Addr)
	queue := r.Recipient.Domain()
	if r.EgressSource != "" {
		queue += "/" + r.EgressSource
	}
	of := map[string]string{
		"type": kind[0], "timeLogged": r.Time.Local().Format(layout), "orig": string(r.Sender),
		"rcpt":      string(r.Recipient),
		"dsnAction": kind[1], "dlvSize": strconv.FormatInt(r.Size, 10), "srcType": "smtp",
		"vmta": r.EgressSource, "vmtaPool": r.EgressPool, "jobId": r.Campaign, "queue": queue,
	}
	if r.Key != "" {
		of["srcType"] = "api"
	}
	if kind[0] == "b" || kind[0] == "t" {
		of["bounceCat"] = cmp.Or(acctCategories[r.Class], "other")
	}
	created := r.Created
	if r.Type == accounting.Reception {
		created = r.Time
		of["srcMta"] = strings.TrimSpace(r.Peer.Name + " " + peer)
	} else {
		of["dlvType"], of["dlvSourceIp"], of["dlvDestinationIp"] = "smtp", address(r.Local.Addr()), peer
		if of["dsnMta"] = r.Peer.Name; peer != "" {
			of["dsnMta"] += " (" + peer + ")"
		}
		of["dsnStatus"] = r.Response.Status().String()
		if r.Response.Code != 0 {
			of["dsnDiag"] = "smtp;" + oneLine(r.Response.String())
		}
	}
	if !created.IsZero() {
		of["timeQueued"] = created.Local().Format(layout)
	}
	line := make([]string, len(acctColumns))
	for i, name := range acctColumns {
		line[i] = of[name]
	}
	return line
}

// address is "" where there is none.
func address(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

const actionsHelp = `List the actions of operators by command, API or console, newest
first: changes, refused ones too, each reading of a message's content, and logins at the
console. Without a running relay the command reads the files.

WHO is the user of the process at the control socket, or of the console. COUNT is how
much was changed. OUTCOME is done, refused (nothing was changed), failed (something may
have been), or unknown (the relay was killed meanwhile).`

const noAction = "no action matches"

func newActions(c *cli) *cobra.Command {
	return newList(c, list[api.ActionQuery]{
		use: "actions", short: "list what operators did", long: actionsHelp,
		example: `  mta actions --since 1d
  mta actions --who alice --action "queue remove"
  mta actions --action sites --json`,
		what: "actions", show: actions, cluster: true,
	})
}

func actions(ctx context.Context, c *cli, client *api.Client, q api.ActionQuery, p *pageFlags) error {
	damaged := 0
	ask := func(ctx context.Context, q api.ActionQuery) (api.ActionPage, error) {
		return api.OpActions.Call(ctx, client, q)
	}
	if p.all {
		var damaged damages
		err := merged(ctx, c, listing.Actions, "", p, noAction,
			func(ctx context.Context, _ *api.Client, after string, limit int) (api.ActionPage, error) {
				q := q
				q.After, q.Limit = after, limit
				page, err := ask(ctx, q)
				if page.Damaged > 0 {
					damaged.add(ctx, "lines of its audit log are damaged: check the disk and its memory")
				}
				return page, err
			})
		return cmp.Or(err, damaged.err())
	}
	l, err := collect[audit.Line](p, func(after string, limit int) (api.ActionPage, error) {
		q.After, q.Limit = after, limit
		page, err := ask(ctx, q)
		if c.notRunning(err) {
			if files := c.actionFiles(); files != nil {
				ask = files
				page, err = ask(ctx, q)
			}
		}
		damaged += page.Damaged
		return page, err
	})
	if err != nil {
		return err
	}
	if p.asJSON {
		return writeJSON(c.out,
			api.ActionPage{Actions: l.Actions, Next: l.Next, Damaged: damaged, Complete: l.Next == ""})
	}
	if err := printPage(c, listing.Actions, l.Actions, l.Next, noAction); err != nil {
		return err
	}
	if damaged > 0 {
		return fmt.Errorf("damaged lines in the audit log: %d: check the disk and its memory", damaged)
	}
	return nil
}

// actionFiles reads the audit log of a relay that doesn't run; nil: there is none.
func (c *cli) actionFiles() func(context.Context, api.ActionQuery) (api.ActionPage, error) {
	w, err := c.find()
	if err != nil || w.DataDir == "" {
		return nil
	}
	dir := filepath.Join(w.DataDir, config.AuditLog)
	if !c.readsFiles(dir) {
		return nil
	}
	return func(ctx context.Context, q api.ActionQuery) (api.ActionPage, error) {
		return audit.Read(ctx, dir, q)
	}
}
