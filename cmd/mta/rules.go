package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/user"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/legible"
	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

const ruleHelp = `Rules for mail, from now on and for a time or until they are ended, over restarts and
reloads too: what today's hour needs, without an edit of the configuration. No rule
keeps mail from its max_age. Where several apply, the stricter wins: bounce, hold,
suspend; then reroute and slow, of which the lowest rate counts. 'mta explain' names all.`

func newRule(c *cli) *cobra.Command {
	return group("rule", "bounce, hold, suspend, reroute or slow some mail", ruleHelp,
		newRuleAdd(c), newRuleList(c), newRuleEnd(c))
}

const ruleAddHelp = `Add a rule for the mail that fits all of the flags, or for all mail (--all):

  bounce     give up what comes, with a report to its sender, and at once what waits for its
             hours or pace; other mail in the queue follows at its next attempt ('mta queue
             bounce' ends it at once)
  hold       hold what comes, and what waits for its hours or pace, until 'mta queue
             release'; not what was tried
  suspend    let it wait in the queue until the rule ends, as 'mta pause' does
  reroute    send it to another host (--host), at its next attempt; the settings of its
             domain still count. Mail with a 'mta queue reroute' of its own keeps it
  slow RATE  send at most so many messages, as 10/s, 100/m or 5000/h, together; by
             campaign, of each tenant's campaign of that name

A rule that does the same with the same mail is replaced, and keeps its number.
Count first: --dry-run shows how much mail in the queue the rule fits, except by --pool.
--provider and --pool select after the route is found: reroute has neither, slow no
--pool. Only suspend (as the only flag) and slow have --source. There are at most 1000
rules, and 100 more that suspend.`

func newRuleAdd(c *cli) *cobra.Command {
	var b api.AddRule
	cmd := changes(c, &cobra.Command{
		Use: "add bounce|hold|suspend|reroute|slow [RATE]", Short: "add a rule", Long: ruleAddHelp,
		Example: `  mta rule add --provider google --for 1h slow 100/m --reason "their outage"
  mta rule add --domain example.com bounce
  mta rule add --domain dead.example --host mx.new.example reroute`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || !slices.Contains(api.RuleActions, api.RuleAction(args[0])) {
				return hinted{usagef("name what the rule does"), "one of bounce, hold, suspend, reroute and slow"}
			}
			switch slow := args[0] == string(api.RuleSlow); {
			case slow && len(args) < 2:
				return hinted{usagef("slow needs a rate"), "as in: slow 100/m"}
			case len(args) > 2 || !slow && len(args) > 1:
				return usagef("unexpected argument %q", args[len(args)-1])
			}
			return nil
		},
		ValidArgsFunction: cobra.FixedCompletions(texts(api.RuleActions), cobra.ShellCompDirectiveNoFileComp),
	}, &b.Intent, "rule", func(ctx context.Context, client *api.Client, args []string) (api.RuleChanged, error) {
		b.Action, b.Rate, b.By = api.RuleAction(args[0]), second(args), c.caller()
		done, err := api.OpAddRule.Call(ctx, client, b)
		if done.Fits != nil {
			fmt.Fprintf(c.err, "it fits %s in the queue\n", plural(*done.Fits, "recipient"))
		}
		return done, err
	}, func(done api.RuleChanged) {
		fmt.Fprintf(c.out, "rule %d: %s, %s\n", done.ID, draw.Clean(done.Does()), c.untilEnded(&done.Rule, "ended"))
	})
	c.addParams(cmd, &b, "tenant", "pool", "source", "provider", "domain", "campaign", "all", "host", "for")
	for name, names := range map[string]namer{"tenant": c.tenantNames, "pool": c.poolNames, "source": c.sourceNames} {
		_ = cmd.RegisterFlagCompletionFunc(name, c.complete(names))
	}
	return cmd
}

// untilEnded returns when a rule ends, or who has it end.
func (c *cli) untilEnded(r *api.Rule, ended string) string {
	if r.Until.IsZero() {
		return "until it is " + ended
	}
	return "until " + moment(r.Until, c.now())
}

func newRuleList(c *cli) *cobra.Command {
	return whole(c, &cobra.Command{
		Use: "list", Short: "list the rules", Long: "List the rules in force, pauses among them, the strictest first.",
		Args: noArgs,
	}, listing.Rules, api.OpRules, "there are no rules")
}

