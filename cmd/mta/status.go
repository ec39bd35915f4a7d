package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/legible"
	"example.org/mta/internal/parking"
	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

// mostRules is how many rules are shown, the strictest first.
const mostRules = 2

func newStatus(c *cli) *cobra.Command {
	var wait statusWait
	cmd := &cobra.Command{
		Use: "status", Short: "show the state of the running relay",
		Long: `Show the state of the running relay: whether it accepts mail, the active alarms, and its
totals. Alarms are checked once a minute.

--wait waits for the relay, which may not run yet, to be ready, or for its queue to be
empty, and then shows its state. The exit code is 3 when --timeout has passed, and 4
when all that is left in the queue is held, or everything is paused.`,
		Args: noArgs,
	}
	ofAll(c, cmd, eachOfAll, func([]string) bool { return false }, func(ctx context.Context, client *api.Client,
		_ []string) (s api.Status, err error) {
		if err := wait.check(cmd); err != nil {
			return s, err
		}
		if wait.until == "" {
			return api.OpStatus.Call(ctx, client, api.None{})
		}
		return c.wait(ctx, client, wait)
	}, func(s api.Status) error {
		c.printStatus(&s)
		return nil
	})
	wait.flags(cmd)
	cmd.MarkFlagsMutuallyExclusive("cluster", "wait")
	return c.watchable(cmd)
}

func (c *cli) printStatus(s *api.Status) {
	f := c.wrapped()
	f.add("mail", "%s", s.Waiting.Line(c.now()))
	f.add("relay", "%s %s, pid %d", s.Hostname, s.Version, s.PID)
	if s.State == api.Running {
		f.add("state", "running since %s", moment(s.Started, c.now()))
	} else {
		f.add("state", "%s; started %s", s.State, moment(s.Started, c.now()))
	}
	f.some("reason", s.Reason)
	for _, a := range s.Alarms {
		f.add("alarm", "%s since %s: %s", a.Name, moment(a.Since, c.now()), a.Reason)
	}
	for i := range s.Rules {
		if more := len(s.Rules) - i; i == mostRules && more > 1 {
			f.add("rules", "and %d more: mta rule list", more)
			break
		}
		label, line := "rule", strings.TrimPrefix(c.ruleLine(&s.Rules[i]), "rule ")
		if s.Rules[i].Action == api.RuleSuspend {
			label = "paused"
		}
		f.add(label, "%s", line)
	}
	f.add("config", "%s", orDefaults(s.Config))
	f.some("pending", s.Pending)
	f.add("smtp", "%s", strings.Join(s.SMTP, ", "))
	f.some("http", strings.Join(s.HTTP, ", "))
	if s.Metrics != "" {
		f.add("metrics", "http://%s/metrics", s.Metrics)
	}
	q := s.Queue
	f.add("queued", "%s%s", plural(int(q.Queued), "recipient"), listing.States(s.States))
	f.add("rates", "%s in, %s delivered, %s deferred, %s bounced, a second over the last minute",
		legible.Rate(s.Rates.Accepted), legible.Rate(s.Rates.Delivered), legible.Rate(s.Rates.Deferred),
		legible.Rate(s.Rates.Bounced))
	x := s.Connections
	f.add("conns", "%d of clients, %d to hosts with %s on them, %s in memory", x.In, x.Out,
		plural(x.Running, "transaction"), plural(x.Waiting, "job"))
	for _, l := range x.Lowered {
		f.add("lowered", "%s has %d of its %d max_connections: the limit on open files is too low", l.Name,
			l.Limit, l.Configured)
	}
	f.add("memory", "%s, the schedule of the queue %s", legible.Size(s.Memory.Process), legible.Size(s.Memory.Schedule))
	f.add("disk", "%s taken by the queue, %s of that needed, %s free", legible.Size(s.Disk.Queue),
		legible.Size(s.Disk.Live), legible.Size(s.Disk.Free))
	f.add("came in", "%d, and %d were in the queue at the start", q.Accepted, q.Recovered)
	f.add("went out", "%d delivered, %d bounced, %d expired, %d removed, %d moved", q.Delivered, q.Bounced, q.Expired,
		q.Removed, q.Moved)
}

