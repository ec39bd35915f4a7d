// Package manpages makes the manual pages: mta(1) and a page for each command from the commands themselves,
// mta.conf(5) from the schema of the configuration, sendmail(1), mailq(1) and newaliases(1) from the
// documentation. The program has it only when it is built with the tag "man".
package manpages

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/mta/config"
)

// Manual is what the pages are made of.
type Manual struct {
	Root    *cobra.Command
	Docs    fs.FS // the folder docs
	Version string
	Date    time.Time // of the version
}

// Page is a manual page.
type Page struct {
	Name    string
	Section int
	Text    []byte
}

// File is the name of the page's file.
func (p Page) File() string { return fmt.Sprintf("%s.%d", p.Name, p.Section) }

// Pages makes all pages. An error says what the documentation lacks.
func (m *Manual) Pages() ([]Page, error) {
	pages := m.commands(m.Root)
	for _, make := range []func() (Page, error){m.settings, m.sendmail, m.mailq, m.newaliases} {
		p, err := make()
		if err != nil {
			return nil, fmt.Errorf("making %s: %w", p.File(), err)
		}
		pages = append(pages, p)
	}
	return pages, nil
}

// page begins a page.
func (m *Manual) page(name string, section int, short string) *roff {
	volume := "User Commands"
	if section == 5 {
		volume = "File Formats"
	}
	r := &roff{}
	r.title(name, section, m.Date, "mta "+m.Version, volume)
	r.section("NAME")
	r.paragraph(escape(name) + ` \- ` + escape(short))
	return r
}

// settings makes mta.conf(5): the page of the documentation, with the settings, their values and defaults
// from the schema.
func (m *Manual) settings() (Page, error) {
	p := Page{Name: "mta.conf", Section: 5}
	page, err := fs.ReadFile(m.Docs, "configuration.md")
	if err != nil {
		return p, err
	}
	r := m.page(p.Name, p.Section, "configuration of the mail relay mta")
	r.section("DESCRIPTION")
	schema := config.Reference()
	md := &markdown{roff: r, table: func(heading string, rows [][]string) error {
		if rows[0][0] != "setting" {
			definitions(r, rows)
			return nil
		}
		block := blockOf(heading)
		b, ok := schema[block]
		if !ok {
			return fmt.Errorf("configuration.md has a block %q twice, or one that does not exist", block)
		}
		delete(schema, block)
		return settingsOf(r, b, rows[1:])
	}}
	if err := md.write(strings.Replace(withoutTitle(page), "marked **R** below", "below whose changes need a restart", 1)); err != nil {
		return p, err
	}
	for name, b := range schema {
		if len(b.Settings) > 0 {
			return p, fmt.Errorf("configuration.md lacks the block %q", name)
		}
	}
	r.section("FILES")
	r.term(bold("/etc/mta/mta.conf"), "the configuration of packaged relays")
	r.section("SEE ALSO")
	r.paragraph(reference("mta", 1) + ", " + reference("mta-check", 1) + ", " + reference("mta-config", 1))
	r.paragraph("The pages that are named like " + bold("submission.md") + " are in the documentation of mta.")
	p.Text = []byte(r.text.String())
	return p, nil
}

// settingsOf writes the settings of a block: their values and defaults from the schema, their descriptions
// from the documentation, which has name, default, a mark and the description in a row.
func settingsOf(r *roff, b config.BlockReference, rows [][]string) error {
	for _, s := range b.Settings {
		at := slices.IndexFunc(rows, func(row []string) bool { return row[0] == "`"+s.Name+"`" })
		if at < 0 || len(rows[at]) != 4 {
			return fmt.Errorf("configuration.md lacks the setting %s of the block %q", s.Name, b.Name)
		}
		term := bold(s.Name)
		if s.Default != "" {
			term = bold(s.Name + " = " + s.Default)
		}
		facts := escape(s.Kind)
		if s.Default == "" {
			facts += "; default: " + inline(rows[at][1])
		}
		if s.Restart {
			facts += "; changes need a restart"
		}
		if description := inline(rows[at][3]); description != "" {
			r.term(term, "("+facts+")", description)
		} else {
			r.term(term, "("+facts+")")
		}
	}
	return nil
}
