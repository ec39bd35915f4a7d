package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/importer"
	"example.org/mta/importer/postfix"
	"example.org/mta/importer/powermta"
	"example.org/mta/internal/dnscheck"
	"example.org/mta/internal/format"
	"example.org/mta/internal/settings"
	"example.org/mta/internal/smallfile"
	"example.org/mta/mta/check"
	"example.org/mta/mta/config"
	"example.org/mta/mta/datadir"
	"example.org/mta/operator/api"
)

func newConfig(c *cli) *cobra.Command {
	return group("config", "the configuration of the running relay", "", newConfigReload(c), newConfigShow(c))
}

func newConfigReload(c *cli) *cobra.Command {
	var in api.Intent
	cmd := answers(c, &cobra.Command{
		Use: "reload", Short: "reload the configuration file",
		Long: `Make the running relay reload its configuration file, as SIGHUP does. The whole
new file takes effect, or, if it has an error, none of it. With --dry-run the relay
tries all of that, new ports and certificates included, and undoes it.`,
		Args: noArgs,
	}, func(ctx context.Context, client *api.Client, _ []string) (api.Reload, error) {
		return api.OpReload.Call(ctx, client, in)
	}, func(done api.Reload) error {
		c.printReload(&done)
		return nil
	})
	cmd.Flags().BoolVarP(&in.DryRun, "dry-run", "n", false, "only print what would change")
	reasonFlag(cmd)
	return cmd
}

func (c *cli) printReload(r *api.Reload) {
	all := slices.Concat(r.Changes, r.Restart)
	indent, none := "", "nothing has changed"
	if r.DryRun {
		indent, none = "  ", "a reload would change nothing"
		if len(all) > 0 {
			fmt.Fprintln(c.out, "nothing has changed; a reload would change:")
		}
	}
	for _, change := range all {
		fmt.Fprintf(c.out, "%s%s\n", indent, draw.Clean(change))
	}
	if len(all) == 0 {
		fmt.Fprintln(c.out, none)
	}
}

func newConfigShow(c *cli) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show", Short: "print the effective configuration of the running relay", Args: noArgs,
		RunE: c.asking(func(ctx context.Context, client *api.Client, _ []string) error {
			if asJSON {
				o, err := client.ConfigObject(ctx)
				if err != nil {
					return err
				}
				return writeJSON(c.out, o)
			}
			text, err := client.EffectiveConfig(ctx)
			fmt.Fprint(c.out, text)
			return err
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: blocks are lists of objects, with their labels as names")
	return cmd
}

const checkHelp = `Check the configuration file and report every error with its line, column and remedy. A
running relay is not affected.

Anything that would keep the relay from starting on this machine is an error, with exit
status 1: a file, key or certificate that is missing or may not be used, a user that
doesn't exist, an address that the machine doesn't have. Ports in use are not tested.

Exit status 78: data are in a format that this version does not read. Run the check of a
new version before an upgrade.

A warning leaves the exit status at 0, or at 1 with --strict, such as for a source whose
address this machine doesn't have yet, a pool of which all sources warm up, a damaged
file that was set aside, or a certificate that expires within 14 days.

Last, it prints how a relay that runs with the file differs from it, and what changes
that: a reload, or a restart.

Permissions are checked for the owner of the queue in data_dir; before the first start
for the user of the configuration, or else for the caller. A relative path that may lead
elsewhere is not checked.

With --effective, print every setting in force, as a file that loads. Secrets are
masked.

With --dns, ask the DNS what receivers will think of mail that this configuration sends:
whether reverse and forward DNS of each source agree, EHLO's name leads to it, and a
block list in checks { dns_lists } has it; whether SPF, DKIM and DMARC of each sender
domain pass, and bounces can come back. If the relay runs with the file, its listeners
must complete a TLS handshake. For each gap the record to publish is shown. The exit
status is 1 when something would fail; what can't be checked, as an address behind a
NAT, is not a failure.`

func newCheck(c *cli) *cobra.Command {
	var effective, asJSON, askDNS, strict bool
	var dns check.DNSQuestion
	cmd := &cobra.Command{
		Use: "check [FILE]", Short: "check the configuration", Long: checkHelp,
		Args: argCount(0, 1, "want one file, got %d"),
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
			}
			return c.check(cmd.Context(), effective, asJSON, strict)
		},
	}
	cmd.Flags().BoolVar(&effective, "effective", false, "print the effective configuration")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: problems, warnings, and with --effective the settings")
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with status 1 if there are warnings")
	cmd.Flags().BoolVar(&askDNS, "dns", false, "ask the DNS what receivers will think of our mail")
	cmd.Flags().StringSliceVar(&dns.Domains, "domain", nil,
		"with --dns: the `domain` in From (default: all that the configuration names)")
	cmd.Flags().StringSliceVar(&dns.Sources, "source", nil,
		"with --dns: the `name` or address of a source (default: all)")
	cmd.Flags().StringVar(&dns.MailFrom, "mail-from", "",
		"with --dns: the `domain` in MAIL FROM (default: that in From)")
	return cmd
}