func orDefaults(path string) string {
	if path == "" {
		return "the built-in defaults"
	}
	return path
}

// Exit codes of a wait that has ended without what it was for.
const (
	exitTimeout = 3 // it has waited for as long as it may
	exitStuck   = 4 // what is left in the queue does not leave by itself
)

// What 'mta status' can wait for.
const (
	untilReady   = "ready"   // the relay accepts mail
	untilDrained = "drained" // nothing is queued
	untilIdle    = "idle"    // the relay drains, and nothing is in transit: for 'mta drain'
)

// waitEvery is how often the relay is asked, and lineEvery at which of these times 'mta drain' prints a line.
const (
	waitEvery = 500 * time.Millisecond
	lineEvery = 20
)

// statusWait waits for a state of the relay.
type statusWait struct {
	until   string
	timeout time.Duration
}

func (w *statusWait) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&w.until, "wait", "",
		"wait until the relay is `ready` (accepts mail) or drained (nothing is queued)")
	cmd.Flags().DurationVar(&w.timeout, "timeout", 0, "with --wait: wait no longer than this `time`; 0: without limit")
	oneOf(cmd, "wait", []string{untilReady, untilDrained})
}

// check refuses flags that make no sense.
func (w *statusWait) check(cmd *cobra.Command) error {
	switch {
	case cmd.Flags().Changed("wait") && w.until != untilReady && w.until != untilDrained:
		return usagef("--wait: want %s or %s, not %q", untilReady, untilDrained, w.until)
	case w.timeout < 0:
		return usagef("--timeout: want a time")
	case w.until == "" && cmd.Flags().Changed("timeout"):
		return usagef("--timeout goes with --wait")
	case w.until != "" && cmd.Flags().Changed("watch"):
		return usagef("--wait and --watch exclude each other")
	}
	return nil
}

// wait returns when the relay is as it should be, with its status. On a terminal a line shows what it waits for.
func (c *cli) wait(ctx context.Context, client *api.Client, w statusWait) (api.Status, error) {
	if w.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.timeout)
		defer cancel()
	}
	again := time.NewTicker(waitEvery)
	defer again.Stop()
	seen, why := w.until == untilIdle, ""
	for n := 0; ; n++ {
		s, err := api.OpStatus.Call(ctx, client, api.None{})
		switch {
		case err == nil && w.until == untilIdle && s.State != api.Draining:
			c.waiting("")
			return s, hinted{errors.New("the relay takes new mail again: somebody has undrained or restarted it"),
				"see: mta actions"}
		case err == nil && w.reached(&s):
			c.waiting("")
			return s, nil
		case err == nil && w.stuck(ctx, &s) != "":
			c.waiting("")
			return s, inVain{hinted{fmt.Errorf("not %s: %s", w.until, w.missing(&s)), w.stuck(ctx, &s)}, exitStuck}
		case err == nil:
			seen, why = true, w.missing(&s)
		case ctx.Err() != nil: // below
		case !api.Down(err) || w.until != untilReady && seen:
			c.waiting("")
			return s, err
		default:
			why = "the relay is not running"
		}
		if c.waiting(why); w.until == untilIdle && !c.screen.TTY && n%lineEvery == 0 {
			fmt.Fprintln(c.err, why)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			c.waiting("")
			return s, w.ended(ctx, why)
		}
	}
}

func (w statusWait) reached(s *api.Status) bool {
	switch w.until {
	case untilReady:
		return s.State == api.Running
	case untilIdle:
		return inTransit(s) == 0
	}
	return s.Queue.Queued == 0
}

// missing returns what the relay lacks to be as it should be.
func (w statusWait) missing(s *api.Status) string {
	switch {
	case w.until == untilDrained:
		return fmt.Sprintf("%s queued%s%s", plural(int(s.Queue.Queued), "recipient"), listing.States(s.States),
			paused(s.Rules))
	case w.until == untilIdle:
		return left(s) + paused(s.Rules)
	case s.Reason != "":
		return fmt.Sprintf("the relay is %s: %s", s.State, s.Reason)
	}
	return fmt.Sprintf("the relay is %s", s.State)
}

