package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/legible"
	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

const explainHelp = `Explain why a message waits, or what would happen to mail for a
domain: the route, the hosts and their states, the sources, each limit in force and the
configuration block that set it, suspensions, waiting mail, and the rate that the limits
allow.

An argument in the form of a message id is an id; anything else is a domain.`

func newExplain(c *cli) *cobra.Command {
	var q api.ExplainQuery
	isID := func(args []string) bool {
		_, err := envelope.ParseID(args[0])
		return err == nil
	}
	ask := func(ctx context.Context, client *api.Client, args []string) (e api.Explanation, err error) {
		if at := strings.LastIndexByte(args[0], '@'); at >= 0 {
			return e, usagef(
				"%q is an address: use its domain, as in: mta explain %s\nto see whether the address is suppressed: "+
					"mta suppress check %s",
				args[0], args[0][at+1:], args[0])
		}
		if !isID(args) {
			return api.OpExplain.Call(ctx, client, api.ExplainQuery{Domain: args[0], Tenant: q.Tenant})
		}
		if q.Tenant != "" {
			return e, usagef("--tenant is for domains: a message has its own tenant")
		}
		return api.OpExplain.Call(ctx, client, api.ExplainQuery{ID: strings.ToLower(args[0])})
	}
	cmd := ofAll(c, &cobra.Command{
		Use: "explain DOMAIN|ID", Short: "explain why mail waits, or what would happen to it", Long: explainHelp,
		Example: `  mta explain example.com
  mta explain example.com --tenant acme
  mta explain 01knd1p5c0002`,
		Args: oneName("a domain, or the id of a message"), ValidArgsFunction: c.completeIDs,
	}, "ask each node of the cluster about a domain, and for a message the one that has it", isID, ask, c.explain)
	c.addParams(cmd, &q, "tenant")
	return c.watchable(cmd)
}

// onceWriter writes each reply in full where it comes first, and refers to it afterwards. Each write is a line.
type onceWriter struct {
	io.Writer
	replies []string
	written map[string]bool
}

func (w *onceWriter) Write(line []byte) (int, error) {
	text := string(line)
	for _, r := range w.replies {
		first, rest, found := strings.Cut(text, r)
		if !found {
			continue
		}
		if !w.written[r] {
			w.written[r] = true
			first += r
		} else {
			first += "as above"
		}
		text = first + strings.ReplaceAll(rest, r, "as above")
	}
	_, err := io.WriteString(w.Writer, text)
	return len(line), err
}

// repliesIn lists the replies of hosts that an explanation has, and the reasons of suspensions, which can be replies.
func repliesIn(e *api.Explanation) (all []string) {
	add := func(r *api.Reply) {
		if r != nil {
			bare := *r
			bare.Command = ""
			all = append(all, draw.Clean(bare.String()))
		}
	}
	if e.Message != nil {
		for _, r := range e.Message.Recipients {
			add(r.Status.Reply)
		}
	}
	for i := range e.Destinations {
		for _, a := range e.Destinations[i].Actions {
			all = append(all, draw.Clean(a.Reason))
		}
		for _, h := range e.Destinations[i].Hosts {
			for _, a := range h.Host.Actions {
				all = append(all, draw.Clean(a.Reason))
			}
			if h.Host.Broken != nil {
				add(&h.Host.Broken.Reply)
			}
			for _, p := range h.Host.Paths {
				if p.Broken != nil {
					add(&p.Broken.Reply)
				}
			}
		}
	}
	const short = 20 // what is as short as "as above" may be part of other words
	all = slices.DeleteFunc(all, func(r string) bool { return len(r) < short })
	slices.Sort(all)
	return slices.Compact(all)
}

func (c *cli) explain(e api.Explanation) error {
	out := c.out
	defer func() { c.out = out }()
	c.out = &onceWriter{out, repliesIn(&e), make(map[string]bool)}
	f := c.facts(12)
	if e.Message != nil {
		c.explainMessage(f, e.Message)
	}
	var errs []error
	for i := range e.Destinations {
		if i > 0 || e.Message != nil {
			fmt.Fprintln(c.out)
		}
		errs = append(errs, c.explainDestination(f, &e.Destinations[i]))
	}
	return errors.Join(errs...)
}

func (c *cli) explainMessage(f facts, m *api.ExplainedMessage) {
	f.add("message", "%s from %s, received %s", m.ID, angled(m.Sender), moment(m.Received, c.now()))
	f.some("tenant", m.Tenant)
	f.add("source", "%s", cmp.Or(m.Source, "chosen when it is sent"))
	for _, r := range m.Recipients {
		s := &r.Status
		fmt.Fprintln(c.out)
		f.add("recipient", "%s", angled(s.Address))
		f.add("state", "%s, %s so far", s.State, plural(s.Attempts, "attempt"))
		f.add("why", "%s%s", r.Why, c.look().More(r.Until))
		if s.State == api.StateDeferred && !s.Next.IsZero() {
			f.add("next", "%s", moment(s.Next, c.now()))
		}
		if s.Reply != nil {
			f.add("last reply", "%s", s.Reply.String())
		}
		f.at("given up", s.Expires)
	}
	if m.More > 0 {
		fmt.Fprintf(c.out, "\n... and %s\n", plural(m.More, "more recipient"))
	}
}