// checked is what a check found.
type checked struct {
	File      string         `json:"file"` // "" for the built-in defaults
	Problems  []problem      `json:"problems"`
	Errors    []string       `json:"errors"` // what keeps the relay from starting on this machine
	Warnings  []string       `json:"warnings"`
	Pending   string         `json:"pending,omitempty"` // how the relay that runs with the file differs from it
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

func (c *cli) check(ctx context.Context, effective, asJSON, strict bool) error {
	cfg, err := c.config()
	out := checked{File: c.configPath(), Problems: []problem{}, Errors: []string{}, Warnings: []string{}}
	if found := settings.Problems(nil); asJSON && errors.As(err, &found) {
		for _, p := range found {
			out.Problems = append(out.Problems, problem{p.File, p.Line, p.Column, p.Message, p.Hint})
		}
		return cmp.Or[error](writeJSON(c.out, out), exitError(exitFailed))
	}
	if err != nil {
		return err
	}
	out.Warnings = append(out.Warnings, c.warnings(cfg)...)
	faults, failed := c.faults(cfg)
	out.Errors = append(out.Errors, faults...)
	failed = judged(failed, strict && len(out.Warnings) > 0)
	running, none := c.running(ctx)
	out.Pending = running.Pending
	if asJSON {
		if effective {
			out.Effective = settings.Object(cfg)
		}
		return cmp.Or(writeJSON(c.out, out), failed)
	}
	for _, w := range out.Warnings {
		fmt.Fprintf(c.err, "warning: %s\n", draw.Clean(w))
	}
	for _, f := range out.Errors {
		fmt.Fprintf(c.err, "error: %s\n", draw.Clean(f))
	}
	if effective {
		_, err := c.out.Write(config.Effective(cfg))
		return cmp.Or(err, failed)
	}
	verdict := "no problems found"
	switch warnings := plural(len(out.Warnings), "warning"); {
	case len(out.Errors) > 0:
		verdict = plural(len(out.Errors), "error") + ", " + warnings
	case len(out.Warnings) > 0:
		verdict = warnings
	}
	if out.File != "" {
		fmt.Fprintf(c.out, "%s: %s\n", out.File, verdict)
		if out.Pending != "" {
			fmt.Fprintln(c.out, out.Pending)
		} else if none {
			fmt.Fprintln(c.out, "no relay runs with it")
		}
		return failed
	}
	where, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "no configuration file: the built-in defaults apply, with the data in %s\n", where)
	return failed
}

