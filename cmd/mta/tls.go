package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/delivery/tlspolicy/tlsrpt"
	"example.org/mta/operator/api"
)

func newTLS(c *cli) *cobra.Command {
	return group("tls", "look up what domains demand of TLS", "", newTLSPolicy(c))
}

const tlsPolicyHelp = `Have the relay look up the MTA-STS policy of a domain (RFC 8461)
now, whatever it has cached, and print it. A changed policy applies to mail within
5 minutes.

When the look-up fails, the cached policy applies until it expires: the reason is
printed, and the exit code is 1. A domain without a policy is not a failure.`

func newTLSPolicy(c *cli) *cobra.Command {
	var asJSON, cached bool
	var in api.Intent
	cmd := &cobra.Command{
		Use: "policy DOMAIN", Short: "look up the MTA-STS policy of a domain", Long: tlsPolicyHelp,
		Example: `  mta tls policy example.com
  mta tls policy example.com --cached`,
		Args: oneName("a domain"),
		RunE: c.asking(func(ctx context.Context, client *api.Client, args []string) error {
			if cached {
				p, err := api.OpSTSPolicy.Call(ctx, client, api.None{}, args[0])
				if err != nil {
					return err
				}
				return c.tlsPolicy(p, asJSON)
			}
			fresh, err := api.OpRefreshSTSPolicy.Call(ctx, client, in, args[0])
			if err != nil || !asJSON && c.wouldChange(fresh.Effect, "policy") {
				return err
			}
			p := fresh.STSPolicy
			if err := c.tlsPolicy(p, asJSON); err != nil || p.Failure == "" || p.Absent && p.Fetched.IsZero() {
				return err
			}
			return errors.New("the policy can't be had: " + p.Failure)
		}),
	}
	cmd.Flags().BoolVar(&cached, "cached", false, "print what the relay has, and look nothing up")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	changeFlags(cmd, &in)
	return cmd
}

func (c *cli) tlsPolicy(p api.STSPolicy, asJSON bool) error {
	if asJSON {
		return writeJSON(c.out, p)
	}
	c.stsFacts(&p)
	return nil
}

func (c *cli) stsFacts(p *api.STSPolicy) {
	f := c.facts(12)
	f.add("domain", "%s", p.Domain)
	f.add("policy", "%s", p.Mode)
	if p.Ignored != "" {
		f.add("", "not heeded, because of %s", p.Ignored)
	}
	f.list("hosts", p.MX)
	if !p.Fetched.IsZero() {
		f.add("id", "%s", p.ID)
		f.add("fetched", "%s", moment(p.Fetched, c.now()))
		f.add("expires", "%s", moment(p.Expires, c.now()))
	}
	if p.Failure != "" {
		f.add("last try", "%s: %s", moment(p.Failed, c.now()), p.Failure)
	}
	f.add("next check", "%s", moment(p.Next, c.now()))
}

// stsLines is stsFacts among other facts.
func (c *cli) stsLines(f facts, p *api.STSPolicy) {
	if !p.Fetched.IsZero() {
		f.add("", "MTA-STS policy %s: mode %s, hosts %s", p.ID, p.Mode, strings.Join(p.MX, ", "))
		f.add("", "fetched %s, expires %s", moment(p.Fetched, c.now()), moment(p.Expires, c.now()))
	}
	if p.Failure != "" {
		f.add("", "MTA-STS look-up failed %s: %s", moment(p.Failed, c.now()), p.Failure)
	}
	if p.Ignored != "" {
		f.add("", "the policy is not heeded, because of %s", p.Ignored)
	}
}

func newTLSRPT(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use: "tlsrpt", Short: "show TLS reports",
		Long: "TLS reports (RFC 8460) inform domains about TLS failures of connections to their hosts. " +
			"With\ntls_reports in the configuration, each domain that requests them in the DNS gets one a day.",
		Args: noArgs,
	}
	cmd.AddCommand(newTLSRPTShow(c))
	return cmd
}

func newTLSRPTShow(c *cli) *cobra.Command {
	return newList(c, list[api.TLSReportQuery]{
		use: "show", short: "show what is counted for TLS reports, and what was sent",
		long: `Show, by day of UTC, how many connection attempts met a domain's TLS policy,
what failed, and where the reports went. Days are kept for a week; those of domains that
request no reports until the day after.`,
		example: `  mta tlsrpt show
  mta tlsrpt show --domain example.com --json`,
		what: "days of domains", show: tlsrptShow,
	})
}

func tlsrptShow(ctx context.Context, c *cli, client *api.Client, f api.TLSReportQuery, p *pageFlags) error {
	l, err := pagesOf[tlsrpt.Day](ctx, client, p, api.OpTLSReports, f)
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
	t := draw.New("REPORT", "DATE", "~DOMAIN", "POLICY", ">GOOD", ">FAILED")
	for i := range days {
		d := &days[i]
		for _, p := range d.Policies {
			policy := string(p.Type)
			if p.Mode != "" {
				policy += " " + p.Mode
			}
			t.Add(reportState(d, c.now()), d.Date, d.Domain, policy, p.Success, p.Failure)
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
