package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"example.org/mta/internal/short"
	"example.org/mta/operator/api"
)

func newStatus(c *cli) *cobra.Command {
	var asJSON bool
	var wait statusWait
	cmd := &cobra.Command{
		Use:   "status",
		Short: "show the state of the running relay",
		Long: `Show the state of the running relay: whether it accepts mail, the active alarms, and its
totals. Alarms are checked once a minute.

--wait waits for the relay to be ready, which may not run yet, or for its queue to be
empty, and then shows its state. The exit code is 3 when --timeout has passed, and 4 when
all that is left in the queue is held, or everything is paused: a wait for drained ends
then.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := wait.check(cmd); err != nil {
				return err
			}
			client, err := c.client()
			if err != nil {
				return err
			}
			s, err := c.status(cmd.Context(), client, wait)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.out, s)
			}
			fact := c.fact
			fact("relay", "%s %s, pid %d", s.Hostname, s.Version, s.PID)
			if s.State == api.Running {
				fact("state", "running since %s", moment(s.Started, c.now()))
			} else {
				fact("state", "%s; started %s", s.State, moment(s.Started, c.now()))
			}
			if s.Reason != "" {
				fact("reason", "%s", s.Reason)
			}
			for _, a := range s.Alarms {
				fact("alarm", "%s since %s: %s", a.Name, moment(a.Since, c.now()), a.Reason)
			}
			for i := range s.Paused {
				fact("paused", "%s", c.pauseLine(&s.Paused[i]))
			}
			fact("config", "%s", orDefaults(s.Config))
			fact("smtp", "%s", strings.Join(s.SMTP, ", "))
			if len(s.HTTP) > 0 {
				fact("http", "%s", strings.Join(s.HTTP, ", "))
			}
			if s.Metrics != "" {
				fact("metrics", "http://%s/metrics", s.Metrics)
			}
			q := s.Queue
			fact("queued", "%s%s", plural(int(q.Queued), "recipient"), byState(s.States))
			fact("rates", "%s in, %s delivered, %s deferred, %s bounced, a second over the last minute",
				short.Rate(s.Rates.Accepted), short.Rate(s.Rates.Delivered), short.Rate(s.Rates.Deferred), short.Rate(s.Rates.Bounced))
			x := s.Connections
			fact("conns", "%d of clients, %d to hosts with %s on them, %s in memory", x.In, x.Out, plural(x.Running, "transaction"), plural(x.Waiting, "job"))
			for _, l := range x.Lowered {
				fact("lowered", "%s has %d of its %d max_connections: the limit on open files is too low", l.Name, l.Limit, l.Configured)
			}
			fact("memory", "%s, the schedule of the queue %s", short.Size(s.Memory.Process), short.Size(s.Memory.Schedule))
			fact("disk", "%s taken by the queue, %s of that needed, %s free", short.Size(s.Disk.Queue), short.Size(s.Disk.Live), short.Size(s.Disk.Free))
			fact("came in", "%d, and %d were in the queue at the start", q.Accepted, q.Recovered)
			fact("went out", "%d delivered, %d bounced, %d expired, %d removed", q.Delivered, q.Bounced, q.Expired, q.Removed)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	wait.flags(cmd)
	return c.watchable(cmd)
}

// status asks the relay, and waits first if that is wanted.
func (c *cli) status(ctx context.Context, client *api.Client, w statusWait) (api.Status, error) {
	if w.until == "" {
		return client.Status(ctx)
	}
	return c.wait(ctx, client, w)
}

// byState returns how many of the queued are in which state.
func byState(states map[string]int64) string {
	var parts []string
	for _, s := range api.States {
		if n := states[string(s)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}

func orDefaults(path string) string {
	if path == "" {
		return "the built-in defaults"
	}
	return path
}
