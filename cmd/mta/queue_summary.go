package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/short"
	"example.org/mta/operator/api"
)

const queueSummaryHelp = `Count the recipients in the queue by site and by age, like Postfix's qshape. T is the
total of a row; each further column counts the recipients younger than its title that
are not in an earlier column, and the last one the rest.

High counts in the first columns are incoming mail; in the middle columns of one row, a
site that is slow or refuses mail; in the last columns of all rows, a problem of this
relay.`

func newQueueSummary(c *cli) *cobra.Command {
	var (
		filters filterFlags
		by      string
		limit   int
	)
	cmd := answers(c, &cobra.Command{
		Use:   "summary",
		Short: "count recipients by site and age",
		Long:  queueSummaryHelp,
		Args:  noArgs,
	}, func(ctx context.Context, client *api.Client, _ []string) (api.Summary, error) {
		f, err := filters.with(nil)
		if err == nil && limit < 0 {
			err = usagef("--limit can't be negative")
		}
		if err != nil {
			return api.Summary{}, err
		}
		return client.WholeSummary(ctx, api.SummaryBy(by), f, limit)
	}, func(s api.Summary) error {
		if err := summaryTable(s).Write(c.out, c.screen); err != nil {
			return err
		}
		if s.More > 0 {
			fmt.Fprintf(c.err, "%s not shown: --limit 0 shows all\n", plural(s.More, "row"))
		}
		return nil
	})
	c.addParams(cmd, &filters.filter)
	flags := cmd.Flags()
	flags.StringVar(&by, "by", string(api.BySite), "what each row counts: `site`, provider, source, domain, tenant, campaign, sender_domain or state")
	flags.IntVar(&limit, "limit", 20, "rows at most; 0: all")
	oneOf(cmd, "by", api.SummaryBys)
	return c.watchable(cmd)
}

// summaryTable has a column for what rows can be off by only if some can.
func summaryTable(s api.Summary) *draw.Table {
	inError := slices.ContainsFunc(s.Rows, func(r api.SummaryRow) bool { return r.Error > 0 })
	t := &draw.Table{Columns: []draw.Column{{Title: string(s.By), Shrink: true}, {Title: "T", Right: true}}}
	for _, b := range s.Bounds {
		t.Columns = append(t.Columns, draw.Column{Title: short.Age(time.Duration(b)), Right: true})
	}
	oldest := "all"
	if n := len(s.Bounds); n > 0 {
		oldest = short.Age(time.Duration(s.Bounds[n-1])) + "+"
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
		cells := []string{orDash(row.Key), fmt.Sprint(row.Total)}
		for _, n := range row.Counts {
			cells = append(cells, fmt.Sprint(n))
		}
		if inError {
			cells = append(cells, fmt.Sprint(row.Error))
		}
		t.Add("", cells...)
	}
	return t
}
