package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/importer"
	"example.org/mta/internal/settings"
	"example.org/mta/internal/smallfile"
	"example.org/mta/mta/config"
)

const importHelp = `Write mta.conf from the configuration of another mail server. No mail is moved, and no relay is
affected.

Every block and setting of the result names its origin in a comment. A directive without a
counterpart becomes a comment at its place, with the reason. The result goes to standard
output, or to the file of --out; the summary of what needs attention goes to standard error.

The passwords of routes go into FILE.secrets beside the FILE of --out, readable by its owner only,
or into FILE itself with --with-secrets.

The exit code is 1 when something that limits or protects, such as a rate or an access rule, could
not be carried: read the notes, then repeat the command with --accept.`

func newImport(c *cli) *cobra.Command {
	g := group("import", "write mta.conf from the configuration of another mail server", newImportPowerMTA(c), newImportPostfix(c))
	g.Long = importHelp
	return g
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
	cmd.Flags().StringVar(&im.out, "out", "", "write the configuration to this `file`, which must not exist, or be the unchanged result of an earlier import")
	cmd.Flags().BoolVar(&im.accept, "accept", false, "exit with 0 although something that limits or protects could not be carried")
	cmd.Flags().BoolVar(&im.withSecrets, "with-secrets", false, "write passwords into the file of --out, not into a separate one")
	cmd.Flags().BoolVar(&im.asJSON, "json", false, "print the summary as JSON, on standard output; without --out with the configuration in it")
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
			"correct the directives from which the lines above come; if they are right, this is a fault of mta: please report it with both"}
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
			fmt.Fprintf(im.c.err, "mta: %s not written: --out FILE also makes FILE.secrets\n", plural(len(secrets), "password"))
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
			return hinted{fmt.Errorf("%s is not a regular file", path), "give --out another name; without it the result goes to standard output"}
		}
		old, err := os.ReadFile(path)
		if err == nil && !unedited(old) {
			return hinted{fmt.Errorf("%s exists, and is not the unchanged result of an earlier import", path), "give --out another name, or move the file away"}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		err := smallfile.Replace(path, 0o600, func(w io.Writer) error {
			_, err := w.Write(files[path])
			return err
		})
		if err != nil {
			return err
		}
	}
	if len(secrets) > 0 {
		fmt.Fprintf(im.c.err, "mta: %s in %s: give it to the relay as its environment\n", plural(len(secrets), "password"), im.out+".secrets")
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
		t := draw.Table{
			Columns:   []draw.Column{{Title: "place"}, {Title: "directive", Shrink: true}, {Title: "carried"}, {Title: "protects"}},
			NoteTitle: "reason",
		}
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
		fmt.Fprintf(c.err, "mta: %s for a limit or a protection could not be carried: read the notes, then repeat the command with --accept\n", plural(s.Protects, "directive"))
	}
	return nil
}
