package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update-manual", false, "write docs/cli.md: make generate")

// manualMark ends what people write in docs/cli.md.
const manualMark = "<!-- Below: made by 'make generate' from the commands, and from cmd/mta/testdata/examples.md. -->\n"

// TestManualIsGenerated: docs/cli.md has the help of each command.
func TestManualIsGenerated(t *testing.T) {
	old, err := os.ReadFile(manual)
	if err != nil {
		t.Fatal(err)
	}
	head, _, found := strings.Cut(string(old), manualMark)
	if !found {
		t.Fatalf("%s has no line %q", manual, manualMark)
	}
	examples, err := os.ReadFile(manualExamples)
	if err != nil {
		t.Fatal(err)
	}
	r := reference{written: head, shown: make(map[string]string), uses: make(map[string]int)}
	for _, section := range strings.Split(string(examples), "\n## ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		text, _, _ = strings.Cut(text, "\nTested, not shown.")
		r.shown[name] = strings.TrimSpace(text)
	}
	root := newRoot(&cli{})
	r.count(root)
	for _, cmd := range root.Commands() {
		r.command(cmd, "##")
	}
	for name := range r.shown {
		t.Errorf("%s has a command %q that does not exist", manualExamples, name)
	}
	text := head + manualMark + r.String()
	switch {
	case text == string(old):
	case *update:
		err = os.WriteFile(manual, []byte(text), 0o644)
	default:
		t.Errorf("%s is not what the commands say; run: make generate", manual)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// reference is the generated part of the manual.
type reference struct {
	strings.Builder
	written string            // what people wrote
	shown   map[string]string // examples by command
	uses    map[string]int    // by flag and its help: how many commands have it
}

func (r *reference) count(cmd *cobra.Command) {
	r.eachFlag(cmd, func(f *pflag.Flag) { r.uses[flagLine(f)]++ })
	for _, sub := range cmd.Commands() {
		r.count(sub)
	}
}

func (r *reference) eachFlag(cmd *cobra.Command, do func(*pflag.Flag)) {
	if cmd.Hidden || !cmd.Runnable() {
		return
	}
	cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" {
			do(f)
		}
	})
}

func (r *reference) command(cmd *cobra.Command, level string) {
	if cmd.Hidden || cmd.Name() == "help" {
		return
	}
	name := cmd.CommandPath()
	if strings.Contains(r.written, "\n## "+cmd.Name()+"\n") {
		delete(r.shown, name)
		return
	}
	usage := strings.TrimSuffix(cmd.UseLine(), " [flags]")
	if level == "##" || strings.Contains(usage, "|") {
		fmt.Fprintf(r, "\n%s %s\n\n", level, name)
		if usage != name {
			fmt.Fprintf(r, "`%s`\n\n", usage)
		}
	} else {
		fmt.Fprintf(r, "\n%s %s\n\n", level, usage)
	}
	long := cmd.Long
	if long == "" {
		long = strings.ToUpper(cmd.Short[:1]) + cmd.Short[1:] + "."
	}
	paragraphs := strings.Split(long, "\n\n")
	if at, brief := elsewhere[name]; brief {
		paragraphs = append(paragraphs[:1], fmt.Sprintf("More: %s, and its help.", at))
	}
	for _, p := range paragraphs {
		r.paragraph(p, cmd.Parent().Long)
	}
	if shown := r.shown[name]; shown != "" {
		fmt.Fprintf(r, "%s\n\n", shown)
	}
	delete(r.shown, name)
	r.flags(cmd)
	for _, sub := range cmd.Commands() {
		r.command(sub, "###")
	}
}

