package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/operator/api"
)

// newAdmission is the command of admission control.
func newAdmission(c *cli) *cobra.Command {
	cmd := answers(c, &cobra.Command{
		Use:   "admission",
		Short: "show what is refused under overload, and why",
		Long: `Show which mail the relay refuses while more is offered than it can store, and what is short.
A column of the plot is 10 seconds, the latest on the right: the share that was refused of a tier.`,
		Example: `  mta admission
  mta admission --watch
  mta admission why 192.0.2.7`,
		Args: noArgs,
	}, func(ctx context.Context, client *api.Client, _ []string) (api.Admission, error) {
		return client.Admission(ctx)
	}, func(a api.Admission) error { return c.admission(&a) })
	c.watchable(cmd)
	cmd.AddCommand(newAdmissionWhy(c), newAdmissionSimulate(c))
	return cmd
}

func (c *cli) admission(a *api.Admission) error {
	fact := c.fact
	if a.Mode == "off" {
		fact("admission", `off: nothing is refused for load; to change that: admission { mode = "utilisation" }`)
		return nil
	}
	switch {
	case a.Share > 0:
		fact("refused", "%s of what is offered, for %s", percent(a.Share), reasonText(a.Reason))
	case !a.Since.IsZero():
		fact("refused", "nothing now; until a moment ago mail was")
	default:
		fact("refused", "nothing")
	}
	if !a.Since.IsZero() {
		fact("since", "%s", moment(a.Since, c.now()))
	}
	fact("threshold", "%.1f of 768 priority levels are admitted", a.Threshold)
	fact("slots", "%.0f, of which %.1f are used and %s; %s", a.Slots.Limit, a.Slots.Used, waitingText(a.Slots.Waiting), a.Slots.Why)
	fact("held", "%s until the reply; the first attempts of %s are remembered", plural(int(a.Held), "session"), plural(a.Remembered, "message"))
	for _, q := range a.OverQuota {
		fact("quota", "%s is over its limit of %s", orDash(q.Tenant), q.Limit)
	}
	fmt.Fprintln(c.out)
	if err := c.pressures(a.Pressures); err != nil {
		return err
	}
	fmt.Fprintln(c.out)
	if err := c.admissionTiers(a.Tiers); err != nil || len(a.Refusals) == 0 {
		return err
	}
	fmt.Fprintln(c.out)
	t := &draw.Table{Columns: []draw.Column{{Title: "REFUSED", Right: true}, {Title: "TENANT", Shrink: true}, {Title: "TIER", Right: true}, {Title: "REASON"}}}
	for _, r := range a.Refusals[:min(len(a.Refusals), 20)] {
		t.Add("", fmt.Sprint(r.Count), orDash(r.Tenant), fmt.Sprint(r.Tier), r.Reason)
	}
	return t.Write(c.out, c.screen)
}

func (c *cli) pressures(all []api.AdmissionPressure) error {
	t := &draw.Table{Columns: []draw.Column{{Title: "PRESSURE"}, {Title: "NOW", Right: true}, {Title: "FROM", Right: true}, {Title: "TO", Right: true}, {Title: "REFUSES", Right: true}}}
	for _, p := range all {
		unit := percent
		if p.Kind == "sync" || p.Kind == "backlog" || p.Kind == "cpu" {
			unit = seconds
		}
		t.Add("", p.Kind, unit(p.Value), unit(p.From), unit(p.To), percent(p.Share))
	}
	return t.Write(c.out, c.screen)
}

func (c *cli) admissionTiers(tiers []api.AdmissionTier) error {
	t := &draw.Table{
		Columns:   []draw.Column{{Title: "TIER", Right: true}, {Title: "OFFERED", Right: true}, {Title: "REFUSED", Right: true}, {Title: "ADMITTED NOW", Right: true}},
		NoteTitle: "LAST MINUTES",
	}
	for _, tier := range tiers {
		t.Add(draw.Spark(tier.History), fmt.Sprint(tier.Tier), fmt.Sprint(tier.Offered), fmt.Sprint(tier.Refused), percent(tier.Admitted))
	}
	return t.Write(c.out, c.screen)
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Microsecond).String()
}

// reasonText explains a reason of refusals.
func reasonText(reason string) string {
	texts := map[string]string{
		"overload": "overload: more comes than can be stored",
		"line":     "overload: too many wait to be stored",
		"sync":     "sync: the disk takes far too long",
		"disk":     "disk: at this pace it is full within a minute",
		"cpu":      "cpu: the process gets too little of it",
		"memory":   "memory: the process is near its limit",
		"backlog":  "backlog: more is due than leaves in time",
	}
	if text := texts[reason]; text != "" {
		return text
	}
	return reason
}

func waitingText(n int) string {
	if n == 1 {
		return "1 message waits for one"
	}
	return fmt.Sprintf("%d messages wait for one", n)
}

func newAdmissionWhy(c *cli) *cobra.Command {
	return answers(c, &cobra.Command{
		Use:   "why ADDRESS|TENANT",
		Short: "explain why somebody's mail is refused",
		Long: `Explain what becomes of the mail of a client (by its IP address), a sender (by the address in
MAIL FROM) or a tenant, and list what was refused of it lately.`,
		Example: `  mta admission why 192.0.2.7
  mta admission why news@example.com
  mta admission why acme`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("name a client's address, a sender's address or a tenant: mta admission why 192.0.2.7")
			}
			return nil
		},
	}, func(ctx context.Context, client *api.Client, args []string) (api.AdmissionVerdict, error) {
		return client.WhyRefused(ctx, args[0])
	}, c.admissionWhy)
}

func (c *cli) admissionWhy(v api.AdmissionVerdict) error {
	fact := c.fact
	fact("tenant", "%s", orDash(v.Tenant))
	fact("priority", "tier %d of 0 to 5; lower is more important", v.Tier)
	switch {
	case v.Admitted == 1:
		fact("now", "its mail is admitted")
	default:
		fact("now", "%s of its mail is admitted: %s of all mail is refused for %s", percent(v.Admitted), percent(v.Share), reasonText(v.Reason))
	}
	if v.Refused == 0 {
		fact("lately", "nothing of it was refused")
		return nil
	}
	fact("lately", "%d of the last 1,000 refusals were its", v.Refused)
	fmt.Fprintln(c.out)
	t := &draw.Table{Columns: []draw.Column{{Title: "TIME"}, {Title: "CLIENT"}, {Title: "SENDER", Shrink: true}, {Title: "TIER", Right: true}, {Title: "COHORT", Right: true}, {Title: "HELD", Right: true}, {Title: "REASON"}}}
	for _, r := range v.Last {
		t.Add("", moment(r.Time, c.now()), r.Client, r.Sender, fmt.Sprint(r.Tier), fmt.Sprint(r.Cohort), seconds(r.Held), r.Reason)
	}
	return t.Write(c.out, c.screen)
}
