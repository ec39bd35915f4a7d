package manpages

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// commands makes the page of a command and of each below it.
func (m *Manual) commands(cmd *cobra.Command) []Page {
	pages := []Page{m.command(cmd)}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			pages = append(pages, m.commands(sub)...)
		}
	}
	return pages
}

func (m *Manual) command(cmd *cobra.Command) Page {
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	name := pageOf(cmd)
	r := m.page(name, 1, cmd.Short)
	r.section("SYNOPSIS")
	if cmd.HasAvailableSubCommands() {
		r.paragraph(bold(cmd.CommandPath()) + " [" + italic("options") + "] " + italic("command"))
	} else {
		r.paragraph(synopsis(cmd))
	}
	r.section("DESCRIPTION")
	description(r, cmd)
	if cmd.HasAvailableSubCommands() {
		r.section("COMMANDS")
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				r.term(reference(pageOf(sub), 1), escape(sub.Short))
			}
		}
	}
	options(r, "OPTIONS", cmd.NonInheritedFlags())
	options(r, "COMMON OPTIONS", cmd.InheritedFlags())
	if cmd.Example != "" {
		r.section("EXAMPLES")
		r.literal(outdented(strings.Split(strings.Trim(cmd.Example, "\n"), "\n")))
	}
	r.section("EXIT STATUS")
	r.paragraph(exitStatus(cmd))
	if !cmd.HasParent() {
		m.surroundings(r)
	}
	also(r, cmd)
	return Page{name, 1, []byte(r.text.String())}
}

func pageOf(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

func reference(page string, section int) string { return bold(page) + fmt.Sprintf("(%d)", section) }

// placeholder is a word of a usage line that stands for others.
var placeholder = regexp.MustCompile(`[A-Z][A-Z_-]*[A-Z]|\b[A-Z]\b`)

func synopsis(cmd *cobra.Command) string {
	words := strings.Fields(cmd.UseLine())
	n := len(strings.Fields(cmd.CommandPath()))
	line := bold(strings.Join(words[:n], " "))
	for _, w := range words[n:] {
		if w == "[flags]" {
			w = "[OPTIONS]"
		}
		at := 0
		line += " "
		for _, p := range placeholder.FindAllStringIndex(w, -1) {
			line += escape(w[at:p[0]]) + italic(strings.ToLower(w[p[0]:p[1]]))
			at = p[1]
		}
		line += escape(w[at:])
	}
	return line
}

// description writes a command's help: paragraphs, and indented lines as they are.
func description(r *roff, cmd *cobra.Command) {
	text := cmd.Long
	if text == "" {
		text = strings.ToUpper(cmd.Short[:1]) + cmd.Short[1:] + "."
	}
	for _, paragraph := range strings.Split(strings.Trim(text, "\n"), "\n\n") {
		lines := strings.Split(paragraph, "\n")
		for len(lines) > 0 {
			indented := strings.HasPrefix(lines[0], " ")
			n := together(lines, func(l string) bool { return strings.HasPrefix(l, " ") == indented })
			if indented {
				r.literal(outdented(lines[:n]))
			} else {
				r.paragraph(escape(strings.Join(lines[:n], " ")))
			}
			lines = lines[n:]
		}
	}
}

// outdented removes the spaces that all lines begin with.
func outdented(lines []string) []string {
	common := -1
	for _, l := range lines {
		if n := len(l) - len(strings.TrimLeft(l, " ")); strings.TrimSpace(l) != "" && (common < 0 || n < common) {
			common = n
		}
	}
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = l[min(max(common, 0), len(l)):]
	}
	return out
}

func options(r *roff, heading string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	r.section(heading)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		if value == "int" || value == "float" {
			value = "number"
		}
		term := bold("--" + f.Name)
		if f.Shorthand != "" {
			term = bold("-"+f.Shorthand) + ", " + term
		}
		switch {
		case value == "":
		case f.NoOptDefVal != "":
			term += "[=" + italic(value) + "]"
		default:
			term += " " + italic(value)
		}
		if d := f.DefValue; d != "" && d != "0" && d != "0s" && d != "false" && d != "[]" && !strings.Contains(usage, "default") {
			usage += " (default: " + d + ")"
		}
		r.term(term, escape(usage))
	})
}

// exitStatus is in words what main.go returns.
func exitStatus(cmd *cobra.Command) string {
	switch cmd.CommandPath() {
	case "mta sendmail":
		return "As in " + reference("sendmail", 1) + "."
	case "mta mailq":
		return "As in " + reference("mailq", 1) + "."
	}
	return "0: success. 1: failure. 2: usage error. Errors are written to standard error, each with its remedy."
}

// surroundings are the parts of mta(1) that concern all commands.
func (m *Manual) surroundings(r *roff) {
	r.section("ENVIRONMENT")
	r.term(bold("MTA_CONFIG"), "the configuration file, unless "+bold("--config")+" names one")
	r.term(bold("MTA_SMTP"), "the relay that "+reference("sendmail", 1)+" submits to, as "+italic("ip:port"))
	r.term(bold("MTA_URL")+", "+bold("MTA_KEY"), "the relay and the API key of "+reference("mta-send", 1))
	r.term(bold("NO_COLOR"), "no colors on terminals")
	r.section("FILES")
	r.term(bold("/etc/mta/mta.conf"), "the configuration: "+reference("mta.conf", 5))
	r.term(bold("/var/lib/mta"), "the data of packaged relays: queue, accounting log, audit log, control socket")
}

func also(r *roff, cmd *cobra.Command) {
	var pages []string
	add := func(name string, section int) { pages = append(pages, reference(name, section)) }
	if cmd.HasParent() {
		add(pageOf(cmd.Parent()), 1)
		for _, sibling := range cmd.Parent().Commands() {
			if sibling != cmd && cmd.Parent().HasParent() && sibling.IsAvailableCommand() {
				add(pageOf(sibling), 1)
			}
		}
	}
	switch cmd.CommandPath() {
	case "mta sendmail":
		add("sendmail", 1)
	case "mta mailq":
		add("mailq", 1)
	case "mta":
		add("sendmail", 1)
		add("mailq", 1)
	}
	add("mta.conf", 5)
	r.section("SEE ALSO")
	r.paragraph(strings.Join(pages, ", "))
}
