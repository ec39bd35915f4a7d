package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func newStatus(c *cli) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "say how the running relay is",
		Long: `Say how the running relay is: whether it takes mail, which alarms are on, and its sums.
Alarms are looked at once a minute.`,
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
				fmt.Fprintf(c.out, "%-9s  %s\n", name, clean(fmt.Sprintf(format, args...)))
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
			fact("config", "%s", orDefaults(s.Config))
			fact("smtp", "%s", strings.Join(s.SMTP, ", "))
			q := s.Queue
			fact("queued", "%s", plural(int(q.Queued), "recipient"))
			fact("came in", "%d, and %d were in the queue at the start", q.Accepted, q.Recovered)
			fact("went out", "%d delivered, %d bounced, %d expired, %d removed", q.Delivered, q.Bounced, q.Expired, q.Removed)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func orDefaults(path string) string {
	if path == "" {
		return "the built-in defaults"
	}
	return path
}
