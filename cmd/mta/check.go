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

A warning is about this machine, a source's address that it doesn't have or a folder
that the relay can't write in, or about a source, pool or tenant that nothing names. It
does not count as a problem for the exit status: the file may be for another machine, the
address may come, more may be written.

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
	if effective {
		_, err := c.out.Write(config.Effective(cfg))
		return err
	}
	if path := c.configPath(); path != "" {
		verdict := "nothing is wrong"
		if n := len(warnings); n > 0 {
			verdict = plural(n, "warning")
		}
		fmt.Fprintf(c.out, "%s: %s\n", path, verdict)
		return nil
	}
	where, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "there is no file: the built-in defaults are in force, with the data in %s\n", where)
	return nil
}

// tellProblems prints what is wrong with a configuration.
func (c *cli) tellProblems(problems config.Problems) {
	fmt.Fprintf(c.err, "%v\n", problems)
	fmt.Fprintf(c.err, "mta: %s: %s\n", problems[0].File, plural(len(problems), "problem"))
}