func newRuleEnd(c *cli) *cobra.Command {
	var e api.EndRule
	number := func(text string) error {
		var err error
		if e.ID, err = strconv.Atoi(text); err != nil || e.ID < 1 {
			return hinted{usagef("%q is not the number of a rule", text), "for a list: mta rule list"}
		}
		return nil
	}
	cmd := changes(c, &cobra.Command{
		Use: "end RULE...", Short: "end rules",
		Long: `End rules, by their numbers in 'mta rule list'. What they have suspended leaves
immediately, within the limits of sites and sources; what they have held stays held,
until 'mta queue release'.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return hinted{usagef("name the numbers of rules"), "for a list: mta rule list"}
			}
			for _, text := range args {
				if err := number(text); err != nil {
					return err
				}
			}
			return nil
		},
		ValidArgsFunction: c.complete(func(ctx context.Context, client *api.Client, _ string) (ids []string, _ error) {
			l, err := api.OpRules.Call(ctx, client, api.None{})
			for i := range l.Rules {
				ids = append(ids, strconv.Itoa(l.Rules[i].ID))
			}
			return ids, err
		}),
	}, &e.Intent, "rule", func(ctx context.Context, client *api.Client, args []string) (api.RuleChanged, error) {
		if err := number(args[0]); err != nil {
			return api.RuleChanged{}, err
		}
		return api.OpEndRule.Call(ctx, client, e)
	}, func(done api.RuleChanged) {
		fmt.Fprintf(c.out, "rule %d has ended after %s: %s\n", done.ID, legible.Age(c.now().Sub(done.Since)),
			draw.Clean(done.Does()))
		if done.Action == api.RuleHold {
			fmt.Fprintln(c.err, "what it held stays held; to release it: mta queue release")
		}
	})
	end := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		for i := range args {
			err = errors.Join(err, end(cmd, args[i:i+1])) // one that has ended keeps no other
		}
		return err
	}
	return cmd
}

const pauseHelp = `Stop the mail of a tenant, pool or source, the mail to a domain, or
all mail, for a time or until it is resumed, over restarts too. The mail waits in the
queue, with the pause as its reason, and expires as usual; transactions in progress
finish. Mail of a paused source leaves from the others of its pool.

A pause is a rule: 'mta rule add ... suspend' can select by more than one name. Without
arguments, list the pauses.`

func newPause(c *cli) *cobra.Command {
	b := api.AddRule{Action: api.RuleSuspend}
	cmd := shows(c, &cobra.Command{
		Use:   "pause [everything | tenant NAME | pool NAME | source NAME | domain NAME]",
		Short: "stop the mail of a tenant, pool, source or domain, or all mail", Long: pauseHelp,
		Example: `  mta pause tenant acme --reason "their list is stolen"
  mta pause domain example.com --for 2h
  mta pause everything`,
		Args: pausable(true), ValidArgsFunction: c.completePausable(nil),
	}, func(ctx context.Context, client *api.Client, args []string) (any, func() error, error) {
		switch {
		case len(args) == 0 && (b.For != nil || b.Reason != ""):
			return nil, nil, hinted{usagef("say what to pause"), "to stop all mail: mta pause everything"}
		case len(args) == 0:
			l, err := api.OpRules.Call(ctx, client, api.None{})
			l.Rules = slices.DeleteFunc(l.Rules, func(r api.Rule) bool { return r.Action != api.RuleSuspend })
			return l, func() error { return c.listPauses(&l) }, err
		}
		b.Selection, b.By = selected(args), c.caller()
		done, err := api.OpAddRule.Call(ctx, client, b)
		return done, func() error {
			if c.wouldChange(done.Effect, "pause") {
				return nil
			}
			fmt.Fprintf(c.out, "%s is paused %s\n", mailOf(&done.Rule), c.untilEnded(&done.Rule, "resumed"))
			c.behind(done.Effect)
			return nil
		}, err
	})
	c.addParams(cmd, &b, "for")
	changeFlags(cmd, &b.Intent)
	return cmd
}

func newResume(c *cli) *cobra.Command {
	var in api.Intent
	return changes(c, &cobra.Command{
		Use: "resume everything | tenant NAME | pool NAME | source NAME | domain NAME", Short: "end a pause",
		Long: "End a pause: its mail leaves immediately, within the limits of sites and sources.\nOther pauses stay " +
			"in force.",
		Args: pausable(false), ValidArgsFunction: c.completePausable(pausedNames),
	}, &in, "pause", func(ctx context.Context, client *api.Client, args []string) (api.RuleChanged, error) {
		return api.OpEndRule.Call(ctx, client,
			api.EndRule{Intent: in, Action: api.RuleSuspend, Selection: selected(args)})
	}, func(done api.RuleChanged) {
		fmt.Fprintf(c.out, "%s is resumed; it was paused for %s\n", mailOf(&done.Rule),
			legible.Age(c.now().Sub(done.Since)))
	})
}

func (c *cli) listPauses(l *api.RuleList) error {
	if len(l.Rules) == 0 {
		fmt.Fprintln(c.err, "nothing is paused")
	}
	for i := range l.Rules {
		fmt.Fprintln(c.out, c.ruleLine(&l.Rules[i]))
	}
	return nil
}

// ruleLine returns what a rule does, or what is paused, by whom, since when, until when and why.
func (c *cli) ruleLine(r *api.Rule) string {
	does := mailOf(r)
	if r.Action != api.RuleSuspend {
		does = fmt.Sprintf("rule %d: %s", r.ID, r.Does())
	}
	text := fmt.Sprintf("%s, by %s since %s", does, r.By, moment(r.Since, c.now()))
	if !r.Until.IsZero() {
		text += ", until " + moment(r.Until, c.now())
	}
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	if r.Source != "" && r.Action == api.RuleSuspend {
		text += fmt.Sprintf("; to end that: mta rule end %d", r.ID)
	}
	return draw.Clean(text)
}

func mailOf(r *api.Rule) string { return draw.Clean(r.Selection.String()) }

// caller is who runs the command, for those who ask who has paused something.
func (c *cli) caller() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return c.env("LOGNAME")
}

func second(args []string) string {
	if len(args) < 2 {
		return ""
	}
	return args[1]
}

// pausables are the kinds of what can be paused, with the name in a selection; everything has none.
var pausables = map[string]func(*api.Selection) *string{
	"tenant": func(s *api.Selection) *string { return &s.Tenant },
	"pool":   func(s *api.Selection) *string { return &s.Pool },
	"source": func(s *api.Selection) *string { return &s.Source },
	"domain": func(s *api.Selection) *string { return &s.Domain },
}

const everything = "everything"

// selected makes a selection of what the arguments of pause and resume name.
func selected(args []string) (s api.Selection) {
	if args[0] == everything {
		s.All = true
	} else {
		*pausables[args[0]](&s) = args[1]
	}
	return s
}

// completePausable completes what can be paused and then its name: those that others give for a kind, or
// else those of the configuration.
func (c *cli) completePausable(others func(kind string) namer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return append(slices.Sorted(maps.Keys(pausables)), everything), cobra.ShellCompDirectiveNoFileComp
		}
		names := map[string]namer{"tenant": c.tenantNames, "pool": c.poolNames, "source": c.sourceNames}[args[0]]
		if others != nil {
			names = others(args[0])
		}
		if names == nil || len(args) > 1 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return c.complete(names)(cmd, args, prefix)
	}
}

// pausedNames asks for what is paused of a kind.
func pausedNames(kind string) namer {
	return func(ctx context.Context, client *api.Client, _ string) (names []string, err error) {
		l, err := api.OpRules.Call(ctx, client, api.None{})
		for i := range l.Rules {
			r := &l.Rules[i]
			if terms := r.Terms(); r.Action == api.RuleSuspend && len(terms) == 1 && terms[0][0] == kind {
				names = append(names, terms[0][1])
			}
		}
		return names, err
	}
}

// pausable wants what can be paused and, of all but everything, its name.
func pausable(orNothing bool) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		want := 2
		if len(args) > 0 && args[0] == everything {
			want = 1
		}
		const everyKind = "as in: everything, tenant NAME, pool NAME, source NAME or domain NAME"
		switch {
		case len(args) == 0 && orNothing:
			return nil
		case len(args) == 0:
			return hinted{usagef("name what to resume or pause"), everyKind}
		case args[0] != everything && pausables[args[0]] == nil:
			return hinted{usagef("%q can't be %sd", args[0], cmd.Name()), everyKind}
		case len(args) < want:
			return hinted{usagef("the name of the %s is missing", args[0]),
				fmt.Sprintf("as in: %s %s NAME", cmd.CommandPath(), args[0])}
		case len(args) > want:
			return usagef("unexpected argument %q", args[want])
		}
		return nil
	}
}
