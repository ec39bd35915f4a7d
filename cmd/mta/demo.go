package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"mta/mta/demo"
)

const demoHelp = `Show the whole relay at work on this machine: a DNS server and mailbox providers with
the manners of real ones, the relay on a data directory of its own, and a mixed stream
of mail. In the end every message is accounted for. Nothing beyond loopback is touched.

Ctrl-C ends it early, and cleanly.`

func newDemo(c *cli) *cobra.Command {
	o := demo.Options{Out: c.out, TTY: c.screen.tty}
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
	flags.DurationVar(&o.Over, "over", 0, "how long submitting takes, if the relay keeps up (default 12s)")
	flags.DurationVar(&o.Limit, "limit", 0, "how long to wait for what is still queued then (default 1m)")
	flags.StringVar(&o.Dir, "dir", "", "the `folder` for the relay's data, kept afterwards (default: a temporary one)")
	flags.Uint64Var(&o.Seed, "seed", 0, "`number` that makes the mail and the providers' moods")
	flags.BoolVar(&o.Keep, "keep", false, "leave all running after the summary, until interrupted")
	return cmd
}