// running returns the state of the relay that runs with the file; the zero Status when none does, or we can't ask it.
// none: there is none for sure.
func (c *cli) running(ctx context.Context) (s api.Status, none bool) {
	client, err := c.client()
	if err != nil {
		return s, false
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	s, err = api.OpStatus.Call(ctx, client, api.None{})
	ours, _ := os.Stat(c.configPath())
	theirs, _ := os.Stat(s.Config)
	if err != nil || !os.SameFile(ours, theirs) {
		return api.Status{}, err == nil || ctx.Err() == nil && api.Down(err) && !errors.Is(err, fs.ErrPermission)
	}
	return s, false
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
	// what we may not read, the relay may
	if _, err := datadir.Formats(cfg, thisBuild().Version); errors.Is(err, format.ErrRefused) {
		faults, failed = append(faults, strings.Split(err.Error(), "\n")...), exitError(exitConfig)
	}
	return faults, failed
}

// printProblems prints what is wrong with a configuration.
func (c *cli) printProblems(problems settings.Problems) {
	fmt.Fprintf(c.err, "%v\n", problems)
	fmt.Fprintf(c.err, "mta: %s: %s\n", problems[0].File, plural(len(problems), "problem"))
}

// dnsFindings is what 'mta check --dns --json' prints.
type dnsFindings struct {
	Findings []dnscheck.Finding `json:"findings"`
	Failed   int                `json:"failed"`
	Warnings int                `json:"warnings"`
	Unknown  int                `json:"unknown"` // could not be checked
}

// checkDNS prints what receivers will think of mail, and fails when they would refuse or distrust it,
// or, if it is strict, when something could be better.
func (c *cli) checkDNS(ctx context.Context, q check.DNSQuestion, asJSON, strict bool) error {
	cfg, err := c.config()
	if err != nil {
		return err
	}
	running, _ := c.running(ctx)
	q.Running = running.Config != ""
	found, err := check.DNS(ctx, cfg, c.now(), q)
	if err != nil {
		return usagef("%v", err)
	}
	if len(q.Domains) == 0 && len(cfg.SenderDomains()) == 0 {
		fmt.Fprintln(c.err,
			"mta: no sender's domain is checked, since the configuration names none; name one with --domain")
	}
	sum := dnsFindings{found, dnscheck.Count(found, dnscheck.Failed), dnscheck.Count(found, dnscheck.Warning),
		dnscheck.Count(found, dnscheck.Unknown)}
	if asJSON {
		err = writeJSON(c.out, sum)
	} else {
		err = sum.write(c.out, c.screen)
	}
	if err == nil && (sum.Failed > 0 || strict && sum.Warnings > 0) {
		return exitError(exitFailed)
	}
	return err
}

// write prints the findings under what they are about.
func (f *dnsFindings) write(w io.Writer, s draw.Screen) error {
	var b strings.Builder
	about := ""
	for _, finding := range f.Findings {
		if subject := subjectOf(finding); subject != about {
			if about = subject; b.Len() > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(draw.Clean(subject) + "\n")
		}
		line := "  " + s.Coloured(string(finding.Result), colourOf(string(finding.Result))) +
			strings.Repeat(" ", max(1, 9-len(finding.Result))) + draw.Clean(finding.Text)
		b.WriteString(draw.Wrap(line, s.Width, findingIndent) + "\n")
		writeRemedy(&b, finding, s.Width)
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%d failed, %s, %d could not be checked\n", f.Failed, plural(f.Warnings, "warning"), f.Unknown)
	_, err := io.WriteString(w, b.String())
	return err
}

// writeRemedy prints what to do. A record to publish stays on one line, to be copied.
func writeRemedy(b *strings.Builder, f dnscheck.Finding, width int) {
	indent := strings.Repeat(" ", findingIndent)
	if f.Remedy != "" {
		end := ""
		if f.Record != "" {
			end = ":"
		}
		b.WriteString(draw.Wrap(indent+"-> "+draw.Clean(f.Remedy)+end, width, findingIndent+3) + "\n")
	}
	if f.Record != "" {
		b.WriteString(indent + "   " + draw.Clean(f.Record) + "\n")
	}
}

const findingIndent = 11

// subjectOf is the source, domain or listener that a finding is about.
func subjectOf(f dnscheck.Finding) string {
	switch {
	case f.Domain != "":
		return "domain " + f.Domain
	case f.Listener != "":
		return "listener " + f.Listener
	case f.Address.IsValid():
		return fmt.Sprintf("source %s, %s", f.Source, f.Address)
	}
	return "source " + f.Source
}

const importHelp = `Write mta.conf from the configuration of another mail server. No mail is moved, and no relay is
affected.

Each block and setting of the result names its origin in a comment; a directive without
a counterpart becomes a comment with the reason. The result goes to standard output, or
to the file of --out; the summary of what needs attention goes to standard error.

Passwords of routes go into FILE.secrets beside the FILE of --out, readable by its owner
only, or into FILE with --with-secrets.

The exit code is 1 when something that limits or protects, such as a rate or an access
rule, has no counterpart: read the notes, then repeat the command with --accept.`

func newImport(c *cli) *cobra.Command {
	return group("import", "write mta.conf from the configuration of another mail server", importHelp,
		newImportPowerMTA(c), newImportPostfix(c))
}

// importing is what all commands below 'mta import' have in common.
type importing struct {
	c              *cli
	out            string // the file for the result, "" for standard output
	accept, asJSON bool
	withSecrets    bool
}

// importCommand completes cmd: read gets its arguments.
func (c *cli) importCommand(cmd *cobra.Command, read func(args []string) (*importer.Draft, error)) *cobra.Command {
	im := &importing{c: c}
	cmd.Flags().StringVar(&im.out, "out", "",
		"write the configuration to this `file`, which must not exist, or be the unchanged result of an earlier import")
	cmd.Flags().BoolVar(&im.accept, "accept", false,
		"exit with 0 although something that limits or protects could not be carried")
	cmd.Flags().BoolVar(&im.withSecrets, "with-secrets", false,
		"write passwords into the file of --out, not into a separate one")
	cmd.Flags().BoolVar(&im.asJSON, "json", false,
		"print the summary as JSON, on standard output; without --out with the configuration in it")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if im.withSecrets && im.out == "" {
			return usagef("--with-secrets needs --out: passwords are not written to standard output")
		}
		draft, err := read(args)
		if err != nil {
			return err
		}
		return im.finish(draft)
	}
	return cmd
}

// finish checks the draft, writes it, and reports on it.
func (im *importing) finish(draft *importer.Draft) error {
	draft.WithSecrets = im.withSecrets
	text := marked(draft.Bytes())
	if err := im.verify(text, draft.Secrets); err != nil {
		return err
	}
	if err := im.write(text, draft.Secrets); err != nil {
		return err
	}
	s := draft.Summary()
	if err := im.report(&s, text); err != nil {
		return err
	}
	if s.Protects > 0 && !im.accept {
		return exitError(exitFailed)
	}
	return nil
}

// verify reads the result as 'mta check' does. A fault in it is the program's, or one that was in the other server's
// configuration, too, such as a route that leads back.
func (im *importing) verify(text []byte, secrets map[string]string) error {
	env := func(name string) string { return cmp.Or(secrets[name], im.c.env(name)) }
	_, err := config.Parse(text, "the result", env)
	if problems := (settings.Problems)(nil); errors.As(err, &problems) {
		fmt.Fprintf(im.c.err, "%v\n", problems)
		return hinted{errors.New("the import made a configuration with faults: nothing was written"),
			"correct the directives from which the lines above come; if they are right, this is a fault of mta: " +
				"please report it with both"}
	}
	return err
}

// marked puts a line before the text of a file by which a later import knows whether somebody has edited it.
func marked(text []byte) []byte {
	return fmt.Appendf(nil, "# Written by 'mta import'. SHA-256 of the lines below: %x\n%s", sha256.Sum256(text), text)
}

// unedited reports whether a file is as an import has written it.
func unedited(file []byte) bool {
	_, text, _ := bytes.Cut(file, []byte("\n"))
	return bytes.Equal(file, marked(text))
}

// write puts the result into its file, and its passwords into another one unless they are in the result.
func (im *importing) write(text []byte, secrets map[string]string) error {
	if im.withSecrets {
		secrets = nil
	}
	if im.out == "" {
		if len(secrets) > 0 {
			fmt.Fprintf(im.c.err, "mta: %s not written: --out FILE also makes FILE.secrets\n",
				plural(len(secrets), "password"))
		}
		if im.asJSON {
			return nil
		}
		_, err := im.c.out.Write(text)
		return err
	}
	files := map[string][]byte{im.out: text}
	if len(secrets) > 0 {
		files[im.out+".secrets"] = environment(secrets)
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // some devices have no end
			return hinted{fmt.Errorf("%s is not a regular file", path),
				"give --out another name; without it the result goes to standard output"}
		}
		old, err := os.ReadFile(path)
		if err == nil && !unedited(old) {
			return hinted{fmt.Errorf("%s exists, and is not the unchanged result of an earlier import", path),
				"give --out another name, or move the file away"}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if err := smallfile.Write(path, 0o600, files[path]); err != nil {
			return err
		}
	}
	if len(secrets) > 0 {
		fmt.Fprintf(im.c.err, "mta: %s in %s: give it to the relay as its environment\n",
			plural(len(secrets), "password"), im.out+".secrets")
	}
	return nil
}

// environment writes variables as systemd reads them (systemd.exec(5), EnvironmentFile=), and a shell, too.
func environment(variables map[string]string) []byte {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`")
	text := []byte("# The environment of the relay: EnvironmentFile= of its unit.\n")
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		text = fmt.Appendf(text, "%s=\"%s\"\n", name, escape.Replace(variables[name]))
	}
	return marked(text)
}

// protectingLast puts the notes on lost limits and protections at the end, where a long table is still on the screen.
func protectingLast(notes []importer.Note) []importer.Note {
	last := func(n importer.Note) int {
		if n.Lost && n.Protects {
			return 1
		}
		return 0
	}
	return slices.SortedStableFunc(slices.Values(notes), func(a, b importer.Note) int { return last(a) - last(b) })
}

// report prints the summary.
func (im *importing) report(s *importer.Summary, text []byte) error {
	c := im.c
	if im.asJSON {
		out := struct {
			*importer.Summary
			Config string `json:"config,omitempty"`
		}{Summary: s}
		if im.out == "" {
			out.Config = string(text)
		}
		return writeJSON(c.out, out)
	}
	if len(s.Notes) > 0 {
		t := draw.New("reason", "place", "~directive", "carried", "protects")
		for _, n := range protectingLast(s.Notes) {
			carried, protects := "with a note", "-"
			if n.Lost {
				carried = "no"
			}
			if n.Protects {
				protects = "yes"
			}
			t.Add(n.Reason, n.File+":"+strconv.Itoa(n.Line), n.Directive, carried, protects)
		}
		if err := t.Write(c.err, c.screen); err != nil {
			return err
		}
	}
	fmt.Fprintf(c.err, "%s carried, %d with a note, %d not carried\n", plural(s.Carried, "directive"), s.Noted, s.Lost)
	if s.Protects > 0 && !im.accept {
		fmt.Fprintf(c.err,
			"mta: %s for a limit or a protection could not be carried: read the notes, then repeat the command with "+
				"--accept\n", plural(s.Protects, "directive"))
	}
	return nil
}

func newImportPowerMTA(c *cli) *cobra.Command {
	return c.importCommand(&cobra.Command{
		Use: "powermta FILE", Short: "write mta.conf from a PowerMTA configuration",
		Long: importHelp + `

FILE is PowerMTA's configuration, often /etc/pmta/config; included files are read, too.
docs/moving-from-powermta.md has a table of all directives.`,
		Example: `  mta import powermta /etc/pmta/config --out mta.conf
  mta import powermta /etc/pmta/config --out mta.conf --accept
  mta import powermta /etc/pmta/config --json`,
		Args: argCount(1, 1, "want one file, got %d"),
	}, func(args []string) (*importer.Draft, error) { return powermta.Read(args[0]) })
}

const importPostfixHelp = `Read main.cf and master.cf in DIR, /etc/postfix by default, and the tables that they
name. Tables in files below /etc/postfix are read in DIR, from their text source; tables
on servers are not read.

` + importHelp

func newImportPostfix(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use: "postfix [DIR]", Short: "write mta.conf from the configuration of a Postfix", Long: importPostfixHelp,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("unexpected argument %q", args[1])
			}
			return nil
		},
	}
	return c.importCommand(cmd, func(args []string) (*importer.Draft, error) {
		dir := "/etc/postfix"
		if len(args) > 0 {
			dir = args[0]
		}
		return postfix.Import(dir)
	})
}