func (c *cli) explainDestination(f facts, d *api.Destination) error {
	f.add("domain", "%s", d.Domain)
	f.add("now", "%s%s", d.Now, c.look().More(d.Until))
	f.list("rules", d.Rules)
	poolFacts(f, d)
	f.list("route", d.Steps)
	if d.Failure != nil {
		f.add("failure", "%s", d.Failure.String())
		c.queued(f, d)
		return nil
	}
	site := d.Site
	if d.Provider != "" {
		site += ", provider " + d.Provider
	}
	f.add("site", "%s", site)
	c.tlsFacts(f, d)
	c.queued(f, d)
	f.add("ceiling", "%s", cmp.Or(shortSum(d.Ceiling.Binds), "no rate is limited"))
	others, more := firstOf(d.Ceiling.Others, mostLines)
	for _, o := range others {
		f.add("", "(%s)", shortSum(o))
	}
	if more > 0 {
		f.add("", "(and %d more limits)", more)
	}
	actions, more := firstOf(d.Actions, mostLines)
	for _, a := range actions {
		f.add("action", "%s", c.look().Action(a))
	}
	if more > 0 {
		f.add("action", "%d more: mta sites %s --json", more, d.Site)
	}
	fmt.Fprintln(c.out)
	c.picture(d)
	fmt.Fprintln(c.out)
	return tableOf(c, listing.Limits, d.Limits).Write(c.out, c.screen)
}

// tlsFacts prints how connections must be protected, and how the last one to each host was.
func (c *cli) tlsFacts(f facts, d *api.Destination) {
	f.add("TLS", "%s (%s)", d.TLS, d.TLSOrigin)
	f.list("", d.TLSPolicies)
	if d.MTASTS != nil {
		c.stsLines(f, d.MTASTS)
	}
	hosts, _ := firstOf(d.Hosts, mostLines)
	for _, h := range hosts {
		switch t := h.Host.TLS; {
		case t == nil:
		case t.VerifiedBy != "":
			f.add("", "%s: %s, verified by %s, certificate for %s", h.Host.Name, t.Version, t.VerifiedBy, t.Certificate)
		default:
			f.add("", "%s: %s, not verified: %s", h.Host.Name, t.Version, t.Unverified)
		}
	}
}

// mostPools is how many other pools are named.
const mostPools = 5

// poolFacts prints whose sources are shown, where the mail of others takes other ones.
func poolFacts(f facts, d *api.Destination) {
	if len(d.OtherPools) == 0 {
		return
	}
	f.add("pool", "%s; mail of other tenants takes others, which are not shown:", d.Pool)
	for i, p := range d.OtherPools {
		if i == mostPools {
			f.add("", "and %d more", len(d.OtherPools)-i)
			break
		}
		f.add("", "%s: --tenant %s", p.Name, strings.Join(p.Tenants[:min(mostPools, len(p.Tenants))], ", "))
	}
}

// queued prints what waits where.
func (c *cli) queued(f facts, d *api.Destination) {
	q := &d.Queued
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{
		{q.Due, "due"}, {q.Parked, "waiting in the queue"}, {q.Active, "with delivery"}, {q.Deferred, "deferred"},
		{q.Held, "held"}, {q.Hours, "waiting for sending hours"}, {q.Paced, "waiting for the pace of their campaign"},
	} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	if q.Warmup > 0 {
		parts = append(parts, fmt.Sprintf("%d waiting for warm-ups (all domains of the provider)", q.Warmup))
	}
	switch {
	case q.Paused > 0 && q.PausedBy == "domain "+d.Domain:
		parts = append(parts, fmt.Sprintf("%d waiting for the end of the pause", q.Paused))
	case q.Paused > 0:
		parts = append(parts, fmt.Sprintf("%d waiting for the end of the pause of %s (all destinations)", q.Paused,
			draw.Clean(q.PausedBy)))
	}
	f.add("in queue", "%s", cmp.Or(strings.Join(parts, ", "), "no recipient"))
	if q.Unsorted > 0 {
		f.add("", "(and %d not routed yet, of all destinations)", q.Unsorted)
	}
	warming(f, d.Sources)
	c.lanes(f, d.Lanes)
}

