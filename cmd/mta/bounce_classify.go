package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"example.org/mta/bounce"
	"example.org/mta/bounce/report"
	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/reply"
)

const bounceClassifyHelp = `Read messages as the relay reads what comes back, and show for each FILE its kind, and
for each recipient that it names what became of the mail. A FILE is one message with its
header; "-" is standard input. No running relay is needed.

Kinds are bounce, delay, delivered, complaint, auto-reply, challenge, disposition,
unsubscribe and other. The exit status is 0 whatever the messages are, and 1 when a FILE
can't be read; the other files are read all the same. Only the first 256 KiB of a file
count. With --reply, TEXT is a host's answer: its class, the meaning, and the rule that matched
are shown.

The classify blocks of the configuration come before the built-in rules.`

// classifiedFile is what a file reports.
type classifiedFile struct {
	File    string          `json:"file"`
	Kind    report.Kind     `json:"kind"`
	Reports []report.Report `json:"reports"`

	unnamed *report.Report
}

func newBounceClassify(c *cli) *cobra.Command {
	var (
		asJSON         bool
		text, provider string
	)
	cmd := &cobra.Command{
		Use:   "classify {FILE... | --reply TEXT}",
		Short: "show how the relay reads a bounce or another report",
		Long:  bounceClassifyHelp,
		Args:  filesOrReply,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("reply") {
				return c.classifyReply(text, provider, asJSON)
			}
			classes := c.classifier()
			of := func(r *reply.Reply, _ string) bounce.Class { return classes.Of(r, provider) }
			read, failed := []classifiedFile{}, false
			for _, name := range args {
				f, err := c.classifyFile(name, of)
				if err != nil {
					c.printError(err)
					failed = true
					continue
				}
				read = append(read, f)
			}
			if err := c.printClassified(read, asJSON); err != nil {
				return err
			}
			if failed {
				return exitError(exitFailed)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&text, "reply", "", "classify this `text` of a host, such as '550 5.1.1 no such user'")
	cmd.Flags().StringVar(&provider, "provider", "", "apply the classify blocks of this `provider`, too")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a line of JSON for each file, or for the reply")
	return cmd
}

// filesOrReply takes either files or a reply.
func filesOrReply(cmd *cobra.Command, args []string) error {
	switch given := cmd.Flags().Changed("reply"); {
	case given && len(args) > 0:
		return usagef("give files or --reply, not both")
	case given:
		return nil
	}
	return cobra.MinimumNArgs(1)(cmd, args)
}

// classifyFile reads the report in a file.
func (c *cli) classifyFile(name string, of func(*reply.Reply, string) bounce.Class) (classifiedFile, error) {
	in, shown, err := c.input(name)
	if err != nil {
		return classifiedFile{}, err
	}
	defer in.Close()
	content, err := io.ReadAll(io.LimitReader(in, report.MaxSize))
	if err != nil {
		if path := (*os.PathError)(nil); !errors.As(err, &path) {
			err = fmt.Errorf("reading %s: %w", shown, err)
		}
		return classifiedFile{}, err
	}
	r := report.Read(content, report.Options{Classify: of})
	f := classifiedFile{File: name, Kind: r.Kind, Reports: r.Reports, unnamed: r.Unnamed}
	if f.Reports == nil {
		f.Reports = []report.Report{}
	}
	return f, nil
}

func (c *cli) printClassified(files []classifiedFile, asJSON bool) error {
	if asJSON {
		e := newEncoder(c.out)
		for _, f := range files {
			if err := e.Encode(f); err != nil {
				return err
			}
		}
		return nil
	}
	t := &draw.Table{
		Columns:   []draw.Column{{Title: "FILE", Shrink: true}, {Title: "KIND"}, {Title: "RECIPIENT", Shrink: true}, {Title: "ACTION"}, {Title: "STATUS"}, {Title: "CODE"}, {Title: "CLASS"}, {Title: "HARD"}},
		NoteTitle: "DIAGNOSTIC",
	}
	for _, f := range files {
		rows := f.Reports
		if f.unnamed != nil {
			rows = []report.Report{*f.unnamed}
		}
		if len(rows) == 0 {
			rows = []report.Report{{}}
		}
		for _, r := range rows {
			t.Add(r.Diagnostic, append([]string{f.File, f.Kind.String(), orDash(r.Recipient)}, fateOf(r)...)...)
		}
	}
	return t.Write(c.out, c.screen)
}

// fateOf gives the cells of what became of a recipient: complaints, replies and the like have none.
func fateOf(r report.Report) []string {
	if r.Action == "" {
		return []string{"-", "-", "-", "-", "-"}
	}
	hard := "no"
	if r.Hard {
		hard = "yes"
	}
	return []string{string(r.Action), orDash(r.Status.String()), codeOrDash(r.Reply.Code), r.Class.String(), hard}
}

func codeOrDash(code int) string {
	if code == 0 {
		return "-"
	}
	return fmt.Sprint(code)
}
