package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/format"
	"example.org/mta/internal/settings"
	"example.org/mta/mta/check"
	"example.org/mta/mta/config"
	"example.org/mta/mta/datadir"
)

const checkHelp = `Check the configuration file and report every error with its line, column and remedy. A
running relay is not affected.

Anything that would keep the relay from starting on this machine is an error, with exit
status 1: a directory or log file that it can't write, a key or certificate that is missing
or that it can't read, a listener, API or console on an address that the machine doesn't have.
The check does not test whether another program uses a listener's port: that is usually the
running relay itself.

Data that another version of mta has written, in a format that this one does not read,
are an error with exit status 78: run the check of a new version before an upgrade.

A warning leaves the exit status at 0: a source whose address this machine doesn't have
(it may appear later); a source, pool or tenant that nothing names; mail that expires
before its second attempt; a file in data_dir that was damaged and set aside; a certificate
that has expired or expires within 14 days, since a relay that runs is better than one that a
date stops. With --strict a warning has exit status 1, as an error.

Permissions are checked for the owner of the queue in data_dir, not for the user who runs the
check; they are not checked before the first start, or where a relative path may lead elsewhere.

With --effective, print the effective configuration, with every setting, as a file that
loads. Secrets are masked.

With --dns, ask the DNS what receivers will think of mail that this configuration sends:
of each source, whether its reverse and forward DNS agree, EHLO's name leads to it, and it
is on one of the block lists in checks { dns_lists }; of each domain that mail is sent as,
whether SPF passes from its sources, the published DKIM records fit the keys, a DMARC
policy exists and mail passes it, and bounces can come back. What is missing is shown as
the record to publish. The exit status is 1 when something would fail; what could not be
checked, as an address behind a NAT, is no failure.`

func newCheck(c *cli) *cobra.Command {
	var effective, asJSON, askDNS, strict bool
	var dns check.DNSQuestion
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "check the configuration",
		Long:  checkHelp,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("want one file, got %d", len(args))
			}
			return nil
		},
		Example: `  mta check
  mta check --strict
  mta check --dns
  mta check --dns --domain example.com --source 192.0.2.10 --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if c.configFlag != "" {
					return usagef("name the file either by --config or as the argument")
				}
				c.configFlag = args[0]
			}
			switch {
			case askDNS && effective:
				return usagef("--effective and --dns are two commands")
			case askDNS:
				return c.checkDNS(cmd.Context(), dns, asJSON, strict)
			case len(dns.Domains)+len(dns.Sources) > 0 || dns.MailFrom != "":
				return usagef("--domain, --source and --mail-from go with --dns")
			case asJSON:
				return c.checkJSON(effective, strict)
			}
			return c.check(effective, strict)
		},
	}
	cmd.Flags().BoolVar(&effective, "effective", false, "print the effective configuration")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: problems, warnings, and with --effective the settings")
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with status 1 if there are warnings")
	cmd.Flags().BoolVar(&askDNS, "dns", false, "ask the DNS what receivers will think of our mail")
	cmd.Flags().StringSliceVar(&dns.Domains, "domain", nil, "with --dns: the `domain` in From (default: all that the configuration names)")
	cmd.Flags().StringSliceVar(&dns.Sources, "source", nil, "with --dns: the `name` or address of a source (default: all)")
	cmd.Flags().StringVar(&dns.MailFrom, "mail-from", "", "with --dns: the `domain` in MAIL FROM (default: that in From)")
	return cmd
}

// checked is what a check found.
type checked struct {
	File      string         `json:"file"` // "" for the built-in defaults
	Problems  []problem      `json:"problems"`
	Errors    []string       `json:"errors"` // what keeps the relay from starting on this machine
	Warnings  []string       `json:"warnings"`
	Effective map[string]any `json:"effective,omitempty"`
}

// problem is settings.Problem for JSON.
type problem struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"` // from 1
	Column  int    `json:"column,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// checkJSON prints what check finds for programs. Its exit codes are the same.
func (c *cli) checkJSON(effective, strict bool) error {
	out := checked{File: c.configPath(), Problems: []problem{}, Errors: []string{}, Warnings: []string{}}
	cfg, err := c.config()
	found := settings.Problems(nil)
	var (
		faults []string
		failed error
	)
	switch {
	case errors.As(err, &found):
		for _, p := range found {
			out.Problems = append(out.Problems, problem{p.File, p.Line, p.Column, p.Message, p.Hint})
		}
	case err != nil:
		return err
	default:
		out.Warnings = append(out.Warnings, c.warnings(cfg)...)
		faults, failed = c.faults(cfg)
		failed = judged(failed, strict && len(out.Warnings) > 0)
		out.Errors = append(out.Errors, faults...)
		if effective {
			out.Effective = settings.Object(cfg)
		}
	}
	if err := writeJSON(c.out, out); err != nil {
		return err
	}
	if len(out.Problems) > 0 {
		return exitError(exitFailed)
	}
	return failed
}

func (c *cli) check(effective, strict bool) error {
	cfg, err := c.config()
	if err != nil {
		return err
	}
	warnings := c.warnings(cfg)
	for _, w := range warnings {
		fmt.Fprintf(c.err, "warning: %s\n", draw.Clean(w))
	}
	faults, failed := c.faults(cfg)
	failed = judged(failed, strict && len(warnings) > 0)
	for _, f := range faults {
		fmt.Fprintf(c.err, "error: %s\n", draw.Clean(f))
	}
	if effective {
		if _, err := c.out.Write(config.Effective(cfg)); err != nil {
			return err
		}
		return failed
	}
	if path := c.configPath(); path != "" {
		verdict := "no problems found"
		if n := len(warnings); n > 0 {
			verdict = plural(n, "warning")
		}
		if n := len(faults); n > 0 {
			verdict = plural(n, "error") + ", " + plural(len(warnings), "warning")
		}
		fmt.Fprintf(c.out, "%s: %s\n", path, verdict)
		return failed
	}
	where, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "no configuration file: the built-in defaults apply, with the data in %s\n", where)
	return failed
}

// judged is the exit code of the errors if there are any, else that of warnings that count as errors.
func judged(errs error, warned bool) error {
	if errs == nil && warned {
		return exitError(exitFailed)
	}
	return errs
}

// warnings are those of the configuration, and that the relay can't read its file: it may be a draft
// that is not in its place yet.
func (c *cli) warnings(cfg *config.Config) []string {
	out := check.Warnings(cfg, c.now())
	if fault := check.Unreadable(cfg, c.configPath()); fault != "" {
		out = append(out, fault+", before the relay is started or reloaded with it")
	}
	return out
}

// faults are what keeps the relay from starting on this machine, with the exit code once they are printed.
func (c *cli) faults(cfg *config.Config) (faults []string, failed error) {
	if faults = check.Faults(cfg); len(faults) > 0 {
		failed = exitError(exitFailed)
	}
	if _, err := datadir.Formats(cfg, thisBuild().Version); errors.Is(err, format.ErrRefused) { // what we may not read, the relay may
		faults, failed = append(faults, strings.Split(err.Error(), "\n")...), exitError(exitConfig)
	}
	return faults, failed
}

// printProblems prints what is wrong with a configuration.
func (c *cli) printProblems(problems settings.Problems) {
	fmt.Fprintf(c.err, "%v\n", problems)
	fmt.Fprintf(c.err, "mta: %s: %s\n", problems[0].File, plural(len(problems), "problem"))
}
