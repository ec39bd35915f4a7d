package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/delivery/tlspolicy/tlsrpt"
	"example.org/mta/operator/api"
)

func newTLSRPT(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tlsrpt",
		Short: "show TLS reports",
		Long:  "TLS reports (RFC 8460) inform domains about TLS failures of connections to their hosts. With\ntls_reports in the configuration, each domain that requests them in the DNS gets one a day.",
		Args:  noArgs,
	}
	cmd.AddCommand(newTLSRPTShow(c))
	return cmd
}

func newTLSRPTShow(c *cli) *cobra.Command {
	var (
		domain string
		p      pageFlags
	)
	cmd := &cobra.Command{
		Use:   "show",
		Short: "show what is counted for TLS reports, and what was sent",
		Long:  "Show how many connection attempts were as a domain's TLS policy wants, by day of UTC, what\nfailed, and where the reports went. Days are shown for a week; those of domains that ask for\nno reports go when that is known, on the day after.",
		Example: `  mta tlsrpt show
  mta tlsrpt show --domain example.com --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.check(); err != nil {
				return err
			}
			return c.tlsrptShow(cmd.Context(), domain, &p)
		},
	}
	p.add(cmd, "days of domains")
	cmd.Flags().StringVar(&domain, "domain", "", "of this policy `domain` alone: the recipients' domain")
	return cmd
}

func (c *cli) tlsrptShow(ctx context.Context, domain string, p *pageFlags) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	l, err := collect(p, func(l *api.TLSReportList) (*[]tlsrpt.Day, *string) { return &l.Days, &l.Next },
		func(after string, limit int) (api.TLSReportList, error) {
			return client.TLSReports(ctx, domain, after, limit)
		})
	switch {
	case err != nil:
		return err
	case p.asJSON:
		return writeJSON(c.out, l)
	case !l.On:
		fmt.Fprintln(c.err, `TLS reports are off; to send them: tls_reports { from = "tls-reports@example.com" }`)
		return nil
	case len(l.Days) == 0:
		fmt.Fprintln(c.err, "nothing is counted yet")
		return nil
	}
	if err := c.tlsrptTable(l.Days); err != nil {
		return err
	}
	for i := range l.Days {
		c.tlsrptDay(&l.Days[i])
	}
	if l.Next != "" {
		fmt.Fprintf(c.err, "%d shown; for the next ones add: --after %q\n", len(l.Days), l.Next)
	}
	return nil
}

func (c *cli) tlsrptTable(days []tlsrpt.Day) error {
	t := &draw.Table{
		Columns:   []draw.Column{{Title: "DATE"}, {Title: "DOMAIN", Shrink: true}, {Title: "POLICY"}, {Title: "GOOD", Right: true}, {Title: "FAILED", Right: true}},
		NoteTitle: "REPORT",
	}
	for i := range days {
		d := &days[i]
		for _, p := range d.Policies {
			policy := string(p.Type)
			if p.Mode != "" {
				policy += " " + p.Mode
			}
			t.Add(reportState(d, c.now()), d.Date, d.Domain, policy, fmt.Sprint(p.Success), fmt.Sprint(p.Failure))
		}
	}
	return t.Write(c.out, c.screen)
}

// reportState says in a few words what becomes of the report about a day.
func reportState(d *tlsrpt.Day, now time.Time) string {
	sent := 0
	for _, r := range d.Reports {
		if r.Sent {
			sent++
		}
	}
	switch {
	case d.Unwanted:
		return "not asked for"
	case d.Done && sent == len(d.Reports) && sent > 0:
		return "sent"
	case d.Done:
		return "given up"
	case d.Tries > 0:
		return "failed; again " + moment(d.Next, now)
	}
	return "on the next day"
}

// tlsrptDay lists what failed on a day, and the destinations of its report.
func (c *cli) tlsrptDay(d *tlsrpt.Day) {
	heading := fmt.Sprintf("\n%s %s\n", d.Date, draw.Clean(d.Domain))
	line := func(format string, args ...any) {
		fmt.Fprint(c.out, heading)
		heading = ""
		fmt.Fprintln(c.out, "  "+draw.Clean(fmt.Sprintf(format, args...)))
	}
	for _, p := range d.Policies {
		for _, f := range p.Details {
			text := fmt.Sprintf("%d %s", f.Count, f.Class)
			if f.Host != "" {
				text += fmt.Sprintf(" at %s[%s]", f.Host, f.Addr)
			}
			if f.Source != "" {
				text += " from " + f.Source
			}
			if f.Reason != "" {
				text += ": " + f.Reason
			}
			line("%s", text)
		}
	}
	for _, r := range d.Reports {
		state := "sent"
		if !r.Sent {
			state = "not sent: " + r.Error
		}
		if r.At.IsZero() {
			continue
		}
		line("to %s, %s, %s", r.To, moment(r.At, c.now()), state)
	}
	if d.LookupError != "" {
		line("looking up _smtp._tls.%s: %s", d.Domain, d.LookupError)
	}
}
