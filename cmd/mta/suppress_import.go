package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"example.org/mta/operator/api"
)

func newSuppressImport(c *cli) *cobra.Command {
	var f newEntry
	var dryRun bool
	expect := -1
	cmd := &cobra.Command{
		Use:   "import [FILE]",
		Short: "add the addresses of a file to the list",
		Long: `Add addresses to the list, from a file or from standard input, one per line:

  someone@example.com
  someone@example.com,reason
  {"address":"someone@example.com", ...}    as 'mta suppress export' writes it

Empty lines and lines that begin with # are ignored. --tenant, --reason and --for apply to
lines without these values. Invalid lines are reported and skipped; the exit code is then
1. Importing a file again does no harm.`,
		Example: `  mta suppress import unsubscribed.csv --reason unsubscribed
  mta --socket old.sock suppress export | mta suppress import`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("unexpected argument %q", args[1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			in, shown, err := c.input(append(args, "-")[0])
			if err != nil {
				return err
			}
			defer in.Close()
			client, err := c.client()
			if err != nil {
				return err
			}
			im := suppressImport{c: c, client: client, name: shown, defaults: &f, dryRun: dryRun}
			if expect < 0 || dryRun {
				return im.run(cmd.Context(), in)
			}
			return im.expecting(cmd.Context(), in, expect)
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "only count")
	cmd.Flags().IntVar(&expect, "expect", -1, "change nothing unless this `number` of entries would be added or changed")
	return cmd
}

// suppressImport reads entries and hands them to the relay, as many at a time as a request can have.
type suppressImport struct {
	c        *cli
	client   *api.Client
	name     string // of what is read
	defaults *newEntry

	dryRun bool // only count

	batch []api.Suppression
	lines []int // where each of batch stands
	done  api.Suppressed
	bad   int
}

// importBatch is what is sent at once: with the longest reasons it still fits into a request.
const importBatch = 1000

// maxBad is after how many bad lines a file is taken for something else.
const maxBad = 100

// expecting imports what it has counted before, if that is as much as is expected.
func (im *suppressImport) expecting(ctx context.Context, in io.Reader, n int) error {
	text, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("reading %s: %w", im.name, err)
	}
	count := *im
	count.dryRun = true
	if err := count.read(ctx, bytes.NewReader(text)); err != nil {
		return err
	}
	if would := count.done.Added + count.done.Changed; would != n {
		return hinted{fmt.Errorf("this would add or change %d entries, not %d", would, n), "nothing was changed: look again, and expect the new count"}
	}
	if count.bad > 0 { // they were reported
		return hinted{fmt.Errorf("%s has %s", im.name, plural(count.bad, "invalid line")), "nothing was changed: correct the lines, or leave --expect out"}
	}
	return im.run(ctx, bytes.NewReader(text))
}

// run imports and prints what it did.
func (im *suppressImport) run(ctx context.Context, in io.Reader) error {
	if err := im.read(ctx, in); err != nil {
		return err
	}
	text := told(im.done)
	if im.dryRun {
		text += " (dry run: nothing has changed)"
	}
	fmt.Fprintln(im.c.out, text)
	im.c.printUnknown(im.done.UnknownTenants)
	if im.bad > 0 {
		return exitError(exitFailed)
	}
	return nil
}

// read hands over all lines.
func (im *suppressImport) read(ctx context.Context, in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	n := 0
	for lines.Scan() {
		n++
		text := strings.TrimSpace(strings.TrimPrefix(lines.Text(), "\ufeff"))
		if text == "" || text[0] == '#' {
			continue
		}
		s, err := im.parse(text)
		if err != nil {
			im.complain(n, err)
		} else {
			im.batch, im.lines = append(im.batch, s), append(im.lines, n)
		}
		if im.bad >= maxBad {
			return fmt.Errorf("%s: more than %d invalid lines; %s", im.name, maxBad, told(im.done))
		}
		if len(im.batch) == importBatch {
			if err := im.send(ctx); err != nil {
				return err
			}
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading %s, line %d: %w; %s", im.name, n+1, err, told(im.done))
	}
	return im.send(ctx)
}

func (im *suppressImport) complain(line int, err error) {
	im.bad++
	im.c.printError(fmt.Errorf("%s:%d: %w", im.name, line, err))
}

// parse reads a line.
func (im *suppressImport) parse(text string) (api.Suppression, error) {
	if text[0] != '{' {
		address, reason, _ := strings.Cut(text, ",")
		s := im.defaults.entry(unbracketed(address), im.c.now(), api.SuppressedByImport)
		if reason = unquoted(reason); reason != "" {
			s.Reason = reason
		}
		return s, nil
	}
	s := im.defaults.entry("", im.c.now(), api.SuppressedByImport)
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, fmt.Errorf("reading JSON: %w", err)
	}
	return s, nil
}

// unbracketed takes an address out of quotes and angle brackets.
func unbracketed(s string) string {
	s = unquoted(s)
	if inner, ok := strings.CutPrefix(s, "<"); ok {
		return strings.TrimSuffix(inner, ">")
	}
	return s
}

// unquoted takes the quotes of CSV off.
func unquoted(s string) string {
	s = strings.TrimSpace(s)
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		return strings.ReplaceAll(s[1:len(s)-1], `""`, `"`)
	}
	return s
}

// send hands over the batch. When the relay refuses it, each line is tried by itself, so that a bad
// one is told with its number and keeps nobody else off the list.
func (im *suppressImport) send(ctx context.Context) error {
	batch, lines := im.batch, im.lines
	im.batch, im.lines = nil, nil
	if len(batch) == 0 {
		return nil
	}
	err := im.add(ctx, batch)
	if refused := (*api.Error)(nil); !errors.As(err, &refused) || refused.Status != 400 {
		return err
	}
	for i := range batch {
		err := im.add(ctx, batch[i:i+1])
		if refused := (*api.Error)(nil); errors.As(err, &refused) && refused.Status == 400 {
			im.complain(lines[i], errors.New(refused.Message))
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (im *suppressImport) add(ctx context.Context, some []api.Suppression) error {
	done, err := im.client.Suppress(ctx, api.Suppress{Suppressions: some, Intent: api.Intent{DryRun: im.dryRun}})
	im.done.Added += done.Added
	im.done.Changed += done.Changed
	im.done.Unchanged += done.Unchanged
	for _, t := range done.UnknownTenants {
		if !slices.Contains(im.done.UnknownTenants, t) {
			im.done.UnknownTenants = append(im.done.UnknownTenants, t)
		}
	}
	return err
}

func newSuppressExport(c *cli) *cobra.Command {
	var filter api.SuppressionFilter
	cmd := &cobra.Command{
		Use:   "export",
		Short: "write the list as lines of JSON",
		Long:  `Write the list, or a part of it, as lines of JSON, for 'mta suppress import' and for other programs.`,
		Example: `  mta suppress export > suppressed.jsonl
  mta suppress export --source bounce | jq -r .address`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := c.client()
			if err != nil {
				return err
			}
			out := bufio.NewWriter(c.out)
			e := newEncoder(out)
			for after := ""; ; {
				l, err := client.Suppressions(cmd.Context(), filter, after, api.MaxLimit)
				if err != nil {
					return err
				}
				for _, s := range l.Suppressions {
					if err := e.Encode(s); err != nil {
						return err
					}
				}
				if after = l.Next; after == "" {
					return out.Flush()
				}
			}
		},
	}
	c.addParams(cmd, &filter)
	return cmd
}
