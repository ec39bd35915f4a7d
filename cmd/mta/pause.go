package main

import (
	"context"
	"fmt"
	"os/user"
	"slices"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/short"
	"example.org/mta/operator/api"
)

const pauseHelp = `Stop the mail of a tenant, pool or source, the mail to a domain, or all mail, until it is
resumed or for a time. The mail waits in the queue, with the pause as its reason, and
expires as usual; transactions in progress finish. Mail of a paused source leaves from the
others of its pool, if there are any. Pauses survive a restart.

Without arguments, list the pauses.`

func newPause(c *cli) *cobra.Command {
	var (
		b      api.BeginPause
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "pause [everything | tenant NAME | pool NAME | source NAME | domain NAME]",
		Short: "stop the mail of a tenant, pool, source or domain, or all mail",
		Long:  pauseHelp,
		Example: `  mta pause tenant acme --reason "their list is stolen"
  mta pause domain example.com --for 2h
  mta pause everything`,
		Args:              pausable(true),
		ValidArgsFunction: c.completePausable(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && (b.For > 0 || b.Reason != "") {
				return hinted{usagef("say what to pause"), "to stop all mail: mta pause everything"}
			}
			client, err := c.client()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return c.listPauses(cmd.Context(), client, asJSON)
			}
			b.What, b.Name, b.By = api.PauseWhat(args[0]), second(args), c.caller()
			done, err := client.BeginPause(cmd.Context(), b)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.out, done)
			}
			if c.wouldChange(done.Effect, "pause") {
				return nil
			}
			until := "until it is resumed"
			if !done.Until.IsZero() {
				until = "until " + moment(done.Until, c.now())
			}
			fmt.Fprintf(c.out, "%s is paused %s\n", pauseOf(&done.Pause), until)
			return nil
		},
	}
	cmd.Flags().Var((*ageFlag)(&b.For), "for", "the duration, such as 90s, 15m, 2h (default: until resumed)")
	changeFlags(cmd, &b.Intent)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newResume(c *cli) *cobra.Command {
	var in api.Intent
	return changes(c, &cobra.Command{
		Use:               "resume everything | tenant NAME | pool NAME | source NAME | domain NAME",
		Short:             "end a pause",
		Long:              "End a pause: its mail leaves immediately, within the limits of sites and sources.\nOther pauses stay in force.",
		Args:              pausable(false),
		ValidArgsFunction: c.completePausable(pausedNames),
	}, &in, "pause", func(ctx context.Context, client *api.Client, args []string) (api.PauseChanged, error) {
		return client.EndPause(ctx, api.EndPause{Intent: in, What: api.PauseWhat(args[0]), Name: second(args)})
	}, func(done api.PauseChanged) {
		fmt.Fprintf(c.out, "%s is resumed; it was paused for %s\n", pauseOf(&done.Pause), short.Age(c.now().Sub(done.Since)))
	})
}

func (c *cli) listPauses(ctx context.Context, client *api.Client, asJSON bool) error {
	l, err := client.Pauses(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(c.out, l)
	}
	if len(l.Pauses) == 0 {
		fmt.Fprintln(c.err, "nothing is paused")
	}
	for i := range l.Pauses {
		fmt.Fprintln(c.out, c.pauseLine(&l.Pauses[i]))
	}
	return nil
}

// pauseLine returns what is paused, by whom, since when, until when and why.
func (c *cli) pauseLine(p *api.Pause) string {
	text := fmt.Sprintf("%s, by %s since %s", pauseOf(p), p.By, moment(p.Since, c.now()))
	if !p.Until.IsZero() {
		text += ", until " + moment(p.Until, c.now())
	}
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return draw.Clean(text)
}

func pauseOf(p *api.Pause) string {
	if p.Name == "" {
		return string(p.What)
	}
	return draw.Clean(string(p.What) + " " + p.Name)
}

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

func pauseWords() []string {
	var words []string
	for _, w := range api.PauseWhats {
		words = append(words, string(w))
	}
	return words
}

// completePausable completes what can be paused and then its name: those that others give for a kind, or
// else those of the configuration.
func (c *cli) completePausable(others func(api.PauseWhat) namer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return pauseWords(), cobra.ShellCompDirectiveNoFileComp
		}
		what := api.PauseWhat(args[0])
		names := map[api.PauseWhat]namer{api.PauseTenant: c.tenantNames, api.PausePool: c.poolNames, api.PauseSource: c.sourceNames}[what]
		if others != nil {
			names = others(what)
		}
		if names == nil || len(args) > 1 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return c.complete(names)(cmd, args, prefix)
	}
}

// pausedNames asks for what is paused of a kind.
func pausedNames(what api.PauseWhat) namer {
	return func(ctx context.Context, client *api.Client, _ string) (names []string, err error) {
		l, err := client.Pauses(ctx)
		for _, p := range l.Pauses {
			if p.What == what {
				names = append(names, p.Name)
			}
		}
		return names, err
	}
}

// pausable wants what can be paused and, of all but everything, its name.
func pausable(orNothing bool) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		want := 2
		if len(args) > 0 && args[0] == string(api.PauseEverything) {
			want = 1
		}
		const everyKind = "as in: everything, tenant NAME, pool NAME, source NAME or domain NAME"
		switch {
		case len(args) == 0 && orNothing:
			return nil
		case len(args) == 0:
			return hinted{usagef("name what to resume or pause"), everyKind}
		case !slices.Contains(api.PauseWhats, api.PauseWhat(args[0])):
			return hinted{usagef("%q can't be paused", args[0]), everyKind}
		case len(args) < want:
			return hinted{usagef("the name of the %s is missing", args[0]), fmt.Sprintf("as in: %s %s NAME", cmd.CommandPath(), args[0])}
		case len(args) > want:
			return usagef("unexpected argument %q", args[want])
		}
		return nil
	}
}