// inTransit is how many recipients wait for neither a time nor an operator.
func inTransit(s *api.Status) (n int64) {
	for _, state := range []api.State{api.StateDue, api.StateWaiting, api.StateActive, api.StateEnding} {
		n += s.States[string(state)]
	}
	for _, w := range s.Waiting.Reasons {
		switch w.Reason {
		case parking.Suspended, parking.Paused, parking.Warmup, parking.Closed, parking.Paced:
			n -= int64(w.Recipients)
		}
	}
	return max(n, 0)
}

// left is what is queued, for those who wait until the relay can be stopped.
func left(s *api.Status) string {
	later := s.States[string(api.StateDeferred)]
	return fmt.Sprintf("%s in transit, %d waiting for their time, %d held back", plural(int(inTransit(s)), "recipient"),
		later, s.Queue.Queued-inTransit(s)-later)
}

// paused names what nothing is sent of.
func paused(all []api.Rule) string {
	var names []string
	for i := range all {
		if all[i].Action == api.RuleSuspend {
			names = append(names, mailOf(&all[i]))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "; paused: " + strings.Join(names, ", ")
}

// stuck gives the remedy where nothing that is queued leaves before the end of the wait, unless an operator acts; "" as
// long as something may.
func (w statusWait) stuck(ctx context.Context, s *api.Status) string {
	if w.until == untilReady {
		return ""
	}
	count := func(state api.State) int64 { return s.States[string(state)] }
	if count(api.StateHeld)+count(api.StateUnreadable) == s.Queue.Queued {
		return "this mail does not leave by itself: 'mta queue release', or move it by 'mta queue export'"
	}
	if count(api.StateActive)+count(api.StateEnding) > 0 {
		return ""
	}
	end, limited := ctx.Deadline()
	for _, p := range s.Rules {
		if p.Action == api.RuleSuspend && p.All && (p.Until.IsZero() || limited && p.Until.After(end)) {
			return "everything is paused: 'mta resume everything'"
		}
	}
	return ""
}

// inVain ends a command that has waited in vain, with the exit code that says why.
type inVain struct {
	error
	code int
}

func (v inVain) Unwrap() error { return v.error }

func (w statusWait) ended(ctx context.Context, why string) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return inVain{fmt.Errorf("not %s within %v: %s", w.until, w.timeout, why), exitTimeout}
	}
	return ctx.Err()
}

// waiting shows on a terminal what is waited for; "" removes the line.
func (c *cli) waiting(why string) {
	if !c.screen.TTY {
		return
	}
	if why != "" {
		why = "waiting: " + why
		if width := c.screen.Width; width > 0 && len(why) >= width {
			why = why[:width-1]
		}
	}
	fmt.Fprint(c.out, "\r"+why+"\x1b[K")
}

// newDrain is the command that has the relay take no new mail.
func newDrain(c *cli) *cobra.Command {
	var in api.Intent
	w := statusWait{until: untilIdle}
	cmd := &cobra.Command{
		Use: "drain", Short: "take no new mail, and deliver what is queued",
		Long: `Have the relay take no new mail and deliver what it has, until 'mta undrain' or a
restart. /readyz answers 503. By SMTP, clients get 421, after a transaction under way.
By HTTP, requests with messages get 503; those about accepted mail are answered. Reports
about mail that has left, at listeners with inbound, and mail that sendmail left are
taken.

--wait waits until nothing is in transit: what is left waits for its time or is held
back. The exit code is 3 when --timeout has passed, and 4 when everything is paused.`,
		Example: `  mta drain --reason "kernel update"
  mta drain --wait --timeout 5m && systemctl restart mta`,
		Args: noArgs,
	}
	wait := cmd.Flags().Bool("wait", false, "wait until nothing is in transit, and print what is left meanwhile")
	cmd.Flags().DurationVar(&w.timeout, "timeout", 0, "with --wait: wait no longer than this `time`; 0: without limit")
	return changes(c, cmd, &in, "relay",
		func(ctx context.Context, client *api.Client, _ []string) (done api.Drained, err error) {
			switch {
			case w.timeout < 0:
				return done, usagef("--timeout: want a time")
			case !*wait && cmd.Flags().Changed("timeout"):
				return done, usagef("--timeout goes with --wait")
			}
			done, err = api.OpDrain.Call(ctx, client, in)
			if err == nil && *wait && !in.DryRun {
				done.Status, err = c.wait(ctx, client, w)
			}
			return done, err
		}, func(done api.Drained) {
			fmt.Fprintf(c.out, "the relay takes no new mail; it has %s\n", left(&done.Status))
		})
}

