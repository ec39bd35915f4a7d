// Package manpages writes the manual pages: mta(1) and a page for each command from the commands themselves,
// mta.conf(5), sendmail(1), mailq(1) and newaliases(1) from the documentation. Only builds with the tag "man" have it.
package manpages

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// Manual is the source of the pages.
type Manual struct {
	Root    *cobra.Command
	Docs    fs.FS // the folder docs
	Version string
	Date    time.Time // of the version
}

// page is a page that comes from the documentation.
type page struct {
	name    string
	section int
	title   string
	file    string // of the documentation
	heading string // of the section in it; "" for the whole file
}

var pages = []page{
	{"mta.conf", 5, "configuration of the mail relay mta", "configuration.md", ""},
	{"sendmail", 1, "submit a message to the mail relay mta", "cli.md", "sendmail"},
	{"mailq", 1, "list the queue of the mail relay mta", "cli.md", "mailq"},
	{"newaliases", 1, "no effect: the mail relay mta has no aliases", "cli.md", "sendmail"},
}

// Write writes all pages into man1 and man5 of a directory. It fails if the documentation lacks a section.
func (m *Manual) Write(dir string) error {
	for _, section := range []string{"man1", "man5"} {
		if err := os.MkdirAll(filepath.Join(dir, section), 0o755); err != nil {
			return err
		}
	}
	m.Root.DisableAutoGenTag = true
	header := &doc.GenManHeader{Section: "1", Date: &m.Date, Source: "mta " + m.Version, Manual: "User Commands"}
	if err := doc.GenManTree(m.Root, header, filepath.Join(dir, "man1")); err != nil {
		return err
	}
	for _, p := range pages {
		text, err := m.render(p)
		if err == nil {
			file := fmt.Sprintf("man%d/%s.%d", p.section, p.name, p.section)
			err = os.WriteFile(filepath.Join(dir, file), text, 0o644)
		}
		if err != nil {
			return fmt.Errorf("%s(%d): %w", p.name, p.section, err)
		}
	}
	return nil
}

func (m *Manual) render(p page) ([]byte, error) {
	file, err := fs.ReadFile(m.Docs, p.file)
	if err != nil {
		return nil, err
	}
	_, text, found := strings.Cut(string(file), "\n") // without the title
	if p.heading != "" {
		_, text, found = strings.Cut("\n"+string(file), "\n## "+p.heading+"\n")
		text, _, _ = strings.Cut(text, "\n## ")
	}
	if !found {
		return nil, fmt.Errorf("%s lacks the section %q", p.file, p.heading)
	}
	head := fmt.Sprintf("%% %q %q %q %q %q\n# NAME\n%s - %s\n\n# DESCRIPTION\n",
		p.name, fmt.Sprint(p.section), m.Date.Format("January 2006"), "mta "+m.Version, "mta", p.name, p.title)
	return md2man.Render([]byte(head + definitions(link.ReplaceAllString(text, "$1")))), nil
}

// link matches links within the documentation; their targets are in no manual page.
var link = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

var table = regexp.MustCompile(`(?m)(^\|.*\n)+`)

// definitions turns tables, which are wider than a terminal, into lists of definitions.
func definitions(text string) string {
	return table.ReplaceAllStringFunc(text, func(t string) string {
		var out strings.Builder
		// without the names of the columns, and the rule
		for _, row := range strings.Split(strings.TrimSpace(t), "\n")[2:] {
			var cells []string
			for _, cell := range strings.Split(row, "|") {
				if cell = strings.TrimSpace(cell); cell != "" {
					cells = append(cells, cell)
				}
			}
			fmt.Fprintf(&out, "\n%s\n:   %s\n", cells[0], strings.Join(cells[1:], "; "))
		}
		return out.String()
	})
}
