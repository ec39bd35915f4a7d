package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/short"
	"example.org/mta/operator/api"
)

const queueHelp = `List the queue of the running relay, and change its messages.

Select messages by id or by filters; with both, both must match. All given filters must
match. Without a subcommand, 'mta queue' lists the queue.`

func newQueue(c *cli) *cobra.Command {
	list := newQueueList(c)
	q := group("queue", "list the queue and change its messages",
		list, newQueueShow(c), newQueueSummary(c),
		newQueueHold(c), newQueueRelease(c), newQueueRetry(c), newQueueReroute(c), newQueueBounce(c), newQueueRemove(c), newQueueExport(c), newQueueImport(c), newQueueFsck(c),
	)
	q.Long = queueHelp
	listByDefault(q, list)
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
	list, err := client.List(cmd.Context(), api.Filter{}, api.Page{Order: api.NewestFirst, Recipients: 1})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	for _, m := range list.Messages {
		ids = append(ids, fmt.Sprintf("%s\t%s from %s", m.ID, short.Age(c.now().Sub(m.Received)), angled(draw.Clean(m.Sender))))
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