// picture draws the way from the sources to the hosts.
//
//	out1 198.51.100.1 ──┐
//	out2 198.51.100.2 ──┴─ 10 of 12 connections ─┬─ 1 mx1.example [192.0.2.1:25] active, 10 connections
//	                                             └─ 2 mx2.example [192.0.2.2:25] unused
func (c *cli) picture(d *api.Destination) {
	sources, more := firstOf(d.Sources, mostSources)
	var left, right []string
	for _, s := range sources {
		text := strings.TrimSpace(s.Name + " " + s.Address)
		if s.Reaches < len(d.Hosts) {
			text += fmt.Sprintf(" (reaches %d)", s.Reaches)
		}
		left = append(left, text)
	}
	if more > 0 {
		left = append(left, fmt.Sprintf("and %d more", more))
	}
	hosts, more := firstOf(d.Hosts, mostHosts)
	for i := range hosts {
		right = append(right, c.tierHost(&hosts[i]))
	}
	if more > 0 {
		right = append(right, fmt.Sprintf("and %d more", more))
	}
	if len(left) == 0 {
		left = []string{"no source"}
	}
	middle := fmt.Sprintf("%d of %s ─", d.Connections, plural(d.SlowStart, "connection"))
	width := 0
	for _, s := range left {
		width = max(width, legible.Columns(s))
	}
	at := len(left) - 1 // the line on which left and right meet
	for row := range max(len(left), at+len(right)) {
		line := strings.Repeat(" ", width+1)
		if row < len(left) {
			line = left[row] + " " + strings.Repeat("─", width-legible.Columns(left[row]))
		}
		switch {
		case row < at:
			line += "─" + branch(row, len(left), "┬┤┴")
		case row == at && len(left) > 1:
			line += "─┴─ " + middle
		case row == at:
			line += "─── " + middle
		default:
			line += strings.Repeat(" ", 4+legible.Columns(middle))
		}
		if row >= at {
			line += branch(row-at, len(right), "┬├└") + "─ " + right[row-at]
		}
		fmt.Fprintln(c.out, draw.Clean(line))
	}
}

// branch is the sign at which line i of n meets the others: the first, one between, or the last.
func branch(i, n int, signs string) string {
	s := []rune(signs)
	switch {
	case n == 1:
		return "─"
	case i == 0 && signs == "┬┤┴":
		return "┐"
	case i == 0:
		return string(s[0])
	case i == n-1:
		return string(s[2])
	}
	return string(s[1])
}

func (c *cli) tierHost(t *api.TierHost) string {
	h := &t.Host
	text := fmt.Sprintf("%d %s [%s] %s", t.Tier, h.Name, h.Address, h.State)
	if h.Connections > 0 {
		text += fmt.Sprintf(", %s, backlog %d", plural(h.Connections, "connection"), h.Backlog)
	}
	if h.Mode != "" {
		text += ", " + h.Mode
	}
	if retry, why := c.look().HostNote(h); why != "" {
		switch {
		case retry.After(c.now()):
			text += ", next try in " + legible.Left(retry.Sub(c.now()))
		case !retry.IsZero():
			text += ", next try now"
		}
		text += ": " + why
	}
	return text
}

// Of a pool of a thousand sources a page shows some, and counts the others: what a few have to wait for
// is what the others wait for. --json has all of them.
const (
	mostSources = 8  // in the picture
	mostLines   = 5  // of warm-ups, lanes, rates and actions each
	mostHosts   = 12 // in the picture
)

// firstOf gives the first most of a list, and how many are left out; one more is shown rather than
// counted.
func firstOf[T any](all []T, most int) (some []T, more int) {
	if len(all) <= most+1 {
		return all, 0
	}
	return all[:most], len(all) - most
}

// lanes prints what waits within delivery, the longest first.
func (c *cli) lanes(f facts, all []api.Lane) {
	byLength := slices.Clone(all)
	slices.SortStableFunc(byLength, func(x, y api.Lane) int {
		return cmp.Compare(y.Waiting+y.Running, x.Waiting+x.Running)
	})
	some, more := firstOf(byLength, mostLines)
	for i := range some {
		f.add("delivery", "%s", c.lane(&some[i]))
	}
	if more == 0 {
		return
	}
	waiting, running := 0, 0
	for _, l := range byLength[len(some):] {
		waiting += l.Waiting
		running += l.Running
	}
	f.add("delivery", "%d waiting, %d on connections, %d more sources", waiting, running, more)
}

func (c *cli) lane(l *api.Lane) string {
	text := fmt.Sprintf("%d waiting, %d on connections, source %s", l.Waiting, l.Running, l.Source)
	if l.Opening > 0 {
		text += fmt.Sprintf(", %d more being opened", l.Opening)
	}
	if l.Waiting > 0 {
		text += ", for " + legible.Age(c.now().Sub(l.Oldest))
		if l.Why != "" {
			text += ": " + l.Why + c.look().More(l.Until)
		}
	}
	return text
}

// warming prints where the warm-ups of sources stand.
func warming(f facts, sources []api.DestinationSource) {
	var all []string
	for _, s := range sources {
		if s.Warmup != "" {
			all = append(all, s.Name+": "+s.Warmup)
		}
	}
	some, more := firstOf(all, mostLines)
	for _, text := range some {
		f.add("warm-up", "%s", text)
	}
	if more > 0 {
		f.add("warm-up", "%d more sources: mta warmup list", more)
	}
}

// shortSum shortens a sum of limits, one for each source.
func shortSum(text string) string {
	terms, rest, _ := cutLast(text, ": ")
	all := strings.Split(terms, " + ")
	some, more := firstOf(all, mostLines)
	if more == 0 {
		return text
	}
	return fmt.Sprintf("%s + %d more: %s", strings.Join(some, " + "), more, rest)
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
