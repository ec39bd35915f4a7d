package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/mta/control"
)

func newStatus(c *cli) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "show the state of the running relay",
		Long: `Show the state of the running relay: whether it accepts mail, the active alarms, and its
totals. Alarms are checked once a minute.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := c.client()
			if err != nil {
				return err
			}
			s, err := client.Status(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.out, s)
			}
			fact := func(name, format string, args ...any) {
				text := draw.Wrap(draw.Clean(fmt.Sprintf("%-9s  %s", name, fmt.Sprintf(format, args...))), c.screen.Width, 11)
				fmt.Fprintln(c.out, text)
			}
			fact("relay", "%s %s, pid %d", s.Hostname, s.Version, s.PID)
			if s.State == "running" {
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
			q := s.Queue
			fact("queued", "%s%s", plural(int(q.Queued), "recipient"), byState(s.States))
			fact("rates", "%s in, %s delivered, %s deferred, %s bounced, a second over the last minute",
				rate(s.Rates.Accepted), rate(s.Rates.Delivered), rate(s.Rates.Deferred), rate(s.Rates.Bounced))
			x := s.Connections
			fact("conns", "%d of clients, %d to hosts with %s on them, %s in memory", x.In, x.Out, plural(x.Running, "transaction"), plural(x.Waiting, "job"))
			fact("memory", "%s, the schedule of the queue %s", shortSize(s.Memory.Process), shortSize(s.Memory.Schedule))
			fact("disk", "%s taken by the queue, %s of that needed, %s free", shortSize(s.Disk.Queue), shortSize(s.Disk.Live), shortSize(s.Disk.Free))
			fact("came in", "%d, and %d were in the queue at the start", q.Accepted, q.Recovered)
			fact("went out", "%d delivered, %d bounced, %d expired, %d removed", q.Delivered, q.Bounced, q.Expired, q.Removed)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c.watchable(cmd)
}

// byState says how many of the queued are in which state.
func byState(states map[string]int64) string {
	var parts []string
	for _, s := range control.States {
		if n := states[string(s)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}

// rate writes recipients a second.
func rate(r float64) string {
	if r == 0 {
		return "0"
	}
	return orNone(r)
}

func orDefaults(path string) string {
	if path == "" {
		return "the built-in defaults"
	}
	return path
}
