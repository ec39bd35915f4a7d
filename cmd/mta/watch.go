package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const (
	watchEvery  = "2s" // --watch without a time
	leastWatch  = 100 * time.Millisecond
	clearScreen = "\x1b[H\x1b[2J\x1b[3J"
)

// watchable gives a command that prints a picture the flag --watch, by which it prints it again and
// again until interrupted. A terminal is redrawn; into a pipe the pictures go one after the other.
func (c *cli) watchable(cmd *cobra.Command) *cobra.Command {
	var every time.Duration
	cmd.Flags().DurationVar(&every, "watch", 0, "print it anew every so often (2s unless a `time` is given, as in --watch=10s), until interrupted")
	cmd.Flags().Lookup("watch").NoOptDefVal = watchEvery
	once := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case !cmd.Flags().Changed("watch"):
			return once(cmd, args)
		case every < leastWatch:
			return usagef("--watch: want %v at least", leastWatch)
		}
		return c.watch(every, func() error { return once(cmd, args) })
	}
	return cmd
}

// watch calls draw until interrupted. An error ends it: what was understood once is understood again,
// so it is the relay's.
func (c *cli) watch(every time.Duration, draw func() error) error {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	defer signal.Stop(interrupted)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := c.frame(draw); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-interrupted:
			return nil
		}
	}
}

// frame prints one picture. On a terminal it comes at once, remarks included, and as much of it as there
// are lines.
func (c *cli) frame(draw func() error) error {
	if !c.screen.TTY {
		return draw()
	}
	out, errs := c.out, c.err
	var b bytes.Buffer
	c.out, c.err = &b, &b
	err := draw()
	c.out, c.err = out, errs
	if err != nil {
		return err
	}
	text := b.String()
	if lines := strings.SplitAfter(text, "\n"); c.screen.Height > 1 && len(lines) > c.screen.Height {
		text = strings.Join(lines[:c.screen.Height-2], "") + fmt.Sprintf("... %d lines more\n", len(lines)-c.screen.Height+1)
	}
	_, err = io.WriteString(c.out, clearScreen+c.now().Local().Format(time.DateTime)+"\n"+text)
	return err
}
