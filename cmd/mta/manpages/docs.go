package manpages

import (
	"io/fs"
	"regexp"
	"strings"
)

// blockName is the name of a block in a heading of configuration.md.
var blockName = regexp.MustCompile("^`([\\w.]+)")

// blockOf gives the block that a heading of configuration.md is about; "" is the top of the file.
func blockOf(heading string) string {
	if m := blockName.FindStringSubmatch(heading); m != nil {
		return m[1]
	}
	return ""
}

// withoutTitle removes the first heading of a page.
func withoutTitle(page []byte) string {
	_, text, _ := strings.Cut(string(page), "\n")
	return text
}

// programs are the tables of cli.md that have a section of their own in manual pages.
var programs = map[string]string{"option": "OPTIONS", "exit code": "EXIT STATUS"}

// fromCLI writes a section of cli.md about a program that has a page of its own.
func (m *Manual) fromCLI(r *roff, heading string) error {
	page, err := fs.ReadFile(m.Docs, "cli.md")
	if err != nil {
		return err
	}
	text, err := section(string(page), heading)
	if err != nil {
		return err
	}
	md := &markdown{roff: r, table: func(_ string, rows [][]string) error {
		if title, ok := programs[rows[0][0]]; ok {
			r.section(title)
		}
		definitions(r, rows)
		return nil
	}}
	return md.write(text)
}

func (m *Manual) sendmail() (Page, error) {
	p := Page{Name: "sendmail", Section: 1}
	r := m.page(p.Name, p.Section, "submit a message to the mail relay mta")
	r.section("SYNOPSIS")
	r.paragraph(bold("sendmail") + ` [\fB\-t\fR] [\fB\-i\fR] [\fB\-f\fR \fIsender\fR] [\fB\-F\fR \fIname\fR] [\fB\-N\fR \fIdsn\fR] [\fB\-R\fR \fIreturn\fR] [\fB\-V\fR \fIenvid\fR] [\fIrecipient\fR...]`)
	r.paragraph(bold("sendmail") + ` \fB\-bs\fR | \fB\-bp\fR | \fB\-bi\fR | \fB\-q\fR`)
	r.section("DESCRIPTION")
	err := m.fromCLI(r, "## sendmail")
	seeAlso(r, reference("mailq", 1), reference("newaliases", 1), reference("mta-sendmail", 1))
	p.Text = []byte(r.text.String())
	return p, err
}

func (m *Manual) mailq() (Page, error) {
	p := Page{Name: "mailq", Section: 1}
	r := m.page(p.Name, p.Section, "list the queue of the mail relay mta")
	r.section("SYNOPSIS")
	r.paragraph(bold("mailq") + ` [\fB\-\-config\fR \fIfile\fR] [\fB\-\-socket\fR \fIsocket\fR]`)
	r.section("DESCRIPTION")
	err := m.fromCLI(r, "## mailq")
	seeAlso(r, reference("sendmail", 1), reference("mta-mailq", 1), reference("mta-queue-list", 1))
	p.Text = []byte(r.text.String())
	return p, err
}

func (m *Manual) newaliases() (Page, error) {
	p := Page{Name: "newaliases", Section: 1}
	r := m.page(p.Name, p.Section, "no effect: the mail relay mta has no aliases")
	r.section("SYNOPSIS")
	r.paragraph(bold("newaliases"))
	r.section("DESCRIPTION")
	r.paragraph("The relay has no aliases, so there is no database to build. The program exists for scripts that call it; it prints a remark and ends with exit code 0.")
	seeAlso(r, reference("sendmail", 1))
	p.Text = []byte(r.text.String())
	return p, nil
}

func seeAlso(r *roff, more ...string) {
	r.section("SEE ALSO")
	r.paragraph(reference("mta", 1) + ", " + strings.Join(more, ", ") + ", " + reference("mta.conf", 5))
	r.paragraph("The pages that are named like " + bold("submission.md") + " are in the documentation of mta.")
}