// elsewhere are commands of which the page has the first paragraph and the flags, and the pages that have the rest.
var elsewhere = map[string]string{
	"mta admission simulate": "[admission.md](admission.md)",
	"mta bench":              "[benchmarks.md](benchmarks.md)",
	"mta bounce classify":    "[bounces.md](bounces.md#how-reports-are-read)",
	"mta cluster":            "[cluster.md](cluster.md)",
	"mta console":            "[console.md](console.md)",
	"mta demo":               "[README](../README.md)",
	"mta import":             "[moving.md](moving.md)",
	"mta dkim keygen":        "[dkim.md](dkim.md)",
	"mta init":               "[first-mail.md](first-mail.md)",
	"mta key add":            "[http.md](http.md#api-keys)",
	"mta queue export":       "[backup.md](backup.md#moving-queued-mail)",
	"mta queue import":       "[backup.md](backup.md#moving-queued-mail)",
	"mta tls policy":         "[tls.md](tls.md#mta-sts)",
	"mta user add":           "[submission.md](submission.md#logins)",
	"mta warmup simulate":    "[warmup.md](warmup.md)",
}

// lab are commands of the laboratory, whose flags are only named.
var lab = map[string]bool{
	"mta admission simulate": true, "mta bench": true, "mta demo": true, "mta warmup simulate": true,
}

// paragraph writes a paragraph of a help text, whose indented lines are a table, without the sentences that the written
// part has, or the text of the command above.
func (r *reference) paragraph(p, above string) {
	if strings.Contains("\n"+p, "\n ") {
		fmt.Fprintf(r, "```\n%s\n```\n\n", p)
		return
	}
	var left []string
	for _, sentence := range strings.SplitAfter(inOneLine.Replace(p), ". ") {
		s := strings.TrimSpace(sentence)
		known := strings.HasPrefix(s, "Without a subcommand, ") && strings.Contains(r.written, "Without a subcommand, ")
		if !known && !strings.Contains(inOneLine.Replace(above), s) && !strings.Contains(r.written, s) {
			left = append(left, s)
		}
	}
	if left != nil {
		fmt.Fprintf(r, "%s\n\n", strings.Join(left, " "))
	}
}

var inOneLine = strings.NewReplacer("\n", " ", "<", `\<`, "*", `\*`)

// common are the flags that the written part explains.
var common = []string{"after", "dry-run", "json", "limit", "reason", "watch"}

// flags describes those that no other command has and that the text does not explain, and names the others.
func (r *reference) flags(cmd *cobra.Command) {
	var names []string
	own, filters := "", ""
	parent := cmd.Parent().CommandPath()
	brief := lab[cmd.CommandPath()]
	r.eachFlag(cmd, func(f *pflag.Flag) {
		switch line := flagLine(f); {
		case strings.HasSuffix(line, " on the page; 0: all\n"):
		case r.uses[line] == 1 && !brief && !strings.Contains(cmd.Long, "--"+f.Name) &&
			len(strings.Fields(f.Usage)) > plainWords:
			own += line
		case slices.Contains(common, f.Name):
		case r.uses[line] > 1 && cmd.Parent().Runnable() && cmd.Parent().Flags().Lookup(f.Name) != nil:
			filters = fmt.Sprintf("[filters](#%s)", strings.ReplaceAll(parent, " ", "-"))
		default:
			names = append(names, "`--"+f.Name+"`")
		}
	})
	if filters != "" {
		names = append(names, filters)
	}
	r.WriteString(own)
	if names != nil {
		fmt.Fprintf(r, "- %s\n", strings.Join(names, ", "))
	}
}

// flagLine describes a flag; its value stands where the help has no word for it.
func flagLine(f *pflag.Flag) string {
	value, usage := pflag.UnquoteUsage(f)
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	if value != "" && f.NoOptDefVal == "" && !strings.Contains(usage, value) && !slices.Contains(plain, value) {
		name += " " + value
	}
	return fmt.Sprintf("- `%s`: %s\n", name, usage)
}

// plainWords is the length of a help text that only repeats the name of its flag.
const plainWords = 4

// plain are kinds of values that need no word.
var plain = []string{"int", "string", "duration"}
