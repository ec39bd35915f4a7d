package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/short"
	"example.org/mta/operator/api"
)

const historyHelp = `Show what the relay keeps of the last two weeks: recipients accepted, delivered, deferred and
bounced a second, the queue, delays, connections, disk and memory. Without arguments it is the
relay as a whole. 'mta history site' lists the sites that have figures of their own, the busiest
first; with a name it shows those of one. The others of a kind have theirs together, as "other".

A plot goes from 0 to the largest value; a dot is a time of which nothing is known.`

// newHistory is the command that shows figures over time.
func newHistory(c *cli) *cobra.Command {
	span, asJSON := api.Last15Minutes, false
	cmd := &cobra.Command{
		Use:     "history [relay | provider | source | site | tenant [NAME]]",
		Short:   "show figures over time",
		Long:    historyHelp,
		Example: "  mta history\n  mta history site\n  mta history provider google --span 14d",
		Args:    cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			args = append(args, "", "")[:max(len(args), 2)]
			q := api.HistoryQuery{Of: api.Subject(args[0]), Name: args[1], Span: span}
			if q.Of == "" {
				q.Of = api.OfRelay
			}
			if !slices.Contains(api.Subjects, q.Of) {
				return usagef("want relay, provider, source, site or tenant, not %q", args[0])
			}
			return c.history(cmd.Context(), q, asJSON)
		},
	}
	cmd.Flags().StringVar((*string)(&span), "span", string(span), "how far back: 15m, 12h or 14d")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.ValidArgsFunction = c.complete(c.historyArgs)
	return c.watchable(cmd)
}

// historyArgs completes the kind of subject.
func (c *cli) historyArgs(context.Context, *api.Client, string) (names []string, err error) {
	for _, s := range api.Subjects {
		names = append(names, string(s))
	}
	return names, nil
}

func (c *cli) history(ctx context.Context, q api.HistoryQuery, asJSON bool) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	if q.Of != api.OfRelay && q.Name == "" {
		names, err := client.HistoryNames(ctx, q.Of)
		switch {
		case err != nil:
			return err
		case asJSON:
			return writeJSON(c.out, names)
		}
		return c.historyNames(&names)
	}
	h, err := client.History(ctx, q)
	switch {
	case err != nil:
		return err
	case asJSON:
		return writeJSON(c.out, h)
	}
	return c.historyFigures(&h)
}

// historyOrder is that of figures for people.
var historyOrder = []string{
	"accepted", "refused", "delivered", "deferred", "bounced", "delay_p50", "delay_p99",
	"queued", "queued_due", "queued_waiting", "queued_active", "queued_deferred", "queued_held", "queued_ending", "queued_unreadable", "oldest_due",
	"connections", "client_connections", "disk_used", "disk_free", "memory",
}

// historyNames lists subjects with their latest figures.
func (c *cli) historyNames(names *api.HistoryNames) error {
	t := &draw.Table{Columns: []draw.Column{
		{Title: "NAME", Shrink: true}, {Title: "DELIVERED", Right: true}, {Title: "DEFERRED", Right: true}, {Title: "BOUNCED", Right: true},
		{Title: "P50", Right: true}, {Title: "P99", Right: true}, {Title: "QUEUED", Right: true},
	}}
	for _, row := range names.Rows {
		cells := []string{row.Name}
		for _, figure := range []string{"delivered", "deferred", "bounced", "delay_p50", "delay_p99", "queued"} {
			cells = append(cells, figureText(row.Latest[figure], unitOf(figure)))
		}
		t.Add("", cells...)
	}
	return t.Write(c.out, c.screen)
}

// unitOf is the unit of the figures that all kinds of subjects have.
func unitOf(figure string) string {
	switch figure {
	case "delay_p50", "delay_p99":
		return "seconds"
	case "queued":
		return "recipients"
	}
	return "recipients/s"
}

// historyFigures shows all of one subject.
func (c *cli) historyFigures(h *api.History) error {
	t := &draw.Table{
		Columns:   []draw.Column{{Title: "FIGURE"}, {Title: "UNIT"}, {Title: "NOW", Right: true}, {Title: "MEAN", Right: true}, {Title: "MOST", Right: true}},
		NoteTitle: "LAST " + string(h.Span),
	}
	for _, figure := range historyOrder {
		s, ok := h.Series[figure]
		if !ok || len(s.Values) == 0 {
			continue
		}
		mean, most := meanAndMost(s.Values)
		unit := s.Unit
		if unit == "bytes" || unit == "seconds" { // the cells name it
			unit = ""
		}
		const columns = 45
		t.Add(draw.Spark(sparks(s.Values, most, columns)), figure, unit, figureText(s.Values[len(s.Values)-1], s.Unit), figureText(mean, s.Unit), figureText(most, s.Unit))
	}
	return t.Write(c.out, c.screen)
}

// meanAndMost are over the values that are known; unknown when none is.
func meanAndMost(values api.Figures) (mean, most api.Figure) {
	n := api.Figure(0)
	for _, v := range values {
		if v.Known() {
			mean, most, n = mean+v, max(most, v), n+1
		}
	}
	if n == 0 {
		return api.UnknownFigure(), api.UnknownFigure()
	}
	return mean / n, most
}

// sparks gives as many shares of the most as there are columns: each the mean of its values, -1 when none is known.
func sparks(values api.Figures, most api.Figure, columns int) (shares []float64) {
	for i := range columns {
		share, _ := meanAndMost(values[i*len(values)/columns : (i+1)*len(values)/columns])
		switch {
		case !share.Known():
			share = -1
		case most > 0:
			share /= most
		}
		shares = append(shares, float64(share))
	}
	return shares
}

// figureText writes a figure for people.
func figureText(f api.Figure, unit string) string {
	switch {
	case !f.Known():
		return "-"
	case unit == "bytes":
		return short.Size(int64(f))
	case unit == "seconds":
		return short.Rate(float64(f)) + "s"
	case unit == "recipients/s", unit == "refusals/s", f != api.Figure(int64(f)):
		return short.Rate(float64(f))
	}
	return fmt.Sprintf("%.0f", float64(f))
}
