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
	fmt.Fprintf(r, "\n%s %s\n\n", level, name)
	if usage := strings.TrimSuffix(cmd.UseLine(), " [flags]"); usage != name {
		fmt.Fprintf(r, "`%s`\n\n", usage)
	}
	long := cmd.Long
	if long == "" {
		long = strings.ToUpper(cmd.Short[:1]) + cmd.Short[1:] + "."
	}
	for _, p := range strings.Split(long, "\n\n") {
		if !strings.Contains(cmd.Parent().Long, p) && !strings.Contains(r.written, inOneLine.Replace(p)) {
			r.paragraph(p)
		}
	}
	if cmd.Example != "" {
		fmt.Fprintf(r, "```sh\n%s\n```\n\n", strings.ReplaceAll(strings.Trim("\n"+cmd.Example, "\n"), "  mta ", "mta "))
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

// paragraph writes a paragraph of a help text, whose indented lines are a table.
func (r *reference) paragraph(p string) {
	if strings.Contains("\n"+p, "\n ") {
		fmt.Fprintf(r, "```\n%s\n```\n\n", p)
		return
	}
	fmt.Fprintf(r, "%s\n\n", inOneLine.Replace(p))
}

var inOneLine = strings.NewReplacer("\n", " ", "<", `\<`, "*", `\*`)

// common are the flags that the written part explains, and tooMany how many of its own make a command a laboratory:
// 'mta COMMAND --help' lists them.
var common = []string{"after", "dry-run", "json", "limit", "reason", "watch"}

const tooMany = 20

// flags describes those that no other command has, and names the others, once for a group: their help is that of
// 'mta COMMAND --help'.
func (r *reference) flags(cmd *cobra.Command) {
	var names []string
	own, filters := "", ""
	r.eachFlag(cmd, func(f *pflag.Flag) {
		switch line := flagLine(f); {
		case r.uses[line] == 1:
			own += line
		case slices.Contains(common, f.Name):
		case cmd.Parent().Runnable() && cmd.Parent().Flags().Lookup(f.Name) != nil:
			filters = fmt.Sprintf("the filters of [`%s`](#%s)", cmd.Parent().CommandPath(), strings.ReplaceAll(cmd.Parent().CommandPath(), " ", "-"))
		default:
			names = append(names, "`--"+f.Name+"`")
		}
	})
	if filters != "" {
		names = append(names, filters)
	}
	if strings.Count(own, "\n") > tooMany {
		own = fmt.Sprintf("- `%s --help` lists the flags.\n", cmd.CommandPath())
	}
	r.WriteString(own)
	if names != nil {
		fmt.Fprintf(r, "- %s\n", strings.Join(names, ", "))
	}
}

func flagLine(f *pflag.Flag) string {
	value, usage := pflag.UnquoteUsage(f)
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	if value != "" && f.NoOptDefVal == "" {
		name += " " + value
	}
	return fmt.Sprintf("- `%s`: %s\n", name, usage)
}
