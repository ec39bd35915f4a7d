package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"example.org/mta/lab/demo"
)

const demoHelp = `Show the whole relay at work on this machine: a DNS server, mailbox providers that
behave like real ones, a relay with a separate data directory, and a mixed stream of
mail. At the end every message is accounted for. Only loopback is used.

Ctrl-C ends it early, and cleanly.`

func newDemo(c *cli) *cobra.Command {
	o := demo.Options{Out: c.out, TTY: c.screen.TTY}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "show the relay at work against built-in providers",
		Long:  demoHelp,
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Messages < 0 || o.Over < 0 || o.Limit < 0 {
				return usagef("numbers can't be negative")
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return demo.Run(ctx, o)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Messages, "messages", 0, "`number` of messages to submit (default 20000)")
	flags.DurationVar(&o.Over, "over", 0, "how long to submit, if the relay keeps up (default 12s)")
	flags.DurationVar(&o.Limit, "limit", 0, "how long to wait for mail that is still queued then (default 1m)")
	flags.StringVar(&o.Dir, "dir", "", "the `directory` for the relay's data, kept afterwards (default: a temporary one)")
	flags.Uint64Var(&o.Seed, "seed", 0, "random seed (`number`) of the mail and the providers' behavior")
	flags.BoolVar(&o.Keep, "keep", false, "leave everything running after the summary, until interrupted")
	return cmd
}
