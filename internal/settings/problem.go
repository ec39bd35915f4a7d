package settings

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
)

// Problem is one thing that is wrong with a file, and where.
type Problem struct {
	File         string
	Line, Column int    // from 1; 0 when it is about the file as a whole
	Message      string // what is wrong
	Hint         string // what to do, "" when the message says it

	excerpt string // the line of the file, "" when there is none to show
	caret   string // what goes below it
}

// String gives the problem as it is shown to people: place, message, the line with a caret, the
// hint.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
	}
	fmt.Fprintf(&b, ": %s\n", p.Message)
	if p.excerpt != "" {
		fmt.Fprintf(&b, "%5d | %s\n", p.Line, p.excerpt)
	}
	if p.caret != "" {
		fmt.Fprintf(&b, "      | %s\n", p.caret)
	}
	if p.Hint != "" {
		fmt.Fprintf(&b, "      %s\n", p.Hint)
	}
	return b.String()
}

// Problems is all that is wrong with a file, in the order of the file.
type Problems []Problem

// Error gives all problems as they are shown to people, on several lines.
func (ps Problems) Error() string {
	parts := make([]string, len(ps))
	for i, p := range ps {
		parts[i] = p.String()
	}
	return strings.TrimSuffix(strings.Join(parts, "\n"), "\n")
}

// Collector gathers problems with a text.
type Collector struct {
	// Warnings are sentences, each with its place, about what was read and should be written otherwise.
	Warnings []string

	src   []byte
	found Problems
}

// About adds a problem with a setting of b, unless its value was invalid by itself.
func (c *Collector) About(b *Block, setting, hint, format string, args ...any) {
	if !b.Failed(setting) {
		c.Add(b.Where(setting), hint, format, args...)
	}
}

// Add adds a problem and, unless hint is "", what to do about it.
func (c *Collector) Add(at hcl.Range, hint, format string, args ...any) {
	p := Problem{File: at.Filename, Line: at.Start.Line, Column: at.Start.Column,
		Message: fmt.Sprintf(format, args...), Hint: hint}
	p.excerpt, p.caret = excerpt(c.src, at)
	c.found = append(c.found, p)
}

// mostProblems is how many are reported at once; more are of no help.
const mostProblems = 50

// Err gives the problems in the order of the file, as Problems; nil when there are none.
func (c *Collector) Err() error {
	if len(c.found) == 0 {
		return nil
	}
	slices.SortStableFunc(c.found, func(a, b Problem) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	if more := len(c.found) - mostProblems; more > 0 {
		file := c.found[0].File
		c.found = append(c.found[:mostProblems:mostProblems],
			Problem{File: file, Message: fmt.Sprintf("and %d more problems", more)})
	}
	return c.found
}

// longestExcerpt keeps a line of any length from flooding a terminal or a log.
const longestExcerpt = 160

// excerpt gives the line on which at begins, and a line that points at it.
func excerpt(src []byte, at hcl.Range) (line, caret string) {
	start := at.Start.Byte
	if at.Start.Line < 1 || start < 0 || start > len(src) {
		return "", ""
	}
	first := bytes.LastIndexByte(src[:start], '\n') + 1
	last := len(src)
	if i := bytes.IndexByte(src[start:], '\n'); i >= 0 {
		last = start + i
	}
	line = strings.TrimRight(string(src[first:min(last, first+longestExcerpt+2)]), "\r")
	if len(line) > longestExcerpt || !utf8.ValidString(line) || strings.TrimSpace(line) == "" {
		return "", ""
	}
	if safe := hideSecret(line); safe != line {
		return printable(safe), ""
	}
	before := min(start-first, len(line))
	end := min(max(at.End.Byte-first, before), len(line))
	return printable(line), blank(line[:before]) + strings.Repeat("^", max(1, utf8.RuneCountInString(line[before:end])))
}

// hideSecret cuts off the value of what looks like a secret. It works on the text, since the
// line may be in a file that can't be parsed.
func hideSecret(line string) string {
	lower := strings.ToLower(line)
	secret := strings.Contains(lower, "password") || strings.Contains(lower, "secret") ||
		strings.Contains(lower, "private_key") ||
		strings.Contains(lower, "authorization") || strings.Contains(lower, "headers") && strings.Contains(line, ":") ||
		strings.Contains(line, "://") && strings.Contains(line, "@")
	if !secret {
		return line
	}
	if eq := strings.IndexByte(line, '='); eq >= 0 {
		return line[:eq+1] + " ..."
	}
	return ""
}

// blank gives what is as wide as s and shows nothing.
func blank(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, s)
}

// printable keeps control characters away from the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && (r < ' ' || r == 0x7f) {
			return '?'
		}
		return r
	}, s)
}