// newUndrain is the command that ends a drain.
func newUndrain(c *cli) *cobra.Command {
	var in api.Intent
	return changes(c, &cobra.Command{Use: "undrain", Short: "take new mail again after 'mta drain'", Args: noArgs},
		&in, "relay", func(ctx context.Context, client *api.Client, _ []string) (api.Drained, error) {
			return api.OpUndrain.Call(ctx, client, in)
		}, func(api.Drained) { fmt.Fprintln(c.out, "the relay takes new mail") })
}

const historyHelp = `Show the figures of the last two weeks: recipients accepted,
delivered, deferred and bounced a second, the queue, delays, connections, disk and
memory. 'mta history site' lists the busiest sites, which have separate figures, and
"other" for the rest; with a name it shows those of one.

A plot goes from 0 to the largest value; a dot is a time without data.`

// newHistory is the command that shows figures over time.
func newHistory(c *cli) *cobra.Command {
	q := api.HistoryQuery{Of: api.OfRelay}
	cmd := shows(c, &cobra.Command{
		Use: "history [relay | provider | source | site | tenant [NAME]]", Short: "show figures over time",
		Long: historyHelp, Example: "  mta history\n  mta history site\n  mta history provider google --span 14d",
		Args: cobra.MaximumNArgs(2),
	}, func(ctx context.Context, client *api.Client, args []string) (any, func() error, error) {
		q.Name = second(args)
		if len(args) > 0 && args[0] != "" {
			q.Of = api.Subject(args[0])
		}
		if !slices.Contains(api.Subjects, q.Of) {
			return nil, nil, usagef("want relay, provider, source, site or tenant, not %q", args[0])
		}
		if q.Of != api.OfRelay && q.Name == "" {
			names, err := api.OpHistoryNames.Call(ctx, client, api.HistoryNamesQuery{Of: q.Of})
			return names, func() error { return c.historyNames(&names) }, err
		}
		h, err := api.OpHistory.Call(ctx, client, q)
		return h, func() error { return c.historyFigures(&h) }, err
	})
	c.addParams(cmd, &q, "span")
	cmd.ValidArgsFunction = c.complete(func(context.Context, *api.Client, string) ([]string, error) {
		return texts(api.Subjects), nil
	})
	return c.watchable(cmd)
}

// historyOrder is that of figures for people.
var historyOrder = []string{
	"accepted", "refused", "delivered", "deferred", "bounced", "delay_p50", "delay_p99",
	"queued", "queued_due", "queued_waiting", "queued_active", "queued_deferred", "queued_held", "queued_ending",
	"queued_unreadable", "oldest_due",
	"connections", "client_connections", "disk_used", "disk_free", "memory",
}

// historyNames lists subjects with their latest figures.
func (c *cli) historyNames(names *api.HistoryNames) error {
	t := draw.New("", "~NAME", ">DELIVERED", ">DEFERRED", ">BOUNCED", ">P50", ">P99", ">QUEUED")
	for _, row := range names.Rows {
		cells := []any{row.Name}
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
	t := draw.New("LAST "+string(h.Span), "FIGURE", "UNIT", ">NOW", ">MEAN", ">MOST")
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
		t.Add(draw.Spark(sparks(s.Values, most, columns)), figure, unit, figureText(s.Values[len(s.Values)-1], s.Unit),
			figureText(mean, s.Unit), figureText(most, s.Unit))
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
		return legible.Size(int64(f))
	case unit == "seconds":
		return legible.Rate(float64(f)) + "s"
	case unit == "recipients/s", unit == "refusals/s", f != api.Figure(int64(f)):
		return legible.Rate(float64(f))
	}
	return fmt.Sprintf("%.0f", float64(f))
}

