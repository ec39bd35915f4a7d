package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"mta/mta"
	"mta/mta/config"
)

const checkHelp = `Read the configuration file and say everything that is wrong with it: line, column,
the line itself, and what to do. Nothing of a running relay is touched.

What would keep the relay from starting on this machine is an error, and the exit status
is 1: a folder or log file that it can't write, a listener on an address that the machine
doesn't have. Whether another program has a listener's port is not looked at: most often
that is the relay itself, which is running.

A warning leaves the exit status at 0: a source whose address this machine doesn't have,
which may come; a source, pool or tenant that nothing names; mail that is given up before
it is tried a second time.

What the relay's user may do is asked for the user to whom the queue in data_dir belongs,
whoever runs the check; before the first start, and where a relative path may lead
elsewhere, nothing is said.

With --effective, print what is in force with this file: every setting, those that the
file doesn't have included, as a file that loads. Secrets are masked.`

func newCheck(c *cli) *cobra.Command {
	var effective bool
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "say what is wrong with the configuration",
		Long:  checkHelp,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("want one file, got %d", len(args))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				if c.configFlag != "" {
					return usagef("name the file either by --config or as the argument")
				}
				c.configFlag = args[0]
			}
			return c.check(effective)
		},
	}
	cmd.Flags().BoolVar(&effective, "effective", false, "print what is in force")
	return cmd
}

func (c *cli) check(effective bool) error {
	cfg, err := c.config()
	if err != nil {
		return err
	}
	warnings := mta.Warnings(cfg)
	for _, w := range warnings {
		fmt.Fprintf(c.err, "warning: %s\n", clean(w))
	}
	faults := mta.Faults(cfg)
	for _, f := range faults {
		fmt.Fprintf(c.err, "error: %s\n", clean(f))
	}
	if effective {
		if _, err := c.out.Write(config.Effective(cfg)); err != nil {
			return err
		}
		return failedBy(faults)
	}
	if path := c.configPath(); path != "" {
		verdict := "nothing is wrong"
		if n := len(warnings); n > 0 {
			verdict = plural(n, "warning")
		}
		if n := len(faults); n > 0 {
			verdict = plural(n, "error") + ", " + plural(len(warnings), "warning")
		}
		fmt.Fprintf(c.out, "%s: %s\n", path, verdict)
		return failedBy(faults)
	}
	where, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "there is no file: the built-in defaults are in force, with the data in %s\n", where)
	return failedBy(faults)
}

// failedBy makes the exit code of errors that were printed already.
func failedBy(faults []string) error {
	if len(faults) > 0 {
		return exitError(exitFailed)
	}
	return nil
}

// tellProblems prints what is wrong with a configuration.
func (c *cli) tellProblems(problems config.Problems) {
	fmt.Fprintf(c.err, "%v\n", problems)
	fmt.Fprintf(c.err, "mta: %s: %s\n", problems[0].File, plural(len(problems), "problem"))
}
