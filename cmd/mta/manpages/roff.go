package manpages

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// roff writes a page in the macros of man(7).
type roff struct {
	text strings.Builder
	head bool // a heading came last: a paragraph begins without a macro
}

// title begins the page. Volume is the name of the section of the manual.
func (r *roff) title(name string, section int, date time.Time, source, volume string) {
	fmt.Fprintf(&r.text, ".TH %s %d %s %s %s\n", argument(name), section, date.UTC().Format(time.DateOnly), argument(source), argument(volume))
}

// section and subsection take headings in Markdown.
func (r *roff) section(heading string)    { r.heading(".SH", heading) }
func (r *roff) subsection(heading string) { r.heading(".SS", heading) }

func (r *roff) heading(macro, heading string) {
	fmt.Fprintf(&r.text, "%s %s\n", macro, argument(strings.NewReplacer("`", "", "**", "").Replace(heading)))
	r.head = true
}

// paragraph takes text that is roff already, like all below.
func (r *roff) paragraph(text string) {
	if !r.head {
		r.text.WriteString(".PP\n")
	}
	r.line(text)
}

// line writes a line of text.
func (r *roff) line(text string) {
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	r.text.WriteString(text + "\n")
	r.head = false
}

// literal shows lines as they are, indented.
func (r *roff) literal(lines []string) {
	if !r.head {
		r.text.WriteString(".PP\n")
	}
	r.text.WriteString(".RS 4\n.nf\n")
	for _, l := range lines {
		r.line(escape(l))
	}
	r.text.WriteString(".fi\n.RE\n")
}

// term writes an entry of a list of definitions.
func (r *roff) term(term string, definitions ...string) {
	r.text.WriteString(".TP\n")
	r.line(term)
	for i, d := range definitions {
		if i > 0 {
			r.text.WriteString(".br\n")
		}
		r.line(d)
	}
}

// bullet writes an entry of a list.
func (r *roff) bullet(text string) {
	r.text.WriteString(".IP \\(bu 2\n")
	r.line(text)
}

var special = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "~", `\(ti`, "^", `\(ha`, `"`, `\(dq`, "\t", "        ")

// escape makes plain text roff. Characters beyond ASCII are named, so that every terminal gets the nearest
// that it has.
func escape(text string) string {
	text = special.Replace(text)
	var out strings.Builder
	for _, c := range text {
		if c < utf8.RuneSelf {
			out.WriteRune(c)
		} else {
			fmt.Fprintf(&out, `\[u%04X]`, c)
		}
	}
	return out.String()
}

func argument(text string) string { return `"` + escape(text) + `"` }

func bold(text string) string   { return `\fB` + escape(text) + `\fR` }
func italic(text string) string { return `\fI` + escape(text) + `\fR` }

// span is what Markdown marks within a paragraph: code, a link, bold or italic text, an escaped character.
var span = regexp.MustCompile("``(.+?)``|`([^`]+)`|\\[((?:[^\\[\\]]|`[^`]*`)+)\\]\\(([^()]*)\\)|\\*\\*(.+?)\\*\\*|\\*([^*\\s][^*]*)\\*|\\\\([\\\\`*_|<>\\[\\]{}()#+.!-])")

// inline makes a paragraph of Markdown roff. Of links within the documentation, the text remains.
func inline(text string) string {
	var out strings.Builder
	at := 0
	for _, m := range span.FindAllStringSubmatchIndex(text, -1) {
		group := func(i int) string {
			if m[2*i] < 0 {
				return ""
			}
			return text[m[2*i]:m[2*i+1]]
		}
		out.WriteString(escape(text[at:m[0]]))
		at = m[1]
		switch {
		case group(1) != "":
			out.WriteString(bold(strings.TrimSpace(group(1))))
		case group(2) != "":
			out.WriteString(bold(group(2)))
		case group(3) != "":
			out.WriteString(inline(group(3)))
			if url := group(4); strings.Contains(url, "://") {
				out.WriteString(" (" + escape(url) + ")")
			}
		case group(5) != "":
			out.WriteString(`\fB` + strings.ReplaceAll(inline(group(5)), `\fR`, `\fB`) + `\fR`)
		case group(6) != "":
			out.WriteString(`\fI` + strings.ReplaceAll(inline(group(6)), `\fR`, `\fI`) + `\fR`)
		default:
			out.WriteString(escape(group(7)))
		}
	}
	out.WriteString(escape(text[at:]))
	return out.String()
}