// newAdmission is the command of admission control.
func newAdmission(c *cli) *cobra.Command {
	cmd := ofAll(c, &cobra.Command{
		Use: "admission", Short: "show what is refused under overload, and why",
		Long: `Show which mail the overloaded relay refuses, and what is short. A column of
the plot is 10 seconds, the latest on the right: the refused share of a tier.`,
		Example: `  mta admission
  mta admission --watch
  mta admission why 192.0.2.7`,
		Args: noArgs,
	}, eachOfAll, func([]string) bool { return false }, func(ctx context.Context, client *api.Client,
		_ []string) (api.Admission, error) {
		return api.OpAdmission.Call(ctx, client, api.None{})
	}, func(a api.Admission) error { return c.admission(&a) })
	c.watchable(cmd)
	cmd.AddCommand(newAdmissionWhy(c), newAdmissionSimulate(c))
	return cmd
}

func (c *cli) admission(a *api.Admission) error {
	fact := c.wrapped().add
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
	c.wrapped().at("since", a.Since)
	fact("threshold", "%.1f of 768 priority levels are admitted", a.Threshold)
	fact("slots", "%.0f, of which %.1f are used and %s; %s", a.Slots.Limit, a.Slots.Used,
		waitingText(a.Slots.Waiting), a.Slots.Why)
	fact("held", "%s until the reply; the first attempts of %s are remembered", plural(int(a.Held), "session"),
		plural(a.Remembered, "message"))
	for _, q := range a.OverQuota {
		fact("quota", "%s is over its limit of %s", cmp.Or(q.Tenant, "-"), q.Limit)
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
	t := draw.New("", ">REFUSED", "~TENANT", ">TIER", "REASON")
	for _, r := range a.Refusals[:min(len(a.Refusals), 20)] {
		t.Add("", r.Count, cmp.Or(r.Tenant, "-"), r.Tier, r.Reason)
	}
	return t.Write(c.out, c.screen)
}

func (c *cli) pressures(all []api.AdmissionPressure) error {
	t := draw.New("", "PRESSURE", ">NOW", ">FROM", ">TO", ">REFUSES")
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
	t := draw.New("LAST MINUTES", ">TIER", ">OFFERED", ">REFUSED", ">ADMITTED NOW")
	for _, tier := range tiers {
		t.Add(draw.Spark(tier.History), tier.Tier, tier.Offered, tier.Refused, percent(tier.Admitted))
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
		Use: "why ADDRESS|TENANT", Short: "explain why somebody's mail is refused",
		Long: `Explain whether the relay accepts mail of a client (by its IP address), a
sender (by the address in MAIL FROM) or a tenant, and list its recent refusals.`,
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
		return api.OpWhyRefused.Call(ctx, client, api.WhyQuery{Who: args[0]})
	}, c.admissionWhy)
}

func (c *cli) admissionWhy(v api.AdmissionVerdict) error {
	fact := c.wrapped().add
	fact("tenant", "%s", cmp.Or(v.Tenant, "-"))
	fact("priority", "tier %d of 0 to 5; lower is more important", v.Tier)
	switch {
	case v.Admitted == 1:
		fact("now", "its mail is admitted")
	default:
		fact("now", "%s of its mail is admitted: %s of all mail is refused for %s", percent(v.Admitted),
			percent(v.Share), reasonText(v.Reason))
	}
	if v.Refused == 0 {
		fact("lately", "nothing of it was refused")
		return nil
	}
	fact("lately", "%d of the last 1,000 refusals were its", v.Refused)
	fmt.Fprintln(c.out)
	t := draw.New("", "TIME", "CLIENT", "~SENDER", ">TIER", ">COHORT", ">HELD", "REASON")
	for _, r := range v.Last {
		t.Add("", moment(r.Time, c.now()), r.Client, r.Sender, r.Tier, r.Cohort, seconds(r.Held), r.Reason)
	}
	return t.Write(c.out, c.screen)
}
