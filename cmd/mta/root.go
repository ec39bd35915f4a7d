package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

const rootHelp = `mta is an outbound mail relay.

It accepts mail by SMTP, keeps it safe on disk, delivers it to the mail exchangers of
each recipient, retries temporary failures, and reports permanent ones to the sender.
'mta serve' runs the relay; the other commands talk to the running relay on its
control socket.

The configuration is the file of --config, else of $MTA_CONFIG, else ` + defaultConfig + `
if it exists, else the built-in defaults: the relay accepts mail on 127.0.0.1:2525 and
keeps it in ./mta-data.

Exit codes: 0 success, 1 failure, 2 usage error, 78 the data were written by a version of
mta whose format this one does not read, or 'mta serve' needs an operator.`

func newRoot(c *cli) *cobra.Command {
	root := group("mta", "an outbound mail relay")
	root.Long = rootHelp
	root.Version = thisBuild().Version
	root.SetVersionTemplate("mta {{.Version}}\n")
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(flagError)
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetIn(c.in)
	root.SetOut(c.out)
	root.SetErr(c.err)
	root.PersistentPreRun = func(*cobra.Command, []string) { c.started = true }
	root.PersistentFlags().StringVar(&c.configFlag, "config", "", "the configuration `file`")
	root.PersistentFlags().StringVar(&c.socketFlag, "socket", "", "the control `socket` of the relay (default: that of the configuration)")
	root.AddCommand(
		newServe(c), newCheck(c), newDemo(c), newBench(c), newImport(c),
		newStatus(c), newTop(c),
		newQueue(c), newExplain(c), newSites(c), newHosts(c), newConnections(c), newSources(c), newPools(c), newTenants(c), newWarmup(c), newPause(c), newResume(c), newStreams(c), newTLS(c), newTrace(c), newConsole(c), newSuppress(c), newBounce(c), newUser(c), newKey(c), newTemplate(c), newAdmission(c), newHistory(c), newDKIM(c), newTLSRPT(c), newLog(c), newActions(c), newUpgrade(c), newConfig(c),
		newBackup(c), newRestore(c),
		newSend(c), newSendmail(c), newMailq(c), newVersion(c), newCompletion(c),
	)
	root.AddCommand(forPackagers(c)...)
	c.completeNames(root)
	return root
}

// group makes a command that has only commands below it.
func group(use, short string, below ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short}
	g.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		err := usagef("unknown command %q for %q", args[0], cmd.CommandPath())
		cmd.SuggestionsMinimumDistance = max(1, min(2, len(args[0])/2)) // of a short word all would be like some other
		if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
			err = hinted{err, "did you mean " + strings.Join(like, " or ") + "?"}
		}
		return err
	}
	g.RunE = func(cmd *cobra.Command, _ []string) error {
		fmt.Fprint(cmd.ErrOrStderr(), cmd.Long)
		if cmd.Long != "" {
			fmt.Fprint(cmd.ErrOrStderr(), "\n\n")
		}
		fmt.Fprint(cmd.ErrOrStderr(), cmd.UsageString())
		return exitError(exitUsage)
	}
	g.AddCommand(below...)
	return g
}

// joined lists words.
func joined[T ~string](words []T) string {
	list := make([]string, len(words))
	for i, w := range words {
		list[i] = string(w)
	}
	return strings.Join(list, ", ")
}

// flagError puts Go's words for what is no number into ours.
func flagError(_ *cobra.Command, err error) error {
	if own := (usageError{}); errors.As(err, &own) {
		return own
	}
	if at := strings.LastIndex(err.Error(), `: strconv.Parse`); at >= 0 {
		return errors.New(err.Error()[:at] + ": want a number")
	}
	return err
}

// noArgs refuses arguments.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unexpected argument %q", args[0])
	}
	return nil
}

// oneOf completes a flag that takes one of a few words.
func oneOf[T ~string](cmd *cobra.Command, flag string, words []T) {
	list := make([]string, len(words))
	for i, w := range words {
		list[i] = string(w)
	}
	// The flag was made by the caller: there is no other error.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp))
}
