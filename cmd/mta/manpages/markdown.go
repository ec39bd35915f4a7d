package manpages

import (
	"fmt"
	"regexp"
	"strings"
)

// section cuts a section of a page of the documentation, without its heading: from the heading to the next
// of the same level.
func section(page, heading string) (string, error) {
	level, _, _ := strings.Cut(heading, " ")
	_, text, ok := strings.Cut("\n"+page, "\n"+heading+"\n")
	if !ok {
		return "", fmt.Errorf("the documentation has no section %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n"+level+" ")
	return text, nil
}

// markdown writes a page of the documentation, whose Markdown is simple: headings, paragraphs, lists with
// an item on a line, fenced examples, tables.
type markdown struct {
	*roff
	heading string // the last one
	// table writes a table by its rows, the first of which are the titles.
	table func(heading string, rows [][]string) error
}

func (m *markdown) write(text string) error {
	lines := strings.Split(text, "\n")
	for len(lines) > 0 {
		n := 1
		switch l := lines[0]; {
		case strings.HasPrefix(l, "```"):
			for n < len(lines) && !strings.HasPrefix(lines[n], "```") {
				n++
			}
			m.literal(lines[1:n])
			n++
		case strings.HasPrefix(l, "#"):
			_, m.heading, _ = strings.Cut(l, " ")
			if strings.HasPrefix(l, "### ") {
				m.subsection(m.heading)
			} else {
				m.section(m.heading)
			}
		case strings.HasPrefix(l, "|"):
			n = together(lines, func(l string) bool { return strings.HasPrefix(l, "|") })
			if err := m.table(m.heading, tableRows(lines[:n])); err != nil {
				return err
			}
		case strings.HasPrefix(l, "<!--"):
		case strings.HasPrefix(l, "- "):
			m.bullet(inline(l[2:]))
		case l != "":
			n = together(lines, isText)
			for i, l := range lines[:n] {
				if i == 0 {
					m.paragraph(inline(l))
				} else {
					m.line(inline(l))
				}
			}
		}
		lines = lines[min(n, len(lines)):]
	}
	return nil
}

// together counts the lines at the beginning that belong together, one at least.
func together(lines []string, belongs func(string) bool) int {
	n := 1
	for n < len(lines) && belongs(lines[n]) {
		n++
	}
	return n
}

func isText(line string) bool {
	return line != "" && !strings.HasPrefix(line, "```") && !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "- ") && !strings.HasPrefix(line, "#")
}

// cellEnd ends a cell: a bar, with no backslash before it.
var cellEnd = regexp.MustCompile(`(^|[^\\])\|`)

// tableRows splits a table into its cells, without the line below the titles.
func tableRows(lines []string) [][]string {
	var rows [][]string
	for i, l := range lines {
		if i == 1 {
			continue
		}
		l = cellEnd.ReplaceAllString(strings.Trim(strings.TrimSpace(l), "|"), "$1\x00")
		cells := strings.Split(l, "\x00")
		for i := range cells {
			cells[i] = strings.ReplaceAll(strings.TrimSpace(cells[i]), `\|`, "|")
		}
		rows = append(rows, cells)
	}
	return rows
}

// definitions writes a table as a list: the first column defined by the others, whose titles are named when
// there are several.
func definitions(r *roff, rows [][]string) {
	titles := rows[0]
	for _, row := range rows[1:] {
		var rest []string
		for i := 1; i < len(row); i++ {
			text := inline(row[i])
			if text == "" {
				continue
			}
			if len(titles) > 2 && titles[i] != "" {
				text = inline(titles[i]) + ": " + text
			}
			rest = append(rest, text)
		}
		r.term(inline(row[0]), rest...)
	}
}
